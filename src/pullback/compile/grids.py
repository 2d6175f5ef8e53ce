"""Values in, grids with their padding in memory out: where windows find all they see by strides alone."""

from __future__ import annotations

from typing import Any

from ..arrays.spec import make_spec, spec_of
from ..ops.patches import Pairs
from .fuse import Axes, Fuser, by_stride
from .loops import Kernel, Layout, Line, Store

__all__ = ["channels_last", "filled", "grid", "inside", "place_of", "written"]


def channels_last(rank: int) -> tuple[int, ...]:
    """The axes of (n, channels, *sizes) with the channels innermost."""
    return (0, *range(2, rank), 1)


def grid(f: Fuser, x: Any, padding: Pairs, number: Any = 0) -> Layout:
    """x with its padding; x where it lies if there is none."""
    if not any(map(any, padding)):
        return f.stored(x)
    key = (id(x), padding, number)
    if key in f.laid:
        return f.laid[key]
    spec = spec_of(x)
    wide = (*spec.shape[:2], *(n + low + high for n, (low, high) in zip(spec.shape[2:], padding, strict=True)))
    layout = f.new(make_spec(wide, spec.dtype), f.order(spec.shape, [(x, ())]))
    f.first.append(filled(layout, number))  # whoever computes x may come before this point
    written(f, x, inside(layout, spec.shape, padding))
    f.laid[key] = layout
    return layout


def inside(layout: Layout, shape: tuple[int, ...], padding: Pairs) -> Layout:
    """The part of a padded layout that is not padding."""
    offset = sum(low * s for (low, _), s in zip(padding, layout.strides[2:], strict=True))
    return Layout(layout.buffer, shape, layout.strides, layout.offset + offset)


def filled(layout: Layout, number: Any) -> Kernel:
    """A kernel that fills a layout with a number."""
    order = by_stride(layout)
    kernel = Kernel(tuple(layout.shape[i] for i in order), 0)
    line = Line("number", layout.buffer.dtype, frozenset(), number=number)
    kernel.stores.append(Store(line, layout.buffer, tuple(layout.strides[i] for i in order), layout.offset))
    return kernel


def written(f: Fuser, x: Any, target: Layout) -> None:
    """x written to a layout of its shape and dtype, by the kernel that makes it or in the target's order."""
    if id(x) in f.made:
        f.store(x, target)
        return
    order = by_stride(target)
    step = f.new_kernel(tuple(target.shape[i] for i in order))
    axes: Axes = tuple(None if n == 1 else order.index(i) for i, n in enumerate(target.shape))
    f.add_store(step, f.line(x, step, axes), axes, target)


def place_of(layout: Layout, place: tuple[int, ...], many: tuple[int, ...], how: dict[str, Any]) -> Layout:
    """What all windows see of a padded grid at one place."""
    sizes = layout.strides[2:]
    strides = tuple(s * t for s, t in zip(sizes, how["stride"], strict=True))
    offset = sum(k * d * s for k, d, s in zip(place, how["dilation"], sizes, strict=True))
    return Layout(layout.buffer, (*layout.shape[:2], *many), (*layout.strides[:2], *strides), layout.offset + offset)
