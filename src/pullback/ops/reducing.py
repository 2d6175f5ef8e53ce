"""Ops that fold axes away: sums, extremes, and the composites over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of
from ..errors import ShapeError
from . import arranging, batching, shaping
from . import elementwise as pointwise
from .axes import all_axes, one_axis
from .dispatch import apply, as_value, ndim, shape
from .families import general, is_complex, linear
from .op import Op
from .sampling import one, several

__all__ = [
    "all", "any", "argmax", "argmin", "cumulative_sum", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

_FLOAT16 = np.dtype("float16")


def _folded(x: Spec, axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    return tuple(n for i, n in enumerate(x.shape) if i not in axis)


def _summed_dtype(dtype: Any) -> Any:
    """NumPy adds small integers up in the machine's own."""
    if dtype.kind in "biu" and dtype.itemsize < 8:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def unfolded(bar: Any, spec: Spec, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A folded value stretched over the axes that were folded away."""
    if not keepdims and len(axis) < spec.ndim:  # a 0-d value stretches as it is
        bar = shaping.reshape(bar, _folded(spec, axis, True))
    return shaping.stretched(bar, spec.shape)


_sum = linear(
    "sum",
    doc="The sum over axes.",
    value=lambda xp, x, axis, keepdims: xp.asarray(x).sum(axis=axis, keepdims=keepdims),
    spec=lambda x, axis, keepdims: make_spec(_folded(x, axis, keepdims), _summed_dtype(x.dtype), x.device),
    transpose=lambda bar, x_spec, axis, keepdims: unfolded(bar, x_spec, axis, keepdims),
    batch=batching.shifted(axis="axis"),
    samples=several(
        one(3, axis=(0,), keepdims=False),
        one(2, 3, axis=(1,), keepdims=True),
        one(2, 3, 4, axis=(0, 2), keepdims=False),
        one(axis=(), keepdims=False),
        one(0, 2, axis=(0,), keepdims=False),
    ),
    motion="rearrange",
)


def sum(x: Any, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over some axes, or over all.

    >>> import numpy as np, pullback as pb
    >>> pb.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    x = as_value(x)
    if dtype is not None:
        x = shaping.astype(x, dtype)
    return apply(_sum, x, axis=all_axes(axis, ndim(x), "sum"), keepdims=bool(keepdims))


@signed
def mean(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The mean over some axes, or over all.

    >>> import numpy as np, pullback as pb
    >>> pb.mean(np.array([1.0, 2.0, 6.0]))
    array(3.)
    """
    x = as_value(x)
    dtype = spec_of(x).dtype
    count = _count(x, axis, "mean")
    if dtype == _FLOAT16 or dtype.name == "bfloat16":  # their sums overflow long before their means
        total = sum(x, axis=axis, dtype=np.float32, keepdims=keepdims)
        return shaping.astype(pointwise.divide(total, count), dtype)
    return pointwise.divide(sum(x, axis=axis, keepdims=keepdims), count)


def _count(x: Any, axis: Any, what: str) -> int:
    return math.prod(shape(x)[a] for a in all_axes(axis, ndim(x), what))


@signed
def var(x: Any, /, axis: Any = None, *, correction: float = 0, keepdims: bool = False) -> Any:
    """The variance: the mean squared distance from the mean, over n - correction.

    >>> import numpy as np, pullback as pb
    >>> pb.var(np.array([1.0, 2.0, 6.0]), correction=1)
    array(7.)
    """
    x = as_value(x)
    away = pointwise.subtract(x, mean(x, axis, keepdims=True))
    squares = pointwise.square(pointwise.abs(away)) if is_complex(x) else pointwise.square(away)
    return pointwise.divide(sum(squares, axis=axis, keepdims=keepdims), _count(x, axis, "var") - correction)


@signed
def std(x: Any, /, axis: Any = None, *, correction: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation; where all elements are equal, its derivative is zero.

    >>> import numpy as np, pullback as pb
    >>> pb.std(np.array([1.0, 3.0]))
    array(1.)
    """
    variance = var(x, axis, correction=correction, keepdims=keepdims)
    constant = pointwise.equal(variance, 0)
    return pointwise.where(constant, 0.0, pointwise.sqrt(pointwise.where(constant, 1.0, variance)))


@signed
def prod(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The product over some axes, or over all, by halves, so that every derivative is right at zeros too.

    >>> import numpy as np, pullback as pb
    >>> pb.prod(np.array([2.0, 3.0, 4.0]))
    array(24.)
    """
    x = as_value(x)
    spec = spec_of(x)
    axes = all_axes(axis, spec.ndim, "prod")
    kept = tuple(i for i in range(spec.ndim) if i not in axes)
    x = shaping.permute_dims(x, axes + kept)
    x = shaping.reshape(x, (_count(x, tuple(range(len(axes))), "prod"), *shape(x)[len(axes) :]))
    x = shaping.astype(x, _summed_dtype(spec.dtype))
    if shape(x)[0] == 0:
        x = pointwise.add(sum(x, axis=0, keepdims=True), 1)
    while (n := shape(x)[0]) > 1:
        halves = pointwise.multiply(x[: n // 2], x[n // 2 : n // 2 * 2])
        x = arranging.concat([halves, x[n - 1 :]]) if n % 2 else halves
    return shaping.reshape(x, _folded(spec, axes, keepdims))


def _extreme_shares(x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Which elements are the extreme, each with its even part of one; a NaN result came from the NaNs."""
    chosen = pointwise.logical_or(pointwise.equal(x, unfolded(out, spec_of(x), axis, keepdims)), pointwise.isnan(x))
    weights = shaping.astype(chosen, spec_of(x).dtype)
    return pointwise.divide(weights, sum(weights, axis=axis, keepdims=True))


def _extreme_spec(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    if any_zero(x.shape[a] for a in axis):
        raise ShapeError(f"max/min: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
    return make_spec(_folded(x, axis, keepdims), x.dtype, x.device)


def any_zero(sizes: Any) -> bool:
    return 0 in tuple(sizes)


def _pull_extreme(bar: Any, x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    weights = _extreme_shares(x, out, axis, keepdims)
    return pointwise.only(
        pointwise.not_equal(weights, 0), pointwise.multiply(unfolded(bar, spec_of(x), axis, keepdims), weights)
    )


def _push_extreme(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (tangent,), (x,) = tangents, primals
    return sum(pointwise.multiply(tangent, _extreme_shares(x, out, **static)), **static)


_EXTREME_SAMPLES = several(
    one(3, axis=(0,), keepdims=False),
    one(2, 3, axis=(1,), keepdims=True),
    one(2, 3, 4, axis=(0, 2), keepdims=False),
    one(axis=(), keepdims=False),
    one(0, 2, axis=(1,), keepdims=False),
)


def _extreme(name: str) -> Any:
    return general(
        name,
        family="reduction",
        args=("x",),
        doc=f"The {name}imum over axes.",
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=_extreme_spec,
        pulls={"x": _pull_extreme},
        push=_push_extreme,
        batch=batching.shifted(axis="axis"),
        samples=_EXTREME_SAMPLES,
        motion="rearrange",
    )


_max, _min = _extreme("max"), _extreme("min")


def max(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The greatest element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.max(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([5., 7.])
    """
    x = as_value(x)
    return apply(_max, x, axis=all_axes(axis, ndim(x), "max"), keepdims=bool(keepdims))


def min(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The least element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.min(np.array([3.0, 1.0]))
    array(1.)
    """
    x = as_value(x)
    return apply(_min, x, axis=all_axes(axis, ndim(x), "min"), keepdims=bool(keepdims))


@signed
def logsumexp(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) over some axes, or over all, without overflow.

    >>> import numpy as np, pullback as pb
    >>> pb.logsumexp(np.array([1000.0, 1000.0]))
    array(1000.69314718)
    """
    x = as_value(x)
    x = x if spec_of(x).inexact else shaping.astype(x, np.float64)
    axes = all_axes(axis, ndim(x), "logsumexp")
    if any_zero(shape(x)[a] for a in axes):
        return pointwise.log(sum(pointwise.exp(x), axis=axes, keepdims=keepdims))
    top = pointwise.stop_gradient(max(x, axis=axes, keepdims=True))
    top = pointwise.where(pointwise.isfinite(top), top, 0)
    total = sum(pointwise.exp(pointwise.subtract(x, top)), axis=axes, keepdims=True)
    out = pointwise.add(pointwise.log(total), top)
    return out if keepdims else shaping.reshape(out, _folded(spec_of(x), axes, False))


_cumsum: Op = linear(
    "cumulative_sum",
    doc="Running sums along an axis.",
    value=lambda xp, x, axis: xp.cumsum(x, axis=axis),
    spec=lambda x, axis: make_spec(x.shape, _summed_dtype(x.dtype), x.device),
    transpose=lambda bar, axis: arranging.flip(apply(_cumsum, arranging.flip(bar, axis=axis), axis=axis), axis=axis),
    batch=batching.shifted(axis="axis"),
    samples=several(one(3, axis=0), one(2, 3, axis=1), one(0, axis=0), one(2, 1, 3, axis=0)),
    motion="rearrange",
)


def cumulative_sum(x: Any, /, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running sums along an axis (of the flattened array where none is named); `include_initial` starts with 0.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_sum(np.array([1, 2, 3]))
    array([1, 3, 6])
    """
    x = as_value(x)
    if axis is None:
        x, axis = shaping.reshape(x, (-1,)), 0
    if dtype is not None:
        x = shaping.astype(x, dtype)
    axis = one_axis(axis, ndim(x), "cumulative_sum")
    out = apply(_cumsum, x, axis=axis)
    if include_initial:
        out = arranging.pad(out, [(1, 0) if i == axis else (0, 0) for i in range(ndim(x))])
    return out


def _position(name: str) -> Any:
    def value(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    def spec(x: Spec, axis: int, keepdims: bool) -> Spec:
        if not x.shape[axis]:
            raise ShapeError(f"{name}: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
        return make_spec(_folded(x, (axis,), keepdims), np.dtype(np.intp), x.device)

    op = general(
        name,
        family="reduction",
        args=("x",),
        doc=f"The index of the {name[3:]}imum along an axis.",
        value=value,
        spec=spec,
        batch=batching.shifted(axis="axis"),
        samples=several(one(3, axis=0, keepdims=False), one(2, 3, axis=1, keepdims=True)),
    )

    def position(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
        x = as_value(x)
        if axis is not None:
            return apply(op, x, axis=one_axis(axis, ndim(x), name), keepdims=bool(keepdims))
        flat = apply(op, shaping.reshape(x, (-1,)), axis=0, keepdims=False)
        return shaping.reshape(flat, (1,) * ndim(x)) if keepdims else flat

    position.__name__ = position.__qualname__ = name
    position.__doc__ = f"""The index of the {name[3:]}imum along an axis, or in the flattened array.

    >>> import numpy as np, pullback as pb
    >>> int(pb.{name}(np.array([2.0, {"5.0" if name == "argmax" else "1.0"}, 3.0])))
    1
    """
    return position


argmax, argmin = _position("argmax"), _position("argmin")


def _truth(name: str) -> Any:
    return general(
        name,
        family="reduction",
        args=("x",),
        doc=f"Whether {name} element holds.",
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=lambda x, axis, keepdims: make_spec(_folded(x, axis, keepdims), np.dtype(bool), x.device),
        batch=batching.shifted(axis="axis"),
        samples=several(one(3, axis=(0,), keepdims=False), one(2, 3, axis=(0, 1), keepdims=True)),
    )


_any, _all = _truth("any"), _truth("all")


def any(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether any element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.any(np.array([False, True])))
    True
    """
    x = as_value(x)
    return apply(_any, x, axis=all_axes(axis, ndim(x), "any"), keepdims=bool(keepdims))


def all(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether every element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.all(np.array([False, True])))
    False
    """
    x = as_value(x)
    return apply(_all, x, axis=all_axes(axis, ndim(x), "all"), keepdims=bool(keepdims))
