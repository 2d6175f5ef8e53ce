"""Values in, values of mean 0 and variance 1 out, over axes, channels, groups or a batch.

With statistics m and v of a set, y = (x - m) / sqrt(v + eps). A set of one element, or of equal ones, has x = m
exactly, so y = 0; since eps is under the root, every derivative there is finite.
"""

from __future__ import annotations

from typing import Any

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import arranging, reducing, shaping
from ..ops.axes import all_axes, one_axis, whole
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import add, divide, equal, multiply, power, sqrt, square, subtract, where
from ..ops.indexing import getitem
from ..ops.reducing import held_fixed
from .arguments import along, floats, of_rank, sizes_over, widened

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


def _deviation(spread: Any, eps: float) -> Any:
    """sqrt(v + eps); without eps, 1 where v is zero, since what is divided by it is zero too."""
    if eps < 0:
        raise ArgumentError(f"a norm's eps must not be negative, got {eps}.")
    total = add(spread, eps)
    return sqrt(total if eps else where(equal(total, 0), 1.0, total))


def _statistics(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x less its mean, the mean and the variance over axes, which are kept with size one."""
    middle = reducing.mean(x, axis=axes, keepdims=True)
    away = subtract(x, middle)
    return away, middle, reducing.mean(square(away), axis=axes, keepdims=True)


def _standardised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    away, _, spread = _statistics(x, axes)
    return divide(away, _deviation(spread, eps))


def _per_axes(weight: Any, x: Any, axes: tuple[int, ...], what: str) -> Any:
    """A weight with one number for each place of the normalised axes, ready to broadcast."""
    weight = as_value(weight)
    wanted = tuple(shape(x)[a] for a in axes)
    if shape(weight) != wanted:
        raise ShapeError(f"{what} has shape {shape(weight)}, the normalised axes have {wanted}.")
    return shaping.reshape(weight, tuple(n if a in axes else 1 for a, n in enumerate(shape(x))))


def _scaled(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else multiply(y, weight)
    return y if bias is None else add(y, bias)


def _as_given(y: Any, x: Any) -> Any:
    return shaping.astype(y, spec_of(x).dtype) if spec_of(x).dtype.itemsize < 4 else y


@signed
def layer_norm(x: Any, /, weight: Any = None, bias: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 over the last axis, or those named; then times `weight` plus `bias`, of those axes' shape.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), eps=0.0)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    x = floats(x, "layer_norm")
    axes = all_axes(axis, ndim(x), "layer_norm")
    w, b = (
        None if p is None else _per_axes(p, x, axes, f"layer_norm: {name}")
        for p, name in ((weight, "weight"), (bias, "bias"))
    )
    return _as_given(_scaled(_standardised(widened(x), axes, eps), w, b), x)


@signed
def rms_norm(x: Any, /, weight: Any = None, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """x over the root of its mean square along the last axis, or those named; then times `weight`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.rms_norm(np.array([3.0, 3.0]), eps=0.0)
    array([1., 1.])
    """
    x = floats(x, "rms_norm")
    axes = all_axes(axis, ndim(x), "rms_norm")
    weight = None if weight is None else _per_axes(weight, x, axes, "rms_norm: weight")
    far = widened(x)
    mean_square = reducing.mean(square(far), axis=axes, keepdims=True)
    return _as_given(_scaled(divide(far, _deviation(mean_square, eps)), weight, None), x)


def _per_channel(weight: Any, bias: Any, x: Any, axis: int, what: str) -> tuple[Any, Any]:
    size = shape(x)[axis]
    w = None if weight is None else along(weight, axis, ndim(x), size, f"{what}: weight")
    return w, None if bias is None else along(bias, axis, ndim(x), size, f"{what}: bias")


@signed
def group_norm(x: Any, /, groups: int, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """The channels (axis 1) in groups, each group of each sample with mean 0 and variance 1; `weight` and `bias` have
    one number for each channel.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    x = of_rank(floats(x, "group_norm"), 2, "group_norm", "(batch, channels, ...)")
    groups = whole(groups, "group_norm: groups")
    batch, channels, *rest = shape(x)
    if groups < 1 or channels % groups:
        raise ShapeError(f"group_norm: {channels} channels do not make {groups} groups.")
    w, b = _per_channel(weight, bias, x, 1, "group_norm")
    split = shaping.reshape(widened(x), (batch, groups, channels // groups, *rest))
    y = shaping.reshape(_standardised(split, tuple(range(2, ndim(split))), eps), shape(x))
    return _as_given(_scaled(y, w, b), x)


@signed
def instance_norm(x: Any, /, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Each channel of each sample with mean 0 and variance 1 over its spatial axes.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.instance_norm(np.array([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    x = of_rank(floats(x, "instance_norm"), 3, "instance_norm", "(batch, channels, spatial axes)")
    w, b = _per_channel(weight, bias, x, 1, "instance_norm")
    return _as_given(_scaled(_standardised(widened(x), tuple(range(2, ndim(x))), eps), w, b), x)


@signed
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
    constants to every derivative. Otherwise by the running ones, which come back as they were. Nothing
    is changed in place.

    >>> import numpy as np, pullback as pb
    >>> y, mean, var = pb.nn.batch_norm(np.array([[1.0], [3.0]]), np.zeros(1), np.ones(1), training=True, eps=0.0)
    >>> y.ravel(), mean, var
    (array([-1.,  1.]), array([0.2]), array([1.1]))
    """
    x = of_rank(floats(x, "batch_norm"), 2, "batch_norm", "(batch, channels, ...)")
    axis = one_axis(axis, ndim(x), "batch_norm")
    w, b = _per_channel(weight, bias, x, axis, "batch_norm")
    if training:
        return _by_batch(x, running_mean, running_var, w, b, momentum, eps, axis)
    if running_mean is None or running_var is None:
        raise ArgumentError("batch_norm: without training it wants running_mean and running_var.")
    m, v = (_running(s, name, x, axis) for s, name in ((running_mean, "running_mean"), (running_var, "running_var")))
    y = divide(subtract(widened(x), m), _deviation(v, eps))
    return _as_given(_scaled(y, w, b), x), running_mean, running_var


def _running(statistic: Any, name: str, x: Any, axis: int) -> Any:
    return along(statistic, axis, ndim(x), shape(x)[axis], f"batch_norm: {name}")


@signed
def _normed(away: Any, spread: Any, w: Any, b: Any, eps: float) -> Any:
    return _scaled(divide(away, _deviation(spread, eps)), w, b)


def _by_batch(
    x: Any, mean: Any, var: Any, w: Any, b: Any, momentum: float, eps: float, axis: int
) -> tuple[Any, Any, Any]:
    axes = tuple(a for a in range(ndim(x)) if a != axis)
    count = sizes_over(x, axes)
    if not count:
        raise ShapeError(f"batch_norm: no elements to take statistics of in shape {shape(x)}.")
    away, middle, spread = _statistics(widened(x), axes)
    # The running variance is that of what the batch was drawn from: the sum of squares over count - 1.
    fair = multiply(spread, count / max(count - 1, 1))
    new_mean, new_var = (
        None if old is None else _moved(_running(old, name, x, axis), new, momentum, shape(x)[axis])
        for old, name, new in ((mean, "running_mean", middle), (var, "running_var", fair))
    )
    return _as_given(_normed(away, spread, w, b, eps), x), new_mean, new_var


def _moved(old: Any, new: Any, momentum: float, size: int) -> Any:
    step = multiply(subtract(shaping.astype(held_fixed(new), spec_of(old).dtype), held_fixed(old)), momentum)
    return shaping.reshape(add(held_fixed(old), step), (size,))


@signed
def local_response_norm(
    x: Any, /, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, axis: int = 1
) -> Any:
    """x / (k + alpha * m)^beta, where m is the mean square over `size` neighbouring channels, zeros beyond the ends.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.local_response_norm(np.array([[3.0, 3.0]]), 1, 1.0, 0.5, 0.0)
    array([[1., 1.]])
    """
    x = of_rank(floats(x, "local_response_norm"), 2, "local_response_norm", "(batch, channels, ...)")
    axis, size = one_axis(axis, ndim(x), "local_response_norm"), whole(size, "local_response_norm: size")
    if size < 1:
        raise ArgumentError(f"local_response_norm: size must be at least 1, got {size}.")
    widths = [(size // 2, (size - 1) // 2) if a == axis else (0, 0) for a in range(ndim(x))]
    squares = arranging.pad(square(x), widths)
    channels, total = shape(x)[axis], None
    for start in range(size):
        part = getitem(squares, (slice(None),) * axis + (slice(start, start + channels),))
        total = part if total is None else add(total, part)
    return divide(x, power(add(multiply(total, alpha / size), k), beta))
