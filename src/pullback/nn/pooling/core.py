"""Pooling over windows (max, average, Lp), over all elements, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import is_real_float, make_spec, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise import pointwise
from ...ops.fusion import fuse
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.reduce import reductions
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_array
from ...ops.window import pooling
from ...ops.window.patches import Sizes, find_empty_windows, window_counts
from ..geometry import over_axes, padding_pairs, per_axes, per_axis


def _window_parameters(
    what: str, sizes: Sizes, kernel_size: Any, stride: Any, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> dict[str, Any]:
    """The statics of a pooling op. With `ceil_mode` a last window may reach beyond the end, if it starts before it."""
    rank = len(sizes)
    window, dilation = per_axes(what, rank, kernel_size=kernel_size, dilation=dilation)
    stride = window if stride is None else per_axis(stride, rank, f"{what}: stride")
    around = list(padding_pairs(padding, rank, f"{what}: padding"))
    for (low, high), k, d in zip(around, window, dilation, strict=True):
        if 2 * max(low, high) > (k - 1) * d + 1:
            raise ArgumentError(f"{what}: padding {padding} must be at most half of the window {window}.")
    window_counts(what, sizes, window, stride, tuple(around), dilation)
    for i in range(rank if ceil_mode else 0):
        (low, high), reach = around[i], (window[i] - 1) * dilation[i] + 1
        last = -(-(sizes[i] + low + high - reach) // stride[i])
        last -= last * stride[i] >= sizes[i] + low
        around[i] = low, max(last * stride[i] + reach - sizes[i] - low, high)
    return {"window": window, "stride": stride, "padding": tuple(around), "dilation": dilation}


def max_pool(
    what: str, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    how = _window_parameters(what, shape(x)[2:], kernel_size, stride, padding, dilation, ceil_mode)
    index = pooling.argmax_places(x, **how)
    found = pooling.take_places(x, index, **how)
    empty = find_empty_windows(shape(x)[2:], shape(found)[2:], **how)
    if empty is not None:
        found = pointwise.where(namespace_for(x).asarray(empty), pooling.lowest_of(spec_of(x).dtype), found)
    return (found, window_to_flat_index(index, shape(x)[2:], **how)) if return_indices else found


def window_to_flat_index(index: Any, sizes: Sizes, window: Sizes, stride: Sizes, padding: Any, dilation: Sizes) -> Any:
    """Places in windows as places in the flattened grid."""
    xp = namespace_for(index)
    rank, many = len(sizes), shape(index)[2:]
    reach = np.zeros(window, np.int64)
    start = np.zeros(many, np.int64)
    for axis in range(rank):
        weight, wide = math.prod(sizes[axis + 1 :]), (-1, *(1,) * (rank - 1 - axis))
        reach += (np.arange(window[axis]) * dilation[axis] * weight).reshape(wide)
        start += ((np.arange(many[axis]) * stride[axis] - padding[axis][0]) * weight).reshape(wide)
    return pointwise.add(indexing.take(xp.asarray(reach.ravel()), index), xp.asarray(start))


@rounds_once
def avg_pool(
    what: str, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    if divisor_override == 0:
        raise ArgumentError(f"{what}: divisor_override must not be zero.")
    sizes, dtype = shape(x)[2:], spec_of(x).dtype
    how = _window_parameters(what, sizes, kernel_size, stride, padding, 1, ceil_mode)
    total = pooling.sum_windows(x, **how)
    pairs = padding_pairs(padding, len(sizes), what)
    by = divisor_override or _elements_per_window(sizes, shape(total)[2:], how, pairs, count_include_pad)
    if isinstance(by, np.ndarray):
        by = namespace_for(x).asarray(by.astype(dtype if is_real_float(dtype) else float))
    return pointwise.divide(total, by)


def _elements_per_window(sizes: Sizes, many: Sizes, how: dict[str, Any], padding: Any, with_padding: bool) -> Any:
    """How many elements each window averages over: a number if all have the same."""
    total = np.ones((), np.int64)
    for n, m, k, s, (low, high) in zip(sizes, many, how["window"], how["stride"], padding, strict=True):
        start = np.arange(m) * s - low
        first, end = (start, n + high) if with_padding else (np.maximum(start, 0), n)
        total = total[..., None] * (np.minimum(start + k, end) - first)
    return int(total.flat[0]) if total.size and (total == total.flat[0]).all() else total


@rounds_once
def _lp_pool(what: str, x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    if not norm_type >= 1:
        raise ArgumentError(f"{what}: norm_type must be at least 1, got {norm_type!r}.")
    if norm_type == math.inf:
        return max_pool(what, pointwise.abs(x), kernel_size, stride, ceil_mode=ceil_mode)
    how, p = _window_parameters(what, shape(x)[2:], kernel_size, stride, ceil_mode=ceil_mode), float(norm_type)
    total = pooling.sum_windows(pointwise.power(pointwise.abs(x), p), **how)
    # the root has no derivative at zero: there it is taken of one, and the result replaced
    some = pointwise.not_equal(total, 0.0)
    return pointwise.where(some, pointwise.power(pointwise.where(some, total, 1.0), 1 / p), 0.0)


def _max_unpool(
    what: str, x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    rank, indices = ndim(x) - 2, as_value(indices)
    if ndim(indices) == rank + 1:
        indices = reshaping.expand_dims(indices, 0)
    if shape(x) != shape(indices):
        raise ShapeError(f"{what}: an input of shape {shape(x)} wants indices of the same shape, got {shape(indices)}.")
    window = per_axis(kernel_size, rank, f"{what}: kernel_size")
    stride = window if stride is None else per_axis(stride, rank, f"{what}: stride")
    around = per_axis(padding, rank, f"{what}: padding", 0)
    front, many = shape(x)[:2], shape(x)[2:]
    if output_size is None:
        geometry = zip(many, window, stride, around, strict=True)
        sizes: Sizes = tuple((m - 1) * s + k - 2 * p for m, k, s, p in geometry)
    else:
        sizes = per_axis(tuple(output_size)[-rank:], rank, f"{what}: output_size")
    start = zeros(make_spec((*front, math.prod(sizes)), spec_of(x).dtype, spec_of(x).device))
    columns = (*front, math.prod(many))
    put = indexing.put_along_axis(start, reshaping.reshape(indices, columns), reshaping.reshape(x, columns), axis=-1)
    return reshaping.reshape(put, (*front, *sizes))


@over_axes(1, max_pool, fused=True)
def max_pool1d() -> None:
    """The greatest element of each window of x (n, channels, width); as `max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.max_pool1d(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    array([[[3., 2.]]])
    """


@over_axes(2, max_pool, fused=True)
def max_pool2d() -> None:
    """The greatest element of each window of x (n, channels, height, width); without a stride they lie side by side.

    A NaN is the greatest of its window; of equal elements the first, row by row, gets the cotangent. Padding is never
    chosen. With `return_indices` also where each lies in its flattened plane, as `max_unpool2d` takes it.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([[[[1.0, 5.0], [2.0, 0.0]]]])
    >>> pb.nn.max_pool2d(x, 2, return_indices=True)
    (array([[[[5.]]]]), array([[[[1]]]]))
    """


@over_axes(3, max_pool, fused=True)
def max_pool3d() -> None:
    """The greatest element of each window of x (n, channels, depth, height, width); as `max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 2).item()
    7.0
    """


@over_axes(1, avg_pool, fused=True)
def avg_pool1d() -> None:
    """The average of each window of x (n, channels, width); as `avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.avg_pool1d(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    array([[[2., 1.]]])
    """


@over_axes(2, avg_pool, fused=True)
def avg_pool2d() -> None:
    """The average of each window of x (n, channels, height, width); without a stride they lie side by side.

    Zeros of the padding count as elements unless `count_include_pad` is false; `divisor_override` replaces the
    divisor.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.avg_pool2d(np.ones((1, 1, 2, 2)), 2, padding=1)[0, 0]
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """


@over_axes(3, avg_pool, fused=True)
def avg_pool3d() -> None:
    """The average of each window of x (n, channels, depth, height, width); as `avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.avg_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 2).item()
    3.5
    """


@over_axes(1, _lp_pool, fused=True)
def lp_pool1d() -> None:
    """The p-norm of each window of x (n, channels, width); as `lp_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.lp_pool1d(np.array([[[3.0, -4.0]]]), 2, 2)
    array([[[5.]]])
    """


@over_axes(2, _lp_pool, fused=True)
def lp_pool2d() -> None:
    """The p-norm of each window of x (n, channels, height, width): (sum of |x|^p)^(1/p), p at least 1.

    The cotangent of a window that is all zeros is zero.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.lp_pool2d(np.array([[[[3.0, 0.0], [0.0, -4.0]]]]), 2, 2).item()
    5.0
    """


@over_axes(3, _lp_pool, fused=True)
def lp_pool3d() -> None:
    """The p-norm of each window of x (n, channels, depth, height, width); as `lp_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.lp_pool3d(np.ones((1, 1, 2, 2, 2)), 1, 2).item()
    8.0
    """


@over_axes(1, _max_unpool, fused=True)
def max_unpool1d() -> None:
    """The elements of x put back at the places where `max_pool1d` found them, zeros elsewhere; as `max_unpool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.max_unpool1d(np.array([[[3.0, 2.0]]]), np.array([[[1, 2]]]), 2)
    array([[[0., 3., 2., 0.]]])
    """


@over_axes(2, _max_unpool, fused=True)
def max_unpool2d() -> None:
    """The elements of x put back at the places where `max_pool2d` found them, zeros elsewhere.

    Several sizes are pooled to the same one: `output_size` names one of them, by default the smallest. Where windows
    overlapped and named a place twice, the last element stays.

    >>> import numpy as np, pullback as pb
    >>> y, at = pb.nn.max_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2, return_indices=True)
    >>> pb.nn.max_unpool2d(y, at, 2)[0, 0, 1]
    array([0., 5., 0., 7.])
    """


@over_axes(3, _max_unpool, fused=True)
def max_unpool3d() -> None:
    """The elements of x put back at the places where `max_pool3d` found them, zeros elsewhere; as `max_unpool2d`.

    >>> import numpy as np, pullback as pb
    >>> y, at = pb.nn.max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 2, return_indices=True)
    >>> pb.nn.max_unpool3d(y, at, 2)[0, 0, 1, 1]
    array([0., 7.])
    """


@of_array
@fuse(autocast="promote")
@attributed_to_caller
def global_avg_pool(x: Any, *, keepdims: bool = False) -> Any:
    """The average of each channel of x (n, channels, *sizes) over all its sizes.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.global_avg_pool(np.ones((2, 3, 4, 4))).shape
    (2, 3)
    """
    return reductions.mean(x, axis=_spatial_axes(x, "global_avg_pool"), keepdims=keepdims)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
def global_max_pool(x: Any, *, keepdims: bool = False) -> Any:
    """The greatest element of each channel of x (n, channels, *sizes); of equal ones the first gets the cotangent.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.global_max_pool(np.arange(8.0).reshape(1, 2, 4))
    array([[3., 7.]])
    """
    x = as_value(x)
    _spatial_axes(x, "global_max_pool")
    sizes = shape(x)[2:]
    if 0 in sizes:
        raise ShapeError(f"global_max_pool: shape {shape(x)} has no elements to choose from.")
    found = max_pool("global_max_pool", x, sizes)
    return found if keepdims else reshaping.reshape(found, shape(found)[:2])


def _spatial_axes(x: Any, what: str) -> tuple[int, ...]:
    if ndim(as_value(x)) < 3:
        raise ShapeError(f"{what}: wants an input of shape (n, channels, *sizes), got {shape(as_value(x))}.")
    return tuple(range(2, ndim(as_value(x))))
