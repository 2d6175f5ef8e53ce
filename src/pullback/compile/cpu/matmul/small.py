"""Small matrix product in, one LLVM function of plain loops out: calling the BLAS would cost more."""

from __future__ import annotations

import itertools

from ...loop_ir import Product
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type

#: Products of at most this many multiplications are inlined.
MAX_MULTIPLICATIONS = 4096
#: Vectors of a row that are accumulated in parallel.
_UNROLL = 4


def is_small(step: Product) -> bool:
    """Whether the product is small and its operands' strides let vectors be loaded."""
    batch, rows, columns = step.out.shape
    depth = step.left.shape[2]
    along_columns = step.right.strides[2] == 1 or columns == 1
    along_depth = (step.right.strides[1] == 1 or depth == 1) and (step.left.strides[2] == 1 or depth == 1)
    return batch * rows * columns * depth <= MAX_MULTIPLICATIONS and (along_columns or along_depth)


def render_small_product(step: Product, vector_bytes: int, declared: set[str]) -> str:
    """The function `@NAME(out, left, right)` for one element of a batch."""
    return _SmallProductWriter(step, vector_bytes, declared).render()


class _SmallProductWriter:
    def __init__(self, step: Product, vector_bytes: int, declared: set[str]) -> None:
        self.step = step
        self.dtype = step.out.buffer.dtype
        self.counter = itertools.count()
        self.declared = declared
        self.full = vector_bytes // self.dtype.itemsize
        self.lines: list[str] = []
        self.slots: list[str] = []

    def render(self) -> str:
        _, rows, columns = self.step.out.shape
        row = self._open(rows)
        if self.step.right.strides[2] == 1 or columns == 1:
            self._write_along_columns(row)
        else:
            self._write_along_depth(row)
        self._close(row, rows)
        body = "\n".join([*self.slots, *self.lines])
        return (
            "define internal void @NAME(ptr noalias %out, ptr noalias %left, ptr noalias %right) noinline #0 {\n"
            f"entry:\n{body}\n  ret void\n}}"
        )

    def _open(self, size: int) -> str:
        tag = str(next(self.counter))
        self.slots.append(f"  %c{tag} = alloca i64")
        self.lines += [
            f"  store i64 0, ptr %c{tag}",
            f"  br label %L{tag}",
            f"L{tag}:",
            f"  %i{tag} = load i64, ptr %c{tag}",
        ]
        return tag

    def _close(self, tag: str, size: int) -> None:
        self.lines += [
            f"  %n{tag} = add nuw nsw i64 %i{tag}, 1", f"  store i64 %n{tag}, ptr %c{tag}",
            f"  %m{tag} = icmp ult i64 %n{tag}, {size}", f"  br i1 %m{tag}, label %L{tag}, label %E{tag}", f"E{tag}:",
        ]  # fmt: skip

    def _builder(self, lanes: int) -> IRBuilder:
        builder = IRBuilder(lanes, self.counter, self.declared)
        builder.dtype = self.dtype
        return builder

    def _element_address(self, builder: IRBuilder, pointer: str, *terms: tuple[str, int]) -> str:
        place = "0"
        for counter, stride in terms:
            if stride and counter != "0":
                by = builder.assign(f"mul nsw i64 {counter}, {stride}")
                place = by if place == "0" else builder.assign(f"add nsw i64 {place}, {by}")
        return builder.assign(f"getelementptr inbounds {llvm_element_type(self.dtype)}, ptr {pointer}, i64 {place}")

    def _load(self, builder: IRBuilder, address: str, used: int) -> IRValue:
        kind, lanes = llvm_type(self.dtype, builder.lanes), builder.lanes
        if used == lanes:
            return IRValue(
                builder.assign(f"load {kind}, ptr {address}, align {self.dtype.itemsize}"), self.dtype, lanes
            )
        name = f"llvm.masked.load.{builder.suffix(self.dtype)}.p0"
        self.declared.add(f"declare {kind} @{name}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
        given = f"ptr {address}, i32 {self.dtype.itemsize}, <{lanes} x i1> {_mask(used, lanes)}, {kind} zeroinitializer"
        return IRValue(builder.assign(f"call {kind} @{name}({given})"), self.dtype, lanes)

    def _store(self, builder: IRBuilder, value: IRValue, address: str, used: int) -> None:
        """out = alpha * value + beta * out."""
        if self.step.alpha != 1.0:
            value = builder.multiply(value, builder.constant(self.step.alpha))
        if self.step.beta:
            there = self._load(builder, address, used)
            value = builder.add(value, builder.multiply(there, builder.constant(self.step.beta)))
        kind, lanes = llvm_type(self.dtype, builder.lanes), builder.lanes
        if used == lanes:
            builder.emit(f"store {kind} {value.name}, ptr {address}, align {self.dtype.itemsize}")
            return
        name = f"llvm.masked.store.{builder.suffix(self.dtype)}.p0"
        self.declared.add(f"declare void @{name}({kind}, ptr, i32 immarg, <{lanes} x i1>)")
        given = f"{kind} {value.name}, ptr {address}, i32 {self.dtype.itemsize}, <{lanes} x i1> {_mask(used, lanes)}"
        builder.emit(f"call void @{name}({given})")

    def _write_along_columns(self, row: str) -> None:
        """For vectors of a row of the result: accumulate left[i, k] times the vector of right[k]."""
        _, _, columns = self.step.out.shape
        depth, lanes = self.step.left.shape[2], self.full
        while lanes > 1 and lanes // 2 >= columns:
            lanes //= 2
        blocks = [(j, min(lanes, columns - j)) for j in range(0, columns, lanes)]
        for first in range(0, len(blocks), _UNROLL):
            self._write_block(row, blocks[first : first + _UNROLL], depth, lanes)

    def _write_block(self, row: str, blocks: list[tuple[int, int]], depth: int, lanes: int) -> None:
        kind = llvm_type(self.dtype, lanes)
        sums = []
        for _ in blocks:
            slot = f"%a{next(self.counter)}"
            self.slots.append(f"  {slot} = alloca {kind}")
            self.lines.append(
                f"  store {kind} zeroinitializer, ptr {slot}" if lanes > 1 else f"  store {kind} 0.0, ptr {slot}"
            )
            sums.append(slot)
        k = self._open(depth)
        one, builder = self._builder(1), self._builder(lanes)
        left = self.step.left.strides
        factor = self._load(one, self._element_address(one, "%left", (f"%i{row}", left[1]), (f"%i{k}", left[2])), 1)
        wide = builder.splat(factor)
        for (j, used), slot in zip(blocks, sums, strict=True):
            address = self._element_address(builder, "%right", (f"%i{k}", self.step.right.strides[1]), (str(j), 1))
            so_far = IRValue(builder.assign(f"load {kind}, ptr {slot}"), self.dtype, lanes)
            total = builder.fma(wide, self._load(builder, address, used), so_far)
            builder.emit(f"store {kind} {total.name}, ptr {slot}")
        self.lines += [*one.lines, *builder.lines]
        self._close(k, depth)
        builder = self._builder(lanes)
        for (j, used), slot in zip(blocks, sums, strict=True):
            value = IRValue(builder.assign(f"load {kind}, ptr {slot}"), self.dtype, lanes)
            self._store(
                builder,
                value,
                self._element_address(builder, "%out", (f"%i{row}", self.step.out.strides[1]), (str(j), 1)),
                used,
            )
        self.lines += builder.lines

    def _write_along_depth(self, row: str) -> None:
        """Each element of the result is a dot product of two vectors along the depth."""
        _, _, columns = self.step.out.shape
        depth, lanes = self.step.left.shape[2], self.full
        while lanes > 1 and lanes // 2 >= depth:
            lanes //= 2
        column = self._open(columns)
        builder = self._builder(lanes)
        total = builder.number(0.0, self.dtype)
        for k in range(0, depth, lanes):
            used = min(lanes, depth - k)
            a = self._load(
                builder,
                self._element_address(builder, "%left", (f"%i{row}", self.step.left.strides[1]), (str(k), 1)),
                used,
            )
            b = self._load(
                builder,
                self._element_address(builder, "%right", (f"%i{column}", self.step.right.strides[2]), (str(k), 1)),
                used,
            )
            total = builder.fma(a, b, total)
        one = self._builder(1)
        one.lines = builder.lines
        if lanes > 1:
            start = IRValue("-0.0", self.dtype)
            total = one.call(
                f"llvm.vector.reduce.fadd.{builder.suffix(self.dtype)}", self.dtype, start, total, flags="reassoc"
            )
        address = self._element_address(one, "%out", (f"%i{row}", self.step.out.strides[1]), (f"%i{column}", 1))
        self._store(one, total, address, 1)
        self.lines += one.lines
        self._close(column, columns)


def _mask(used: int, lanes: int) -> str:
    return f"<{', '.join(f'i1 {str(i < used).lower()}' for i in range(lanes))}>"
