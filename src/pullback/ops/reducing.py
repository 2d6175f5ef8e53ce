"""Ops that fold axes away: sums, extremes, and the composites over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype
from ..arrays.node import signed
from ..arrays.size import Size
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor
from ..errors import ArgumentError, DtypeError, ShapeError
from . import arranging, batching, scanning, shaping, statics
from . import elementwise as pointwise
from .axes import all_axes, one_axis
from .dispatch import apply, as_value, ndim, shape
from .families import broadcast_shape, general, is_complex, linear
from .forms import Fold
from .sampling import one, several

__all__ = [
    "all", "any", "argmax", "argmin", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

_FLOAT16 = np.dtype("float16")
#: Elements to look at in one go: what fits a processor's cache is not sent through memory once more.
_IN_CACHE = 1 << 14


def _folded(x: Spec, axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    return tuple(n for i, n in enumerate(x.shape) if i not in axis)


def summed_dtype(dtype: Any) -> Any:
    """NumPy adds small integers up in the machine's own."""
    if dtype.kind in "biu" and dtype.itemsize < 8:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def in_asked_dtype(out: Any, dtype: Any) -> Any:
    """A fold in the dtype that `dtype=` asked for. Small integers are folded in the machine's own; brought back they
    wrap around to what folding in their own would have given.
    """
    return out if dtype is None or spec_of(out).dtype == as_dtype(dtype) else shaping.astype(out, dtype)


def unfolded(bar: Any, spec: Spec, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A folded value stretched over the axes that were folded away."""
    if not keepdims and len(axis) < spec.ndim:  # a 0-d value stretches as it is
        bar = shaping.reshape(bar, _folded(spec, axis, True))
    return shaping.stretched(bar, spec.shape)


_sum = linear(
    "sum",
    statics={"axis": statics.axes_in_order, "keepdims": statics.flag},
    doc="The sum over axes.",
    value=lambda xp, x, axis, keepdims: xp.asarray(x).sum(axis=axis, keepdims=keepdims),
    spec=lambda x, axis, keepdims: make_spec(_folded(x, axis, keepdims), summed_dtype(x.dtype), x.device),
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
    form=Fold("add"),
)


def sum(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The sum over some axes, or over all; of the elements where `where` holds, and with `initial` added.

    >>> import numpy as np, pullback as pb
    >>> pb.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    x = as_value(x)
    if dtype is not None:
        x = shaping.astype(x, dtype)
    if where is not None:
        x = _filled(x, where, 0)
    out = in_asked_dtype(apply(_sum, x, axis=all_axes(axis, ndim(x), "sum"), keepdims=bool(keepdims)), dtype)
    return out if initial is None else pointwise.add(out, initial)


def _filled(x: Any, where: Any, neutral: Any) -> Any:
    """x with an element that changes nothing wherever the mask does not hold."""
    if spec_of(as_value(where)).dtype.kind != "b":
        raise DtypeError(f"where must be a mask of booleans, got {spec_of(as_value(where)).dtype}.")
    wanted = broadcast_shape("where", shape(x), shape(as_value(where)))
    if wanted != shape(x):
        raise ShapeError(f"where: a mask of shape {shape(as_value(where))} does not fit an array of shape {shape(x)}.")
    return pointwise.where(where, x, neutral)


@signed
def mean(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """The mean over some axes, or over all; of the elements where `where` holds.

    >>> import numpy as np, pullback as pb
    >>> pb.mean(np.array([1.0, 2.0, 6.0]))
    array(3.)
    """
    x = as_value(x)
    found = spec_of(x).dtype if dtype is None else as_dtype(dtype)
    if dtype is not None:
        x = shaping.astype(x, found)
    count = counted(x, axis, where, "mean")
    if found == _FLOAT16 or found.name == "bfloat16":  # their sums overflow long before their means
        total = sum(x, axis=axis, dtype=np.float32, keepdims=keepdims, where=where)
        return shaping.astype(pointwise.divide(total, _beside(count, total, axis, keepdims)), found)
    total = sum(x, axis=axis, keepdims=keepdims, where=where)
    return pointwise.divide(total, _beside(count, total, axis, keepdims))


def counted(x: Any, axis: Any, where: Any, what: str) -> Any:
    """How many elements a reduction folds: a number, or with a mask an array with the folded axes kept."""
    axes = all_axes(axis, ndim(x), what)
    if where is None:
        return math.prod(shape(x)[a] for a in axes)
    mask = shaping.broadcast_to(as_value(where), shape(x))
    return apply(_sum, mask, axis=axes, keepdims=True)


def _beside(count: Any, total: Any, axis: Any, keepdims: bool) -> Any:
    """A count in the form of the total it divides."""
    if type(count) in (int, float, Size):
        return count
    found = spec_of(total)
    count = shaping.astype(count, found.dtype if found.inexact else np.float64)
    return count if keepdims else shaping.reshape(count, found.shape)


@signed
def var(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """The variance: the mean squared distance from the mean, over n - correction (NumPy's `ddof`).

    >>> import numpy as np, pullback as pb
    >>> pb.var(np.array([1.0, 2.0, 6.0]), correction=1)
    array(7.)
    """
    x = as_value(x) if dtype is None else shaping.astype(as_value(x), dtype)
    correction = correction if ddof is None else ddof
    middle = _mean(x, axis, keepdims=True, where=where) if mean is None else mean
    away = pointwise.subtract(x, middle)
    squares = pointwise.square(pointwise.abs(away)) if is_complex(x) else pointwise.square(away)
    total = sum(squares, axis=axis, keepdims=keepdims, where=where)
    count = counted(x, axis, where, "var")
    left = max_of(count - correction, 0) if type(count) in (int, Size) else _at_least_zero(count, correction)
    return pointwise.divide(total, _beside(left, total, axis, keepdims))


_mean = mean


def max_of(number: float, least: float) -> float:
    return number if number > least else least


def _at_least_zero(count: Any, correction: float) -> Any:
    return pointwise.maximum(pointwise.subtract(count, correction), 0)


@signed
def std(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """The standard deviation; where all elements are equal, its derivative is zero.

    >>> import numpy as np, pullback as pb
    >>> pb.std(np.array([1.0, 3.0]))
    array(1.)
    """
    return root_of(var(x, axis, dtype, ddof=ddof, correction=correction, keepdims=keepdims, where=where, mean=mean))


def root_of(squares: Any) -> Any:
    """The square root of a sum of squares, with derivative zero where it is zero: nothing moved there."""
    constant = pointwise.equal(squares, 0)
    return pointwise.where(constant, 0.0, pointwise.sqrt(pointwise.where(constant, 1.0, squares)))


def is_safe_divisor(out: Any) -> bool:
    """Whether products known as a bare array may be divided by their factors: none is zero, tiny or infinite."""
    if type(out) is not np.ndarray or out.dtype.kind not in "fc" or out.dtype.itemsize < 4:
        return False
    limits, flat = np.finfo(out.dtype), out.reshape(-1)
    for start in range(0, flat.size, _IN_CACHE):
        sizes = np.abs(flat[start : start + _IN_CACHE])
        if not (sizes.min() >= limits.smallest_normal and sizes.max() <= limits.max):
            return False
    return True


def conjugate(x: Any) -> Any:
    return pointwise.conj(x) if is_complex(x) else x


def _others(x: Any, axis: tuple[int, ...]) -> Any:
    """For each element the product of all others it is multiplied with: those before it times those after it.
    No division, so it is right, and can be differentiated again, also where elements are zero.
    """
    spec = spec_of(x)
    kept = tuple(i for i in range(spec.ndim) if i not in axis)
    order = (*axis, *kept)
    moved = shaping.permute_dims(x, order)
    flat = shaping.reshape(moved, (math.prod(spec.shape[a] for a in axis), *(spec.shape[a] for a in kept)))
    before = scanning.shifted_in(scanning.cumulative_prod(flat, axis=0), 0, 1)
    turned = arranging.flip(flat, axis=0)
    after = arranging.flip(scanning.shifted_in(scanning.cumulative_prod(turned, axis=0), 0, 1), axis=0)
    found = shaping.reshape(pointwise.multiply(before, after), shape(moved))
    return shaping.permute_dims(found, tuple(order.index(i) for i in range(spec.ndim)))


def _pull_prod(bar: Any, x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    spec = spec_of(x)
    if spec_of(bar).dtype.kind == "b":  # a mask: where a cotangent can be, whatever the numbers are
        return unfolded(bar, spec, axis, keepdims)
    if is_safe_divisor(out) and type(x) is np.ndarray and spec.dtype == spec_of(out).dtype:
        return pointwise.divide(_with_ones(pointwise.multiply(bar, conjugate(out)), spec, axis), conjugate(x))
    return pointwise.multiply(_with_ones(bar, spec, axis), conjugate(_others(x, axis)))


def _push_prod(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (tangent,), (x,) = tangents, primals
    if is_safe_divisor(out) and type(x) is np.ndarray and x.dtype == out.dtype:
        return pointwise.multiply(out, sum(pointwise.divide(tangent, x), **static))
    return sum(pointwise.multiply(tangent, _others(x, static["axis"])), **static)


def _with_ones(folded: Any, spec: Spec, axis: tuple[int, ...]) -> Any:
    """A folded value with axes of size one where axes were folded away, ready to broadcast."""
    return shaping.reshape(folded, _folded(spec, axis, True))


def _factors(rng: Any) -> Any:
    one_zero, two_zeros = rng.normal(size=(2, 3)), rng.normal(size=4)
    one_zero[0, 1], two_zeros[[0, 2]] = 0, 0
    return [
        ((rng.normal(size=3),), {"axis": (0,), "keepdims": False}),
        ((one_zero,), {"axis": (1,), "keepdims": True}),
        ((two_zeros,), {"axis": (0,), "keepdims": False}),
        ((rng.normal(size=(2, 3, 2)),), {"axis": (0, 2), "keepdims": False}),
        ((np.asarray(rng.normal()),), {"axis": (), "keepdims": False}),
        ((np.zeros((0, 2)),), {"axis": (0,), "keepdims": False}),
    ]


_prod = general(
    "prod",
    statics={"axis": statics.axes_in_order, "keepdims": statics.flag},
    family="reduction",
    args=("x",),
    doc="The product over axes.",
    value=lambda xp, x, axis, keepdims: xp.asarray(x).prod(axis=axis, keepdims=keepdims),
    spec=lambda x, axis, keepdims: make_spec(_folded(x, axis, keepdims), summed_dtype(x.dtype), x.device),
    pulls={"x": _pull_prod},
    push=_push_prod,
    batch=batching.shifted(axis="axis"),
    samples=_factors,
    motion="rearrange",
)


def prod(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The product over some axes, or over all; every derivative is right at zeros too.

    >>> import numpy as np, pullback as pb
    >>> pb.prod(np.array([2.0, 3.0, 4.0]))
    array(24.)
    """
    x = as_value(x)
    if dtype is not None:
        x = shaping.astype(x, dtype)
    if where is not None:
        x = _filled(x, where, 1)
    out = in_asked_dtype(apply(_prod, x, axis=all_axes(axis, ndim(x), "prod"), keepdims=bool(keepdims)), dtype)
    return out if initial is None else pointwise.multiply(out, initial)


def _chosen(x: Any, out: Any, axis: tuple[int, ...]) -> Any:
    """Which elements are the extreme; a NaN result came from the NaNs."""
    chosen = pointwise.equal(x, _with_ones(out, spec_of(x), axis))
    if type(out) is np.ndarray and not np.isnan(out).any():
        return chosen
    return pointwise.logical_or(chosen, pointwise.isnan(x))


def _shared(chosen: Any, dtype: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Among how many elements each extreme is shared."""
    return shaping.astype(apply(_sum, chosen, axis=axis, keepdims=keepdims), dtype)


def _extreme_spec(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    if any_zero(x.shape[a] for a in axis):
        raise ShapeError(f"max/min: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
    return make_spec(_folded(x, axis, keepdims), x.dtype, x.device)


def any_zero(sizes: Any) -> bool:
    return 0 in tuple(sizes)


def _pull_extreme(bar: Any, x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    spec = spec_of(x)
    chosen = _chosen(x, out, axis)
    return pointwise.only(
        chosen, pointwise.divide(_with_ones(bar, spec, axis), _shared(chosen, spec.dtype, axis, True))
    )


def _push_extreme(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (tangent,), (x,) = tangents, primals
    chosen = _chosen(x, out, static["axis"])
    total = sum(pointwise.where(chosen, tangent, 0), **static)
    return pointwise.divide(total, _shared(chosen, spec_of(x).dtype, **static))


def _with_ties(rng: Any) -> Any:
    return several(
        one(3, axis=(0,), keepdims=False),
        one(2, 3, axis=(1,), keepdims=True),
        one(2, 3, 4, axis=(0, 2), keepdims=False),
        one(axis=(), keepdims=False),
        one(0, 2, axis=(1,), keepdims=False),
    )(rng)


def _extreme(name: str) -> Any:
    return general(
        name,
        statics={"axis": statics.axes_in_order, "keepdims": statics.flag},
        family="reduction",
        args=("x",),
        doc=f"The {name}imum over axes.",
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=_extreme_spec,
        pulls={"x": _pull_extreme},
        push=_push_extreme,
        batch=batching.shifted(axis="axis"),
        samples=_with_ties,
        motion="rearrange",
        form=Fold(f"{name}imum"),
    )


_max, _min = _extreme("max"), _extreme("min")


def max(x: Any, /, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The greatest element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.max(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([5., 7.])
    """
    x = as_value(x)
    if initial is not None or where is not None:
        return _bounded("max", x, axis, keepdims, initial, where)
    return apply(_max, x, axis=all_axes(axis, ndim(x), "max"), keepdims=bool(keepdims))


def min(x: Any, /, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The least element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.min(np.array([3.0, 1.0]))
    array(1.)
    """
    x = as_value(x)
    if initial is not None or where is not None:
        return _bounded("min", x, axis, keepdims, initial, where)
    return apply(_min, x, axis=all_axes(axis, ndim(x), "min"), keepdims=bool(keepdims))


@signed
def _bounded(name: str, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    """An extreme that also counts `initial`, which stands in for what a mask leaves out and for no elements."""
    if initial is None:
        raise ArgumentError(f"{name}: with where there may be nothing to choose from.\n  Pass initial=...")
    op, pick = (_max, pointwise.maximum) if name == "max" else (_min, pointwise.minimum)
    axes = all_axes(axis, ndim(x), name)
    initial = shaping.astype(as_value(initial), spec_of(x).dtype)
    if any_zero(shape(x)[a] for a in axes):
        return shaping.broadcast_to(initial, _folded(spec_of(x), axes, keepdims))
    if where is not None:
        x = _filled(x, where, pointwise.stop_gradient(initial))
    return pick(apply(op, x, axis=axes, keepdims=bool(keepdims)), initial)


def held_fixed(x: Any) -> Any:
    """x as a constant to every derivative; on the tape without a node, so that nothing is pulled to it in vain."""
    x = pointwise.stop_gradient(x)
    return x.detach() if type(x) is Tensor else x


@signed
def logsumexp(x: Any, /, axis: Any = None, *, keepdims: bool = False, b: Any = None, where: Any = None) -> Any:
    """log(sum(b exp(x))) over some axes, or over all, without overflow; b is 1 where it is not given.

    >>> import numpy as np, pullback as pb
    >>> pb.logsumexp(np.array([1000.0, 1000.0]))
    array(1000.69314718)
    """
    x = as_value(x)
    x = x if spec_of(x).inexact else shaping.astype(x, np.float64)
    if where is not None:
        x = _filled(x, where, -np.inf)
    if b is not None:
        x, b = shaping.broadcast_together(x, as_value(b))
    axes = all_axes(axis, ndim(x), "logsumexp")
    if any_zero(shape(x)[a] for a in axes):
        return pointwise.log(sum(pointwise.exp(x), axis=axes, keepdims=keepdims))
    top = max(held_fixed(pointwise.real(x) if is_complex(x) else x), axis=axes, keepdims=True)
    top = pointwise.where(pointwise.isfinite(top), top, 0)
    terms = pointwise.exp(pointwise.subtract(x, top))
    total = sum(terms if b is None else pointwise.multiply(b, terms), axis=axes, keepdims=True)
    nothing = pointwise.equal(total, 0)  # exp(-inf) alone: the logarithm is -inf, and does not move
    out = pointwise.add(pointwise.log(pointwise.add(total, nothing)), pointwise.where(nothing, -np.inf, top))
    return out if keepdims else shaping.reshape(out, _folded(spec_of(x), axes, False))


def _position(name: str) -> Any:
    def value(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    def spec(x: Spec, axis: int, keepdims: bool) -> Spec:
        if not x.shape[axis]:
            raise ShapeError(f"{name}: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
        return make_spec(_folded(x, (axis,), keepdims), np.dtype(np.intp), x.device)

    op = general(
        name,
        statics={"axis": statics.axis, "keepdims": statics.flag},
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
        statics={"axis": statics.axes_in_order, "keepdims": statics.flag},
        family="reduction",
        args=("x",),
        doc=f"Whether {name} element holds.",
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=lambda x, axis, keepdims: make_spec(_folded(x, axis, keepdims), np.dtype(bool), x.device),
        batch=batching.shifted(axis="axis"),
        samples=several(one(3, axis=(0,), keepdims=False), one(2, 3, axis=(0, 1), keepdims=True)),
        form=Fold("logical_or" if name == "any" else "logical_and"),
    )


_any, _all = _truth("any"), _truth("all")


def any(x: Any, /, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether any element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.any(np.array([False, True])))
    True
    """
    x = as_value(x) if where is None else _filled(as_value(x), where, False)
    return apply(_any, x, axis=all_axes(axis, ndim(x), "any"), keepdims=bool(keepdims))


def all(x: Any, /, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether every element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.all(np.array([False, True])))
    False
    """
    x = as_value(x) if where is None else _filled(as_value(x), where, True)
    return apply(_all, x, axis=all_axes(axis, ndim(x), "all"), keepdims=bool(keepdims))
