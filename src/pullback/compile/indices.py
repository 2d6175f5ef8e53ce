"""Indices that are only known when the program runs: reading and writing at places that arrays name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..ops.index import SLOT, axes_before, is_apart
from ..ops.specialise import Equation
from .fuse import Axes, Fuser, on, phase
from .loops import Layout, Line, Store

__all__ = ["gather", "scatter"]


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A layout seen through an index with slots: the result's shape and strides, and for each slot the (stride, size)
    of its axis and the axes of the result that its array lies on.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    slots: tuple[tuple[int, int], ...]
    own: list[tuple[int, ...]]


def indexed(f: Fuser, layout: Layout, index: Any, arrays: Sequence[Any]) -> _Indexed:
    """A layout seen through an index: strides along the axes of x[index], and where the arrays come in."""
    region = f.region(layout, tuple(slice(None) if i is SLOT else i for i in index))
    axis, others, slots = 0, [], []
    for entry in (*index, *[slice(None)] * (len(layout.shape) - sum(i is not None for i in index))):
        if entry is SLOT:
            slots.append((region.strides[axis], region.shape[axis]))
        elif not isinstance(entry, int):
            others.append((region.strides[axis], region.shape[axis]))
        axis += not isinstance(entry, int)
    wide = np.broadcast_shapes(*(spec_of(a).shape for a in arrays))
    at = 0 if is_apart(index) else axes_before(index)
    strides = [s for s, _ in others]
    sizes = [n for _, n in others]
    shape = (*sizes[:at], *wide, *sizes[at:])
    own = [tuple(range(at + len(wide) - spec_of(a).ndim, at + len(wide))) for a in arrays]
    strides = [*strides[:at], *[0] * len(wide), *strides[at:]]
    return _Indexed(shape, tuple(strides), region.offset, tuple(slots), own)


def gather(f: Fuser, e: Equation) -> None:
    source = f.stored(e.args[0])
    seen = indexed(f, source, e.static["index"], e.args[1:])
    args = list(zip(e.args[1:], seen.own, strict=True))
    born = f.born.get(id(source.buffer), -1)
    step, axes = f.where(seen.shape, args, after=born)
    lines = tuple(f.line(a, step, tuple(axes[i] for i in own)) for a, own in args)
    kernel = f.kernel(step)
    strides = on(kernel, axes, Layout(source.buffer, seen.shape, seen.strides))
    used = frozenset(i for i, s in enumerate(strides) if s).union(*(line.axes for line in lines))
    line = Line(
        "gather", source.buffer.dtype, used, phase(lines), lines, buffer=source.buffer, strides=strides,
        offset=seen.offset, weight=8, places=seen.slots,
    )  # fmt: skip
    f.keep(e.results[0], step, kernel, line, axes)
    f.readers.setdefault(id(source.buffer), []).append(step)


def scatter(f: Fuser, target: Layout, values: Any, index: Any, arrays: Sequence[Any], word: str) -> None:
    """A kernel that writes values to places given by index arrays, in order."""
    seen = indexed(f, target, index, arrays)
    if not math.prod(seen.shape):
        return
    step = f.new_kernel(seen.shape)
    axes: Axes = tuple(None if n == 1 else i for i, n in enumerate(seen.shape))
    lines = tuple(f.line(a, step, tuple(axes[i] for i in own)) for a, own in zip(arrays, seen.own, strict=True))
    line = f.line(values, step, axes[len(axes) - spec_of(values).ndim :])
    kernel = f.kernel(step)
    strides = on(kernel, axes, Layout(target.buffer, seen.shape, seen.strides))
    points = math.prod(seen.shape)
    kernel.stores.append(Store(line, target.buffer, strides, seen.offset, word, lines, seen.slots, points=points))
    f.note(step, target.buffer)
