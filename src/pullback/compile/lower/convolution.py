"""Lowers convolutions to patches and matrix products, a few images at a time.

Grids have their channels innermost, so that a patch is a few long pieces of memory, and what follows (a bias, an
activation, a pooling) runs along channels. With M windows, D = channels * places and F filters:

    y (M, F)  = patches (M, D) @ filters (D, F)
    w (D, F)  = sum over blocks of patches^T (D, M) @ y (M, F)
    x         = the rows of y (M, F) @ filters^T (F, D), each accumulated where its patch is

Where products read patches in their grid, none are laid out in the end, so there is one block; and x is the convolution
of y, padded, with the filters turned round, if windows are one step apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.spec import make_spec, spec_of
from ...ops.dispatch import compute
from ...ops.window.patches import Pairs, Sizes
from ...program.ir import Equation
from ..loop_ir import (
    Blocks,
    Buffer,
    Host,
    Kernel,
    Layout,
    Product,
    Routine,
    Store,
    contiguous_layout,
    load_line,
    row_major_strides,
)
from ..schedule.cost import count_multiplications
from ..target import Limits
from ..vocabulary import value_dtype
from .contraction import PRODUCT_DTYPES
from .fuse import Fuser
from .half_values import product_dtype, wide_spec
from .padding import channels_last, fill_kernel, interior_layout, padded_layout

#: The gradient by fewer channels than this is no convolution: most columns of a tile would be empty.
MIN_CHANNELS = 16


def can_lower_convolution(f: Fuser, e: Equation) -> bool:
    """Whether the convolution has a native form."""
    specs = [spec_of(a) for a in e.args]
    dtype = e.results[0].spec.dtype
    whole = all(s.dtype == dtype and s.weak is None and s.size for s in specs) and e.results[0].spec.size
    if dtype.name not in PRODUCT_DTYPES or not whole:
        return False
    wide = [wide_spec(s) for s in (*specs, e.results[0].spec)]
    return e.static["groups"] == 1 or f.target.has_routine(_routine_of(e), wide)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The sizes of a convolution: x (n, channels, *sizes), w (filters, channels, *window), y (n, filters, *many)."""

    n: int
    channels: int
    filters: int
    window: Sizes
    many: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    dtype: np.dtype[Any]
    patch_bytes: int
    is_patchless: bool

    @property
    def depth(self) -> int:
        return self.channels * math.prod(self.window)

    @property
    def rows(self) -> int:
        """Windows of one image."""
        return math.prod(self.many)

    @property
    def images(self) -> int:
        """Images of a block: as many as fit in the cache and divide the number of images."""
        if self.is_patchless:
            return self.n
        # at least one image, however large its patches are
        most = max(1, self.patch_bytes // (self.rows * self.depth * self.dtype.itemsize))
        return max(i for i in range(1, self.n + 1) if self.n % i == 0 and i <= most)

    @property
    def order(self) -> tuple[int, ...] | None:
        """The order of axes that padded grids get: any, or channels innermost where these are many."""
        return channels_last(2 + len(self.window)) if self.is_patchless and self.channels % 4 == 0 else None

    def transpose(self, sizes: Sizes) -> _Geometry | None:
        """The convolution of y that is the gradient by x, of some sizes: None if it is not one of the same kind."""
        reach = [d * (k - 1) for k, d in zip(self.window, self.dilation, strict=True)]
        padding = tuple((r - low, r - high) for r, (low, high) in zip(reach, self.padding, strict=True))
        fits = self.is_patchless and all(s == 1 for s in self.stride) and min(map(min, padding)) >= 0
        if not fits or self.channels < MIN_CHANNELS:
            return None
        return replace(self, channels=self.filters, filters=self.channels, many=sizes, padding=padding)


def _geometry_of(e: Equation, limits: Limits, dtype: np.dtype[Any]) -> _Geometry:
    shapes = {e.op.form.result: e.results[0].spec.shape}
    shapes |= {name: spec_of(a).shape for name, a in zip(e.op.args, e.args, strict=True)}
    x, w, y = shapes["x"], shapes["w"], shapes["y"]
    how = (e.static["stride"], e.static["padding"], e.static["dilation"])
    is_patchless = dtype.name in limits.patchless_dtypes and e.results[0].spec.dtype == dtype
    return _Geometry(x[0], x[1], w[0], w[2:], y[2:], *how, dtype, limits.patch_bytes, is_patchless)


def _routine_of(e: Equation) -> Routine:
    return Routine(f"convolve_{e.op.form.result}", e.static, 1.0)


def lower_convolution(f: Fuser, e: Equation) -> None:
    """One of several groups is a routine of the target, on the usual order of axes; others go by patches."""
    if e.static["groups"] > 1:
        _lower_as_routine(f, e)
        return
    dtype = product_dtype(e.results[0].spec.dtype, f.target)
    g, (first, second) = _geometry_of(e, f.limits, dtype), e.args
    if e.op.form.result == "y":
        layout = _lower_forward(f, g, first, second)
    elif e.op.form.result == "w":
        layout = _lower_weight_gradient(f, g, first, second)
    else:
        layout = _lower_input_gradient(f, g, first, second, e.results[0].spec.shape)
    f.set_place(e.results[0], layout)


def _lower_as_routine(f: Fuser, e: Equation) -> None:
    spec = wide_spec(e.results[0].spec)
    args = tuple(_in_usual_order(f, a, spec.dtype) for a in e.args)
    out, op, static = f.new_layout(spec), e.op, e.static
    step = Host(op.name, lambda *arrays: compute(op, arrays, static), args, (out,), True, _routine_of(e))
    g = _geometry_of(e, f.limits, spec.dtype)
    multiplications = g.n * g.rows * g.depth * g.filters // static["groups"]
    # the weight is one for a convolution as if for a stack of matrices
    weight = multiplications / count_multiplications(step)
    f.steps.append(replace(step, routine=replace(_routine_of(e), weight=weight)))
    f.note(len(f.steps) - 1, out.buffer)
    f.set_place(e.results[0], out)


def _in_usual_order(f: Fuser, x: Any, dtype: np.dtype[Any]) -> Layout:
    layout = f.widened_layout(x, dtype)
    in_order = zip(layout.shape, layout.strides, row_major_strides(layout.shape), strict=True)
    return layout if all(n == 1 or s == t for n, s, t in in_order) else f.copy_layout(layout)


def _lower_forward(f: Fuser, g: _Geometry, x: Any, w: Any) -> Layout:
    source = padded_layout(f, x, g.padding, order=g.order)
    filters = _deep_filters(f, g, w, "forward") if g.is_patchless else _filter_matrix(f, g, w)
    return _convolve(f, g, source, filters)


def _convolve(f: Fuser, g: _Geometry, source: Layout, filters: Layout) -> Layout:
    shape = (g.n, g.filters, *g.many)
    out = f.new_layout(make_spec(shape, g.dtype), channels_last(len(shape)))
    rows = g.images * g.rows
    lay, patches = _lay_out_patches(g, source)
    product = Product(contiguous_layout(out.buffer, (1, rows, g.filters)), patches, filters)
    # each block reads the next images and writes the next rows of the result
    moves = {source.buffer: g.images * source.strides[0], out.buffer: rows * g.filters}
    _append_steps(f, g, [lay, product], moves, out.buffer)
    return out


def _lower_weight_gradient(f: Fuser, g: _Geometry, x: Any, y: Any) -> Layout:
    source, bars = padded_layout(f, x, g.padding, order=g.order), _row_matrix(f, g, y)
    # a block advances each buffer by one distance, so two operands cannot share theirs
    if bars.buffer is source.buffer:
        bars = f.copy_layout(bars)
    out = contiguous_layout(Buffer("arena", g.depth * g.filters, value_dtype(g.dtype)), (1, g.depth, g.filters))
    # the blocks' products are added up, so the sum starts at zero
    several = g.images < g.n
    if several:
        f.steps.append(fill_kernel(out, 0))
    lay, patches = _lay_out_patches(g, source)
    transposed = Layout(patches.buffer, (1, g.depth, patches.shape[1]), (0, patches.strides[2], patches.strides[1]))
    product = Product(out, transposed, bars, beta=1.0 if several else 0.0)
    moves = {source.buffer: g.images * source.strides[0], bars.buffer: g.images * g.rows * g.filters}
    _append_steps(f, g, [lay, product], moves, out.buffer)
    inner = row_major_strides((*g.window, g.channels, g.filters))
    return Layout(out.buffer, (g.filters, g.channels, *g.window), (1, g.filters, *inner[:-2]))


def _lower_input_gradient(f: Fuser, g: _Geometry, y: Any, w: Any, shape: tuple[int, ...]) -> Layout:
    transposed_geometry = g.transpose(shape[2:])
    if transposed_geometry is not None:
        g = transposed_geometry
        source = padded_layout(f, y, g.padding, order=g.order)
        return _convolve(f, g, source, _deep_filters(f, g, w, "backward"))
    bars, filters = _row_matrix(f, g, y), _filter_matrix(f, g, w)
    transposed = Layout(filters.buffer, (1, g.filters, g.depth), (0, 1, g.filters))
    padded = (*shape[:2], *(n + low + high for n, (low, high) in zip(shape[2:], g.padding, strict=True)))
    out = f.new_layout(make_spec(padded, value_dtype(g.dtype)), channels_last(len(padded)))
    rows = g.images * g.rows
    columns = contiguous_layout(Buffer("arena", rows * g.depth, g.dtype), (1, rows, g.depth))
    # windows overlap, so each block's images start at zero and every patch is added
    clear = fill_kernel(Layout(out.buffer, (g.images, *padded[1:]), out.strides), 0)
    product = Product(columns, bars, transposed)
    extents, strides = _patch_domain(g, out)
    add = Kernel(extents, 0)
    line = load_line(columns.buffer, row_major_strides(extents))
    add.lines.append(line)
    add.stores.append(Store(line, out.buffer, strides, 0, "add", accumulates=True, points=math.prod(extents)))
    moves = {out.buffer: g.images * out.strides[0], bars.buffer: rows * g.filters}
    _append_steps(f, g, [clear, product, add], moves, out.buffer)
    return interior_layout(out, shape, g.padding)


def _append_steps(
    f: Fuser, g: _Geometry, steps: list[Kernel | Product], moves: dict[Buffer, int], written_to: Buffer
) -> None:
    if g.images < g.n:
        f.steps.append(Blocks(g.n // g.images, steps, moves))
    else:
        f.steps.extend(steps)
    f.note(len(f.steps) - 1, written_to)


def _patch_domain(g: _Geometry, source: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The domain (images, *many, *window, channels) of a block's patches, and the strides of a padded grid along it."""
    inner = source.strides[2:]
    between = [s * t for s, t in zip(inner, g.stride, strict=True)]
    within = [s * d for s, d in zip(inner, g.dilation, strict=True)]
    strides = (source.strides[0], *between, *within, source.strides[1])
    return (g.images, *g.many, *g.window, g.channels), strides


def _lay_out_patches(g: _Geometry, source: Layout) -> tuple[Kernel, Layout]:
    """A kernel that lays out the patches of a block, and where: (1, windows, depth). Patch by patch if channels make
    long pieces of memory, else place by place, where neighbouring windows do.
    """
    extents, strides = _patch_domain(g, source)
    rank, rows, depth = len(g.many), g.images * g.rows, g.depth
    buffer = Buffer("arena", rows * depth, g.dtype)
    # how many elements of a patch are contiguous in the grid
    piece = g.channels * (g.window[-1] if g.dilation[-1] == 1 else 1) if source.strides[1] == 1 else 1
    by_place = piece < 16 and g.many[-1] > piece
    order = [*range(1 + rank, 2 + 2 * rank), *range(1 + rank)] if by_place else list(range(2 + 2 * rank))
    kernel = Kernel(tuple(extents[i] for i in order), 0)
    line = load_line(source.buffer, tuple(strides[i] for i in order), source.offset)
    kernel.lines.append(line)
    kernel.stores.append(Store(line, buffer, row_major_strides(kernel.extents)))
    return kernel, Layout(buffer, (1, rows, depth), (0, 1, rows) if by_place else (0, depth, 1))


def _filter_matrix(f: Fuser, g: _Geometry, w: Any) -> Layout:
    """The weight as a matrix (1, depth, filters)."""
    # forward and input gradient use the same matrix
    if (id(w), "filters") in f.prepared_layouts:
        return f.prepared_layouts[id(w), "filters"]
    source = f.layout_of(w)
    shape = (*g.window, g.channels, g.filters)
    strides = (*source.strides[2:], source.strides[1], source.strides[0])
    target = f.copy_layout(Layout(source.buffer, shape, strides, source.offset), g.dtype)
    f.prepared_layouts[id(w), "filters"] = contiguous_layout(target.buffer, (1, g.depth, g.filters))
    return f.prepared_layouts[id(w), "filters"]


def _deep_filters(f: Fuser, g: _Geometry, w: Any, direction: str) -> Layout:
    """The weight as a matrix (1, depth, filters) whose columns are contiguous; backward, with windows turned round and
    the roles of channels and filters exchanged.
    """
    if (id(w), direction) in f.prepared_layouts:
        return f.prepared_layouts[id(w), direction]
    source = f.layout_of(w)
    first, second, *inner = source.strides
    offset = source.offset
    if direction == "backward":
        first, second = second, first
        offset += sum(s * (n - 1) for s, n in zip(inner, g.window, strict=True))
        inner = [-s for s in inner]
    shape = (g.filters, *g.window, g.channels)
    target = f.copy_layout(Layout(source.buffer, shape, (first, *inner, second), offset), g.dtype)
    f.prepared_layouts[id(w), direction] = Layout(target.buffer, (1, g.depth, g.filters), (0, 1, g.depth))
    return f.prepared_layouts[id(w), direction]


def _row_matrix(f: Fuser, g: _Geometry, y: Any) -> Layout:
    """y as a matrix (1, windows, filters), contiguous."""
    backward = g.transpose(g.many)
    if backward is not None and (id(y), backward.padding, 0) in f.prepared_layouts:
        padded = f.prepared_layouts[id(y), backward.padding, 0]
        # a copy that products do not need: they read where it was
        inner = interior_layout(padded, (g.n, g.filters, *g.many), backward.padding)
        order = channels_last(len(inner.shape))
        shape, strides = (tuple(x[i] for i in order) for x in (inner.shape, inner.strides))
        copied = f.copy_layout(Layout(inner.buffer, shape, strides, inner.offset))
        return Layout(copied.buffer, (1, g.n * g.rows, g.filters), (0, g.filters, 1))
    shape = (g.n, g.filters, *g.many)
    wanted = f.new_layout(make_spec(shape, g.dtype), channels_last(len(shape)))
    layout = f.widened_layout(y, g.dtype)
    in_order = all(n == 1 or s == t for n, s, t in zip(shape, layout.strides, wanted.strides, strict=True))
    if not in_order:
        f.put(y, wanted)
        layout = wanted
    return Layout(layout.buffer, (1, g.n * g.rows, g.filters), (0, g.filters, 1), layout.offset)
