"""Messages beside the collectives: ranks tell each other what became of them, and where they are when one asks.

Each rank has a thread that listens on a communicator of its own. A message is JSON; its tag says what it is.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import WorldError
from .peers import ANSWER_SECONDS, ENDED, RUNNING, Peers

_ASK, _PLACE, _STATE, _TEXT = range(1, 5)
_LISTEN_SECONDS = 0.01


class SideChannel(Peers):
    """The other ranks, by messages. `place` says where this rank is, and how many collectives it came to."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise WorldError("init: this MPI lets one thread alone call it, and ranks are listened to by another.")
        self.rank, self.size = comm.rank, comm.size
        self.place: Callable[[], tuple[str, int]] = lambda: ("", 0)
        self._mpi, self._comm = mpi, comm
        self._sent: list[tuple[Any, bytes]] = []
        self._states: dict[int, tuple[str, str, int]] = {}
        self._places: dict[int, tuple[str, int]] = {}
        self._texts: dict[tuple[int, int], str] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="side channel", daemon=True)
        self._thread.start()

    def announce(self, state: str, text: str, number: int) -> None:
        self._states[self.rank] = (state, text, number)
        self._send(self._others(), _STATE, [state, text, number])

    def states(self, number: int) -> list[tuple[str, str]]:
        found = [self._states.get(r, (RUNNING, "", 0)) for r in range(self.size)]
        return [(RUNNING, "") if s == ENDED and at >= number else (s, text) for s, text, at in found]

    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        self._places.clear()
        self._send(self._others(), _ASK, None)
        self._await(lambda: all(r in self._places for r in self._others()), ANSWER_SECONDS)
        found = {r: self._places.get(r, ("", -1)) for r in self._others()}
        return {r: at for r, (at, count) in found.items() if count < number}

    def gather_texts(self, number: int, text: str) -> list[str]:
        self._texts[self.rank, number] = text
        self._send(self._others(), _TEXT, [number, text])
        self._await(lambda: all((r, number) in self._texts for r in range(self.size)), 1.0)
        return [self._texts.get((r, number), "") for r in range(self.size)]

    def wait_for_others_to_end(self, timeout: float) -> bool:
        return self._await(lambda: len(self._states) == self.size, timeout)

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
            self._sent = [(request, kept) for request, kept in self._sent if not request.Test()]
            self._sent += [(self._comm.Isend([data, self._mpi.BYTE], r, tag), data) for r in ranks]

    def _listen(self) -> None:
        with contextlib.suppress(self._mpi.Exception):  # a rank died: collectives raise, and all leave or shrink
            self._receive()

    def _receive(self) -> None:
        mpi, status = self._mpi, self._mpi.Status()
        while not self._closed.wait(_LISTEN_SECONDS):
            while self._comm.Iprobe(mpi.ANY_SOURCE, mpi.ANY_TAG, status):
                data = bytearray(status.Get_count(mpi.BYTE))
                source, tag = status.source, status.tag
                self._comm.Recv([data, mpi.BYTE], source, tag)
                self._note(source, tag, json.loads(data.decode()))

    def _note(self, source: int, tag: int, message: Any) -> None:
        if tag == _ASK:
            self._send([source], _PLACE, self.place())
        elif tag == _PLACE:
            self._places[source] = message[0], message[1]
        elif tag == _STATE:
            self._states[source] = message[0], message[1], message[2]
        else:
            self._texts[source, message[0]] = message[1]
