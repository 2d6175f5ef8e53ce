"""Windows, gradients of convolutions and recurrences in terms of other ops, for formats that lack them.

Windows of a padded grid are read as rows of patches: the grid's axes are merged into one, and a constant table says
which of its elements each place of each window is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..arrays.spec import Spec, spec_of, zeros
from ..ops.elementwise.pointwise import equal, isnan, logical_and, logical_or, where
from ..ops.functions import astype
from ..ops.index.indexing import getitem, scatter, scatter_at_end
from ..ops.reduce.reductions import argmax
from ..ops.reduce.reductions import max as largest
from ..ops.reduce.reductions import sum as total_of
from ..ops.shape.arrange import concat, flip
from ..ops.shape.reshaping import broadcast_to, moveaxis, reshape
from ..ops.window.convolution import convolve_grid
from ..ops.window.patches import window_counts
from ..ops.window.pooling import lowest_of
from ..transforms.control.scan import scan

Static = dict[str, Any]


def expand_window(kind: str, out: Spec, how: Static) -> Callable[..., Any]:
    """What a form `Window` computes, as a function of its arguments."""
    geometry = {name: value for name, value in how.items() if name != "sizes"}
    if not math.prod(out.shape):
        return lambda *args: zeros(out)
    return partial(_WINDOWS[kind], out=out, sizes=how.get("sizes"), how=geometry)


def _pad(x: Any, padding: Any, number: Any) -> Any:
    """x (n, channels, *sizes) between constants along its last axes."""
    for axis, (low, high) in enumerate(padding, 2):
        spec = spec_of(x)
        ends = [np.full((*spec.shape[:axis], n, *spec.shape[axis + 1 :]), number, spec.dtype) for n in (low, high)]
        parts = [part for part in (ends[0], x, ends[1]) if spec_of(part).shape[axis]]
        x = concat(parts, axis=axis) if len(parts) > 1 else x
    return x


def _padded_sizes(sizes: Any, padding: Any) -> tuple[int, ...]:
    return tuple(n + low + high for n, (low, high) in zip(sizes, padding, strict=True))


def _places(sizes: tuple[int, ...], how: Static) -> Any:
    """The place in a merged padded grid of each element (rows) of each window (columns)."""
    grid = np.arange(math.prod(_padded_sizes(sizes, how["padding"]))).reshape(_padded_sizes(sizes, how["padding"]))
    many = window_counts("pooling", sizes, how["window"], how["stride"], how["padding"], how["dilation"])
    rank = len(sizes)
    steps = [s * d for s, d in zip(grid.strides, how["dilation"], strict=True)]
    strides = [s * t for s, t in zip(grid.strides, how["stride"], strict=True)]
    view = np.lib.stride_tricks.as_strided(grid, (*how["window"], *many), (*steps, *strides))
    return view.reshape(math.prod(view.shape[:rank]), -1)


def _patches(x: Any, how: Static, number: Any) -> Any:
    """The windows of a grid: (n, channels, places, windows)."""
    shape = spec_of(x).shape
    wide = _pad(x, how["padding"], number)
    merged = reshape(wide, (*shape[:2], math.prod(spec_of(wide).shape[2:])))
    return getitem(merged, (slice(None), slice(None), _places(shape[2:], how)))


def _window_index(x: Any, out: Spec, sizes: Any, how: Static) -> Any:
    """The first place of a window's maximum; padding never is one, a NaN is."""
    shape, dtype = spec_of(x).shape, spec_of(x).dtype
    seen = _patches(x, how, lowest_of(dtype))
    inside = _pad(np.ones((1, 1, *shape[2:]), bool), how["padding"], False).reshape(-1)[_places(shape[2:], how)]
    best = largest(seen, axis=2, keepdims=True)
    hits = logical_or(equal(seen, best), isnan(seen)) if dtype.kind == "f" else equal(seen, best)
    number = argmax(astype(logical_and(hits, inside), np.int32), axis=2)
    return astype(reshape(number, out.shape), out.dtype)


def _take_chosen(y: Any, index: Any, how: Static) -> Any:
    """Which place of each window an index names: (n, channels, places, windows)."""
    flat = reshape(index, (*out_rows(index), 1, math.prod(spec_of(index).shape[2:])))
    return equal(flat, np.arange(math.prod(how["window"]), dtype=np.int32)[:, None])


def out_rows(x: Any) -> tuple[int, ...]:
    """The images and channels of a grid."""
    found: tuple[int, ...] = spec_of(x).shape[:2]
    return found


def _window_take(x: Any, index: Any, out: Spec, sizes: Any, how: Static) -> Any:
    seen = _patches(x, how, 0)
    picked = where(_take_chosen(x, index, how), seen, np.zeros((), out.dtype))
    return reshape(total_of(picked, axis=2), out.shape)


def _window_sum(x: Any, out: Spec, sizes: Any, how: Static) -> Any:
    return reshape(total_of(_patches(x, how, 0), axis=2), out.shape)


def _window_put(y: Any, index: Any, out: Spec, sizes: Any, how: Static) -> Any:
    flat = reshape(y, (*out_rows(y), 1, math.prod(spec_of(y).shape[2:])))
    return _add_patches(where(_take_chosen(y, index, how), flat, np.zeros((), out.dtype)), out, sizes, how)


def _window_spread(y: Any, out: Spec, sizes: Any, how: Static) -> Any:
    windows, places = math.prod(spec_of(y).shape[2:]), math.prod(how["window"])
    flat = reshape(y, (*out_rows(y), 1, windows))
    return _add_patches(broadcast_to(flat, (*out_rows(y), places, windows)), out, sizes, how)


def _add_patches(patches: Any, out: Spec, sizes: Any, how: Static) -> Any:
    """The transpose of `_patches`: each element is added at its place in the grid, and the padding is cut off."""
    wide = _padded_sizes(sizes, how["padding"])
    places = _places(sizes, how)
    merged = scatter_at_end(patches, (places,), (*out.shape[:2], math.prod(wide)))
    inner = tuple(slice(low, low + n) for n, (low, _) in zip(sizes, how["padding"], strict=True))
    return getitem(reshape(merged, (*out.shape[:2], *wide)), (slice(None), slice(None), *inner))


_WINDOWS: dict[str, Callable[..., Any]] = {
    "index": _window_index, "take": _window_take, "sum": _window_sum, "put": _window_put, "spread": _window_spread,
}  # fmt: skip


def expand_convolution(result: str, out: Spec, how: Static) -> Callable[..., Any]:
    """A convolution's gradient by its input ("x") or weight ("w") as a convolution."""
    geometry = {name: value for name, value in how.items() if name != "sizes"}

    def function(a: Any, b: Any) -> Any:
        if not math.prod(spec_of(a).shape) * math.prod(spec_of(b).shape) * math.prod(out.shape):
            return zeros(out)
        rule = _convolve_back if result == "x" else _convolve_weight
        return rule(astype(a, out.dtype), astype(b, out.dtype), out, **geometry)

    return function


def _convolve_back(y: Any, w: Any, out: Spec, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """With y spread out by the stride, x[i] = sum over k of y[i + low - k d] w[k]: a convolution by the flipped w."""
    rank, wide = len(stride), spec_of(y).shape
    spread = tuple((m - 1) * s + 1 for m, s in zip(wide[2:], stride, strict=True))
    if any(s > 1 for s in stride):
        every = (slice(None), slice(None), *(slice(None, None, s) for s in stride))
        y = scatter(y, every, (*wide[:2], *spread))
    filters, channels, *window = spec_of(w).shape
    w = moveaxis(reshape(w, (groups, filters // groups, channels, *window)), 2, 1)
    w = flip(reshape(w, (groups * channels, filters // groups, *window)), axis=tuple(range(2, 2 + rank)))
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    lows = [r - low for r, (low, _) in zip(reach, padding, strict=True)]
    highs = [n - m - low + r for n, m, low, r in zip(out.shape[2:], spread, lows, reach, strict=True)]
    # where the input was padded by more than a window reaches, what y has there is cut off
    cut = tuple(slice(max(-low, 0), n - max(-high, 0)) for low, high, n in zip(lows, highs, spread, strict=True))
    y = getitem(y, (slice(None), slice(None), *cut))
    pads = tuple((max(low, 0), max(high, 0)) for low, high in zip(lows, highs, strict=True))
    return convolve_grid(y, w, stride=(1,) * rank, padding=pads, dilation=dilation, groups=groups)


def _convolve_weight(x: Any, y: Any, out: Spec, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """w[f, c, k] = sum over n, p of x[n, c, p s + k d - low] y[n, f, p]: a convolution over images, stride and dilation
    exchanged.
    """
    n, channels, *sizes = spec_of(x).shape
    x = moveaxis(reshape(x, (n, groups, channels // groups, *sizes)), (2, 1, 0), (0, 1, 2))
    x = reshape(x, (channels // groups, groups * n, *sizes))
    found = convolve_grid(x, moveaxis(y, 0, 1), stride=dilation, padding=padding, dilation=stride, groups=groups)
    return getitem(moveaxis(found, 1, 0), (slice(None), slice(None), *(slice(0, k) for k in out.shape[2:])))


def expand_recurrence(a: Any, b: Any, axis: int) -> Any:
    """y[i] = a[i] y[i-1] + b[i] along an axis, as a loop."""
    rows, terms = moveaxis(a, axis, 0), moveaxis(b, axis, 0)
    shape = np.broadcast_shapes(spec_of(rows).shape, spec_of(terms).shape)
    rows, terms = broadcast_to(rows, shape), broadcast_to(terms, shape)

    def step(y: Any, row: Any) -> Any:
        y = row[0] * y + row[1]
        return y, y

    start = np.zeros(shape[1:], np.result_type(spec_of(a).dtype, spec_of(b).dtype))
    return moveaxis(scan(step, start, (rows, terms))[1], 0, axis)


def expand_running(word: str, out: Spec, axis: int) -> Callable[..., Any] | None:
    """What combines each element with all before it along an axis, as a loop; None for other words."""
    if word == "recurrence":
        return partial(expand_recurrence, axis=axis)
    if word not in ("add", "multiply"):
        return None

    def run(x: Any) -> Any:
        def step(total: Any, row: Any) -> Any:
            total = total + row if word == "add" else total * row
            return total, total

        rows = moveaxis(astype(x, out.dtype), axis, 0)
        start = np.full(spec_of(rows).shape[1:], word == "multiply", out.dtype)
        return moveaxis(scan(step, start, rows)[1], 0, axis)

    return run
