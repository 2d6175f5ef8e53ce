"""The sum of squared distances from the mean: what a variance is made of, as one op."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.spec import Spec, make_spec, spec_of
from .. import statics
from ..dispatch import apply
from ..elementwise.pointwise import multiply, square, subtract
from ..families import conjugate_if_complex, general
from ..forms import Expand
from ..op_samples import normal_samples
from .reductions import broadcast_folded, mean, sum


def _deviate(x: Any, axis: tuple[int, ...]) -> Any:
    return subtract(x, mean(x, axis=axis, keepdims=True))


def _expand(x: Any, axis: tuple[int, ...]) -> Any:
    return sum(square(_deviate(x, axis)), axis=axis, keepdims=True)


def _value(xp: Any, x: Any, axis: tuple[int, ...]) -> Any:
    count = math.prod(x.shape[a] for a in axis)
    away = x - x.sum(axis=axis, keepdims=True) / max(count, 1)
    return (away * away).sum(axis=axis, keepdims=True)


def _spec(x: Spec, axis: tuple[int, ...]) -> Spec:
    return make_spec(tuple(1 if i in axis else n for i, n in enumerate(x.shape)), x.dtype, x.device)


def _pull(bar: Any, x: Any, axis: tuple[int, ...]) -> Any:
    if spec_of(bar).dtype.kind == "b":  # a mask of where a cotangent can be nonzero, independent of values
        return broadcast_folded(bar, spec_of(x), axis, True)
    # s = sum (x - m)^2 and sum (x - m) = 0  =>  ds = 2 sum (x - m) dx: what moves m adds nothing, at any order
    return multiply(conjugate_if_complex(_deviate(x, axis)), multiply(bar, 2))


def _push(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    return multiply(sum(multiply(_deviate(primals[0], **static), tangents[0]), keepdims=True, **static), 2)


_op = general(
    "squared_deviations",
    family="reduction",
    statics={"axis": statics.axes_in_order},
    value=_value,
    spec=_spec,
    pulls={"x": _pull},
    push=_push,
    samples=normal_samples([(3,), (2, 3), (2, 3, 4), (1, 2)], axis=[(0,), (1,), (0, 2), (0,)]),
    rearranges=True,
    form=Expand(_expand),
)


def squared_deviations(x: Any, axis: tuple[int, ...]) -> Any:
    """The sum over axes of the squares of x less its mean, with keepdims. The derivative needs one sum over the
    axes, where that of the formula written out has another through the mean, which is always zero.
    """
    return apply(_op, x, axis=axis)
