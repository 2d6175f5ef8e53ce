"""`measure`: how long sums of several sizes take on the ranks of this program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_count
from ..errors import ArgumentError
from ..ops.collective.collectives import all_gather, barrier, largest, total
from ..ops.collective.world import current_world
from .collective_law import Measurement
from .world_model import WorldModel

#: Bytes of results.
SIZES = tuple(1024 * 4**k for k in range(8))
_OPERATIONS: dict[str, Callable[[Any], Any]] = {"total": total, "all_gather": all_gather}
#: Repeats come in rounds over all sizes: a busy spell of the machine spoils a round, and not a size.
_ROUNDS = 5
#: Calls that do not count: they fault in memory and fill caches.
_WARM_UP = 2
#: Large arrays are sent less often: about as many bytes as this in a round, for each size.
_BYTES = 1 << 26


def measure(
    sizes: Sequence[int] = SIZES, *, operations: Sequence[str] = ("total", "all_gather"), repeats: int = 50
) -> WorldModel:
    """Time collectives of several sizes, in bytes, among all ranks of this program, and return the model of these
    times, the same on all ranks. All ranks call it. Each size is sent about `repeats` times, less often if it is large;
    what counts is the least of these, each as long as the slowest rank took.

    How times depend on the number of ranks shows in several runs: save each, and load all.

        distributed.init()
        distributed.measure().save(f"world-{distributed.world_size()}.json")

    after `pullback run -n 2`, `-n 4`, `-n 8`: `WorldModel.load("world-2.json", "world-4.json", "world-8.json")`. A
    single rank has nothing to measure.

    >>> import pullback as pb
    >>> models = pb.distributed.run(lambda: pb.distributed.measure([1024, 65536], repeats=5), 2)
    >>> [(m.ranks, m.bytes, m.operation, m.level) for m in models[0].measurements][-2:]
    [(2, 1024, 'total', 'threads'), (2, 65536, 'total', 'threads')]
    """
    repeats = check_count(repeats, "measure: repeats")
    sizes = [check_count(size, "measure: a size", 4) for size in sizes]
    if unknown := [o for o in operations if o not in _OPERATIONS]:
        raise ArgumentError(f"measure: the operations are {', '.join(_OPERATIONS)}; got {unknown[0]!r}.")
    world = current_world()
    empty = WorldModel((), os.cpu_count() or 0, world.runs_beside)
    if world.size == 1:
        return empty
    each = -(-repeats // _ROUNDS)
    rounds = [
        tuple(time_collective(o, size, max(min(each, _BYTES // size), 1)) for o in operations for size in sizes)
        for _ in range(_ROUNDS)
    ]
    return empty.merge(*(WorldModel(found) for found in rounds))


def time_collective(
    operation: str, size: int, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> Measurement:
    """The time of a collective whose result has so many bytes, or a few less."""
    world = current_world()
    run = _OPERATIONS[operation]
    shares = world.size if operation == "all_gather" else 1
    x = np.full(max(size // 4 // shares, 1), world.rank, np.float32)
    seconds = np.empty(_WARM_UP + repeats)
    for i in range(len(seconds)):
        barrier()
        start = clock()
        run(x)
        seconds[i] = clock() - start
    slowest = np.asarray(largest(seconds[_WARM_UP:]))
    least, median = max(float(slowest.min()), 1e-9), float(np.median(slowest))
    return Measurement(world.size, x.nbytes * shares, least, median, operation, world.level)
