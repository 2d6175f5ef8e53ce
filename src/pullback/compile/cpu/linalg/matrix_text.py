"""The text of a matrix routine while it is emitted: memory of matrices, loops over them, scratch memory, failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...loop_ir import Host, Layout
from ...schedule.arena import round_up
from ..builder.function_text import FunctionText
from ..builder.ir_builder import IRBuilder
from ..builder.memory import Number, emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_element_type
from ..matmul.gemm import BlasConstants
from ..runtime.lapack import find_lapack, function_name

#: Pieces of scratch memory start at a multiple of so many bytes.
_ALIGNMENT = 64
#: The factor and the step of Knuth's generator of 64-bit integers.
_LCG_FACTOR, _LCG_STEP = 6364136223846793005, 1442695040888963407
#: The names under which LAPACK's functions are linked start with this.
LAPACK_PREFIX = "pb_lapack_"


@dataclass(frozen=True, slots=True)
class MatrixRef:
    """One matrix in memory: a pointer to its first element, its size, and strides in elements."""

    pointer: str
    dtype: np.dtype[Any]
    rows: int
    columns: int
    by_row: int
    by_column: int

    @property
    def transposed(self) -> MatrixRef:
        return MatrixRef(self.pointer, self.dtype, self.columns, self.rows, self.by_column, self.by_row)

    @property
    def has_rows_in_order(self) -> bool:
        """Whether it is row-major, its rows close together or apart."""
        return (self.by_column == 1 or self.columns == 1) and (self.by_row >= self.columns or self.rows == 1)


@dataclass(frozen=True, slots=True)
class Variable:
    """A number in a slot on the stack, which LLVM promotes to a register."""

    builder: IRBuilder
    slot: str
    dtype: np.dtype[Any]

    @property
    def value(self) -> IRValue:
        return self.builder.assign_value(f"load {llvm_element_type(self.dtype)}, ptr {self.slot}", self.dtype)

    def set(self, value: IRValue) -> None:
        self.builder.emit(f"store {llvm_element_type(self.dtype)} {value.name}, ptr {self.slot}")


class RoutineText:
    """The function `@NAME(arguments, results, work, failed)` of one step: it sets `failed` where NumPy must run."""

    def __init__(self, step: Host, constants: BlasConstants, declared: set[str], vector_bytes: int) -> None:
        self.step = step
        self.constants = constants
        self.text = FunctionText(vector_bytes, declared)
        self.lanes = vector_bytes // step.args[0].buffer.dtype.itemsize
        self.dtype: np.dtype[Any] = step.args[0].buffer.dtype
        #: LAPACK's integers.
        self.integer = find_lapack().integer
        self.scratch = 0
        self.one = self.builder(1)
        assert step.routine is not None
        self.static = step.routine.static

    def builder(self, lanes: int, dtype: np.dtype[Any] | None = None) -> IRBuilder:
        found = self.text.builder(lanes)
        found.dtype = self.dtype if dtype is None else dtype
        return found

    def render(self) -> str:
        count = len(self.step.args) + len(self.step.outs)
        pointers = [f"ptr noalias %p{i}" for i in range(count)]
        return self.text.render(f"define internal void @NAME({', '.join(pointers)}, ptr noalias %work, ptr %failed)")

    @contextmanager
    def loop(self, size: Number, start: Number = 0, step: int = 1) -> Iterator[str]:
        """A loop whose body runs at least once; its counter."""
        opened = self.text.open(size, step, str(start))
        yield self.text.counters[-1]
        self.text.close(opened, stays=True)

    def take_scratch(self, size: int, dtype: np.dtype[Any] | None = None) -> str:
        """A pointer to scratch memory for some elements."""
        dtype = self.dtype if dtype is None else dtype
        at = self.scratch
        self.scratch += round_up(max(size, 1) * dtype.itemsize, _ALIGNMENT)
        name = f"%work{next(self.text.counter)}"
        self.text.entry.append(f"  {name} = getelementptr inbounds i8, ptr %work, i64 {at}")
        return name

    def take_columns(self, rows: int, columns: int) -> MatrixRef:
        """Scratch memory for a matrix in LAPACK's order, column by column."""
        return MatrixRef(self.take_scratch(rows * columns), self.dtype, rows, columns, 1, rows)

    def take_column(self, rows: int) -> MatrixRef:
        """Scratch memory for a column of numbers."""
        return MatrixRef(self.take_scratch(rows), self.dtype, rows, 1, 1, 0)

    def matrix(self, layout: Layout, number: int, stack: tuple[int, ...], counters: list[Any], core: int) -> MatrixRef:
        """The matrix at a place of the stack; a result of fewer axes than two has sizes of one."""
        axes = len(layout.shape) - core
        own = list(zip(layout.shape[:axes], layout.strides[:axes], strict=True))
        terms = [(c, 0 if n == 1 else s) for c, (n, s) in zip(counters[len(counters) - axes :], own, strict=True)]
        at = emit_address(self.one, layout.buffer.dtype, f"%p{number}", *terms)
        shape, strides = (1, 1, *layout.shape[axes:])[-2:], (0, 0, *layout.strides[axes:])[-2:]
        if core == 1:  # a row of numbers, as one column
            shape, strides = shape[::-1], strides[::-1]
        return MatrixRef(at, layout.buffer.dtype, shape[0], shape[1], strides[0], strides[1])

    def address(self, m: MatrixRef, i: Number, j: Number) -> str:
        return emit_address(self.one, m.dtype, m.pointer, (i, m.by_row), (j, m.by_column))

    def load(self, m: MatrixRef, i: Number, j: Number = 0) -> IRValue:
        return emit_load(self.one, self.address(m, i, j), m.dtype)

    def store(self, value: IRValue, m: MatrixRef, i: Number, j: Number = 0) -> None:
        emit_store(self.one, value, self.address(m, i, j), m.dtype)

    def add(self, x: Number, y: Number) -> str:
        """The sum of two counters."""
        return self.one.assign(f"add nsw i64 {x}, {y}")

    def copy(self, source: MatrixRef, target: MatrixRef) -> None:
        """Copy a matrix of the target's size."""
        if target.by_column != 1 and target.by_row == 1:  # along its memory
            source, target = source.transposed, target.transposed
        if source.by_column == target.by_column == 1 or target.columns == 1:
            with self.loop(target.rows) as i:
                self.copy_row(source, target, i, i)
            return
        with self.loop(target.rows) as i, self.loop(target.columns) as j:
            self.store(self.load(source, i, j), target, i, j)

    def copy_row(self, source: MatrixRef, target: MatrixRef, i: str, to: str) -> None:
        """Copy row i to the row `to` of the target, in which rows are contiguous."""
        if source.by_column != 1 and source.columns > 1:
            with self.loop(target.columns) as j:
                self.store(self.load(source, i, j), target, to, j)
            return
        if target.columns == 1:
            self.store(self.load(source, i), target, to)
            return
        size = target.columns * target.dtype.itemsize
        self.text.declared.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        place, start = self.address(target, to, 0), self.address(source, i, 0)
        self.one.emit(f"call void @llvm.memmove.p0.p0.i64(ptr {place}, ptr {start}, i64 {size}, i1 false)")

    def fill_identity(self, m: MatrixRef) -> None:
        with self.loop(m.rows) as i, self.loop(m.columns) as j:
            same = self.one.assign(f"icmp eq i64 {i}, {j}")
            self.store(self.choose(same, self.number(1.0), self.number(0.0)), m, i, j)

    def fill_random(self, m: MatrixRef) -> None:
        """The same numbers between -1 and 1 each time, by a linear congruential generator."""
        state = self.text.slot("i64", str(m.rows))
        with self.loop(m.columns) as j, self.loop(m.rows) as i:
            grown = self.one.assign(f"mul i64 {self.one.assign(f'load i64, ptr {state}')}, {_LCG_FACTOR}")
            drawn = self.one.assign(f"add i64 {grown}, {_LCG_STEP}")
            self.one.emit(f"store i64 {drawn}, ptr {state}")
            upper = self.one.assign(f"ashr i64 {drawn}, 32")
            kind = llvm_element_type(self.dtype)
            number = self.one.assign_value(f"sitofp i64 {upper} to {kind}", self.dtype)
            self.store(self.one.multiply(number, self.number(2.0**-31)), m, i, j)

    def number(self, value: float) -> IRValue:
        return self.one.number(value, self.dtype)

    def choose(self, truth: str, x: IRValue, y: IRValue) -> IRValue:
        kind = llvm_element_type(x.dtype)
        return self.one.assign_value(f"select i1 {truth}, {kind} {x.name}, {kind} {y.name}", x.dtype)

    def symmetrize_lower(self, source: MatrixRef, target: MatrixRef, zeros: bool = False) -> None:
        """The lower triangle of (x + x^T) / 2, and zeros above it."""
        if zeros:
            self.fill_zeros(target)
        with self.loop(target.rows) as i, self.loop(self.add(i, 1)) as j:
            total = self.one.add(self.load(source, i, j), self.load(source, j, i))
            self.store(self.one.multiply(total, self.number(0.5)), target, i, j)

    def fill_zeros(self, m: MatrixRef) -> None:
        """Zeros in a matrix without gaps."""
        self.text.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = m.rows * m.columns * m.dtype.itemsize
        self.one.emit(f"call void @llvm.memset.p0.i64(ptr {m.pointer}, i8 0, i64 {size}, i1 false)")

    def variable(self, start: IRValue) -> Variable:
        """A number that changes in a loop."""
        kind = llvm_element_type(start.dtype)
        return Variable(self.one, self.text.slot(kind, start.name), start.dtype)

    def fail_if(self, truth: str) -> None:
        """Leave the step to NumPy if a bit is set."""
        bit = self.one.assign(f"zext i1 {truth} to i32")
        before = self.one.assign("load i32, ptr %failed")
        self.one.emit(f"store i32 {self.one.assign(f'or i32 {before}, {bit}')}, ptr %failed")

    def call(self, name: str, *args: Any) -> None:
        """Call a function of LAPACK or the BLAS, `name` without the letter of its dtype: integers, letters and floats
        are passed by address.
        """
        given = [self._constant(a) for a in args]
        symbol = f"{LAPACK_PREFIX}{function_name(name, self.dtype)}"
        self.text.declared.add(f"declare void @{symbol}({', '.join(['ptr'] * len(given))})")
        self.one.emit(f"call void @{symbol}({', '.join('ptr ' + a for a in given)})")

    def _constant(self, value: Any) -> str:
        if isinstance(value, int):
            return self.constants.integer(value, self.integer)
        if isinstance(value, float):
            return self.constants.number(value, self.dtype)
        text = str(value)
        return self.constants.letter(text) if len(text) == 1 else text

    def call_lapack(self, name: str, *args: Any) -> None:
        """The same with a last argument that says whether it failed."""
        kind = llvm_element_type(self.integer)
        info = self.text.slot(kind, "0")
        self.call(name, *args, info)
        found = self.one.assign(f"load {kind}, ptr {info}")
        self.fail_if(self.one.assign(f"icmp ne {kind} {found}, 0"))
