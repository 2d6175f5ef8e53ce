"""Functions that return their argument and modify its gradient: clip, scale, reverse, straight-through."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...arrays.argument_checks import check_functions
from ...arrays.call_site import attributed_to_caller
from ...arrays.picklable import picklable
from ...arrays.protect import as_immutable
from ...arrays.spec import Spec, spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply, as_value
from ...ops.elementwise.pointwise import multiply, stop_gradient, unrecorded
from ...ops.functions import clip
from ...ops.op import Op, as_formula
from ...ops.shape.reshaping import astype
from ...ops.statics import Static
from .rules import make_custom_record


def _make_identity(name: str, vjp: Callable[..., Any], **statics: Static) -> Op:
    """An op that returns its one argument, with a rule of its own for the cotangent."""

    def batch(size: int, axes: tuple[int | None, ...], x: Any, **static: Any) -> tuple[Any, int | None]:
        return apply(record, x, **static), axes[0]

    record = replace(
        make_custom_record(
            name, ("x",), lambda xp, x, **static: as_immutable(x), as_formula(vjp), None, batch, lambda x, **static: x
        ),
        statics=statics,
    )
    return record


_BOUND = Static(
    "a number, low below high", lambda v, specs, static: type(v) is float and static["low"] <= static["high"]
)
_clip_gradient_op = _make_identity(
    "clip_gradient", lambda bar, low, high: clip(bar, low, high), low=_BOUND, high=_BOUND
)
_scale_gradient_op = _make_identity(
    "scale_gradient",
    lambda bar, factor: multiply(bar, factor),
    factor=Static("a finite number", lambda v, specs, static: type(v) is float and math.isfinite(v)),
)


def _spec_of_straight_through(x: Spec, y: Spec) -> Spec:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        raise ShapeError(f"straight_through: the function made {y} of {x}, so the identity cannot be its derivative.")
    return y


def _batch_straight_through(size: int, axes: tuple[int | None, ...], x: Any, y: Any) -> tuple[Any, int]:
    moved = (move_batch_first(v, axis, size) for v, axis in zip((x, y), axes, strict=True))
    return apply(_straight_through_op, *moved), 0


#: The value of y with the derivative of x.
_straight_through_op: Op = replace(
    make_custom_record(
        "straight_through", ("x", "y"), lambda xp, x, y: as_immutable(y), as_formula(lambda bar: (bar, None)), None,
        _batch_straight_through, _spec_of_straight_through,
    ),
    statics={},
)  # fmt: skip

#: The ops, by the names that programs have for them.
ALTERED = {op.name: op for op in (_clip_gradient_op, _scale_gradient_op, _straight_through_op, unrecorded.op)}


@attributed_to_caller
def clip_gradient(x: Any, /, min: float = -1.0, max: float = 1.0) -> Any:
    """x itself; in the backward pass its cotangent is clipped to bounds. Forward mode has no such thing and raises.

    >>> import pullback as pb
    >>> pb.grad(lambda x: 5.0 * pb.clip_gradient(x))(2.0)
    array(1.)
    """
    if not min <= max:
        raise ArgumentError(f"clip_gradient: the bounds {min} and {max} are crossed.")
    return apply(_clip_gradient_op, as_value(x), low=float(min), high=float(max))


@attributed_to_caller
def scale_gradient(x: Any, /, factor: float) -> Any:
    """x itself, with its derivative multiplied by a factor.

    >>> import pullback as pb
    >>> pb.grad(lambda x: pb.scale_gradient(x, 0.1) ** 2)(3.0)
    array(0.6)
    """
    if not math.isfinite(factor):
        raise ArgumentError(f"scale_gradient: the factor is {factor}, wanted a finite number.")
    return apply(_scale_gradient_op, as_value(x), factor=float(factor))


@attributed_to_caller
def reverse_gradient(x: Any, /, strength: float = 1.0) -> Any:
    """x itself, with its derivative negated: what is trained on one side of it is untrained on the other.

    >>> import pullback as pb
    >>> pb.grad(lambda x: pb.reverse_gradient(x) ** 2)(3.0)
    array(-6.)
    """
    return scale_gradient(x, -strength)


@picklable
def straight_through(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f in value, the identity in derivative: for steps such as rounding, whose own derivative is zero.

    >>> import pullback as pb
    >>> hard = pb.straight_through(pb.sign)
    >>> hard(0.3), pb.grad(lambda x: 2.0 * hard(x))(0.3)
    (array(1.), array(2.))
    """
    check_functions("straight_through", f)

    @functools.wraps(f)
    def apply_straight_through(x: Any, /) -> Any:
        # f may be anything, so it gets a constant: its own derivative must not be added to the identity's.
        x = as_value(x)
        y = as_value(f(stop_gradient(x)))
        if spec_of(y).shape != spec_of(x).shape:
            raise ShapeError(
                f"straight_through: the function changed the shape from {spec_of(x).shape} to {spec_of(y).shape}, "
                "so the identity cannot stand for its derivative."
            )
        if spec_of(y).dtype.kind == "c" and spec_of(x).dtype.kind != "c":
            raise DtypeError("straight_through: the function made complex numbers of real ones.")
        return apply(_straight_through_op, x, astype(stop_gradient(y), spec_of(x).dtype))

    return apply_straight_through
