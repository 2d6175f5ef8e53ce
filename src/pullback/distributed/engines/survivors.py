"""Which ranks of a machine are left, as all of them see it: agreed on in the memory they share, without MPI.

Whether a process is gone is a fact that each rank finds for itself, and that stays one. The lowest rank that is left
waits until every other has come or is gone, and writes down who came. If it dies before that, which is seen, the next
one does it; so there is one list, and all that came read it. Those on the list clear their slots and say so; once all
have, they are a world. If one dies in between, they agree once more.
"""

from __future__ import annotations

from typing import Any

from ...errors import CollectiveTimeoutError, WorldError
from ...ops.collective.world import name_ranks
from .peers import ENDED, RAISED, wait_until
from .shared_slots import SharedSlots

#: The words behind a slot: the last round that a rank came to, joined the others of, and wrote a list for.
_CAME, _JOINED, _LISTED, _WORDS = 0, 1, 2, 3


class Survivors:
    """The agreement of the ranks that are left, as seen by one of them."""

    def __init__(self, slots: SharedSlots, timeout: float) -> None:
        self._slots, self._timeout = slots, timeout
        self._words: list[Any] = [tail[: 8 * _WORDS].cast("q") for tail in slots.tails]
        self._lists: list[Any] = [tail[8 * _WORDS :] for tail in slots.tails]
        self._mine = self._words[slots.rank]
        if slots.size > 8 * len(self._lists[0]):
            raise WorldError(f"shrink: {slots.size} ranks of one machine are too many to agree in its memory.")

    def agree(self) -> list[int]:
        """The ranks that go on together. Their slots are cleared."""
        candidates = list(range(self._slots.size))
        while True:
            number = self._mine[_JOINED] + 1  # the same on all candidates, which have joined the same rounds
            self._mine[_CAME] = number
            members = self._list_members(number, candidates)
            self._slots.clear()
            self._slots.sync_memory()
            self._mine[_JOINED] = number
            if self._have_joined(number, members):
                return members
            candidates = members

    def _list_members(self, number: int, candidates: list[int]) -> list[int]:
        def is_listed() -> bool:
            self._write_list(number, candidates)
            return self._find_list(number, candidates) is not None

        def late() -> Exception:
            missing = [r for r in candidates if not self._came(r, number)]
            return self._late_error(missing)

        wait_until(is_listed, self._timeout, lambda: self._refuse(candidates), late)
        found = self._find_list(number, candidates)
        assert found is not None
        return found

    def _write_list(self, number: int, candidates: list[int]) -> None:
        """Write down who came, if that falls to this rank and all others have come or are gone."""
        rank = self._slots.rank
        for r in candidates:
            if not (self._slots.is_gone(r) if r < rank else self._came(r, number)):
                return
        if self._find_list(number, candidates) is not None:  # by one that is gone now
            return
        self._refuse(candidates)
        bits = bytearray(len(self._lists[rank]))
        for r in candidates:
            if not self._slots.is_gone(r):
                bits[r // 8] |= 1 << r % 8
        self._lists[rank][:] = bits
        self._slots.sync_memory()
        self._mine[_LISTED] = number

    def _find_list(self, number: int, candidates: list[int]) -> list[int] | None:
        for r in candidates:
            if self._words[r][_LISTED] == number:
                self._slots.sync_memory()
                bits = bytes(self._lists[r])
                return [m for m in candidates if bits[m // 8] >> m % 8 & 1]
        return None

    def _came(self, rank: int, number: int) -> bool:
        """Whether a rank came to a round, or never will."""
        return self._words[rank][_CAME] >= number or self._slots.is_gone(rank)

    def _refuse(self, candidates: list[int]) -> None:
        """A rank that ended, or raised an error of its own, is not lost: what it met awaits the others too."""
        states = self._slots.states()
        for r in candidates:
            state, text = states[r]
            if state == RAISED:
                raise WorldError(f"shrink: rank {r} was not lost, it raised {text}")
            if state == ENDED:
                raise WorldError(f"shrink: rank {r} was not lost, it came to its end before the others.")

    def _have_joined(self, number: int, members: list[int]) -> bool:
        """Wait until all members have joined a round; False if one is gone that has not, which all of them see."""

        def open_members() -> list[int]:
            return [r for r in members if self._words[r][_JOINED] < number]

        def is_decided() -> bool:
            gone = [r for r in open_members() if self._slots.is_gone(r)]
            return any(self._words[r][_JOINED] < number for r in gone) or not open_members()

        wait_until(is_decided, self._timeout, lambda: None, lambda: self._late_error(open_members()))
        return not open_members()

    def _late_error(self, missing: list[int]) -> Exception:
        return CollectiveTimeoutError(
            f"shrink: {name_ranks(missing)} did not come to it within {self._timeout:g} s, and did not end either."
        )
