"""Normalization: of sets of elements to mean 0 and variance 1, of vectors and weights by a length.

With statistics m and v of a set, y = (x - m) / sqrt(v + eps). A set of one element, or of equal ones, has x = m
exactly, so y = 0; since eps is under the root, every derivative there is finite.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from ..arrays.call_site import attributed_to_caller
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import random
from ..ops.axes import as_integer, normalize_axes, normalize_axis
from ..ops.collective.collectives import shared, total
from ..ops.concrete import is_known_zero
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import divide, equal, less, multiply, power, sqrt, square, where
from ..ops.fusion import cast_whole, fuse
from ..ops.index.indexing import getitem
from ..ops.linalg import vector_norm
from ..ops.reduce import reductions
from ..ops.reduce.deviations import squared_deviations
from ..ops.reduce.reductions import as_constant, safe_sqrt
from ..ops.round_once import rounds_once
from ..ops.shape import arrange, reshaping
from ..ops.signatures import of_array, of_mixed_arrays, of_two_arrays
from .arguments import as_floats, expand_along_axis, key_on_device_of, require_rank, widen


def _invert_stddev(spread: Any, eps: float) -> Any:
    """1 / sqrt(v + eps), since a product takes less time than a division for each element; without eps, 1 where v is
    zero, since what it multiplies is zero too.
    """
    if eps < 0:
        raise ArgumentError(f"a norm's eps must not be negative, got {eps}.")
    above = spread + eps
    return divide(1, sqrt(above if eps else where(equal(above, 0), 1.0, above)))


def _center_and_moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x less its mean, the mean and the variance over axes, with keepdims."""
    middle = reductions.mean(x, axis=axes, keepdims=True)
    count = math.prod(shape(x)[a] for a in axes)
    return x - middle, middle, divide(squared_deviations(x, axes), count)


def _standardize(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    away, _, spread = _center_and_moments(x, axes)
    return multiply(away, _invert_stddev(spread, eps))


def _expand_parameter(weight: Any, x: Any, axes: tuple[int, ...], what: str) -> Any:
    """A weight of the shape of the normalized axes, reshaped to broadcast; None stays."""
    if weight is None:
        return None
    weight = as_value(weight)
    wanted = tuple(shape(x)[a] for a in axes)
    if shape(weight) != wanted:
        raise ShapeError(f"{what} has shape {shape(weight)}, the normalized axes have {wanted}.")
    return reshaping.reshape(weight, tuple(n if a in axes else 1 for a, n in enumerate(shape(x))))


def _scale_and_shift(y: Any, weight: Any, bias: Any, x: Any) -> Any:
    """y times a weight plus a bias, in the dtype of x if that is narrow."""
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return reshaping.narrow(y, spec_of(x).dtype) if spec_of(x).half else y


@of_mixed_arrays
@fuse(autocast="high")
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
    w = _expand_parameter(weight, x, axes, "layer_norm: weight")
    b = _expand_parameter(bias, x, axes, "layer_norm: bias")
    return _scale_and_shift(_standardize(widen(x), axes, eps), w, b, x)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
def rms_norm(x: Any, /, weight: Any = None, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """x over the root of its mean square along the last axis, or those named; then times `weight`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.rms_norm(np.array([3.0, 3.0]), eps=0.0)
    array([1., 1.])
    """
    x = as_floats(x, "rms_norm")
    axes = normalize_axes(axis, ndim(x), "rms_norm")
    weight = _expand_parameter(weight, x, axes, "rms_norm: weight")
    far = widen(x)
    mean_square = reductions.mean(square(far), axis=axes, keepdims=True)
    return _scale_and_shift(multiply(far, _invert_stddev(mean_square, eps)), weight, None, x)


def _expand_channels(x: Any, axis: int, what: str, **vectors: Any) -> list[Any]:
    """Vectors of one value for each channel, reshaped to broadcast; None stays."""
    expand = functools.partial(expand_along_axis, axis=axis, rank=ndim(x), size=shape(x)[axis])
    return [None if v is None else expand(v, what=f"{what}: {name}") for name, v in vectors.items()]


@of_mixed_arrays
@fuse(autocast="high")
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


@of_mixed_arrays
@fuse(autocast="high")
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


@cast_whole("promote")
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
    if training:
        return _normalize_by_batch(x, running_mean, running_var, weight, bias, momentum, eps, axis)
    return _normalize_by_running(x, running_mean, running_var, weight, bias, eps, axis), running_mean, running_var


@fuse
@attributed_to_caller
def _normalize_by_running(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float, axis: int) -> Any:
    w, b = _expand_channels(x, axis, "batch_norm", weight=weight, bias=bias)
    if mean is None or var is None:
        raise ArgumentError("batch_norm: without training it wants running_mean and running_var.")
    m, v = _expand_channels(x, axis, "batch_norm", running_mean=mean, running_var=var)
    return _scale_and_shift((widen(x) - m) * _invert_stddev(v, eps), w, b, x)


@attributed_to_caller
def _normalize_and_scale(x: Any, away: Any, spread: Any, w: Any, b: Any, eps: float) -> Any:
    return _scale_and_shift(multiply(away, _invert_stddev(spread, eps)), w, b, x)


@fuse
def _normalize_by_batch(
    x: Any, mean: Any, var: Any, weight: Any, bias: Any, momentum: float, eps: float, axis: int
) -> tuple[Any, Any, Any]:
    w, b = _expand_channels(x, axis, "batch_norm", weight=weight, bias=bias)
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


@cast_whole("promote")
@attributed_to_caller
def sync_batch_norm(
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
    """`batch_norm` by the statistics of the batches of all ranks, each of which may have another number of samples:
    `(y, running_mean, running_var)`. Derivatives of every order go through the ranks.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([[1.0], [3.0], [5.0]])
    >>> def on_rank():
    ...     mine = x[:1] if pb.distributed.rank() == 0 else x[1:]
    ...     return pb.nn.sync_batch_norm(mine, training=True)[0].ravel().round(3).tolist()
    >>> pb.distributed.run(on_rank, 2)
    [[-1.225], [0.0, 1.225]]
    """
    if not training:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps, axis=axis)
    x = require_rank(as_floats(x, "sync_batch_norm"), 2, "sync_batch_norm", "(batch, channels, ...)")
    axis = normalize_axis(axis, ndim(x), "sync_batch_norm")
    w, b = _expand_channels(x, axis, "sync_batch_norm", weight=weight, bias=bias)
    axes, wide = tuple(a for a in range(ndim(x)) if a != axis), widen(x)
    elements = math.prod(shape(x)[a] for a in axes)
    own = reshaping.astype(as_value(elements), spec_of(wide).dtype)
    sums, count = total([reductions.sum(wide, axis=axes, keepdims=True), own])
    if not elements and is_known_zero(count):
        raise ShapeError(f"sync_batch_norm: no elements to take statistics of on any rank, here in shape {shape(x)}.")
    middle = divide(sums, count)
    away = wide - shared(middle)
    spread = divide(total(reductions.sum(square(away), axis=axes, keepdims=True)), count)
    fair = spread * divide(count, clamp_min(count - 1, 1.0))
    old_mean, old_var = _expand_channels(x, axis, "sync_batch_norm", running_mean=running_mean, running_var=running_var)
    means, variances = _update_running(old_mean, middle, momentum), _update_running(old_var, fair, momentum)
    return _normalize_and_scale(x, away, shared(spread), w, b, eps), means, variances


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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
    added = functools.reduce(operator.add, (getitem(squares, (*before, slice(i, i + channels))) for i in range(size)))
    return divide(x, power(added * (alpha / size) + k, beta))


def clamp_min(x: Any, least: float) -> Any:
    """x, and the constant `least` where it is below that."""
    return where(less(x, least), least, x)


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def normalize(x: Any, /, p: float = 2.0, *, axis: Any = -1, eps: float = 1e-12) -> Any:
    """x over its p-norm along an axis, or over `eps` where the norm is smaller.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = as_floats(x, "normalize")
    return divide(x, clamp_min(vector_norm(x, axis=axis, keepdims=True, ord=p), eps))


@of_two_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def cosine_similarity(x: Any, y: Any, /, *, axis: int = -1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x and y along an axis; a norm below `eps` counts as `eps`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.cosine_similarity(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    array([0.70710678, 0.        ])
    """
    x, y = reshaping.broadcast_together(as_floats(x, "cosine_similarity"), as_floats(y, "cosine_similarity"))
    axis = normalize_axis(axis, ndim(x), "cosine_similarity")
    # Each is divided by its own norm first: the product of two small norms would underflow.
    x, y = (divide(v, clamp_min(vector_norm(v, axis=axis, keepdims=True), eps)) for v in (x, y))
    return reductions.sum(multiply(x, y), axis=axis)


def _one_where_zero(size: Any) -> Any:
    return where(equal(size, 0), 1.0, size)


@of_two_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def weight_norm(v: Any, g: Any, /, *, axis: int | None = 0) -> Any:
    """g v / |v|: a direction v and its length g apart, one length for each index along an axis (None: one for all).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.weight_norm(np.array([[3.0, 4.0]]), np.array([10.0]))
    array([[6., 8.]])
    """
    v, g = as_floats(v, "weight_norm"), as_value(g)
    own = None if axis is None else normalize_axis(axis, ndim(v), "weight_norm")
    others = tuple(a for a in range(ndim(v)) if a != own)
    size = safe_sqrt(reductions.sum(square(v), axis=others, keepdims=True))
    if spec_of(g).size != spec_of(size).size:
        raise ShapeError(f"weight_norm: {spec_of(g).size} lengths for {spec_of(size).size} directions.")
    return multiply(v, divide(reshaping.reshape(g, shape(size)), _one_where_zero(size)))


@cast_whole("high")
def spectral_norm(
    weight: Any, /, u: Any = None, *, axis: int = 0, steps: int = 1, eps: float = 1e-12, key: Any = None
) -> tuple[Any, Any]:
    """A weight over its largest singular value, found by power iteration from the vector u: `(weight, u)`.

    The returned u is a better start for the next call; without one it is drawn. As a matrix the weight has
    one row for each index along `axis`. The vectors are constants to every derivative, which makes the first one
    right as soon as they have converged; for higher ones divide by `pb.linalg.matrix_norm(weight, ord=2)`.

    >>> import numpy as np, pullback as pb
    >>> w, u = pb.nn.spectral_norm(np.diag([4.0, 2.0]), np.ones(2), steps=50)
    >>> w.round(6)
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    weight = as_floats(weight, "spectral_norm")
    if ndim(weight) < 2:
        raise ShapeError(f"spectral_norm: wants a matrix or more axes, got shape {shape(weight)}.")
    if as_integer(steps, "spectral_norm: steps") < 0:
        raise ArgumentError(f"spectral_norm: steps must not be negative, got {steps}.")
    axis = normalize_axis(axis, ndim(weight), "spectral_norm")
    rows = shape(weight)[axis]
    if u is None:
        u = random.normal(size=rows, key=key_on_device_of(key, weight, "normal"), dtype=spec_of(weight).dtype)
    if shape(as_value(u)) != (rows,):
        raise ShapeError(f"spectral_norm: u has shape {shape(as_value(u))}, the weight has {rows} rows.")
    return _iterate_and_divide(weight, as_constant(as_value(u)), axis, steps, eps)


def _iterate_and_divide(weight: Any, u: Any, axis: int, steps: int, eps: float) -> tuple[Any, Any]:
    matrix = reshaping.reshape(reshaping.moveaxis(weight, axis, 0), (shape(weight)[axis], -1))
    fixed = as_constant(matrix)
    v = normalize(matmul(u, fixed), eps=eps)
    for _ in range(steps):
        u = normalize(matmul(fixed, v), eps=eps)
        v = normalize(matmul(u, fixed), eps=eps)
    return _divide_by_sigma(weight, matrix, u, v), u


@attributed_to_caller
def _divide_by_sigma(weight: Any, matrix: Any, u: Any, v: Any) -> Any:
    return divide(weight, _one_where_zero(reductions.sum(multiply(u, matmul(matrix, v)))))
