"""Convolutions and transposed convolutions over one, two or three axes."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, ShapeError
from ..ops.dispatch import as_value, ndim, shape
from ..ops.shape import arrange, reshaping
from ..ops.window.convolution import convolve_grid, convolve_grid_transposed
from ..ops.window.patches import Pairs, Sizes, window_counts
from .geometry import over_axes, padding_pairs, per_axes, per_axis, same_padding

#: Padding modes that repeat elements of the input: the public name, and the one of `pad`.
_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "symmetric": "symmetric"}


def _conv(
    what: str, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, mode: str = "zeros",
) -> Any:  # fmt: skip
    weight, rank = as_value(weight), ndim(x) - 2
    stride, dilation = per_axes(what, rank, stride=stride, dilation=dilation)
    (groups,) = per_axis(groups, 1, f"{what}: groups")
    if mode != "zeros" and mode not in _PAD_MODES:
        raise ArgumentError(f"{what}: mode is 'zeros' or one of {', '.join(_PAD_MODES)}; got {mode!r}.")
    _check_filters(what, rank, shape(x), shape(weight), 1, groups)
    around = _resolve_padding(what, padding, shape(x)[2:], shape(weight)[2:], stride, dilation)
    window_counts(what, shape(x)[2:], shape(weight)[2:], stride, around, dilation)
    if mode != "zeros" and any(map(any, around)):
        x, around = _pad_by_mode(what, x, around, mode), ((0, 0),) * rank
    return _add_bias(what, convolve_grid(x, weight, stride, around, dilation, groups), bias, shape(weight)[0])


def _pad_by_mode(what: str, x: Any, around: Pairs, mode: str) -> Any:
    """The input padded with its own elements."""
    room = {"reflect": 1, "symmetric": 0, "circular": 0}.get(mode)
    if room is not None and any(max(pair) > n - room for pair, n in zip(around, shape(x)[2:], strict=True)):
        raise ShapeError(f"{what}: sizes {shape(x)[2:]} are too small for {mode} padding of {around}.")
    return arrange.pad(x, [(0, 0), (0, 0), *around], mode=_PAD_MODES[mode])


def _check_filters(what: str, rank: int, x: Sizes, weight: Sizes, fan: int, groups: int) -> None:
    """Whether the channels of input and weight fit; `fan` is the axis of the weight that is split into groups."""
    if len(weight) != rank + 2:
        raise ShapeError(f"{what}: wants a weight of {rank + 2} axes, got shape {weight} for an input of shape {x}.")
    wanted = weight[1] * groups if fan else weight[0]
    if x[1] != wanted:
        raise ShapeError(
            f"{what}: an input of shape {x} has {x[1]} channels, but a weight of shape {weight} with {groups} groups "
            f"wants {wanted}."
        )
    if weight[0] % groups or 0 in weight[2:]:
        raise ShapeError(f"{what}: a weight of shape {weight} cannot be split into {groups} groups of filters.")


def _resolve_padding(what: str, padding: Any, sizes: Sizes, window: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    if padding == "same":
        return same_padding(sizes, window, stride, dilation)
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    return padding_pairs(padding, len(sizes), f"{what}: padding")


def _add_bias(what: str, y: Any, bias: Any, filters: int) -> Any:
    if bias is None:
        return y
    bias = as_value(bias)
    if shape(bias) != (filters,):
        raise ShapeError(f"{what}: wants a bias of shape {(filters,)}, one for each filter, got {shape(bias)}.")
    return y + reshaping.reshape(bias, (filters, *(1,) * (ndim(y) - 2)))


def _conv_transpose(
    what: str, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    weight, rank = as_value(weight), ndim(x) - 2
    stride, dilation = per_axes(what, rank, stride=stride, dilation=dilation)
    extra = per_axis(output_padding, rank, f"{what}: output_padding", 0)
    (groups,) = per_axis(groups, 1, f"{what}: groups")
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ArgumentError(f"{what}: output_padding {extra} must be less than stride {stride} or dilation {dilation}.")
    _check_filters(what, rank, shape(x), shape(weight), 0, groups)
    window = shape(weight)[2:]
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(shape(x)[2:], stride, window, dilation, strict=True)]
    around = _crop_widths(what, padding, shape(x)[2:], full, stride)
    # output_padding is cropped less at the end; where nothing is left to crop, zeros follow
    behind = [high - e for (_, high), e in zip(around, extra, strict=True)]
    cut = tuple((low, max(b, 0)) for (low, _), b in zip(around, behind, strict=True))
    sizes = tuple(n - low - high for n, (low, high) in zip(full, cut, strict=True))
    if any(n < 0 for n in sizes) or 0 in shape(x)[2:]:
        raise ShapeError(
            f"{what}: an input of shape {shape(x)} with a weight of shape {shape(weight)} and padding {padding} "
            f"would have sizes {sizes}."
        )
    y = convolve_grid_transposed(x, weight, sizes, stride, cut, dilation, groups)
    if min(behind) < 0:
        y = arrange.pad(y, [(0, 0), (0, 0), *((0, max(-b, 0)) for b in behind)])
    return _add_bias(what, y, bias, shape(weight)[1] * groups)


def _crop_widths(what: str, padding: Any, sizes: Sizes, full: list[int], stride: Sizes) -> Any:
    """How much of the full result is cropped on each side; "same" leaves `stride` times the input's sizes."""
    if padding == "same":
        more = [n - m * s for n, m, s in zip(full, sizes, stride, strict=True)]
        return tuple((max(n, 0) // 2, n - max(n, 0) // 2) for n in more)
    return ((0, 0),) * len(sizes) if padding == "valid" else padding_pairs(padding, len(sizes), f"{what}: padding")


@over_axes(1, _conv, autocast="low")
def conv1d() -> None:
    """Sums of windows of x (n, channels, width) times filters (filters, channels / groups, window), with a bias.

    `padding` is a number, "same" or "valid"; `mode` is "zeros", "reflect", "replicate" or
    "circular".

    >>> import numpy as np, pullback as pb
    >>> pb.nn.conv1d(np.array([[[1.0, 2.0, 4.0]]]), np.array([[[1.0, -1.0]]]))
    array([[[-1., -2.]]])
    """


@over_axes(2, _conv, autocast="low")
def conv2d() -> None:
    """Sums of windows of x (n, channels, height, width) times filters (filters, channels / groups, *window).

    Stride, padding and dilation are one integer or one for each axis, padding also a pair (before, after) for each
    axis, "same" or "valid"; `mode` is "zeros", "reflect", "replicate" or "circular". With as
    many groups as channels each channel has filters of its own. A bias is added to each filter's sums.

    >>> import numpy as np, pullback as pb
    >>> x, w = np.ones((1, 2, 4, 4)), np.ones((3, 2, 3, 3))
    >>> pb.nn.conv2d(x, w, padding="same").shape
    (1, 3, 4, 4)
    >>> float(pb.nn.conv2d(x, w, np.array([0.5, 0.0, 0.0]))[0, 0, 0, 0])
    18.5
    """


@over_axes(3, _conv, autocast="low")
def conv3d() -> None:
    """Sums of windows of x (n, channels, depth, height, width) times filters, with a bias; as `conv2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.conv3d(np.ones((1, 1, 4, 4, 4)), np.ones((2, 1, 3, 3, 3)), stride=(1, 1, 2), padding=1).shape
    (1, 2, 4, 4, 2)
    """


@over_axes(1, _conv_transpose, autocast="low")
def conv_transpose1d() -> None:
    """Each element of x (n, channels, width) times filters (channels, filters / groups, window), scatter-added in
    place.

    The transpose of `conv1d` with the same stride, padding and dilation; see `conv_transpose2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.conv_transpose1d(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]]), stride=2)
    array([[[ 1., 10.,  2., 20.]]])
    """


@over_axes(2, _conv_transpose, autocast="low")
def conv_transpose2d() -> None:
    """Each element of x times filters (channels, filters / groups, *window), summed where they overlap; then a bias.

    The transpose of `conv2d` with the same stride, padding and dilation. Under a stride several input sizes give one
    output size: `output_padding` adds that many elements at the end. With padding "same" it is `stride` times as large
    as x.

    >>> import numpy as np, pullback as pb
    >>> x, w = np.ones((1, 3, 4, 4)), np.ones((3, 2, 3, 3))
    >>> pb.nn.conv_transpose2d(x, w, stride=2, padding=1).shape
    (1, 2, 7, 7)
    >>> pb.nn.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1).shape
    (1, 2, 8, 8)
    """


@over_axes(3, _conv_transpose, autocast="low")
def conv_transpose3d() -> None:
    """The transpose of `conv3d`; see `conv_transpose2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.conv_transpose3d(np.ones((1, 2, 2, 2, 2)), np.ones((2, 1, 2, 2, 2)), stride=2).shape
    (1, 1, 4, 4, 4)
    """
