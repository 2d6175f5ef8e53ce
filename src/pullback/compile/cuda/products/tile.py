"""Matrix products by tiles of our own, in CUDA C, with what follows computed in registers (`*.cuh` have the tiles).

A tile ends in a kernel over the product's elements: the lines of a kernel that would have read the product from memory,
or, where there is none, a store of `alpha * product + beta * out`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...loop_ir import (
    Buffer,
    Kernel,
    KernelLine,
    Layout,
    Product,
    Store,
    load_line,
    product_operands,
    row_major_strides,
)
from ...vocabulary import value_dtype
from ..kernel.grid import VECTOR_BYTES, Grid
from ..kernel.writer import FunctionLaunch, FunctionWriter
from ..words import c_type


@dataclass(frozen=True, slots=True)
class TensorShape:
    """A warp has `high` by `wide` fragments of 16 by 8 elements; `warps` are those along rows, columns and K. The
    arguments go straight to registers.
    """

    high: int
    wide: int
    warps: tuple[int, int, int]

    @property
    def rows(self) -> int:
        return 16 * self.high * self.warps[0]

    @property
    def columns(self) -> int:
        return 8 * self.wide * self.warps[1]

    @property
    def threads(self) -> int:
        return 32 * math.prod(self.warps)

    @property
    def shared_elements(self) -> int:
        """Enough for the parts of a sum over K."""
        return self.warps[2] * self.rows * (self.columns + 1) if self.warps[2] > 1 else 1


@dataclass(frozen=True, slots=True)
class PanelShape:
    """The same with arguments that pass through shared memory, for large products; no warps share K. `high` is even
    unless the left argument has its neighbours along K, and `wide` a multiple of four.
    """

    high: int
    wide: int
    warps: tuple[int, int]

    @property
    def rows(self) -> int:
        return 16 * self.high * self.warps[0]

    @property
    def columns(self) -> int:
        return 8 * self.wide * self.warps[1]

    @property
    def threads(self) -> int:
        return 32 * math.prod(self.warps)

    @property
    def shared_elements(self) -> int:
        """Two pieces of each argument."""
        return 2 * CHUNK * (self.rows + self.columns)


@dataclass(frozen=True, slots=True)
class PlainShape:
    """Without tensor cores: 256 threads, each of `high` by `wide` elements that are 16 apart."""

    high: int
    wide: int

    @property
    def rows(self) -> int:
        return 16 * self.high

    @property
    def columns(self) -> int:
        return 16 * self.wide

    @property
    def threads(self) -> int:
        return 256

    @property
    def shared_elements(self) -> int:
        return 16 * (self.rows + self.columns + 2)


@dataclass(frozen=True, slots=True)
class DirectShape:
    """Without tiles, for the smallest products: each of so many threads has one element."""

    threads: int


@dataclass(frozen=True, slots=True)
class GroupShape:
    """For large products of float32: each group of four warps has 64 rows of so many columns."""

    columns: int
    groups: int

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def threads(self) -> int:
        return 128 * self.groups

    def count_shared_bytes(self, digits: int) -> int:
        """Three pieces of the left argument, two of the right one in its parts."""
        parts = 2 if digits == 3 else 1
        return 4 * CHUNK * (3 * self.rows + 2 * parts * self.columns)


TileShape = TensorShape | PanelShape | GroupShape | PlainShape
#: What passes through shared memory at once along K.
CHUNK = 32
NO_ALIGNMENTS: Mapping[Buffer, int] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """What a tile does with the product: a kernel without folds over it, in which `load` stands for an element. The
    strides of the load and `strides` of the product's axes lead to the same number of an element.
    """

    kernel: Kernel
    load: KernelLine
    strides: tuple[int, ...]


def store_product(product: Product) -> Tail:
    """The tail of a product that is stored: alpha times it, and beta times what was there."""
    out = product.out
    strides = row_major_strides(out.shape)
    load = load_line(out.buffer, strides)
    value = scale_line(load, product.alpha)
    if product.beta:
        before = scale_line(load_line(out.buffer, out.strides, out.offset), product.beta)
        value = add_lines(value, before)
    kernel = Kernel(out.shape, 0, [value], [Store(value, out.buffer, out.strides, out.offset)])
    return Tail(kernel, load, strides)


def add_lines(x: KernelLine, y: KernelLine) -> KernelLine:
    return KernelLine("apply", x.dtype, x.axes | y.axes, 0, (x, y), lambda k, a, b: k.add(a, b), x.dtype)


def scale_line(x: KernelLine, factor: float) -> KernelLine:
    if factor == 1:
        return x
    number = KernelLine("number", x.dtype, frozenset(), number=factor)
    return KernelLine("apply", x.dtype, x.axes, 0, (x, number), lambda k, a, b: k.multiply(a, b), x.dtype)


def render_tile(
    product: Product,
    tail: Tail,
    shape: TileShape | DirectShape,
    digits: int,
    alignments: Mapping[Buffer, int] = NO_ALIGNMENTS,
) -> FunctionLaunch:
    """A product and its tail as one function; `digits` 3: at float32 accuracy, 1: in tf32. `alignments` are those of
    buffers that may not start at a multiple of `VECTOR_BYTES`.
    """
    rows, columns = product.out.shape[-2:]
    grid = Grid(tail.kernel, [0] * len(tail.kernel.extents), {})
    left, right = _matrices_of(product)
    if max(map(_reach, (left.layout, right.layout))) >= 1 << 31:
        grid.index_type = "long long"
    writer = FunctionWriter(grid)
    element = c_type(value_dtype(product.left.buffer.dtype))
    split, at = _tail_coordinates(writer, tail, product.out)
    stores = tail.kernel.stores
    known: dict[int, Any] = {}
    text = [*_load_texts("left", left, writer), *_load_texts("right", right, writer)]
    body = writer.compute([x for s in stores for x in (s.line, *s.args)], known, at, {id(tail.load): "product"})
    body += [x for s in stores for x in writer.store(s, known, at)]
    store = [
        f"const auto store = [=](const int z, const int m, const int n, const {element} product) {{",
        *("  " + line for line in (*split, *body)),
        "};",
    ]
    if isinstance(shape, DirectShape):
        return writer.finish(
            [*text, *store, *_direct_text(product, element, shape)], _direct_grid(product, shape), (shape.threads, 1)
        )
    call, operands = _call_text(shape, product, (left, right), element, digits, alignments)
    if "load_left" in operands:
        text += [_vector_text("load_left", left, writer), _vector_text("load_right", right, writer)]
    if isinstance(shape, (PanelShape, GroupShape)):
        text.append(f"const auto order = [=](const int c) {{ return {_order_of_pieces(left)}; }};")
        froms = (_operand_text("left", left, writer), _operand_text("right", right, writer))
        operands = ", ".join(("left", "right", *froms, "order"))
    text += [
        *store,
    ]
    blocks = product.count * -(-rows // shape.rows) * -(-columns // shape.columns)
    if isinstance(shape, GroupShape):
        text += ["extern __shared__ GroupMemory groups[];", f"{call}(blockIdx.x, groups[0].v, {operands}, store);"]
        found = writer.finish(text, (blocks, 1), (shape.threads, 1))
        return replace(found, at_once=1, shared_bytes=shape.count_shared_bytes(digits))
    text += [
        f"__shared__ __align__(16) {element} shared[{shape.shared_elements}];",
        f"{call}(blockIdx.x, shared, {operands}, store);",
    ]
    return replace(writer.finish(text, (blocks, 1), (shape.threads, 1)), at_once=1)


def _direct_grid(product: Product, shape: DirectShape) -> tuple[int, int]:
    return -(-product.out.size // shape.threads), 1


def _direct_text(product: Product, element: str, shape: DirectShape) -> list[str]:
    rows, columns = product.out.shape[-2:]
    return [
        f"const int e = blockIdx.x * {shape.threads} + threadIdx.x;",
        f"if (e >= {product.out.size}) return;",
        f"const int z = e / {rows * columns}, m = e / {columns} % {rows}, n = e % {columns};",
        f"{element} total = 0;",
        "#pragma unroll 8",
        f"for (int k = 0; k < {product.depth}; ++k)",
        f"  total = fma(({element})left(z, m, k), ({element})right(z, k, n), total);",
        "store(z, m, n, total);",
    ]


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An argument of a product: the axes of a batch, then those of its rows or columns (`own`) and of the depth."""

    layout: Layout
    batch: range
    own: range
    depth: range
    #: The letters of coordinates along rows or columns, and K, as they are in a call.
    names: str

    @property
    def is_by_k(self) -> bool:
        """Whether neighbours along K are nearest in memory."""
        return abs(self.layout.strides[self.depth[-1]]) <= abs(self.layout.strides[self.own[-1]])

    def terms(self, axes: range, letter: str) -> list[str]:
        """The summands of an address that a coordinate along some axes makes."""
        sizes = self.layout.shape[axes.start : axes.stop]
        steps, found = row_major_strides(sizes), []
        for number, (axis, n, step) in enumerate(zip(axes, sizes, steps, strict=True)):
            stride = self.layout.strides[axis]
            over = letter if step == 1 else f"{letter} / {step}"
            at = over if number == 0 else f"{over} % {n}"
            if n > 1 and stride:
                found.append(f"({at})" if stride == 1 else f"(I)({at}) * {stride}")
        return found

    def at(self) -> str:
        """The place of an element with a zero along K, from coordinates z and m or n."""
        own = next(c for c in self.names if c != "k")
        terms = [*self.terms(self.batch, "z"), *self.terms(self.own, own)]
        offset = [str(self.layout.offset)] if self.layout.offset or not terms else []
        return " + ".join([*terms, *offset])

    def along(self) -> str:
        """What a coordinate along K adds to it."""
        return " + ".join(self.terms(self.depth, "k")) or "0"


def _matrices_of(product: Product) -> tuple[_Matrix, _Matrix]:
    left, right = product_operands(product)
    batch = len(product.out.shape) - 2
    rows, depth, columns = map(len, product.axes or ((1,), (1,), (1,)))
    first, second = batch + rows, batch + depth
    ends = range(batch), range(batch, first), range(first, first + depth)
    others = range(batch), range(second, second + columns), range(batch, second)
    return _Matrix(left, *ends, "mk"), _Matrix(right, *others, "kn")


def is_left_by_k(product: Product) -> bool:
    """Whether neighbours of the left argument along K are nearest in memory."""
    return _matrices_of(product)[0].is_by_k


def _reach(matrix: Layout) -> int:
    """The farthest element."""
    return matrix.offset + sum(abs(s) * max(n - 1, 0) for s, n in zip(matrix.strides, matrix.shape, strict=True))


def _has_vectors(matrix: _Matrix, alignments: Mapping[Buffer, int]) -> bool:
    """Whether an argument can be loaded four neighbours at a time, none of them beyond the matrix."""
    layout = matrix.layout
    inner = (matrix.depth if matrix.is_by_k else matrix.own)[-1]
    pairs = enumerate(zip(layout.strides, layout.shape, strict=True))
    others = [s for axis, (s, n) in pairs if n > 1 and axis != inner]
    aligned = alignments.get(layout.buffer, VECTOR_BYTES) % (4 * layout.buffer.dtype.itemsize) == 0
    whole = not any(n % 4 for n in (*others, layout.offset, layout.shape[inner]))
    return layout.strides[inner] == 1 and aligned and whole


def _call_text(
    shape: TileShape,
    product: Product,
    matrices: tuple[_Matrix, _Matrix],
    element: str,
    digits: int,
    alignments: Mapping[Buffer, int],
) -> tuple[str, str]:
    """The function of a tile with its constants, and the names of the arguments."""
    extents = f"Sizes<{', '.join(map(str, (*product.out.shape[-2:], product.depth)))}>"
    by_k = ", ".join("true" if x.is_by_k else "false" for x in matrices)
    if isinstance(shape, PlainShape):
        return f"plain_tile_<{element}, {extents}, {shape.high}, {shape.wide}, {by_k}>", "left, right"
    has_vectors = [_has_vectors(x, alignments) for x in matrices]
    widths = ", ".join("4" if flag else "1" for flag in has_vectors)
    if isinstance(shape, GroupShape):
        return f"group_tile_<{extents}, GroupShape<{shape.columns}, {shape.groups}, {digits}, {by_k}, {widths}>>", ""
    numbers = ", ".join(map(str, (shape.high, shape.wide, *shape.warps, digits)))
    if isinstance(shape, PanelShape):
        return f"panel_tile_<{extents}, PanelShape<{numbers}, {by_k}, {widths}>>", ""
    vectors = (shape.high, shape.wide) == (2, 4) and all(has_vectors)
    stored = c_type(product.left.buffer.dtype)
    text = f"tensor_tile_<{extents}, TensorShape<{stored}, {numbers}, {by_k}, {'true' if vectors else 'false'}>>"
    return text, "left, right, load_left, load_right" if vectors else "left, right, left, right"


def _coordinates(shape: tuple[int, ...], names: str) -> list[str]:
    """The coordinates along the axes of matrices: those of the batch are in z, and `names` are those of the others."""
    batch = zip(shape[:-2], row_major_strides(shape[:-2]), strict=True)
    return [*(f"(z / {step} % {n})" if len(shape) > 3 else "z" for n, step in batch), *names]


def _load_texts(name: str, matrix: _Matrix, writer: FunctionWriter) -> list[str]:
    """Functions of the coordinates that return the parts of an element's place, and the element."""
    own = next(c for c in matrix.names if c != "k")
    given = ", ".join(f"const int {c}" for c in "z" + matrix.names)
    place = f"{name}_at(z, {own}) + {name}_along(k)"
    return [
        f"const auto {name}_at = [=](const int z, const int {own}) -> I {{ return {matrix.at()}; }};",
        f"const auto {name}_along = [=](const int k) -> I {{ return {matrix.along()}; }};",
        f"const auto {name} = [=]({given}) {{ return {writer.pointer(matrix.layout.buffer)}[{place}]; }};",
    ]


def _vector_text(name: str, matrix: _Matrix, writer: FunctionWriter) -> str:
    """A function of the coordinates that returns an element and the next three in memory."""
    given = ", ".join(f"const int {c}" for c in "z" + matrix.names)
    place = f"{writer.pointer(matrix.layout.buffer)}[{matrix.at()} + {matrix.along()}]"
    kind = f"const Vec<{c_type(matrix.layout.buffer.dtype)}, 4>*"
    return f"const auto {name} = [=]({given}) {{ return *reinterpret_cast<{kind}>(&{place}); }};"


def _operand_text(name: str, matrix: _Matrix, writer: FunctionWriter) -> str:
    """Where a tile of panels copies from. Numbers of a piece that ends within the innermost of several axes are in two
    parts, whose places are found once for all of them.
    """
    inner = matrix.layout.shape[matrix.depth[-1]]
    place = f"{name}_along(k0 + d)"
    if len(matrix.depth) > 1 and inner >= CHUNK:
        step = matrix.layout.strides[matrix.depth[-1]]
        first = f"const int first = k0 / {inner} * {inner}, r = k0 - first + d;"
        here, next_ = (
            f"{name}_along(first) + (I)r * {step}",
            f"{name}_along(first + {inner}) + (I)(r - {inner}) * {step}",
        )
        body = f"{first} return r < {inner} ? {here} : {next_};"
    else:
        body = f"return {place};"
    along = f"[=](const int k0, const int d) -> I {{ {body} }}"
    return f"Operand{{{writer.pointer(matrix.layout.buffer)}, {name}_at, {along}}}"


def _order_of_pieces(matrix: _Matrix) -> str:
    """The number of K at which piece `c` begins. Where a row goes on as the next one begins, as patches do, those that
    have memory in common follow each other.
    """
    inner, step = matrix.layout.shape[matrix.depth[-1]], abs(matrix.layout.strides[matrix.own[-1]])
    overlaps = matrix.is_by_k and 0 < step < inner and inner % step == 0 and step % CHUNK == 0
    if not overlaps or matrix.layout.strides[matrix.depth[-1]] != 1:
        return f"{CHUNK} * c"
    rounds, pieces = inner // step, inner // CHUNK
    return f"c / {pieces} * {inner} + c % {rounds} * {step} + c % {pieces} / {rounds} * {CHUNK}"


def _tail_coordinates(writer: FunctionWriter, tail: Tail, out: Layout) -> tuple[list[str], dict[int, str]]:
    """The coordinates of the tail's domain at the element (z, m, n) of the product, whose elements `tail.load` visits
    once each: along a group of axes with some stride, it is the number of the element over that stride.
    """
    names = _coordinates(out.shape, "mn")
    whole = dict(zip(zip(tail.strides, out.shape, strict=True), names, strict=True))
    found: dict[int, str] = {}
    for group, size in enumerate(writer.grid.sizes):
        stride = writer.grid.stride(tail.load, group)
        over = f"at / {stride}" if stride > 1 else "at"
        found[group] = whole.get((stride, size)) or (over if stride * size == out.size else f"{over} % {size}")
    terms = [f"(I){c} * {s}" for c, s, n in zip(names, tail.strides, out.shape, strict=True) if n > 1]
    lines = [f"const I at = {' + '.join(terms) or '0'};"] if any(x.startswith("at") for x in found.values()) else []
    return lines, {g: f"({text})" if " " in text else text for g, text in found.items()}


def is_dense_load(load: KernelLine, extents: tuple[int, ...], out: Layout) -> bool:
    """Whether a load visits each element of a product once, and both lie without gaps, in any order of axes."""
    ends = (dense_size(load.strides, extents), dense_size(out.strides, out.shape))
    return load.kind == "load" and ends == (out.size, out.size) and load.offset == out.offset


def dense_size(strides: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The number of elements of an array that lies without gaps or repetition; 0 if it does not."""
    size = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != size:
            return 0
        size *= n
    return size
