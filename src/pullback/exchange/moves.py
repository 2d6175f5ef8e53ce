"""Views as slices, transposes and broadcasts: what a strided view of an array is in operations of a graph.

No list says which ops are views: the op's value runs on memory of the argument's shape, as the compiler does it
(`compile/lower/views.py`), and the strides of the result say what it is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..compile.loop_ir import Layout, row_major_strides
from .graph_writer import GraphWriter, Ref, Shape


class _Axis(NamedTuple):
    """An axis of the argument as the view has it: where it starts, its step, how many elements; `result`, which axis
    of the view it became.
    """

    start: int
    step: int
    size: int
    result: int | None


def write_view(w: GraphWriter, x: Ref, view: Layout) -> Ref:
    """A view of an array in row-major order, by its shape, strides and offset."""
    size = math.prod(view.shape)
    if not size:
        return w.expand(w.constant(np.zeros((), x.dtype)), view.shape)
    if size == math.prod(x.shape) and view.offset == 0 and _is_row_major(view):
        return w.reshape(x, view.shape)
    axes = _find_axes(x.shape, view)
    if axes is None:
        return _take_elements(w, x, view)
    return _write_axes(w, x, axes, view.shape)


def _is_row_major(view: Layout) -> bool:
    wanted = row_major_strides(view.shape)
    return all(n == 1 or s == t for n, s, t in zip(view.shape, view.strides, wanted, strict=True))


def _find_axes(shape: Shape, view: Layout) -> list[_Axis] | None:
    """Which axis of the argument each axis of the view walks along; None where two share one (windows)."""
    strides = row_major_strides(shape)
    # the offset in mixed radix is where each axis starts
    starts, left = [], view.offset
    for stride in strides:
        starts.append(left // stride)
        left %= stride
    found = [_Axis(start, 1, 1, None) for start in starts]
    for number, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)):
        if n == 1 or s == 0:
            continue
        at = next((j for j, t in enumerate(strides) if shape[j] > 1 and abs(s) % t == 0 and abs(s) // t < shape[j]), -1)
        if at < 0 or found[at].result is not None:
            return None
        step = s // strides[at]
        if not 0 <= starts[at] + (n - 1) * step < shape[at]:
            return None
        found[at] = _Axis(starts[at], step, n, number)
    return found


def _write_axes(w: GraphWriter, x: Ref, axes: list[_Axis], shape: Shape) -> Ref:
    ends = [sorted((a.start, a.start + (a.size - 1) * a.step)) for a in axes]
    starts, stops = tuple(low for low, _ in ends), tuple(high + 1 for _, high in ends)
    steps = tuple(abs(a.step) for a in axes)
    if any(n != 1 or stop - start != size for start, stop, n, size in zip(starts, stops, steps, x.shape, strict=True)):
        x = w.slice(x, starts, stops, steps)
    if backward := tuple(i for i, a in enumerate(axes) if a.step < 0):
        x = w.reverse(x, backward)
    # axes of one element move freely: those that the view has, in its order
    kept = sorted((i for i, a in enumerate(axes) if a.result is not None), key=lambda i: axes[i].result)  # type: ignore[arg-type, return-value]
    if kept != sorted(kept):
        x = w.transpose(x, (*kept, *(i for i in range(len(axes)) if i not in kept)))
    walked = {axes[i].result for i in kept}
    narrow = tuple(n if i in walked else 1 for i, n in enumerate(shape))
    x = x if x.shape == narrow else w.reshape(x, narrow)
    return x if narrow == shape else w.expand(x, shape)


def _take_elements(w: GraphWriter, x: Ref, view: Layout) -> Ref:
    """Elements by their places in the flattened array."""
    places: Any = np.full(view.shape, view.offset, np.int64)
    for axis, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)):
        places += (np.arange(n) * s).reshape((-1,) + (1,) * (len(view.shape) - 1 - axis))
    return w.take(w.reshape(x, (math.prod(x.shape),)), w.constant(places))


def write_index(w: GraphWriter, x: Ref, index: tuple[Any, ...]) -> Ref:
    """x[index] for an index of slices, numbers and None."""
    probe = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), x.shape, row_major_strides(x.shape))
    found = probe[(*index, ...)]
    start = found.__array_interface__["data"][0] - probe.__array_interface__["data"][0] if found.size else 0
    return write_view(w, x, Layout(None, found.shape, found.strides, start))  # type: ignore[arg-type]
