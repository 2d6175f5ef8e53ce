"""Words in memory that all ranks of a machine share: each rank has a slot that it writes and the others read.

A slot has, in words of eight bytes, the state of its rank, its process, questions of others and its answers, and for
each channel the number of the last meeting it came to, with what it came for (see `post`); behind these, texts.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .peers import ANSWER_SECONDS, DIED, RUNNING, STATES, Peers, describe_place, wait_until
from .processes import Processes

#: The words of a slot.
_STATE, _PROCESS, _ASKED, _ANSWERED, _TOLD, _LEFT, _CHANNELS = 0, 1, 2, 3, 4, 5, 8
#: The words of a channel, of which each begins a cache line of its own: the number, and digests of two meetings.
_POSTED, _DIGESTS, _CHANNEL_WORDS = 0, 1, 8
CHANNELS = 2
_WORDS = _CHANNELS + CHANNELS * _CHANNEL_WORDS
#: The texts of a slot: what became of the rank, what it called, where it is.
_TEXT_BYTES = 2048
_STATE_TEXT, _CALL_TEXT, _PLACE_TEXT = range(3)
_TEXTS = 3
#: Bytes of a slot.
SLOT_BYTES = 8192
#: Seconds between looks whether one asks where this rank is.
_LOOK_SECONDS = 0.02


class SharedSlots(Peers):
    """The slots of all ranks; `memories` are buffers of `SLOT_BYTES` bytes each, zero at first. `sync` makes what other
    processes wrote visible, on processors that need it.
    """

    def __init__(self, memories: Sequence[Any], rank: int, sync: Callable[[], None] | None = None) -> None:
        self.rank, self.size = rank, len(memories)
        self._memories = [memoryview(m).cast("B") for m in memories]
        self.words = [m[: 8 * _WORDS].cast("q") for m in self._memories]
        self._mine = self.words[rank]
        self._mine[_PROCESS] = os.getpid()
        self._sync = sync
        self.processes = Processes({})
        self._closed = threading.Event()
        #: What is said where others ask for this rank.
        self.place: Callable[[], str] = lambda: describe_place(threading.main_thread().ident or 0, 0)
        self._thread = threading.Thread(target=self._answer, name="roll call", daemon=True)
        self._thread.start()

    @property
    def tails(self) -> list[memoryview]:
        """What lies behind the words and texts of each slot, for `survivors`."""
        return [memory[8 * _WORDS + _TEXTS * _TEXT_BYTES : SLOT_BYTES] for memory in self._memories]

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a rank is known to be no more: what it has written by then is all there will be."""
        return rank in self.processes.find_gone()

    def clear(self) -> None:
        """Make this rank's slot as it was at first, before it meets others anew."""
        self._mine[_TOLD] = self._mine[_LEFT] = 0
        for word in range(_CHANNELS, _WORDS):
            self._mine[word] = 0
        self._mine[_STATE] = STATES.index(RUNNING)

    def sync_memory(self) -> None:
        """What was written before is seen before what is written after, and what is read after is not older."""
        if self._sync is not None:
            self._sync()

    def watch_processes(self) -> None:
        """From now on, notice when a process is gone; all ranks have started."""
        self.processes = Processes({r: w[_PROCESS] for r, w in enumerate(self.words) if r != self.rank})

    def post(self, channel: int, number: int, digest: int) -> None:
        """This rank has come to a meeting, and its arrays lie ready. Nobody is more than one meeting ahead of another,
        so two digests are enough.
        """
        at = _CHANNELS + channel * _CHANNEL_WORDS
        self._mine[at + _DIGESTS + (number & 1)] = digest
        if self._sync is not None:
            self._sync()
        self._mine[at + _POSTED] = number

    def all_posted(self, channel: int, number: int) -> bool:
        at = _CHANNELS + channel * _CHANNEL_WORDS + _POSTED
        for words in self.words:
            if words[at] < number:
                return False
        if self._sync is not None:
            self._sync()
        return True

    def all_agree(self, channel: int, number: int, digest: int) -> bool:
        """Whether all ranks came to a meeting for the same."""
        at = _CHANNELS + channel * _CHANNEL_WORDS + _DIGESTS + (number & 1)
        for words in self.words:  # noqa: SIM110
            if words[at] != digest:
                return False
        return True

    def announce(self, state: str, text: str) -> None:
        self._write_text(_STATE_TEXT, text)
        self._publish(_STATE, STATES.index(state))

    def states(self) -> list[tuple[str, str]]:
        gone = self.processes.find_gone()  # before the words, so that the last ones of a process count
        found = []
        for r, words in enumerate(self.words):
            if words[_STATE]:
                self.sync_memory()
                found.append((STATES[words[_STATE]], self._read_text(r, _STATE_TEXT)))
            elif r in gone:
                found.append((DIED, f"({self.processes.describe_end(r)})"))
            else:
                found.append((RUNNING, ""))
        return found

    def has_done(self, rank: int, number: int, channel: int = 0) -> bool:
        return self.words[rank][_CHANNELS + channel * _CHANNEL_WORDS + _POSTED] >= number

    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        at = _CHANNELS + channel * _CHANNEL_WORDS + _POSTED
        missing = [r for r, words in enumerate(self.words) if words[at] < number]
        found = {r: "is stopped" if self.processes.is_stopped(r) else "" for r in missing}
        asked = {r: self.words[r][_ANSWERED] for r in missing if not found[r]}
        for r in asked:
            self.words[r][_ASKED] += 1
        deadline = time.monotonic() + ANSWER_SECONDS
        while asked and time.monotonic() < deadline:
            time.sleep(0.005)
            for r in [r for r, before in asked.items() if self.words[r][_ANSWERED] != before]:
                found[r] = self._read_text(r, _PLACE_TEXT)
                del asked[r]
        return found

    def gather_texts(self, number: int, text: str) -> list[str]:
        self._write_text(_CALL_TEXT, text)
        self._publish(_TOLD, number + 1)
        with contextlib.suppress(TimeoutError):  # one that does not tell is named without its line
            wait_until(lambda: all(words[_TOLD] > number for words in self.words), 1.0, lambda: None, TimeoutError)
        return [self._read_text(r, _CALL_TEXT) if w[_TOLD] > number else "" for r, w in enumerate(self.words)]

    def leave(self) -> None:
        self._publish(_LEFT, 1)

    def has_left(self, rank: int) -> bool:
        return bool(self.words[rank][_LEFT])

    def close(self) -> None:
        self._closed.set()
        self._thread.join()  # it reads memory that MPI is about to release

    def _publish(self, word: int, value: int) -> None:
        """Write a word that says that what was written before is there."""
        self.sync_memory()
        self._mine[word] = value

    def _answer(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            asked = self._mine[_ASKED]
            if asked != self._mine[_ANSWERED]:
                self._write_text(_PLACE_TEXT, self.place())
                self._publish(_ANSWERED, asked)

    def _write_text(self, which: int, text: str) -> None:
        data = text.encode(errors="replace")[: _TEXT_BYTES - 1]
        start = 8 * _WORDS + which * _TEXT_BYTES
        self._memories[self.rank][start : start + len(data) + 1] = data + b"\0"

    def _read_text(self, rank: int, which: int) -> str:
        start = 8 * _WORDS + which * _TEXT_BYTES
        data = bytes(self._memories[rank][start : start + _TEXT_BYTES])
        return data.partition(b"\0")[0].decode(errors="replace")
