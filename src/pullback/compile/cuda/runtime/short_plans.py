"""Plans of a few launches, issued one by one: their parameters lie in memory, and only addresses that move are written.

Eager loops call small programs at many addresses, where a graph would have to be made or changed; only addresses that
come again and again are worth one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...loop_ir import Buffer
from ..launch_plan import Action, Launch
from .addresses import Addresses
from .driver import Driver, Parameters

#: So many launches at most are prepared.
MAX_PREPARED = 16


class _Prepared(NamedTuple):
    """A launch: what launches it, its parameters, and which of them are addresses of arguments or results: the place,
    the number of the address, and the bytes that it is moved by.
    """

    launch: Callable[[int, int], None]
    parameters: Parameters
    moving: list[tuple[int, int, int]]


def find_short_plan(actions: Sequence[Action]) -> list[Launch] | None:
    """The launches of a plan if these are all it has, and few."""
    launches = [action for action in actions if isinstance(action, Launch)]
    return launches if 0 < len(launches) == len(actions) <= MAX_PREPARED else None


class PreparedLaunches:
    """Launches on one stream, at any addresses of `buffers`, which are arguments and results."""

    def __init__(
        self,
        driver: Driver,
        function_of: Callable[[Launch], object],
        launches: Sequence[Launch],
        buffers: Sequence[Buffer],
        at: Addresses,
    ) -> None:
        numbers = {buffer: i for i, buffer in enumerate(buffers)}
        self._prepared = []
        for x in launches:
            given = [at.of(b) + by * b.dtype.itemsize for b, by in zip(x.buffers, x.shifts, strict=True)]
            moving = [
                (place, numbers[b], by * b.dtype.itemsize)
                for place, (b, by) in enumerate(zip(x.buffers, x.shifts, strict=True))
                if b in numbers
            ]
            launch = driver.prepare_launch(function_of(x), (*x.grid, *x.block, x.shared_bytes))
            self._prepared.append(_Prepared(launch, Parameters(given), moving))

    def issue(self, addresses: Sequence[int], stream: int) -> None:
        for launch, parameters, moving in self._prepared:
            values = parameters.values
            for place, number, by in moving:
                values[place] = addresses[number] + by
            launch(stream, parameters.address)
