"""An attribute that is computed when it is first read.

Until Python 3.12 `functools.cached_property` holds one lock for all instances while it computes: two threads could not
compile at once, and a child of a fork made meanwhile would wait for that lock for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):
    """A method as an attribute, its result cached in the instance. Two threads may both compute it; one stays."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        found: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return found
