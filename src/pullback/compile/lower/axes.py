"""Axes of values on the domain of a kernel: their order, and the strides of memory along them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ..loop_ir import Buffer, Kernel, Layout, row_major_strides

#: For each axis of a value the axis of the domain that it is; None for an axis of one element.
Axes = tuple[int | None, ...]


@functools.cache
def all_axes(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def axes_by_stride(layout: Layout) -> tuple[int, ...]:
    """The axes of a layout, the one with the longest step first; axes of one element stay where they are."""
    wide = [i for i, n in enumerate(layout.shape) if n != 1]
    by_stride = iter(sorted(wide, key=lambda i: -abs(layout.strides[i])))
    return tuple(next(by_stride) if n != 1 else i for i, n in enumerate(layout.shape))


def layout_in_order(buffer: Buffer, shape: tuple[int, ...], order: Sequence[int]) -> Layout:
    """A whole buffer with the axes in an order, the first outermost."""
    strides = dict(zip(order, row_major_strides(tuple(shape[i] for i in order)), strict=True))
    return Layout(buffer, shape, tuple(strides[i] for i in range(len(shape))))


def position_in_domain(axes: Axes, i: int) -> float:
    """The position of an axis in a domain; one of a single element comes right after the axis before it."""
    before = [a for a in axes[: i + 1] if a is not None]
    return axes[i] if axes[i] is not None else (before[-1] + 0.5 if before else -1)  # type: ignore[return-value]


def strides_on_domain(kernel: Kernel, axes: Axes, layout: Layout) -> tuple[int, ...]:
    """The strides of a layout along the axes of a kernel's domain."""
    strides = [0] * len(kernel.extents)
    for stride, axis, n in zip(layout.strides, axes, layout.shape, strict=True):
        if axis is not None and n != 1:
            strides[axis] += stride
    return tuple(strides)
