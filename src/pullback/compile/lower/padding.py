"""Padded grids in memory, in which windows reach every element by strides alone."""

from __future__ import annotations

from typing import Any

from ...arrays.spec import make_spec, spec_of
from ...ops.window.patches import Pairs
from ..loop_ir import Kernel, KernelLine, Layout, Store
from .axes import axes_by_stride
from .fuse import Fuser

#: Smaller grids are filled with their padding as a whole.
_MIN_SIZE_OF_PARTS = 1 << 16


def channels_last(rank: int) -> tuple[int, ...]:
    """The axes of (n, channels, *sizes) with the channels innermost."""
    return (0, *range(2, rank), 1)


def padded_layout(f: Fuser, x: Any, padding: Pairs, number: Any = 0, order: tuple[int, ...] | None = None) -> Layout:
    """x with its padding, in an order of axes or in its own; x in place if there is none."""
    if not any(map(any, padding)):
        return f.layout_of(x)
    key = (id(x), padding, number)
    if key in f.prepared_layouts:
        return f.prepared_layouts[key]
    spec = spec_of(x)
    padded = (*spec.shape[:2], *(n + low + high for n, (low, high) in zip(spec.shape[2:], padding, strict=True)))
    layout = f.new_layout(make_spec(padded, spec.dtype), order or f.order(spec.shape, [(x, ())]))
    # the step that computes x may come before this point
    f.first += [fill_kernel(part, number) for part in _padding_of(layout, padding)]
    f.put(x, interior_layout(layout, spec.shape, padding))
    f.prepared_layouts[key] = layout
    return layout


def interior_layout(layout: Layout, shape: tuple[int, ...], padding: Pairs) -> Layout:
    """The part of a padded layout that is not padding."""
    offset = sum(low * s for (low, _), s in zip(padding, layout.strides[2:], strict=True))
    return Layout(layout.buffer, shape, layout.strides, layout.offset + offset)


def _padding_of(layout: Layout, padding: Pairs) -> list[Layout]:
    """The parts of a padded layout that are padding, none of which overlap; of a small one, all of it."""
    if layout.size < _MIN_SIZE_OF_PARTS:
        return [layout]
    found = []
    inner, start = layout.shape, layout.offset
    for axis, (low, high) in enumerate(padding, 2):
        n, stride = inner[axis], layout.strides[axis]
        for count, first in ((low, 0), (high, n - high)):
            if count:
                shape = (*inner[:axis], count, *inner[axis + 1 :])
                found.append(Layout(layout.buffer, shape, layout.strides, start + first * stride))
        inner = (*inner[:axis], n - low - high, *inner[axis + 1 :])
        start += low * stride
    return found


def fill_kernel(layout: Layout, number: Any) -> Kernel:
    """A kernel that fills a layout with a number."""
    order = axes_by_stride(layout)
    kernel = Kernel(tuple(layout.shape[i] for i in order), 0)
    line = KernelLine("number", layout.buffer.dtype, frozenset(), number=number)
    kernel.stores.append(Store(line, layout.buffer, tuple(layout.strides[i] for i in order), layout.offset))
    return kernel


def window_place_layout(layout: Layout, place: tuple[int, ...], many: tuple[int, ...], how: dict[str, Any]) -> Layout:
    """The elements of a padded grid at one place of all windows."""
    sizes = layout.strides[2:]
    strides = tuple(s * t for s, t in zip(sizes, how["stride"], strict=True))
    offset = sum(k * d * s for k, d, s in zip(place, how["dilation"], sizes, strict=True))
    return Layout(layout.buffer, (*layout.shape[:2], *many), (*layout.strides[:2], *strides), layout.offset + offset)
