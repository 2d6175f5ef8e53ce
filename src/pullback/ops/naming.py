"""Ops that mark a value: with a name, or as the start of a recomputation. Both return the value itself."""

from __future__ import annotations

from typing import Any

from ..arrays.call_site import attributed_to_caller
from ..errors import ArgumentError
from . import statics
from .dispatch import apply, as_value
from .families import linear
from .forms import Name, Recompute
from .op import Effects
from .op_samples import normal_samples
from .signatures import of_array

_name = linear(
    "name",
    statics={"name": statics.text},
    value=lambda xp, x, name: xp.asarray(x),
    transpose=lambda bar: bar,
    samples=normal_samples([(3,), (2, 2), (), (0,)], name=["a", "b", "c", "d"]),
    form=Name(),
)

_again = linear(
    "again",
    value=lambda xp, x: xp.asarray(x),
    transpose=lambda bar: bar,
    samples=normal_samples([(3,), (2, 2), (), (0,)]),
    form=Recompute(),
    effects=Effects(merge=False),
)


def mark_recomputation(x: Any) -> Any:
    """x, but equations on it are not merged with equal ones on x, so their results need not stay alive in between."""
    return apply(_again, x)


@of_array
@attributed_to_caller
def name(x: Any, /, name: str) -> Any:
    """x itself, under a name that policies of `pb.checkpoint` refer to (`pb.save_named`, `pb.offload_named`).

    >>> import pullback as pb
    >>> pb.name(pb.tensor(2.0), "here")
    tensor(2., dtype=float64)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name: wants a name, got {name!r}.")
    return apply(_name, as_value(x), name=name)
