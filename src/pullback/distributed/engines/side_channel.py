"""Messages beside the collectives: ranks tell each other what became of them, and where they are when one asks.

Each rank has a thread that listens on a communicator of its own. A message is JSON; its tag says what it is.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...errors import WorldError
from .peers import ANSWER_SECONDS, DIED, RUNNING, Peers
from .processes import Processes

_ASK, _PLACE, _STATE, _TEXT, _LEFT = range(1, 6)
_LISTEN_SECONDS = 0.01


class SideChannel(Peers):
    """The other ranks, by messages; `processes` are the numbers of those on this machine. `place` says where this rank
    is, and how many collectives of each channel it came to, `done` how many it is through with.
    """

    def __init__(self, mpi: Any, comm: Any, processes: Mapping[int, int]) -> None:
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise WorldError("init: this MPI lets one thread alone call it, and ranks are listened to by another.")
        self.rank, self.size = comm.rank, comm.size
        self.place: Callable[[], tuple[str, Sequence[int]]] = lambda: ("", (0, 0))
        self.done: Callable[[], Sequence[int]] = lambda: (0, 0)
        self.processes = Processes({r: number for r, number in processes.items() if r != comm.rank})
        self._mpi, self._comm = mpi, comm
        self._sent: list[tuple[Any, bytes]] = []
        self._states: dict[int, tuple[str, str, Sequence[int]]] = {}
        self._places: dict[int, tuple[str, Sequence[int]]] = {}
        self._texts: dict[tuple[int, int], str] = {}
        self._left: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="side channel", daemon=True)
        self._thread.start()

    def announce(self, state: str, text: str) -> None:
        done = [*self.done()]
        self._states[self.rank] = (state, text, done)
        self._send(self._others(), _STATE, [state, text, done])

    def states(self) -> list[tuple[str, str]]:
        self._note_deaths()
        return [self._states.get(r, (RUNNING, ""))[:2] for r in range(self.size)]

    def has_done(self, rank: int, number: int, channel: int = 0) -> bool:
        return rank in self._states and self._states[rank][2][channel] >= number

    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        self._places.clear()
        self._send(self._others(), _ASK, None)
        asked = [r for r in self._others() if not self.processes.is_stopped(r)]
        self._await(lambda: all(r in self._places for r in asked), ANSWER_SECONDS)
        silent = {r: "is stopped" if self.processes.is_stopped(r) else "" for r in self._others()}
        found = {r: self._places.get(r, (silent[r], (-1, -1))) for r in self._others()}
        return {r: at for r, (at, counts) in found.items() if counts[channel] < number}

    def gather_texts(self, number: int, text: str) -> list[str]:
        self._texts[self.rank, number] = text
        self._send(self._others(), _TEXT, [number, text])
        self._await(lambda: all((r, number) in self._texts for r in range(self.size)), 1.0)
        return [self._texts.get((r, number), "") for r in range(self.size)]

    def leave(self) -> None:
        self._send(self._others(), _LEFT, None)
        self._await(self._has_sent_all, ANSWER_SECONDS)

    def has_left(self, rank: int) -> bool:
        return rank in self._left

    def close(self) -> None:
        self._closed.set()
        self._thread.join(1.0)

    def _others(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank]

    def _await(self, is_so: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def _send(self, ranks: Sequence[int], tag: int, message: Any) -> None:
        data = json.dumps(message).encode()
        with self._lock:
            self._sent = [(request, kept) for request, kept in self._sent if not self._is_over(request)]
            for r in ranks:
                with suppress(self._mpi.Exception):  # it is lost, which others notice
                    self._sent.append((self._comm.Isend([data, self._mpi.BYTE], r, tag), data))

    def _is_over(self, request: Any) -> bool:
        try:
            return bool(request.Test())
        except self._mpi.Exception:
            return True

    def _has_sent_all(self) -> bool:
        with self._lock:
            return all(self._is_over(request) for request, _ in self._sent)

    def _note_deaths(self) -> None:
        for r in self.processes.find_gone():
            if r not in self._states:
                self._states[r] = (DIED, f"({self.processes.describe_end(r)})", (0, 0))

    def _listen(self) -> None:
        sources: Sequence[int] = [self._mpi.ANY_SOURCE]
        while not self._closed.wait(_LISTEN_SECONDS):
            for source in sources:
                try:
                    self._receive(source)
                except self._mpi.Exception:
                    sources = self._others()  # one is lost: from now on, those that are not are heard one by one

    def _receive(self, source: int) -> None:
        mpi, status = self._mpi, self._mpi.Status()
        while self._comm.Iprobe(source, mpi.ANY_TAG, status):
            data = bytearray(status.Get_count(mpi.BYTE))
            self._comm.Recv([data, mpi.BYTE], status.source, status.tag)
            self._note(status.source, status.tag, json.loads(data.decode()))

    def _note(self, source: int, tag: int, message: Any) -> None:
        if tag == _ASK:
            self._send([source], _PLACE, self.place())
        elif tag == _PLACE:
            self._places[source] = message[0], message[1]
        elif tag == _STATE:
            self._states[source] = message[0], message[1], message[2]
        elif tag == _LEFT:
            self._left.add(source)
        else:
            self._texts[source, message[0]] = message[1]
