"""What finalizers leave to be done: the collector runs them anywhere, also while their own lock is held."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FinalizerQueue(Generic[T]):
    """Items that finalizers add; `drain` handles them under the guard, or, where that is held, leaves them to its
    holder: a caller that takes the guard for something else calls `drain` after releasing it.
    """

    __slots__ = ("_handle", "_items", "add", "guard")

    def __init__(self, handle: Callable[[T], None]) -> None:
        self._items: deque[T] = deque()
        self._handle = handle
        self.guard = threading.Lock()
        self.add: Callable[[T], None] = self._items.append

    def drain(self) -> None:
        # Never waits: a finalizer may run in the very thread that holds the guard.
        while self._items and self.guard.acquire(blocking=False):
            try:
                while self._items:
                    self._handle(self._items.popleft())
            finally:
                self.guard.release()
