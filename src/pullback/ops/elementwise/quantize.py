"""Fake quantization: rounding to few levels, with a straight-through gradient."""

from __future__ import annotations

from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import is_real_float, spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ..axes import as_integer, normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..families import general
from ..op_samples import normal_samples
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import of_array
from . import pointwise

# The value is rounded, the derivative that of the identity: a step function's own is zero almost everywhere.
_straight_round = general(
    "straight_through_round",
    value=lambda xp, x: xp.rint(xp.asarray(x)),
    pulls={"x": lambda bar: bar},
    push=lambda tangents, out, primals, static: tangents[0],
    samples=normal_samples([(3,), (2, 3), (), (0,)]),
    family="elementwise",
)


@of_array
@attributed_to_caller
@rounds_once
def fake_quantize(
    x: Any, /, scale: Any, zero_point: Any = 0, quant_min: int = -128, quant_max: int = 127, *, axis: int | None = None
) -> Any:
    """x after quantization to integers and back: scale (clip(round(x / scale) + zero_point) - zero_point).

    The gradient passes the rounding unchanged and stops where x lies outside of the range. With `axis`, scale and
    zero_point are vectors along it. A scale that is tracked is learned: it gets a gradient too.

    >>> import numpy as np, pullback as pb
    >>> pb.fake_quantize(np.array([0.12, 0.34, 99.0]), 0.1)
    array([ 0.1,  0.3, 12.7])
    """
    x, scale, zero_point = as_value(x), as_value(scale), as_value(zero_point)
    low, high = as_integer(quant_min, "fake_quantize: quant_min"), as_integer(quant_max, "fake_quantize: quant_max")
    if low >= high:
        raise ArgumentError(f"fake_quantize: quant_min {low} is not below quant_max {high}.")
    if not is_real_float(spec_of(x).dtype):
        raise DtypeError(f"fake_quantize: wants real floating-point numbers, got {spec_of(x).dtype}.")
    if axis is not None:
        scale, zero_point = (
            _reshape_along(v, x, normalize_axis(axis, ndim(x), "fake_quantize")) for v in (scale, zero_point)
        )
    offset = reshaping.astype(zero_point, spec_of(x).dtype) if spec_of(zero_point).weak is None else zero_point
    level = pointwise.add(apply(_straight_round, pointwise.divide(x, scale)), offset)
    kept = pointwise.clip_to(level, float(low), float(high))
    return pointwise.multiply(pointwise.subtract(kept, offset), scale)


def _reshape_along(v: Any, x: Any, axis: int) -> Any:
    if not ndim(v):
        return v
    if shape(v) != (shape(x)[axis],):
        raise ShapeError(f"fake_quantize: {shape(v)} values for an axis of size {shape(x)[axis]}.")
    return reshaping.reshape(v, (-1, *(1,) * (ndim(x) - axis - 1)))
