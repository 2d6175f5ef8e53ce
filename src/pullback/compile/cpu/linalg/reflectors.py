"""Householder reflections applied to a matrix in native code, along its rows: LAPACK's routines for it take several
times as long where matrices are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder.ir_builder import IRBuilder
from ..builder.memory import Number, constant_mask, emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_type
from .matrix_text import MatrixRef, RoutineText

#: The most vectors of a row that are taken at once: twice as many sums stay in registers.
MAX_VECTORS = 6


@dataclass(frozen=True, slots=True)
class Reflections:
    """H_0 H_1 ..., H_k = 1 - tau_k v_k v_k^T, where v_k is one at row k + `below`, zero above it, and below it column k
    of a matrix.
    """

    vectors: MatrixRef
    tau: MatrixRef
    below: int

    def apply(self, t: RoutineText, c: MatrixRef) -> None:
        """Overwrite a row-major matrix with the product of the reflections and it."""
        assert c.has_rows_in_order
        # those with nothing below the one are the identity
        count = min(self.vectors.columns, c.rows - self.below - 1)
        if count <= 0:
            return
        vectors = -(-c.columns // t.lanes)
        width = -(-vectors // -(-vectors // MAX_VECTORS))
        whole = c.columns // (width * t.lanes)
        if whole:
            with t.loop(whole * width * t.lanes, 0, width * t.lanes) as start:
                self._apply_to(t, Columns(t, c, start, [t.lanes] * width), count)
        rest = c.columns - whole * width * t.lanes
        if rest:
            used = [min(t.lanes, rest - at) for at in range(0, rest, t.lanes)]
            self._apply_to(t, Columns(t, c, whole * width * t.lanes, used), count)

    def _apply_to(self, t: RoutineText, c: Columns, count: int) -> None:
        """The last reflection is the first that is applied; two at once, so that rows are read half as often."""
        if count % 2:
            self._apply_one(t, c, count - 1)
        if count > 1:
            with t.loop(count - 1, 0, 2) as number:
                self._apply_two(t, c, t.one.assign(f"sub nsw i64 {count - count % 2 - 1}, {number}"))

    def _apply_one(self, t: RoutineText, c: Columns, k: int) -> None:
        first = k + self.below
        sums = [c.variable(x) for x in c.load(first)]
        with t.loop(c.matrix.rows, first + 1) as i:
            c.accumulate(sums, t.load(self.vectors, i, k), c.load(i))
        parts = c.scaled(sums, self._negative_tau(t, k))
        c.store(first, [c.k.add(x, part) for x, part in zip(c.load(first), parts, strict=True)])
        with t.loop(c.matrix.rows, first + 1) as i:
            c.store(i, c.plus_multiple(c.load(i), t.load(self.vectors, i, k), parts))

    # With x = H_k c = c + v_k p, p = -tau_k v_k^T c, the next is x + v_j q, q = -tau_j v_j^T x
    # = -tau_j (v_j^T c + (v_j^T v_k) p): both sums need c alone.
    def _apply_two(self, t: RoutineText, c: Columns, k: str) -> None:
        j = t.add(k, -1)
        first = t.add(k, self.below)
        above, below, end = t.add(first, -1), t.add(first, 1), c.matrix.rows
        rows, corner = c.load(first), t.load(self.vectors, first, j)
        sums, others, inner = [c.variable(x) for x in rows], [c.variable(x) for x in c.load(above)], t.variable(corner)
        c.accumulate(others, corner, rows)
        with t.loop(end, below) as i:
            v, w, rows = t.load(self.vectors, i, k), t.load(self.vectors, i, j), c.load(i)
            c.accumulate(sums, v, rows)
            c.accumulate(others, w, rows)
            inner.set(t.one.fma(v, w, inner.value))
        p = c.scaled(sums, self._negative_tau(t, k))
        c.accumulate(others, inner.value, p)
        q = c.scaled(others, self._negative_tau(t, j))
        c.store(above, [c.k.add(x, part) for x, part in zip(c.load(above), q, strict=True)])
        rows = [c.k.add(x, part) for x, part in zip(c.load(first), p, strict=True)]
        c.store(first, c.plus_multiple(rows, corner, q))
        with t.loop(end, below) as i:
            v, w = t.load(self.vectors, i, k), t.load(self.vectors, i, j)
            c.store(i, c.plus_multiple(c.plus_multiple(c.load(i), v, p), w, q))

    def _negative_tau(self, t: RoutineText, k: Number) -> IRValue:
        return t.one.negative(t.load(self.tau, k))


@dataclass(frozen=True, slots=True)
class VectorVariable:
    """A vector in a slot on the stack, which LLVM promotes to a register."""

    builder: IRBuilder
    slot: str
    like: IRValue

    @property
    def value(self) -> IRValue:
        kind = llvm_type(self.like.dtype, self.like.lanes)
        return IRValue(self.builder.assign(f"load {kind}, ptr {self.slot}"), self.like.dtype, self.like.lanes)

    def set(self, value: IRValue) -> None:
        self.builder.emit(f"store {llvm_type(value.dtype, value.lanes)} {value.name}, ptr {self.slot}")


class Columns:
    """Some columns of a row-major matrix: of each row a few vectors, with so many lanes used in each."""

    def __init__(self, t: RoutineText, matrix: MatrixRef, start: Number, used: Sequence[int]) -> None:
        self.t, self.matrix, self.start = t, matrix, start
        self.masks = [constant_mask(n, t.lanes) for n in used]
        self.k = t.builder(t.lanes)

    def _places(self, i: Number) -> list[str]:
        m = self.matrix
        row = emit_address(self.k, m.dtype, m.pointer, (i, m.by_row), (self.start, 1))
        return [emit_address(self.k, m.dtype, row, offset=n * self.t.lanes) for n in range(len(self.masks))]

    def load(self, i: Number) -> list[IRValue]:
        places = zip(self._places(i), self.masks, strict=True)
        return [emit_load(self.k, place, self.matrix.dtype, mask, missing=0) for place, mask in places]

    def store(self, i: Number, values: Sequence[IRValue]) -> None:
        for place, mask, value in zip(self._places(i), self.masks, values, strict=True):
            emit_store(self.k, value, place, self.matrix.dtype, mask)

    def variable(self, start: IRValue) -> VectorVariable:
        kind = llvm_type(start.dtype, start.lanes)
        return VectorVariable(self.k, self.t.text.slot(kind, start.name), start)

    def accumulate(self, sums: Sequence[VectorVariable], by: IRValue, rows: Sequence[IRValue]) -> None:
        """Add a multiple of a row to sums."""
        factor = self.k.splat(by)
        for total, x in zip(sums, rows, strict=True):
            total.set(self.k.fma(factor, x, total.value))

    def scaled(self, sums: Sequence[VectorVariable], by: IRValue) -> list[IRValue]:
        factor = self.k.splat(by)
        return [self.k.multiply(factor, total.value) for total in sums]

    def plus_multiple(self, rows: Sequence[IRValue], by: IRValue, parts: Sequence[IRValue]) -> list[IRValue]:
        factor = self.k.splat(by)
        return [self.k.fma(factor, part, x) for x, part in zip(rows, parts, strict=True)]
