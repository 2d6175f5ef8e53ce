"""Indices out of range on a device: noted in a word by the launch, raised when a program or the user looks next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ....arrays.backends import after_synchronization
from ....arrays.call_site import FailedCheck, format_line
from ....errors import IndexingError
from ..launch_plan import STATUS_DTYPE

#: Words that are allocated together.
_PAGE = 512
_OUT_OF_RANGE = "an index was out of range for the array it points into."


Site = tuple[CodeType, int] | FailedCheck | None


class StatusWords(NamedTuple):
    """The words of one program: zero until a launch meets an index out of range."""

    #: Their bytes, which are quickly read.
    words: memoryview
    address: int

    def clear(self) -> None:
        self.words[:] = bytes(len(self.words))


class Statuses:
    """The status words of all programs, in pinned memory of the host that devices can write to: looking at them waits
    for nothing, so an error is seen once the launch is over.
    """

    def __init__(self) -> None:
        #: Words, with the user's line and the program of each.
        self._pages: list[tuple[Any, list[tuple[Site, str]]]] = []
        self._lock = threading.Lock()

    def new_words(self, cupy: Any, name: str, donates: bool, sites: Sequence[Site]) -> StatusWords:
        """Words for a program, one for each line."""
        with self._lock:
            if not self._pages:
                after_synchronization.append(self.check)
            if not self._pages or len(self._pages[-1][1]) + len(sites) > len(self._pages[-1][0]):
                size = max(_PAGE, len(sites))
                memory = cupy.cuda.alloc_pinned_memory(size * STATUS_DTYPE.itemsize)
                words = np.frombuffer(memory, STATUS_DTYPE, size)
                words[:] = 0
                self._pages.append((words, []))
            words, owners = self._pages[-1]
            own = words[len(owners) : len(owners) + len(sites)]
            name += "\n  Donated arguments may have been overwritten before." if donates else ""
            owners += [(site, name) for site in sites]
            return StatusWords(memoryview(own).cast("B"), int(own.ctypes.data))

    def check(self) -> None:
        """Raise if a launch that is over met an index out of range."""
        for words, owners in self._pages:
            if words.any():
                (numbers,) = words.nonzero()
                words[:] = 0
                site, name = owners[numbers[0]]
                if isinstance(site, FailedCheck):
                    raise site.make_error()
                line = f"\n  at {format_line(*site)}" if site is not None else ""
                raise IndexingError(f"jit: {_OUT_OF_RANGE}{line}\n  It was found in an earlier call of {name}")


STATUSES = Statuses()
