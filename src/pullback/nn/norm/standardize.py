"""Layer, group, instance and batch norm: mean 0 and variance 1 over a set of elements.

With statistics m and v of a set, y = (x - m) / sqrt(v + eps). A set of one element, or of equal ones, has x = m
exactly, so y = 0; since eps is under the root, every derivative there is finite.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from ...arrays.node import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.axes import as_integer, normalize_axes, normalize_axis
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import divide, equal, power, sqrt, square, where
from ...ops.index.indexing import getitem
from ...ops.reduce import reductions
from ...ops.reduce.reductions import as_constant
from ...ops.shape import arrange, reshaping
from ..arguments import as_floats, expand_along_axis, require_rank, widen


def _safe_stddev(spread: Any, eps: float) -> Any:
    """sqrt(v + eps); without eps, 1 where v is zero, since what is divided by it is zero too."""
    if eps < 0:
        raise ArgumentError(f"a norm's eps must not be negative, got {eps}.")
    total = spread + eps
    return sqrt(total if eps else where(equal(total, 0), 1.0, total))


def _center_and_moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x less its mean, the mean and the variance over axes, with keepdims."""
    middle = reductions.mean(x, axis=axes, keepdims=True)
    away = x - middle
    return away, middle, reductions.mean(square(away), axis=axes, keepdims=True)


def _standardize(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    away, _, spread = _center_and_moments(x, axes)
    return divide(away, _safe_stddev(spread, eps))


def _expand_parameter(weight: Any, x: Any, axes: tuple[int, ...], what: str) -> Any:
    """A weight of the shape of the normalized axes, reshaped to broadcast."""
    weight = as_value(weight)
    wanted = tuple(shape(x)[a] for a in axes)
    if shape(weight) != wanted:
        raise ShapeError(f"{what} has shape {shape(weight)}, the normalized axes have {wanted}.")
    return reshaping.reshape(weight, tuple(n if a in axes else 1 for a, n in enumerate(shape(x))))


def _scale_and_shift(y: Any, weight: Any, bias: Any, x: Any) -> Any:
    """y times a weight plus a bias, in the dtype of x if that is narrow."""
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return reshaping.astype(y, spec_of(x).dtype) if spec_of(x).dtype.itemsize < 4 else y


@attributed_to_caller
def layer_norm(x: Any, /, weight: Any = None, bias: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 over the last axis, or those named; then times `weight` plus `bias`, of those axes' shape.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), eps=0.0)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    x = as_floats(x, "layer_norm")
    axes = normalize_axes(axis, ndim(x), "layer_norm")
    w, b = (
        None if p is None else _expand_parameter(p, x, axes, f"layer_norm: {name}")
        for p, name in ((weight, "weight"), (bias, "bias"))
    )
    return _scale_and_shift(_standardize(widen(x), axes, eps), w, b, x)


@attributed_to_caller
def rms_norm(x: Any, /, weight: Any = None, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """x over the root of its mean square along the last axis, or those named; then times `weight`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.rms_norm(np.array([3.0, 3.0]), eps=0.0)
    array([1., 1.])
    """
    x = as_floats(x, "rms_norm")
    axes = normalize_axes(axis, ndim(x), "rms_norm")
    weight = None if weight is None else _expand_parameter(weight, x, axes, "rms_norm: weight")
    far = widen(x)
    mean_square = reductions.mean(square(far), axis=axes, keepdims=True)
    return _scale_and_shift(divide(far, _safe_stddev(mean_square, eps)), weight, None, x)


def _expand_channels(x: Any, axis: int, what: str, **vectors: Any) -> list[Any]:
    """Vectors of one value for each channel, reshaped to broadcast; None stays."""
    expand = functools.partial(expand_along_axis, axis=axis, rank=ndim(x), size=shape(x)[axis])
    return [None if v is None else expand(v, what=f"{what}: {name}") for name, v in vectors.items()]


@attributed_to_caller
def group_norm(x: Any, /, groups: int, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """The channels (axis 1) in groups, each group of each sample with mean 0 and variance 1; `weight` and `bias` have
    one value for each channel.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    x = require_rank(as_floats(x, "group_norm"), 2, "group_norm", "(batch, channels, ...)")
    groups = as_integer(groups, "group_norm: groups")
    batch, channels, *rest = shape(x)
    if groups < 1 or channels % groups:
        raise ShapeError(f"group_norm: {channels} channels do not make {groups} groups.")
    w, b = _expand_channels(x, 1, "group_norm", weight=weight, bias=bias)
    split = reshaping.reshape(widen(x), (batch, groups, channels // groups, *rest))
    y = reshaping.reshape(_standardize(split, tuple(range(2, ndim(split))), eps), shape(x))
    return _scale_and_shift(y, w, b, x)


@attributed_to_caller
def instance_norm(x: Any, /, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Each channel of each sample with mean 0 and variance 1 over its spatial axes.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.instance_norm(np.array([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    x = require_rank(as_floats(x, "instance_norm"), 3, "instance_norm", "(batch, channels, spatial axes)")
    w, b = _expand_channels(x, 1, "instance_norm", weight=weight, bias=bias)
    return _scale_and_shift(_standardize(widen(x), tuple(range(2, ndim(x))), eps), w, b, x)


@attributed_to_caller
def batch_norm(
    x: Any,
    /,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    axis: int = 1,
) -> tuple[Any, Any, Any]:
    """Each channel with mean 0 and variance 1 over all other axes: `(y, running_mean, running_var)`.

    While training, by the statistics of x, which move the running ones by a share `momentum`; the new ones are
    constants to every derivative. Otherwise by the running ones, which are returned as they were. Nothing
    is changed in place.

    >>> import numpy as np, pullback as pb
    >>> y, mean, var = pb.nn.batch_norm(np.array([[1.0], [3.0]]), np.zeros(1), np.ones(1), training=True, eps=0.0)
    >>> y.ravel(), mean, var
    (array([-1.,  1.]), array([0.2]), array([1.1]))
    """
    x = require_rank(as_floats(x, "batch_norm"), 2, "batch_norm", "(batch, channels, ...)")
    axis = normalize_axis(axis, ndim(x), "batch_norm")
    w, b = _expand_channels(x, axis, "batch_norm", weight=weight, bias=bias)
    if training:
        return _normalize_by_batch(x, running_mean, running_var, w, b, momentum, eps, axis)
    if running_mean is None or running_var is None:
        raise ArgumentError("batch_norm: without training it wants running_mean and running_var.")
    m, v = _expand_channels(x, axis, "batch_norm", running_mean=running_mean, running_var=running_var)
    y = (widen(x) - m) / _safe_stddev(v, eps)
    return _scale_and_shift(y, w, b, x), running_mean, running_var


@attributed_to_caller
def _normalize_and_scale(x: Any, away: Any, spread: Any, w: Any, b: Any, eps: float) -> Any:
    return _scale_and_shift(divide(away, _safe_stddev(spread, eps)), w, b, x)


def _normalize_by_batch(
    x: Any, mean: Any, var: Any, w: Any, b: Any, momentum: float, eps: float, axis: int
) -> tuple[Any, Any, Any]:
    axes = tuple(a for a in range(ndim(x)) if a != axis)
    count = math.prod(shape(x)[a] for a in axes)
    if not count:
        raise ShapeError(f"batch_norm: no elements to take statistics of in shape {shape(x)}.")
    away, middle, spread = _center_and_moments(widen(x), axes)
    # The running variance is that of what the batch was drawn from: the sum of squares over count - 1.
    fair = spread * (count / max(count - 1, 1))
    old_mean, old_var = _expand_channels(x, axis, "batch_norm", running_mean=mean, running_var=var)
    means, variances = _update_running(old_mean, middle, momentum), _update_running(old_var, fair, momentum)
    return _normalize_and_scale(x, away, spread, w, b, eps), means, variances


def _update_running(old: Any, new: Any, momentum: float) -> Any:
    if old is None:
        return None
    old, new = as_constant(old), reshaping.astype(as_constant(new), spec_of(old).dtype)
    return reshaping.reshape(old + (new - old) * momentum, (spec_of(old).size,))


@attributed_to_caller
def local_response_norm(
    x: Any, /, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, axis: int = 1
) -> Any:
    """x / (k + alpha * m)^beta, where m is the mean square over `size` neighboring channels, zeros beyond the ends.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.local_response_norm(np.array([[3.0, 3.0]]), 1, 1.0, 0.5, 0.0)
    array([[1., 1.]])
    """
    x = require_rank(as_floats(x, "local_response_norm"), 2, "local_response_norm", "(batch, channels, ...)")
    axis, size = normalize_axis(axis, ndim(x), "local_response_norm"), as_integer(size, "local_response_norm: size")
    if size < 1:
        raise ArgumentError(f"local_response_norm: size must be at least 1, got {size}.")
    widths = [(size // 2, (size - 1) // 2) if a == axis else (0, 0) for a in range(ndim(x))]
    squares = arrange.pad(square(x), widths)
    before, channels = (slice(None),) * axis, shape(x)[axis]
    total = functools.reduce(operator.add, (getitem(squares, (*before, slice(i, i + channels))) for i in range(size)))
    return divide(x, power(total * (alpha / size) + k, beta))
