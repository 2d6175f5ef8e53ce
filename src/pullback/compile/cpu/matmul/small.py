"""Matrix product in, one LLVM function of plain loops out: for a small one calling the BLAS would cost more, and code
that runs without NumPy has no BLAS to call.
"""

from __future__ import annotations

from ...loop_ir import Product
from ...varying import Varying
from ..builder.function_text import FunctionText
from ..builder.ir_builder import IRBuilder
from ..builder.memory import Number, constant_mask, emit_address, emit_lane_mask, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_type

#: Products of at most this many multiplications are inlined.
MAX_MULTIPLICATIONS = 4096
#: Vectors of a row that are accumulated in parallel.
_UNROLL = 4
#: The head of the function of one element of a batch.
PRODUCT_HEAD = "define internal void @NAME(ptr noalias %out, ptr noalias %left, ptr noalias %right)"


def is_small(step: Product) -> bool:
    """Whether the product is small and its operands' strides let vectors be loaded."""
    return step.out.size * step.left.shape[-1] <= MAX_MULTIPLICATIONS and (_along_columns(step) or _along_depth(step))


def _along_columns(step: Product) -> bool:
    return step.right.strides[-1] == 1 or step.out.shape[-1] == 1


def _along_depth(step: Product) -> bool:
    depth = step.left.shape[-1]
    return (step.right.strides[-2] == 1 or depth == 1) and (step.left.strides[-1] == 1 or depth == 1)


def render_small_product(step: Product, vector_bytes: int, declared: set[str]) -> str:
    """The function `@NAME(out, left, right)` for one element of a batch."""
    return _SmallProductWriter(step, vector_bytes, declared).render()


class _SmallProductWriter:
    def __init__(self, step: Product, vector_bytes: int, declared: set[str]) -> None:
        self.step = step
        self.dtype = step.out.buffer.dtype
        self.text = FunctionText(vector_bytes, declared)
        #: Whether loops go over what is otherwise written out.
        self.is_long = not is_small(step)
        in_columns, in_depth = _along_columns(step), _along_depth(step)
        # a long sum for one column is quicker along the depth
        self.by_columns = not in_depth or (in_columns and not (self.is_long and step.out.shape[-1] == 1))
        # where neither lies in order, elements are loaded one by one
        self.full = vector_bytes // self.dtype.itemsize if in_columns or in_depth else 1
        #: The strides of each matrix along its rows and columns.
        self.strides = {"%out": step.out.strides, "%left": step.left.strides, "%right": step.right.strides}

    def render(self) -> str:
        row = self.text.open(self.step.out.shape[-2])
        if self.by_columns:
            self._write_along_columns()
        else:
            self._write_along_depth()
        self.text.close(row)
        return self.text.render(f"{PRODUCT_HEAD} noinline")

    def _builder(self, lanes: int) -> IRBuilder:
        builder = self.text.builder(lanes)
        builder.dtype = self.dtype
        return builder

    def _lanes_for(self, length: int) -> int:
        """The lanes of a vector, but no more than a length can use."""
        return self.full if isinstance(length, Varying) else self._used_lanes(length)

    def _used_lanes(self, length: int) -> int:
        lanes = self.full
        while lanes > 1 and lanes // 2 >= length:
            lanes //= 2
        return lanes

    def _address(self, builder: IRBuilder, matrix: str, row: str, column: str) -> str:
        by_row, by_column = self.strides[matrix][-2:]
        return emit_address(builder, self.dtype, matrix, (row, by_row), (column, by_column))

    def _mask(self, builder: IRBuilder, used: Number) -> str | None:
        if isinstance(used, int):
            return constant_mask(used, builder.lanes)
        name = f"%mask{next(self.text.counter)}"
        emit_lane_mask(builder, name, used)
        return name

    def _load(self, builder: IRBuilder, address: str, used: Number, missing: Number = 0) -> IRValue:
        return emit_load(builder, address, self.dtype, self._mask(builder, used), missing)

    def _store(self, builder: IRBuilder, value: IRValue, address: str, used: Number) -> None:
        """out = alpha * value + beta * out."""
        if self.step.alpha != 1.0:
            value = builder.multiply(value, builder.constant(self.step.alpha))
        if self.step.beta:
            there = self._load(builder, address, used)
            value = builder.add(value, builder.multiply(there, builder.constant(self.step.beta)))
        emit_store(builder, value, address, self.dtype, self._mask(builder, used))

    def _write_along_columns(self) -> None:
        """For vectors of a row of the result: accumulate left[i, k] times the vector of right[k]."""
        columns = self.step.out.shape[-1]
        lanes = self._lanes_for(columns)
        if isinstance(columns, Varying):
            self._write_varying_columns(int(columns), lanes)
            return
        start = self._write_whole_blocks(columns, lanes) if self.is_long else 0
        # the last vector of a row may be partial
        blocks: list[tuple[str, Number]] = [(str(j), min(lanes, columns - j)) for j in range(start, columns, lanes)]
        for first in range(0, len(blocks), _UNROLL):
            self._write_block(blocks[first : first + _UNROLL], lanes)

    def _write_whole_blocks(self, columns: int, lanes: int) -> int:
        """A loop over blocks of whole vectors; the columns that it wrote."""
        wide = lanes * _UNROLL
        end = columns - columns % wide
        if end:
            loop = self.text.open(end, wide)
            builder, first = self._builder(1), self.text.counters[-1]
            starts = [builder.assign(f"add nuw nsw i64 {first}, {i * lanes}") for i in range(_UNROLL)]
            self._write_block([(start, lanes) for start in starts], lanes)
            self.text.close(loop)
        return end

    def _write_varying_columns(self, columns: int, lanes: int) -> None:
        """The same vector by vector, for as many columns as there are when the code runs."""
        text = self.text
        end, used = text.operand(columns - columns % lanes), text.operand(columns % lanes)
        some = text.begin_if_less("0", end)
        loop = text.open(end, lanes)
        self._write_block([(text.counters[-1], lanes)], lanes)
        text.close(loop)
        text.end_if(some)
        some = text.begin_if_less("0", used)
        self._write_block([(end, used)], lanes)
        text.end_if(some)

    def _write_block(self, blocks: list[tuple[str, Number]], lanes: int) -> None:
        kind, row = llvm_type(self.dtype, lanes), self.text.counters[0]
        one, builder = self._builder(1), self._builder(lanes)
        sums = [self.text.slot(kind, builder.number(0.0, self.dtype).name) for _ in blocks]
        loop = self.text.open(self.step.left.shape[-1])
        k = self.text.counters[-1]
        # one element of the left matrix times vectors of a row of the right one
        wide = builder.splat(self._load(one, self._address(one, "%left", row, k), 1))
        for (j, used), slot in zip(blocks, sums, strict=True):
            column = self._load(builder, self._address(builder, "%right", k, j), used)
            so_far = builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
            builder.emit(f"store {kind} {builder.fma(wide, column, so_far).name}, ptr {slot}")
        self.text.close(loop)
        for (j, used), slot in zip(blocks, sums, strict=True):
            value = builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
            self._store(builder, value, self._address(builder, "%out", row, j), used)

    def _write_along_depth(self) -> None:
        """Each element of the result is a dot product of two vectors along the depth."""
        depth = self.step.left.shape[-1]
        lanes = self._lanes_for(depth)
        loop = self.text.open(self.step.out.shape[-1])
        row, column = self.text.counters
        one, builder = self._builder(1), self._builder(lanes)
        total = builder.number(0.0, self.dtype)
        if isinstance(depth, Varying):
            total = self._sum_varying_depth(builder, int(depth))
        elif self.is_long:
            total = self._sum_long_depth(builder, depth)
        else:
            for k in range(0, depth, lanes):
                total = self._add_products(builder, str(k), min(lanes, depth - k), total)
        if lanes > 1:
            name = f"llvm.vector.reduce.fadd.{builder.suffix(self.dtype)}"
            total = one.call(name, self.dtype, IRValue("-0.0", self.dtype), total, flags="reassoc")
        self._store(one, total, self._address(one, "%out", row, column), 1)
        self.text.close(loop)

    def _add_products(self, builder: IRBuilder, k: str, used: Number, total: IRValue, missing: Number = 0) -> IRValue:
        """The products of a vector along the depth, added lane by lane."""
        row, column = self.text.counters[:2]
        a = self._load(builder, self._address(builder, "%left", row, k), used)
        b = self._load(builder, self._address(builder, "%right", k, column), used, missing)
        return builder.fma(a, b, total)

    def _sum_long_depth(self, builder: IRBuilder, depth: int) -> IRValue:
        """The same sum in a loop over the vectors along the depth."""
        lanes, kind = builder.lanes, llvm_type(self.dtype, builder.lanes)
        slot = self.text.slot(kind, builder.number(0.0, self.dtype).name)
        end = depth - depth % lanes
        if end:
            loop = self.text.open(end, lanes)
            so_far = builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
            total = self._add_products(builder, self.text.counters[-1], lanes, so_far)
            builder.emit(f"store {kind} {total.name}, ptr {slot}")
            self.text.close(loop)
        total = builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
        return self._add_products(builder, str(end), depth - end, total) if end < depth else total

    def _sum_varying_depth(self, builder: IRBuilder, depth: int) -> IRValue:
        """The same sum for a depth that is known when the code runs. Lanes that code for this very depth would not
        have are minus zero, which changes no sum of lanes.
        """
        text, lanes, kind = self.text, builder.lanes, llvm_type(self.dtype, builder.lanes)
        end, used, there = (text.operand(n) for n in (depth - depth % lanes, depth % lanes, self._used_lanes(depth)))
        mask = self._mask(builder, there)
        zero, nothing = builder.number(0.0, self.dtype), builder.number(-0.0, self.dtype)
        start = builder.assign(f"select <{lanes} x i1> {mask}, {kind} {zero.name}, {kind} {nothing.name}")
        slot = text.slot(kind, start)

        def add_vector(k: str, count: Number, missing: Number = 0) -> None:
            so_far = builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
            total = self._add_products(builder, k, count, so_far, missing)
            builder.emit(f"store {kind} {total.name}, ptr {slot}")

        some = text.begin_if_less("0", end)
        loop = text.open(end, lanes)
        add_vector(text.counters[-1], lanes)
        text.close(loop)
        text.end_if(some)
        some = text.begin_if_less("0", used)
        add_vector(end, used, "-0")
        text.end_if(some)
        return builder.assign_value(f"load {kind}, ptr {slot}", self.dtype)
