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

from .peers import ANSWER_SECONDS, ENDED, RUNNING, STATES, Peers, describe_place, wait_until

#: The words of a slot.
_STATE, _ENDED_AT, _PROCESS, _ASKED, _ANSWERED, _TOLD, _CHANNELS = 0, 1, 2, 3, 4, 5, 8
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
#: Seconds between looks at the processes of others, and between looks whether one asks where this rank is.
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
        self._next_look = 0.0
        self._watched: list[int] = []
        self._lost: set[int] = set()
        self._closed = threading.Event()
        #: What is said where others ask for this rank.
        self.place: Callable[[], str] = lambda: describe_place(threading.main_thread().ident or 0, 0)
        self._thread = threading.Thread(target=self._answer, name="roll call", daemon=True)
        self._thread.start()

    @property
    def tails(self) -> list[memoryview]:
        """What lies behind the words and texts of each slot, for `survivors`."""
        return [memory[8 * _WORDS + _TEXTS * _TEXT_BYTES : SLOT_BYTES] for memory in self._memories]

    @property
    def watched(self) -> list[int]:
        """The ranks whose end is noticed."""
        return self._watched

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a rank is known to be no more: what it has written by then is all there will be."""
        self._look_at_processes()
        return rank in self._lost

    def sync_memory(self) -> None:
        """What was written before is seen before what is written after, and what is read after is not older."""
        if self._sync is not None:
            self._sync()

    def clear(self) -> None:
        """Make this rank's slot as it was at first, before it meets others anew."""
        self._mine[_ENDED_AT] = self._mine[_TOLD] = 0
        for word in range(_CHANNELS, _WORDS):
            self._mine[word] = 0
        self._mine[_STATE] = STATES.index(RUNNING)

    def watch_processes(self, ranks: Sequence[int] | None = None) -> None:
        """From now on, notice when a process is gone; all ranks have started. In containers of their own they do not
        see each other's. `ranks`: those that are seen, where that is known.
        """
        if ranks is not None:
            self._watched = list(ranks)
            return
        visible = [r for r, words in enumerate(self.words) if process_state(words[_PROCESS]) not in "ZX"]
        self._watched = [r for r in visible if r != self.rank]

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

    def announce(self, state: str, text: str, number: int) -> None:
        self._write_text(_STATE_TEXT, text)
        self._mine[_ENDED_AT] = number
        self._mine[_STATE] = STATES.index(state)

    def states(self, number: int) -> list[tuple[str, str]]:
        self._look_at_processes()
        found = []
        for r, words in enumerate(self.words):
            state = STATES[words[_STATE]]
            if state == ENDED and words[_ENDED_AT] >= number:
                state = RUNNING
            if state == RUNNING and r in self._lost:
                found.append(("RankLostError", f"rank {r} of {self.size} died: process {words[_PROCESS]} is gone."))
            else:
                found.append((state, self._read_text(r, _STATE_TEXT) if state != RUNNING else ""))
        return found

    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        at = _CHANNELS + channel * _CHANNEL_WORDS + _POSTED
        missing = [r for r, words in enumerate(self.words) if words[at] < number]
        found = {r: "is stopped" if process_state(self.words[r][_PROCESS]) in "Tt" else "" for r in missing}
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
        self._mine[_TOLD] = number + 1
        with contextlib.suppress(TimeoutError):  # one that does not tell is named without its line
            wait_until(lambda: all(words[_TOLD] > number for words in self.words), 1.0, lambda: None, TimeoutError)
        return [self._read_text(r, _CALL_TEXT) if w[_TOLD] > number else "" for r, w in enumerate(self.words)]

    def wait_for_others_to_end(self, timeout: float) -> bool:
        def all_over() -> bool:
            self._look_at_processes()
            return all(words[_STATE] or r in self._lost for r, words in enumerate(self.words))

        try:
            wait_until(all_over, timeout, lambda: None, TimeoutError)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._closed.set()
        self._thread.join()  # it reads memory that MPI is about to release

    def _look_at_processes(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        self._lost |= {r for r in self._watched if process_state(self.words[r][_PROCESS]) in "ZX"}

    def _answer(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            asked = self._mine[_ASKED]
            if asked != self._mine[_ANSWERED]:
                self._write_text(_PLACE_TEXT, self.place())
                self._mine[_ANSWERED] = asked

    def _write_text(self, which: int, text: str) -> None:
        data = text.encode(errors="replace")[: _TEXT_BYTES - 1]
        start = 8 * _WORDS + which * _TEXT_BYTES
        self._memories[self.rank][start : start + len(data) + 1] = data + b"\0"

    def _read_text(self, rank: int, which: int) -> str:
        start = 8 * _WORDS + which * _TEXT_BYTES
        data = bytes(self._memories[rank][start : start + _TEXT_BYTES])
        return data.partition(b"\0")[0].decode(errors="replace")


def process_state(process: int) -> str:
    """The state of a process as /proc names it: T stopped, Z ended, X gone, R otherwise."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "X"
    except OSError:
        return "R"
    return "R"
