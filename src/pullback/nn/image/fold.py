"""`unfold` and `fold` (im2col and col2im), pixel shuffle and unshuffle."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...errors import ShapeError
from ...ops.axes import as_integer
from ...ops.dispatch import as_value, ndim, shape
from ...ops.fusion import fuse
from ...ops.index import indexing
from ...ops.shape import reshaping
from ...ops.shape.einops import rearrange
from ...ops.signatures import of_array
from ...ops.window import sliding_window
from ...ops.window.patches import window_counts
from ..geometry import apply_batched, padding_pairs, per_axes, per_axis


@of_array
@fuse(autocast="promote")
@attributed_to_caller
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The patches of images (n, channels, *sizes) as columns: (n, channels * places in the window, windows).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.unfold(np.arange(9.0).reshape(1, 1, 3, 3), 2).shape
    (1, 4, 4)
    """
    rank = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
    window, stride, dilation = per_axes("unfold", rank, kernel_size=kernel_size, stride=stride, dilation=dilation)
    padding = per_axis(padding, rank, "unfold: padding", 0)

    def unfold_batch(x: Any) -> Any:
        window_counts("unfold", shape(x)[2:], window, stride, tuple((p, p) for p in padding), dilation)
        return sliding_window.im2col(x, window, stride=stride, padding=padding, dilation=dilation)

    return apply_batched(x, rank, "unfold", unfold_batch)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Columns (n, channels * places, windows) summed where their patches overlap in images: the transpose of `unfold`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.fold(np.ones((1, 4, 4)), (3, 3), 2)[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    x = as_value(x)
    sizes = per_axis(output_size, 2 if isinstance(output_size, int) else len(output_size), "fold: output_size")
    rank = len(sizes)
    window, stride, dilation = per_axes("fold", rank, kernel_size=kernel_size, stride=stride, dilation=dilation)
    around = padding_pairs(padding, rank, "fold: padding")
    many = window_counts("fold", sizes, window, stride, around, dilation)
    if ndim(x) == 2:
        x = reshaping.expand_dims(x, 0)
        return reshaping.reshape(found := fold(x, sizes, window, dilation, around, stride), shape(found)[1:])
    places = math.prod(window)
    if ndim(x) != 3 or shape(x)[1] % places or shape(x)[2] != math.prod(many):
        raise ShapeError(
            f"fold: sizes {sizes} with windows {window} make columns (n, channels * {places}, {math.prod(many)}), "
            f"got shape {shape(x)}."
        )
    n, channels = shape(x)[0], shape(x)[1] // places
    x = reshaping.reshape(x, (n, channels, *window, *many))
    x = reshaping.permute_dims(x, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    for axis in reversed(range(rank)):
        length = sizes[axis] + sum(around[axis])
        x = sliding_window.overlap_add(x, 2 + axis, length, stride[axis], dilation[axis])
    inside = tuple(slice(low, low + m) for m, (low, _) in zip(sizes, around, strict=True))
    return indexing.getitem(x, (..., *inside))


@of_array
@attributed_to_caller
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """Channels spread over space: (..., c * r * r, h, w) becomes (..., c, h * r, w * r).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.pixel_shuffle(np.arange(4.0).reshape(1, 4, 1, 1), 2)
    array([[[[0., 1.],
             [2., 3.]]]])
    """
    x, r = as_value(x), as_integer(upscale_factor, "pixel_shuffle: upscale_factor")
    if ndim(x) < 3 or r < 1 or shape(x)[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: wants (..., channels, h, w) with a multiple of {r * r} channels, got {shape(x)}."
        )
    return rearrange(x, "... (c r s) h w -> ... c (h r) (w s)", r=r, s=r)


@of_array
@attributed_to_caller
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """Space gathered in channels: (..., c, h * r, w * r) becomes (..., c * r * r, h, w).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.pixel_unshuffle(np.arange(4.0).reshape(1, 1, 2, 2), 2).ravel()
    array([0., 1., 2., 3.])
    """
    x, r = as_value(x), as_integer(downscale_factor, "pixel_unshuffle: downscale_factor")
    if ndim(x) < 3 or r < 1 or shape(x)[-2] % r or shape(x)[-1] % r:
        raise ShapeError(f"pixel_unshuffle: wants (..., channels, h, w) with h and w multiples of {r}, got {shape(x)}.")
    return rearrange(x, "... c (h r) (w s) -> ... (c r s) h w", r=r, s=r)
