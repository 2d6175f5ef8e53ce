"""Lowers gathers and scatters: reading and writing at indices that are known only when the program runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...ops.forms import Gather
from ...ops.index.normalize import SLOT, axes_before, has_separated_arrays
from ...program.ir import Equation
from ...program.scatters import counted_axis
from ..loop_ir import KernelLine, Layout, Store, phase_after
from .axes import Axes, strides_on_domain
from .fuse import Fuser
from .views import region_layout


@dataclass(frozen=True, slots=True)
class _IndexedLayout:
    """A layout seen through an index with slots: the result's shape and strides, and for each slot the (stride, size)
    of its axis and the axes of the result that its array has.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    slots: tuple[tuple[int, int], ...]
    own: list[tuple[int, ...]]


def index_layout(layout: Layout, index: Any, arrays: Sequence[Any]) -> _IndexedLayout:
    """A layout seen through an index: strides along the axes of x[index], and the slots of the index arrays."""
    region = region_layout(layout, tuple(slice(None) if i is SLOT else i for i in index))
    axis, sliced, slots = 0, [], []
    for entry in (*index, *[slice(None)] * (len(layout.shape) - sum(i is not None for i in index))):
        if entry is SLOT:
            slots.append((region.strides[axis], region.shape[axis]))
        elif not isinstance(entry, int):
            sliced.append((region.strides[axis], region.shape[axis]))
        axis += not isinstance(entry, int)
    index_shape = np.broadcast_shapes(*(spec_of(a).shape for a in arrays))
    # as NumPy has it: axes of separated index arrays come first
    at = 0 if has_separated_arrays(index) else axes_before(index)
    strides = [s for s, _ in sliced]
    sizes = [n for _, n in sliced]
    shape = (*sizes[:at], *index_shape, *sizes[at:])
    own = [tuple(range(at + len(index_shape) - spec_of(a).ndim, at + len(index_shape))) for a in arrays]
    strides = [*strides[:at], *[0] * len(index_shape), *strides[at:]]
    return _IndexedLayout(shape, tuple(strides), region.offset, tuple(slots), own)


def _stride_along_counts(seen: _IndexedLayout, arrays: Sequence[Any]) -> tuple[_IndexedLayout, list[Any]]:
    """An index array that counts along an axis of the result is a stride there; the others stay."""
    strides, left = list(seen.strides), []
    for array, slot, own in zip(arrays, seen.slots, seen.own, strict=True):
        axis = counted_axis(array)
        if axis is None or array.size > slot[1]:
            left.append((array, slot, own))
        else:
            strides[own[axis]] += slot[0]
    if not left:  # a gather without indices would be a load
        return seen, list(arrays)
    arrays, slots, places = zip(*left, strict=True)
    return _IndexedLayout(seen.shape, tuple(strides), seen.offset, slots, list(places)), list(arrays)


def lower_gather(f: Fuser, e: Equation) -> None:
    source = f.layout_of(e.args[0])
    seen, arrays = _stride_along_counts(index_layout(source, e.static["index"], e.args[1:]), e.args[1:])
    # a gather reads anywhere in its source, so the source must be complete
    born = f.last_writes.get(id(source.buffer), -1)
    step, axes = f.choose_kernel(seen.shape, list(zip(arrays, seen.own, strict=True)), after=born)
    f.record_line(e.results[0], step, f.kernel(step), _gather_line(f, e, step, axes), axes)


def _gather_line(f: Fuser, e: Equation, step: int, axes: Axes) -> KernelLine:
    """A gather in a kernel, the axes of its result on these axes of the domain."""
    source = f.layout_of(e.args[0])
    seen, arrays = _stride_along_counts(index_layout(source, e.static["index"], e.args[1:]), e.args[1:])
    lines = tuple(f.line(a, step, tuple(axes[i] for i in own)) for a, own in zip(arrays, seen.own, strict=True))
    kernel = f.kernel(step)
    strides = strides_on_domain(kernel, axes, Layout(source.buffer, seen.shape, seen.strides))
    # it differs along the axes of its indices, and along those it walks itself
    used = frozenset(i for i, s in enumerate(strides) if s).union(*(line.axes for line in lines))
    f.readers.setdefault(id(source.buffer), []).append(step)
    return KernelLine(
        "gather", source.buffer.dtype, used, phase_after(lines), lines, buffer=source.buffer, strides=strides,
        offset=seen.offset, weight=8, places=seen.slots, site=e.site,
    )  # fmt: skip


def _line_for_scatter(f: Fuser, x: Any, step: int, axes: Axes) -> KernelLine:
    """The line of a value that is scattered: what nothing else uses, and weighs little, is computed there, so that it
    goes through no memory.
    """
    made, e = f.kernel_values.get(id(x)), f.producer.get(id(x))
    if made is None or e is None or id(x) in f.places or len(f.uses[id(x)]) > 1:
        return f.line(x, step, axes)
    axes = tuple(None if n == 1 else a for n, a in zip(spec_of(x).shape, axes, strict=True))
    if isinstance(e.op.form, Gather):
        source = f.layout_of(e.args[0])
        if f.last_writes.get(id(source.buffer), -1) >= made.step:  # it has been overwritten since
            return f.line(x, step, axes)
        line = _gather_line(f, e, step, axes)
    elif e.op.family == "elementwise" and e.op.kernel is not None and made.line.weight <= f.limits.max_scattered_weight:
        rank = len(axes)
        lines = tuple(_line_for_scatter(f, a, step, axes[rank - spec_of(a).ndim :]) for a in e.args)
        line = f.line_maker(e)(lines, phase_after(lines))
    else:
        return f.line(x, step, axes)
    f.kernel(step).lines.append(line)
    return line


def lower_scatter(f: Fuser, e: Equation, target: Layout, values: Any, arrays: Sequence[Any], word: str) -> None:
    """Add a kernel that writes values to places given by index arrays, in order."""
    seen = index_layout(target, e.static["index"], arrays)
    if not math.prod(seen.shape):
        return
    # a kernel of its own: indices may repeat a place, so writes keep their order
    step = f.new_kernel(seen.shape)
    axes: Axes = tuple(None if n == 1 else i for i, n in enumerate(seen.shape))
    lines = tuple(f.line(a, step, tuple(axes[i] for i in own)) for a, own in zip(arrays, seen.own, strict=True))
    own = axes[len(axes) - spec_of(values).ndim :]
    line = _line_for_scatter(f, values, step, own) if word else f.line(values, step, own)
    kernel = f.kernel(step)
    strides = strides_on_domain(kernel, axes, Layout(target.buffer, seen.shape, seen.strides))
    points = math.prod(seen.shape)
    kernel.stores.append(
        Store(line, target.buffer, strides, seen.offset, word, lines, seen.slots, points=points, site=e.site)
    )
    f.note(step, target.buffer)
