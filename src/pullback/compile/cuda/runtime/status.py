"""Indices out of range on a device: noted in a word by the launch, raised when a program or the user looks next."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from ....arrays.backends import after_synchronization
from ....errors import IndexingError
from ..launch_plan import STATUS

#: Words that are allocated together.
_PAGE = 512
_OUT_OF_RANGE = "an index was out of range for the array it points into."


class StatusWord(NamedTuple):
    """The word of one program: zero until a launch meets an index out of range."""

    #: Its bytes, of which reading one is quick.
    word: memoryview
    address: int


class Statuses:
    """The status words of all programs, in pinned memory of the host that devices can write to: looking at them waits
    for nothing, so an error is seen once the launch is over.
    """

    def __init__(self) -> None:
        self._pages: list[tuple[Any, list[str]]] = []
        self._lock = threading.Lock()

    def new_word(self, cupy: Any, name: str, donates: bool) -> StatusWord:
        """A word for a program."""
        with self._lock:
            if not self._pages or len(self._pages[-1][1]) == _PAGE:
                if not self._pages:
                    after_synchronization.append(self.check)
                memory = cupy.cuda.alloc_pinned_memory(_PAGE * STATUS.nbytes)
                words = np.frombuffer(memory, STATUS.dtype, _PAGE)
                words[:] = 0
                self._pages.append((words, []))
            words, names = self._pages[-1]
            names.append(name + ("\n  Donated arguments may have been overwritten before." if donates else ""))
            word = words[len(names) - 1 : len(names)]
            return StatusWord(memoryview(word).cast("B"), int(word.ctypes.data))

    def check(self) -> None:
        """Raise if a launch that is over met an index out of range."""
        for words, names in self._pages:
            if words.any():
                (numbers,) = words.nonzero()
                words[:] = 0
                raise IndexingError(f"jit: {_OUT_OF_RANGE}\n  It was found in an earlier call of {names[numbers[0]]}")


STATUSES = Statuses()
