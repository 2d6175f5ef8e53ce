"""Max unpooling: elements put back where max pooling found them."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.node import attributed_to_caller
from ...arrays.spec import make_spec, spec_of, zeros
from ...errors import ShapeError
from ...ops.dispatch import as_value, ndim, shape
from ...ops.index import indexing
from ...ops.shape import reshaping
from ...ops.window.patches import Sizes
from ..geometry import per_axis


@attributed_to_caller
def max_unpool1d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """The elements of x put back at the places where `max_pool1d` found them, zeros elsewhere; as `max_unpool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.max_unpool1d(np.array([[[3.0, 2.0]]]), np.array([[[1, 2]]]), 2)
    array([[[0., 3., 2., 0.]]])
    """
    return _max_unpool(1, x, indices, kernel_size, stride, padding, output_size)


@attributed_to_caller
def max_unpool2d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """The elements of x put back at the places where `max_pool2d` found them, zeros elsewhere.

    Several sizes are pooled to the same one: `output_size` names one of them, by default the smallest. Where windows
    overlapped and named a place twice, the last element stays.

    >>> import numpy as np, pullback as pb
    >>> y, at = pb.nn.max_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2, return_indices=True)
    >>> pb.nn.max_unpool2d(y, at, 2)[0, 0, 1]
    array([0., 5., 0., 7.])
    """
    return _max_unpool(2, x, indices, kernel_size, stride, padding, output_size)


@attributed_to_caller
def max_unpool3d(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """The elements of x put back at the places where `max_pool3d` found them, zeros elsewhere; as `max_unpool2d`.

    >>> import numpy as np, pullback as pb
    >>> y, at = pb.nn.max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 2, return_indices=True)
    >>> pb.nn.max_unpool3d(y, at, 2)[0, 0, 1, 1]
    array([0., 7.])
    """
    return _max_unpool(3, x, indices, kernel_size, stride, padding, output_size)


def _max_unpool(rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Any:
    what, x, indices = f"max_unpool{rank}d", as_value(x), as_value(indices)
    if shape(x) != shape(indices):
        raise ShapeError(f"{what}: an input of shape {shape(x)} wants indices of the same shape, got {shape(indices)}.")
    if ndim(x) not in (rank + 1, rank + 2):
        raise ShapeError(f"{what}: wants an input of shape (n, channels, *{rank} sizes) or without n, got {shape(x)}.")
    window = per_axis(kernel_size, rank, f"{what}: kernel_size")
    stride = window if stride is None else per_axis(stride, rank, f"{what}: stride")
    around = per_axis(padding, rank, f"{what}: padding", 0)
    front, many = shape(x)[:-rank], shape(x)[-rank:]
    if output_size is None:
        geometry = zip(many, window, stride, around, strict=True)
        sizes: Sizes = tuple((m - 1) * s + k - 2 * p for m, k, s, p in geometry)
    else:
        sizes = per_axis(tuple(output_size)[-rank:], rank, f"{what}: output_size")
    flat = (*front, math.prod(sizes))
    start = zeros(make_spec(flat, spec_of(x).dtype, spec_of(x).device))
    columns = (*front, math.prod(many))
    put = indexing.put_along_axis(start, reshaping.reshape(indices, columns), reshaping.reshape(x, columns), axis=-1)
    return reshaping.reshape(put, (*front, *sizes))
