"""Value in, the same value out, with a mark that others can find: a name, or that it begins a recomputation."""

from __future__ import annotations

from typing import Any

from ..arrays.node import signed
from ..errors import ArgumentError
from . import batching, statics
from .dispatch import apply, as_value
from .families import linear
from .forms import Again
from .sampling import one, several

__all__ = ["again", "name"]

_name = linear(
    "name",
    statics={"name": statics.text},
    doc="The value itself, under a name.",
    value=lambda xp, x, name: xp.asarray(x),
    spec=lambda x, name: x,
    transpose=lambda bar: bar,
    batch=batching.shifted(),
    samples=several(one(3, name="a"), one(2, 2, name="b"), one(name="c"), one(0, name="d")),
    motion="rearrange",
)

_again = linear(
    "again",
    doc="The value itself, from which a program computes once more what it computed before.",
    value=lambda xp, x: xp.asarray(x),
    spec=lambda x: x,
    transpose=lambda bar: bar,
    batch=batching.shifted(),
    samples=several(one(3), one(2, 2), one(), one(0)),
    motion="rearrange",
    form=Again(),
)


def again(x: Any) -> Any:
    """x, but equations on it are not merged with equal ones on x: what they compute need not live since then."""
    return apply(_again, x)


@signed
def name(x: Any, /, name: str) -> Any:
    """x itself, under a name by which a policy of `pb.checkpoint` finds it (`pb.save_named`, `pb.offload_named`).

    >>> import pullback as pb
    >>> pb.name(pb.tensor(2.0), "here")
    tensor(2., dtype=float64)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name: wants a name, got {name!r}.")
    return apply(_name, as_value(x), name=name)
