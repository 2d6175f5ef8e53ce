"""A world without other ranks, in which a codec is timed apart from its communication."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ...ops.collective.exchange import Exchange, Sum
from ...ops.collective.world import Call, World


class Meeting(NamedTuple):
    """A collective that took place: what was exchanged, dtypes and shapes of the arrays, when it began and ended."""

    exchange: Exchange
    specs: tuple[tuple[str, tuple[int, ...]], ...]
    begin: float
    end: float

    @property
    def sent_bytes(self) -> int:
        """The bytes that this rank brought."""
        return sum(int(np.dtype(dtype).itemsize * np.prod(shape, dtype=int)) for dtype, shape in self.specs)


class Rehearsal(World):
    """A world of some ranks, of which all bring what this one does; it notes its meetings."""

    rank, local_rank, timeout = 0, 0, 60.0

    def __init__(self, ranks: int) -> None:
        self.size = self.local_size = ranks
        self.meetings: list[Meeting] = []

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        synchronize(xp)
        begin = perf_counter()
        found = [self._join(xp, x, exchange) for x in arrays]
        synchronize(xp)
        specs = tuple([(x.dtype.name, x.shape) for x in arrays])
        self.meetings.append(Meeting(exchange, specs, begin, perf_counter()))
        return found

    def _join(self, xp: Any, x: Any, exchange: Exchange) -> Any:
        if isinstance(exchange, Sum):  # what it sums to does not matter, and adding would empty the caches
            return x.copy()
        return exchange.join(xp, [exchange.part(x, r, 0) for r in range(self.size)], x)


def synchronize(xp: Any) -> None:
    """Wait until a GPU has done what it was given."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()
