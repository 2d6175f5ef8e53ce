"""Snapshots of a loop, in memory or on disk, and the ticket by which the backward pass finds them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..offload.disk import Disk

#: The ticket where there was no run before.
NO_TICKET = np.asarray(-1)


@dataclass(frozen=True)
class Tiers:
    """The most snapshots in memory, that of the start included, and the most on disk."""

    ram: int
    disk: int = 0
    directory: Any = None

    @property
    def count(self) -> int:
        return self.ram + self.disk


class Snapshot:
    """The state before a step, and the states of the random streams."""

    __slots__ = ("_leaves", "_loaders", "states", "step")

    def __init__(self, step: int, leaves: Sequence[Any], states: list[Any], disk: Disk | None) -> None:
        self.step, self.states = step, states
        self._loaders = None if disk is None else [disk.store(x) for x in leaves]
        self._leaves = tuple(leaves) if disk is None else ()

    @property
    def on_disk(self) -> bool:
        return self._loaders is not None

    def leaves(self) -> tuple[Any, ...]:
        """The arrays of the state."""
        return self._leaves if self._loaders is None else tuple([load() for load in self._loaders])


class SnapshotStore:
    """The snapshots of one run, by the step before which they were taken."""

    __slots__ = ("_disk", "_held", "_tiers")

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._held: dict[int, Snapshot] = {}
        self._disk = Disk(tiers.directory) if tiers.disk else None

    def put(self, step: int, leaves: Sequence[Any], states: list[Any], in_memory: bool) -> None:
        """Take a snapshot; in memory if `in_memory` and there is space, or if the disk is full."""
        # either tier may be full: then the other one takes it
        in_ram = sum(not s.on_disk for s in self._held.values())
        on_disk = len(self._held) - in_ram
        to_ram = in_ram < self._tiers.ram and (in_memory or on_disk >= self._tiers.disk)
        self._held[step] = Snapshot(step, leaves, states, None if to_ram else self._disk)

    def drop(self, step: int) -> None:
        del self._held[step]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def last(self) -> Snapshot:
        """The snapshot of the latest step."""
        return self._held[max(self._held)]


_runs: weakref.WeakValueDictionary[int, LoopRun] = weakref.WeakValueDictionary()
_run_numbers = itertools.count()


class LoopRun:
    """What one run of a loop saves for its backward pass: the shelf, the last state but one, and the number of steps.

    `ticket` returns an array with the number of the run; the array holds the run, so the snapshots live exactly as
    long as a node saves the ticket.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_number", "_parts")

    def __init__(self, shelf: SnapshotStore, current: Snapshot | None, steps: int) -> None:
        self._parts: tuple[SnapshotStore, Snapshot | None, int] | None = shelf, current, steps
        self._number = np.asarray(next(_run_numbers))
        self.__array_interface__ = self._number.__array_interface__

    def ticket(self) -> Any:
        _runs[int(self._number)] = self
        return np.asarray(self)

    def take_parts(self) -> tuple[SnapshotStore, Snapshot | None, int] | None:
        """The saved parts, once: the backward pass consumes them."""
        # snapshots are freed as the pass goes, so they serve one pass
        parts, self._parts = self._parts, None
        return parts


def take_run(ticket: Any) -> tuple[SnapshotStore, Snapshot | None, int] | None:
    """The saved parts of the run with this ticket, None if there are none or they were consumed. A batch has one."""
    # all elements of a batch come from one run
    run = _runs.get(int(ticket.reshape(-1)[0])) if ticket.size else None
    return None if run is None else run.take_parts()


def is_ticket(array: Any) -> bool:
    """Whether an array is a ticket, or a view of one."""
    if array.dtype != NO_TICKET.dtype:
        return False
    # views of a ticket lead to it by their bases
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, LoopRun)
