"""A value of lower level in, one at this level out: a constant here, still whatever it was below.

Inside a transform, a tape over raw arrays would lie below the transform's own values; over lifted ones it lies above.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..arrays.spec import Spec, spec_of
from ..arrays.value import Value
from ..ops.dispatch import apply
from ..ops.op import Op

__all__ = ["Lifted", "inside_transform", "lowered", "running"]

_running: ContextVar[bool] = ContextVar("pullback_running", default=False)


@contextmanager
def running() -> Iterator[None]:
    """While a transform other than reverse mode runs a function."""
    token = _running.set(True)
    try:
        yield
    finally:
        _running.reset(token)


def inside_transform() -> bool:
    """Whether a tape that starts here must be lifted above some transform."""
    return _running.get()


class Lifted(Value):
    """A value of lower level seen from `level`."""

    __slots__ = ("level", "spec", "value")
    level: int

    def __init__(self, value: Any, level: int) -> None:
        self.value = value
        self.spec: Spec = spec_of(value).guarded()
        self.level = level

    def interpret(self, op: Op, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Compute below and lift the result."""
        level = self.level
        out = apply(op, *(lowered(x, level) for x in args), **static)
        return tuple(Lifted(x, level) for x in out) if type(out) is tuple else Lifted(out, level)


def lowered(x: Any, level: int) -> Any:
    """What stands behind a value lifted to this level; anything else as it is."""
    return x.value if type(x) is Lifted and x.level == level else x
