"""What autograd calls a box is a value of ours that a transform interprets."""

from typing import Any

from pullback.arrays.value import Value

from .extend import primitive

__all__ = ["getval", "isbox", "primitive"]


def isbox(x: Any) -> bool:
    """Whether x stands for something inside a transform."""
    return isinstance(x, Value)


def getval(x: Any) -> Any:
    """The bare value."""
    return x.numpy() if isinstance(x, Value) else x
