"""The clocks of ranks aligned by meetings, and the events of all ranks brought together.

In a meeting no rank leaves before every rank has come. Let rank r come at a_r and leave at b_r by its own clock, and
let rank 0's clock show o_r more than r's. Rank 0 leaves after r came: b_0 >= a_r + o_r; and r leaves after rank 0 came:
b_r + o_r >= a_0. So a_0 - b_r <= o_r <= b_0 - a_r; many meetings leave a short interval, whose middle is taken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...arrays.timing import clock
from ...ops.collective.exchange import Concatenation
from ...ops.collective.records import meet
from ...ops.collective.world import current_world
from .events import Event

_MEETINGS = 32


@dataclass(frozen=True, slots=True)
class RankClock:
    """A rank: what its clock lacks against that of rank 0, known to so many nanoseconds; its seconds profiled, and when
    its profile started.
    """

    rank: int
    offset: int
    uncertainty: int
    seconds: float
    started: int


def estimate_offsets(came: Any, left: Any) -> list[tuple[int, int]]:
    """For each rank what to add to its clock and how well that is known, from arrays (meetings, ranks) of times.

    >>> estimate_offsets(np.array([[0, 1000], [100, 1090]]), np.array([[20, 1030], [120, 1115]]))
    [(0, 0), (-998, 18)]
    """
    low = (came[:, :1] - left).max(axis=0)
    high = (left[:, :1] - came).min(axis=0)
    low[0] = high[0] = 0
    return [(int(a + b) // 2, int(b - a + 1) // 2) for a, b in zip(low, high, strict=True)]


def measure_offsets() -> list[tuple[int, int]]:
    """The offsets of all ranks; a collective."""
    ranks = current_world().size
    times = np.zeros((_MEETINGS, 2), np.int64)
    for i in range(_MEETINGS):
        times[i, 0] = clock()
        meet(np, "clocks of a profile", np.zeros(1), ranks, Concatenation(0))
        times[i, 1] = clock()
    every = meet(np, "clocks of a profile", times[None], ranks, Concatenation(0))
    return estimate_offsets(every[:, :, 0].T, every[:, :, 1].T)


def gather_events(events: Sequence[Event], mine: RankClock) -> tuple[list[Event], list[RankClock]]:
    """The events of all ranks by rank 0's clock, which starts when the first rank's profile did."""
    world = current_world()
    if world.size == 1:
        return list(events), [mine]
    offsets = measure_offsets()
    parts = _gather_texts(json.dumps([mine.started, mine.seconds, [_pack(e) for e in events]]))
    found = [json.loads(part) for part in parts]
    starts = [began + offset for (began, *_), (offset, _) in zip(found, offsets, strict=True)]
    every: list[Event] = []
    for rank, (_, _, packed) in enumerate(found):
        every += _shift(packed, rank, starts[rank] - min(starts), len(every))
    ranks = [RankClock(r, *offsets[r], found[r][1], starts[r]) for r in range(world.size)]
    return every, ranks


def _shift(packed: list[list[Any]], rank: int, by: int, first: int) -> list[Event]:
    made = [Event(*row) for row in packed]
    return [
        replace(e, rank=rank, start=e.start + by, end=e.end + by, parent=e.parent + first if e.parent >= 0 else -1)
        for e in made
    ]


def _pack(event: Event) -> list[Any]:
    return [getattr(event, f.name) for f in fields(Event)]


def _gather_texts(text: str) -> list[str]:
    """The texts of all ranks."""
    ranks, data = current_world().size, np.frombuffer(text.encode(), np.uint8)
    sizes = meet(np, "sizes of profiles", np.array([len(data)], np.int64), ranks, Concatenation(0))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(data)] = data
    rows = meet(np, "profiles", padded, ranks, Concatenation(0)).reshape(ranks, -1)
    return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]
