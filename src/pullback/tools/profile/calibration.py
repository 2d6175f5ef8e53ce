"""What a profile costs: the time that an event takes to write, measured on this machine in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.timing import clock
from ...ops.elementwise.pointwise import negative
from ...settings import override_modes
from .recorder import OpTimer, StepTimer, new_log

_CALLS, _REPEATS = 200, 7


@functools.cache
def event_cost(is_alone: bool) -> float:
    """Seconds that a profile adds to an op: on its fast path, or beside another instrument."""
    x = wrap(np.ones(1), spec_of(np.ones(1)))
    with override_modes(instruments=None):
        before = _best_time(x)
        log = new_log(1000)
        others = () if is_alone else (StepTimer(log),)
        with override_modes(*others):
            if not is_alone:
                before = _best_time(x)
            with override_modes(OpTimer(log)):
                after = _best_time(x)
    return max(after - before, 0.0)


def _best_time(x: Tensor) -> float:
    return min(_time_calls(negative, x) for _ in range(_REPEATS))


def _time_calls(function: Callable[[Any], Any], x: Any) -> float:
    start = clock()
    for _ in range(_CALLS):
        function(x)
    return (clock() - start) * 1e-9 / _CALLS
