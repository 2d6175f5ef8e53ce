"""Things that are made once in a process, whichever thread asks first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


def computed_once(function: Callable[..., T]) -> Callable[..., T]:
    """`functools.cache`, but two threads that ask at the same time get the same object: native code keeps addresses of
    what is cached, so a second one that takes its place would leave them dangling.
    """
    cached, lock = functools.cache(function), threading.RLock()

    @functools.wraps(function)
    def find(*args: Hashable) -> T:
        with lock:
            return cached(*args)

    return find
