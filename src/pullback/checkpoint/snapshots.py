"""States of a loop in, snapshots in memory or on disk out, and the ticket by which the way back finds them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.backends import device_of, namespace_on
from .disk import Disk, Place

__all__ = ["NO_TICKET", "Run", "Shelf", "Tiers", "found_run", "is_ticket"]

#: What stands for a ticket where there was no run before.
NO_TICKET = np.asarray(-1)


@dataclass(frozen=True)
class Tiers:
    """How many snapshots there may be, that of the start included: so many in memory, and so many more on disk."""

    ram: int
    disk: int = 0
    directory: Any = None

    @property
    def count(self) -> int:
        return self.ram + self.disk


class Snapshot:
    """The state before a step, and where the random streams stood."""

    __slots__ = ("_leaves", "_places", "states", "step")

    def __init__(self, step: int, leaves: Sequence[Any], states: list[Any], disk: Disk | None) -> None:
        self.step, self.states = step, states
        self._leaves = tuple(leaves)
        self._places: list[tuple[Place, str]] = []
        if disk is not None:
            self._places = [_stored(x, disk) for x in leaves]
            self._leaves = ()

    @property
    def on_disk(self) -> bool:
        return bool(self._places)

    def leaves(self) -> tuple[Any, ...]:
        """The arrays of the state."""
        return tuple(_loaded(*kept) for kept in self._places) if self._places else self._leaves


def _stored(array: Any, disk: Disk) -> tuple[Place, str]:
    device = device_of(array)
    bare = array if device == "cpu" else array.get()
    place = disk.room(bare)
    place.write(bare)
    return place, device


def _loaded(place: Place, device: str) -> Any:
    array = place.read()
    return array if device == "cpu" else namespace_on(device).asarray(array)


class Shelf:
    """The snapshots of one run, by the step before which they were taken."""

    __slots__ = ("_disk", "_held", "_tiers")

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._held: dict[int, Snapshot] = {}
        self._disk = Disk(tiers.directory) if tiers.disk else None

    def put(self, step: int, leaves: Sequence[Any], states: list[Any], quick: bool) -> None:
        """Take a snapshot; in memory if it should be `quick` to reach and there is room, or if the disk is full."""
        in_ram = sum(not s.on_disk for s in self._held.values())
        on_disk = len(self._held) - in_ram
        to_ram = in_ram < self._tiers.ram and (quick or on_disk >= self._tiers.disk)
        self._held[step] = Snapshot(step, leaves, states, None if to_ram else self._disk)

    def drop(self, step: int) -> None:
        del self._held[step]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def last(self) -> Snapshot:
        """The one furthest on the way."""
        return self._held[max(self._held)]


_runs: weakref.WeakValueDictionary[int, Run] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class Run:
    """What one run of a loop leaves for its way back: the shelf, the last state but one, and the number of steps.

    `ticket` answers an array with the number of the run; the array holds the run, so what is left lives exactly as long
    as a node keeps the ticket.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_number", "_parts")

    def __init__(self, shelf: Shelf, current: Snapshot | None, steps: int) -> None:
        self._parts: tuple[Shelf, Snapshot | None, int] | None = shelf, current, steps
        self._number = np.asarray(next(_numbers))
        self.__array_interface__ = self._number.__array_interface__

    def ticket(self) -> Any:
        _runs[int(self._number)] = self
        return np.asarray(self)

    def take(self) -> tuple[Shelf, Snapshot | None, int] | None:
        """What is left, once: the way back uses it up."""
        parts, self._parts = self._parts, None
        return parts


def found_run(ticket: Any) -> tuple[Shelf, Snapshot | None, int] | None:
    """What the run with this ticket left, None if there is none or it was used up. A batch has one for all elements."""
    run = _runs.get(int(ticket.reshape(-1)[0])) if ticket.size else None
    return None if run is None else run.take()


def is_ticket(array: Any) -> bool:
    """Whether an array is a ticket, or a view of one."""
    if array.dtype != NO_TICKET.dtype:
        return False
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, Run)
