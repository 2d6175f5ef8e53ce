"""Times of calls: the best of many, of two calls in turns, so that a busy machine slows both down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...arrays.backends import is_device_array, namespace_of
from ...arrays.trees import flatten
from ...arrays.value import unwrap_array

Call = Callable[[], Any]


def time_once(call: Call) -> tuple[float, float]:
    """The seconds until a call returns, and until the device it computes on is done."""
    start = time.perf_counter()
    out = call()
    returned = time.perf_counter()
    return returned - start, _wait_for(out, returned) - start


def _wait_for(out: Any, returned: float) -> float:
    arrays = [x for x in map(unwrap_array, flatten(out)[0]) if is_device_array(x)]
    if not arrays:
        return returned
    namespace_of(arrays).cuda.get_current_stream().synchronize()
    return time.perf_counter()


def best_of(call: Call, seconds: float) -> tuple[float, float]:
    """The best times of a call, until it returns and until it is done, in about so many seconds."""
    call()
    found = [time_once(call) for _ in range(3)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found.append(time_once(call))
    return min(host for host, _ in found), min(done for _, done in found)


def compare_times(before: Call, after: Call, seconds: float) -> tuple[float, float]:
    """The best times of two calls, made in turns."""
    before(), after()
    pairs = [(time_once(before)[1], time_once(after)[1]) for _ in range(3)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pairs.append((time_once(before)[1], time_once(after)[1]))
    return min(first for first, _ in pairs), min(second for _, second in pairs)
