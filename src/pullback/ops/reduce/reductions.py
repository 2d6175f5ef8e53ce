"""Reductions over axes: sums, products, extremes, the composites over them, and fitting cotangents to specs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...arrays.argument_checks import explains_keywords, refuse_keywords
from ...arrays.backends import namespace_on
from ...arrays.call_site import attributed_to_caller
from ...arrays.dtypes import as_dtype
from ...arrays.size import Size
from ...arrays.spec import Spec, derivative_dtype, is_half, is_inexact, make_spec, spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError, DtypeError, ShapeError
from ...settings import modes
from .. import statics
from ..axes import normalize_axes, normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..eager import function_at_depth
from ..elementwise import pointwise
from ..families import broadcast_shape, conjugate_if_complex, general, is_complex, linear
from ..forms import Expand, Reduce, elsewhere
from ..fusion import cast_whole
from ..lazy import lazy_function
from ..op import Op
from ..op_samples import join_samples, normal_samples
from ..placement import move
from ..remember import Outcomes
from ..round_once import rounds_once
from ..shape import arrange, reshaping
from ..signatures import ArrayFunction, of_array, of_mixed_arrays
from . import scans
from .scans import cast_if_asked, is_safe_divisor, sum_dtype

_sum_on_gpu = lazy_function("cuda.eager_sums", "sum_array", "compile")
_bind_sum_on_gpu = lazy_function("cuda.eager_sums", "bind_sum", "compile")


def _folded_shape(x: Spec, axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    return tuple(n for i, n in enumerate(x.shape) if i not in axis)


def broadcast_folded(bar: Any, spec: Spec, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduced value broadcast over the reduced axes."""
    if not keepdims and len(axis) < spec.ndim:  # a 0-d value broadcasts as it is
        bar = reshaping.reshape(bar, _folded_shape(spec, axis, True))
    return reshaping.broadcast_checked(bar, spec.shape)


_AXES = {"axis": statics.axes_in_order, "keepdims": statics.flag}
#: An op over axes that is not linear; what `general` wants, less its static parameters.
_reduction_op = partial(general, family="reduction", statics=_AXES)
_samples = normal_samples(
    [(3,), (2, 3), (2, 3, 4), (), (0, 2)],
    axis=[(0,), (1,), (0, 2), (), (1,)],
    keepdims=[False, True, False, False, False],
)


def _bind_reduce(ufunc: np.ufunc, axis: tuple[int, ...], keepdims: bool) -> Any:
    """What NumPy's `x.sum(axis=axis, keepdims=keepdims)` calls in the end."""
    return partial(ufunc.reduce, axis=axis, keepdims=True) if keepdims else partial(ufunc.reduce, axis=axis)


def _sum_value(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    found = None if xp is np else _sum_on_gpu(x, axis, keepdims)
    return xp.asarray(x).sum(axis=axis, keepdims=keepdims) if found is None else found


_sum = linear(
    "sum",
    statics=_AXES,
    value=_sum_value,
    spec=lambda x, axis, keepdims: make_spec(_folded_shape(x, axis, keepdims), sum_dtype(x.dtype), x.device),
    transpose=lambda bar, x_spec, axis, keepdims: broadcast_folded(bar, x_spec, axis, keepdims),
    samples=join_samples(_samples, normal_samples([(0, 2)], axis=(0,), keepdims=False)),
    sums=True,
    form=Reduce("add"),
    direct=lambda x, axis, keepdims: _bind_reduce(np.add, axis, keepdims),
    on_gpu=lambda x, axis, keepdims: _bind_sum_on_gpu(x, axis, keepdims),
)


def _out_error(what: str) -> ArgumentError:
    """For `out`, which is there for callers that pass NumPy's parameters in order, as `cupy.sum(x)` does."""
    return ArgumentError(f"{what}: out= would overwrite a value, and values never change.\n  Use the result.")


_sum_outcomes = Outcomes()


@of_array
@_sum_outcomes.of
@explains_keywords
def sum(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
    dim: None = None,
    keepdim: None = None,
) -> Any:
    """The sum over some axes, or over all; of the elements where `where` holds, and with `initial` added.

    >>> import numpy as np, pullback as pb
    >>> pb.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(sum, dim=dim, keepdim=keepdim)
    if out is not None:
        raise _out_error("sum")
    if type(x) is Tensor and (run := _sum_outcomes.find(x, axis, dtype, keepdims, initial, where)) is not None:
        return run(x)
    x = as_value(x)
    if dtype is not None:
        x = reshaping.astype(x, dtype)
    if where is not None:
        x = _fill_masked(x, where, 0)
    found = cast_if_asked(apply(_sum, x, axis=normalize_axes(axis, ndim(x), "sum"), keepdims=bool(keepdims)), dtype)
    return found if initial is None else pointwise.add(found, initial)


def _fill_masked(x: Any, where: Any, neutral: Any) -> Any:
    """x with the identity wherever the mask does not hold."""
    if spec_of(as_value(where)).dtype.kind != "b":
        raise DtypeError(f"where must be a mask of booleans, got {spec_of(as_value(where)).dtype}.")
    wanted = broadcast_shape("where", shape(x), shape(as_value(where)))
    if wanted != shape(x):
        raise ShapeError(f"where: a mask of shape {shape(as_value(where))} does not fit an array of shape {shape(x)}.")
    return pointwise.where(where, x, neutral)


@of_array
@explains_keywords
def mean(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
    dim: None = None,
    keepdim: None = None,
) -> Any:
    """The mean over some axes, or over all; of the elements where `where` holds.

    >>> import numpy as np, pullback as pb
    >>> pb.mean(np.array([1.0, 2.0, 6.0]))
    array(3.)
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(mean, dim=dim, keepdim=keepdim)
    simple = type(x) is Tensor and x.spec.plain is not None and not x.spec.half and dtype is where is out is None
    if simple and modes().autocast is None:
        total = sum(x, axis=axis, keepdims=keepdims)
        if total.spec.plain is not None and total.value.size:
            return _caller_divide(total, x.value.size // total.value.size)
    if out is not None:
        raise _out_error("mean")
    return _mean_general(x, axis, dtype, keepdims, where)


_caller_divide = function_at_depth(pointwise.divide.op, 2)


@cast_whole("high", name="mean")
@attributed_to_caller
def _mean_general(x: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    x = as_value(x)
    found = spec_of(x).dtype if dtype is None else as_dtype(dtype)
    if dtype is not None:
        x = reshaping.astype(x, found)
    count = count_elements(x, axis, where, "mean")
    if is_half(found):  # their sums overflow long before their means
        total = sum(x, axis=axis, dtype=np.float32, keepdims=keepdims, where=where)
        return reshaping.narrow(pointwise.divide(total, _match_total(count, total, axis, keepdims)), found)
    total = sum(x, axis=axis, keepdims=keepdims, where=where)
    return pointwise.divide(total, _match_total(count, total, axis, keepdims))


def count_elements(x: Any, axis: Any, where: Any, what: str) -> Any:
    """How many elements a reduction combines: a number, or with a mask an array with the reduced axes kept."""
    axes = normalize_axes(axis, ndim(x), what)
    if where is None:
        return math.prod(shape(x)[a] for a in axes)
    mask = reshaping.broadcast_to(as_value(where), shape(x))
    return apply(_sum, mask, axis=axes, keepdims=True)


def _match_total(count: Any, total: Any, axis: Any, keepdims: bool) -> Any:
    """A count in the shape of the total it divides."""
    if type(count) in (int, float, Size):
        return count
    found = spec_of(total)
    count = reshaping.astype(count, found.dtype if found.inexact else np.float64)
    return count if keepdims else reshaping.reshape(count, found.shape)


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
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
    x = as_value(x) if dtype is None else reshaping.astype(as_value(x), dtype)
    correction = correction if ddof is None else ddof
    middle = _mean(x, axis, keepdims=True, where=where) if mean is None else mean
    deviations = pointwise.subtract(x, middle)
    squares = pointwise.square(pointwise.abs(deviations)) if is_complex(x) else pointwise.square(deviations)
    total = sum(squares, axis=axis, keepdims=keepdims, where=where)
    count = count_elements(x, axis, where, "var")
    if type(count) in (int, Size):
        left: Any = count - correction if count > correction else 0
    else:
        left = pointwise.maximum(pointwise.subtract(count, correction), 0)
    return pointwise.divide(total, _match_total(left, total, axis, keepdims))


_mean = mean


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
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
    return safe_sqrt(var(x, axis, dtype, ddof=ddof, correction=correction, keepdims=keepdims, where=where, mean=mean))


def safe_sqrt(squares: Any) -> Any:
    """The square root of a sum of squares, with derivative zero where it is zero."""
    constant = pointwise.equal(squares, 0)
    return pointwise.where(constant, 0.0, pointwise.sqrt(pointwise.where(constant, 1.0, squares)))


def _product_of_others(x: Any, axis: tuple[int, ...]) -> Any:
    """For each element the product of all others it is multiplied with: those before it times those after it.
    No division, so it is correct and differentiable also where elements are zero.
    """
    spec = spec_of(x)
    kept = tuple(i for i in range(spec.ndim) if i not in axis)
    order = (*axis, *kept)
    moved = reshaping.permute_dims(x, order)
    flat = reshaping.reshape(moved, (math.prod(spec.shape[a] for a in axis), *(spec.shape[a] for a in kept)))
    before = scans.shift_forward(scans.cumulative_prod(flat, axis=0), 0, 1)
    flipped = arrange.flip(flat, axis=0)
    after = arrange.flip(scans.shift_forward(scans.cumulative_prod(flipped, axis=0), 0, 1), axis=0)
    found = reshaping.reshape(pointwise.multiply(before, after), shape(moved))
    return reshaping.permute_dims(found, tuple(order.index(i) for i in range(spec.ndim)))


def _pull_prod(bar: Any, x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    spec = spec_of(x)
    if spec_of(bar).dtype.kind == "b":  # a mask of where a cotangent can be nonzero, independent of values
        return broadcast_folded(bar, spec, axis, keepdims)
    if is_safe_divisor(out) and type(x) is np.ndarray and spec.dtype == spec_of(out).dtype:
        return pointwise.divide(
            _expand_folded(pointwise.multiply(bar, conjugate_if_complex(out)), spec, axis), conjugate_if_complex(x)
        )
    return pointwise.multiply(_expand_folded(bar, spec, axis), conjugate_if_complex(_product_of_others(x, axis)))


def _push_prod(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (tangent,), (x,) = tangents, primals
    if is_safe_divisor(out) and type(x) is np.ndarray and x.dtype == out.dtype:
        return pointwise.multiply(out, sum(pointwise.divide(tangent, x), **static))
    return sum(pointwise.multiply(tangent, _product_of_others(x, static["axis"])), **static)


def _expand_folded(folded: Any, spec: Spec, axis: tuple[int, ...]) -> Any:
    """A reduced value with the reduced axes as size one, ready to broadcast."""
    return reshaping.reshape(folded, _folded_shape(spec, axis, True))


def _prod_samples(rng: Any) -> Any:
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


def _multiply_halves(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The first half of the factors times the second, again and again."""
    spec = spec_of(x)
    kept = [i for i in range(spec.ndim) if i not in axis]
    count, shape_kept = math.prod(spec.shape[a] for a in axis), tuple(spec.shape[i] for i in kept)
    moved = reshaping.permute_dims(reshaping.astype(x, sum_dtype(spec.dtype)), (*axis, *kept))
    rows = reshaping.reshape(moved, (count, *shape_kept))
    if not count:
        rows, count = np.ones((1, *shape_kept), sum_dtype(spec.dtype)), 1
    while count > 1:
        half = count // 2
        first, second, *rest = arrange.split(rows, [half, 2 * half][: 1 + count % 2])
        product = pointwise.multiply(first, second)
        rows = arrange.concat([product, *rest], axis=0) if rest else product
        count -= half
    return reshaping.reshape(rows, _folded_shape(spec, axis, keepdims))


_prod = _reduction_op(
    "prod",
    value=lambda xp, x, axis, keepdims: xp.asarray(x).prod(axis=axis, keepdims=keepdims),
    spec=lambda x, axis, keepdims: make_spec(_folded_shape(x, axis, keepdims), sum_dtype(x.dtype), x.device),
    pulls={"x": _pull_prod},
    push=_push_prod,
    samples=_prod_samples,
    form=elsewhere(_multiply_halves),
    rearranges=True,
)


_prod_outcomes = Outcomes()


@of_array
@_prod_outcomes.of
@explains_keywords
def prod(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
    dim: None = None,
    keepdim: None = None,
) -> Any:
    """The product over some axes, or over all; every derivative is correct at zeros too.

    >>> import numpy as np, pullback as pb
    >>> pb.prod(np.array([2.0, 3.0, 4.0]))
    array(24.)
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(prod, dim=dim, keepdim=keepdim)
    if out is not None:
        raise _out_error("prod")
    if type(x) is Tensor and (run := _prod_outcomes.find(x, axis, dtype, keepdims, initial, where)) is not None:
        return run(x)
    x = as_value(x)
    if dtype is not None:
        x = reshaping.astype(x, dtype)
    if where is not None:
        x = _fill_masked(x, where, 1)
    found = cast_if_asked(apply(_prod, x, axis=normalize_axes(axis, ndim(x), "prod"), keepdims=bool(keepdims)), dtype)
    return found if initial is None else pointwise.multiply(found, initial)


def _extreme_mask(x: Any, out: Any, axis: tuple[int, ...]) -> Any:
    """Which elements equal the extreme; a NaN result selects the NaNs."""
    chosen = pointwise.equal(x, _expand_folded(out, spec_of(x), axis))
    if type(out) is np.ndarray and not np.isnan(out).any():
        return chosen
    return pointwise.logical_or(chosen, pointwise.isnan(x))


def _count_ties(chosen: Any, dtype: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Among how many elements each extreme is shared."""
    return reshaping.astype(apply(_sum, chosen, axis=axis, keepdims=keepdims), dtype)


def _extreme_spec(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Spec:
    if has_zero(x.shape[a] for a in axis):
        raise ShapeError(f"max/min: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
    return make_spec(_folded_shape(x, axis, keepdims), x.dtype, x.device)


def has_zero(sizes: Any) -> bool:
    return 0 in tuple(sizes)


def _pull_extreme(bar: Any, x: Any, out: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    spec = spec_of(x)
    chosen = _extreme_mask(x, out, axis)
    return pointwise.mask_cotangent(
        chosen, pointwise.divide(_expand_folded(bar, spec, axis), _count_ties(chosen, spec.dtype, axis, True))
    )


def _push_extreme(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (tangent,), (x,) = tangents, primals
    chosen = _extreme_mask(x, out, static["axis"])
    total = sum(pointwise.where(chosen, tangent, 0), **static)
    return pointwise.divide(total, _count_ties(chosen, spec_of(x).dtype, **static))


def _extreme_op(name: str) -> Any:
    return _reduction_op(
        name,
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=_extreme_spec,
        pulls={"x": _pull_extreme},
        push=_push_extreme,
        samples=_samples,
        rearranges=True,
        form=Reduce(f"{name}imum"),
        direct=lambda x, axis, keepdims: _bind_reduce(getattr(np, f"{name}imum"), axis, keepdims),
    )


_max, _min = _extreme_op("max"), _extreme_op("min")


_max_outcomes = Outcomes()


@of_array
@_max_outcomes.of
@explains_keywords
def max(
    x: Any,
    /,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
    dim: None = None,
    keepdim: None = None,
) -> Any:
    """The greatest element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.max(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([5., 7.])
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(max, dim=dim, keepdim=keepdim)
    if out is not None:
        raise _out_error("max")
    if type(x) is Tensor and (run := _max_outcomes.find(x, axis, keepdims, initial, where)) is not None:
        return run(x)
    return _extreme(_max, pointwise.maximum, x, axis, keepdims, initial, where)


_min_outcomes = Outcomes()


@of_array
@_min_outcomes.of
@explains_keywords
def min(
    x: Any,
    /,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
    dim: None = None,
    keepdim: None = None,
) -> Any:
    """The least element over some axes, or over all; ties share the cotangent evenly.

    >>> import numpy as np, pullback as pb
    >>> pb.min(np.array([3.0, 1.0]))
    array(1.)
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(min, dim=dim, keepdim=keepdim)
    if out is not None:
        raise _out_error("min")
    if type(x) is Tensor and (run := _min_outcomes.find(x, axis, keepdims, initial, where)) is not None:
        return run(x)
    return _extreme(_min, pointwise.minimum, x, axis, keepdims, initial, where)


def _extreme(op: Op, pick: Any, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    x = as_value(x)
    axes, keepdims = normalize_axes(axis, ndim(x), op.name), bool(keepdims)
    if initial is None and where is None:
        return apply(op, x, axis=axes, keepdims=keepdims)
    if initial is None:
        raise ArgumentError(f"{op.name}: with where= the selection may be empty.\n  Pass initial=...")
    return _extreme_with_initial(op, pick, x, axes, keepdims, initial, where)


@attributed_to_caller
def _extreme_with_initial(
    op: Op, pick: Any, x: Any, axes: tuple[int, ...], keepdims: bool, initial: Any, where: Any
) -> Any:
    """An extreme that also counts `initial`, which replaces masked elements and serves an empty axis."""
    initial = reshaping.astype(as_value(initial), spec_of(x).dtype)
    if has_zero(shape(x)[a] for a in axes):
        return reshaping.broadcast_to(initial, _folded_shape(spec_of(x), axes, keepdims))
    if where is not None:
        x = _fill_masked(x, where, pointwise.stop_gradient(initial))
    return pick(apply(op, x, axis=axes, keepdims=keepdims), initial)


def as_constant(x: Any) -> Any:
    """x as a constant to every derivative; on the tape without a node, so that no cotangent is computed for it."""
    x = pointwise.stop_gradient(x)
    return x.detach() if type(x) is Tensor else x


@of_mixed_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def logsumexp(x: Any, /, axis: Any = None, *, keepdims: bool = False, b: Any = None, where: Any = None) -> Any:
    """log(sum(b exp(x))) over some axes, or over all, without overflow; b is 1 where it is not given.

    >>> import numpy as np, pullback as pb
    >>> pb.logsumexp(np.array([1000.0, 1000.0]))
    array(1000.69314718)
    """
    x = as_value(x)
    x = x if spec_of(x).inexact else reshaping.astype(x, np.float64)
    if where is not None:
        x = _fill_masked(x, where, -np.inf)
    if b is not None:
        x, b = reshaping.broadcast_together(x, as_value(b))
    axes = normalize_axes(axis, ndim(x), "logsumexp")
    if has_zero(shape(x)[a] for a in axes):
        return pointwise.log(sum(pointwise.exp(x), axis=axes, keepdims=keepdims))
    top = max(as_constant(pointwise.real(x) if is_complex(x) else x), axis=axes, keepdims=True)
    top = pointwise.where(pointwise.isfinite(top), top, 0)
    terms = pointwise.exp(pointwise.subtract(x, top))
    total = sum(terms if b is None else pointwise.multiply(b, terms), axis=axes, keepdims=True)
    nothing = pointwise.equal(total, 0)  # exp(-inf) alone: the logarithm is -inf, with derivative zero
    out = pointwise.add(pointwise.log(pointwise.add(total, nothing)), pointwise.where(nothing, -np.inf, top))
    return out if keepdims else reshaping.reshape(out, _folded_shape(spec_of(x), axes, False))


def _position_function(name: str) -> Any:
    def value(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    def spec(x: Spec, axis: int, keepdims: bool) -> Spec:
        if not x.shape[axis]:
            raise ShapeError(f"{name}: shape {x.shape} has no elements along axis {axis}, so there is no extreme.")
        return make_spec(_folded_shape(x, (axis,), keepdims), np.dtype(np.intp), x.device)

    def stage(x: Any, axis: int, keepdims: bool) -> Any:
        """Where NumPy runs it, it needs no other ops."""
        at = spec_of(x)
        return None if at.device == "cpu" or at.dtype.kind == "c" else find_first(x, axis, keepdims)

    def find_first(x: Any, axis: int, keepdims: bool) -> Any:
        """The first position of the extreme, or of a NaN."""
        at = spec_of(x)
        extreme = (max if name == "argmax" else min)(x, axis=axis, keepdims=True)
        found = pointwise.logical_or(pointwise.equal(x, extreme), pointwise.not_equal(x, x))
        numbers = namespace_on(at.device).arange(at.shape[axis]).reshape(-1, *[1] * (at.ndim - 1 - axis))
        return min(pointwise.where(found, numbers, at.shape[axis]), axis=axis, keepdims=keepdims)

    op = _reduction_op(
        name,
        statics={"axis": statics.axis, "keepdims": statics.flag},
        value=value,
        spec=spec,
        form=Expand(stage, find_first),
        samples=normal_samples([(3,), (2, 3)], axis=[0, 1], keepdims=[False, True]),
    )

    def position(
        x: Any, /, axis: int | None = None, *, keepdims: bool = False, dim: None = None, keepdim: None = None
    ) -> Any:
        if dim is not None or keepdim is not None:
            refuse_keywords(position, dim=dim, keepdim=keepdim)
        x = as_value(x)
        if axis is not None:
            return apply(op, x, axis=normalize_axis(axis, ndim(x), name), keepdims=bool(keepdims))
        flat = apply(op, reshaping.reshape(x, (-1,)), axis=0, keepdims=False)
        return reshaping.reshape(flat, (1,) * ndim(x)) if keepdims else flat

    position.__name__ = position.__qualname__ = name
    position.__doc__ = f"""The index of the {name[3:]}imum along an axis, or in the flattened array.

    >>> import numpy as np, pullback as pb
    >>> int(pb.{name}(np.array([2.0, {"5.0" if name == "argmax" else "1.0"}, 3.0])))
    1
    """
    return explains_keywords(position)


argmax: ArrayFunction[...] = _position_function("argmax")
argmin: ArrayFunction[...] = _position_function("argmin")


def _truth_op(name: str) -> Any:
    return _reduction_op(
        name,
        value=lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims),
        spec=lambda x, axis, keepdims: make_spec(_folded_shape(x, axis, keepdims), np.dtype(bool), x.device),
        samples=normal_samples([(3,), (2, 3)], axis=[(0,), (0, 1)], keepdims=[False, True]),
        form=Reduce("logical_or" if name == "any" else "logical_and"),
    )


_any, _all = _truth_op("any"), _truth_op("all")


@of_array
@explains_keywords
def any(
    x: Any, /, axis: Any = None, *, keepdims: bool = False, where: Any = None, dim: None = None, keepdim: None = None
) -> Any:
    """Whether any element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.any(np.array([False, True])))
    True
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(any, dim=dim, keepdim=keepdim)
    x = as_value(x) if where is None else _fill_masked(as_value(x), where, False)
    return apply(_any, x, axis=normalize_axes(axis, ndim(x), "any"), keepdims=bool(keepdims))


@of_array
@explains_keywords
def all(
    x: Any, /, axis: Any = None, *, keepdims: bool = False, where: Any = None, dim: None = None, keepdim: None = None
) -> Any:
    """Whether every element is not zero.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.all(np.array([False, True])))
    False
    """
    if dim is not None or keepdim is not None:
        refuse_keywords(all, dim=dim, keepdim=keepdim)
    x = as_value(x) if where is None else _fill_masked(as_value(x), where, True)
    return apply(_all, x, axis=normalize_axes(axis, ndim(x), "all"), keepdims=bool(keepdims))


def sum_to(bar: Any, shape_wanted: tuple[int, ...]) -> Any:
    """The transpose of broadcasting: sums over every axis that broadcasting added or expanded."""
    given = shape(bar)
    extra = len(given) - len(shape_wanted)
    stretched = (i + extra for i, n in enumerate(shape_wanted) if n == 1 and given[i + extra] != 1)
    return reshaping.reshape(sum(bar, axis=(*range(extra), *stretched)), shape_wanted)


def any_to(mask: Any, shape_wanted: tuple[int, ...]) -> Any:
    """For each element that was broadcast, whether the mask holds for any of its copies."""
    return pointwise.not_equal(sum_to(mask, shape_wanted), 0)


def fit_to_spec(bar: Any, spec: Spec) -> Any:
    """A cotangent in the shape and dtype of the value it belongs to."""
    found = spec_of(bar)
    if found.shape != spec.shape:
        bar = sum_to(bar, spec.shape)
    if found.dtype != spec.dtype and is_inexact(spec.dtype):
        if is_complex(bar) and spec.dtype.kind != "c":
            bar = pointwise.real(bar)
        bar = reshaping.narrow(bar, derivative_dtype(spec.dtype))
    if found.device != spec.device:  # of an array without axes, which counts as a number beside those of a GPU
        bar = move(bar, spec.device)
    return bar
