"""Matrix routines without loops, for matrices so small that every element is a register.

A stack of many matrices is done a vector at a time, one matrix in each lane; of a single matrix, right sides are the
lanes. Rows are exchanged by selecting, so all lanes run the same instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..builder.ir_builder import IRBuilder
from ..builder.memory import constant_mask, emit_address, emit_gather, emit_load, emit_scatter, emit_store
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type
from .matrix_text import MatrixRef, RoutineText

#: The most rows of a matrix, and the most vectors of a row of right sides.
MAX_ROWS, MAX_VECTORS = 6, 2


@dataclass(frozen=True, slots=True)
class Stack:
    """One matrix, or one in each lane of a builder: then the same element of the next matrix is `apart` elements on."""

    matrix: MatrixRef
    apart: int


class Unrolled:
    """Elements as values, while a routine is emitted."""

    def __init__(self, t: RoutineText, lanes: int) -> None:
        self.t = t
        self.k: IRBuilder = t.builder(lanes)
        self.bits: list[IRValue] = []

    def load(self, stack: Stack, i: int, j: int) -> IRValue:
        return emit_gather(self.k, self._places(stack, i, j), self.t.dtype, None) if self.k.lanes > 1 else (
            emit_load(self.k, self._place(stack.matrix, i, j), self.t.dtype)
        )  # fmt: skip

    def store(self, value: IRValue, stack: Stack, i: int, j: int = 0) -> None:
        if self.k.lanes > 1:
            emit_scatter(self.k, value, self._places(stack, i, j), self.t.dtype, None)
        else:
            emit_store(self.k, value, self._place(stack.matrix, i, j), self.t.dtype)

    def _place(self, m: MatrixRef, i: int, j: int) -> str:
        return emit_address(self.k, m.dtype, m.pointer, offset=i * m.by_row + j * m.by_column)

    def _places(self, stack: Stack, i: int, j: int) -> str:
        lanes, kind = self.k.lanes, llvm_element_type(self.t.dtype, True)
        steps = ", ".join(f"i64 {n * stack.apart}" for n in range(lanes))
        place = self._place(stack.matrix, i, j)
        return self.k.assign(f"getelementptr inbounds {kind}, ptr {place}, <{lanes} x i64> <{steps}>")

    def load_all(self, stack: Stack) -> list[list[IRValue]]:
        m = stack.matrix
        return [[self.load(stack, i, j) for j in range(m.columns)] for i in range(m.rows)]

    def select(self, truth: IRValue, x: IRValue, y: IRValue) -> IRValue:
        """By a bit, or by one for each lane."""
        kind = llvm_type(x.dtype, x.lanes)
        condition = llvm_type(truth.dtype, truth.lanes)
        text = f"select {condition} {truth.name}, {kind} {x.name}, {kind} {y.name}"
        return IRValue(self.k.assign(text), x.dtype, x.lanes)

    def subtract_multiple(self, x: IRValue, factor: IRValue, y: IRValue) -> IRValue:
        """x - factor * y, where x and y may be wider than the factor."""
        k = self.widened(x)
        return k.fma(k.negative(k.splat(factor)), y, x)

    def divide(self, x: IRValue, y: IRValue) -> IRValue:
        k = self.widened(x)
        return k.divide(x, k.splat(y))

    def widened(self, x: IRValue) -> IRBuilder:
        return self.k if x.lanes == self.k.lanes else self.t.builder(x.lanes)

    def fail_if(self, truth: IRValue) -> None:
        self.bits.append(truth)

    def finish(self) -> None:
        """Leave the step to NumPy if it failed in any lane."""
        if self.bits:
            found = self.bits[0]
            for bit in self.bits[1:]:
                found = self.k.logical_or(found, bit)
            name = found.name
            if self.k.lanes > 1:
                kind = f"<{self.k.lanes} x i1>"
                function = f"llvm.vector.reduce.or.v{self.k.lanes}i1"
                self.k.declared.add(f"declare i1 @{function}({kind})")
                name = self.k.assign(f"call i1 @{function}({kind} {name})")
            self.t.fail_if(name)


class RightSides:
    """Rows of right sides: of one matrix in vectors along the row, of a stack element by element."""

    def __init__(self, u: Unrolled, rows: list[list[IRValue]], widths: list[int]) -> None:
        self.u, self.rows, self.widths = u, rows, widths

    @staticmethod
    def loaded(u: Unrolled, b: Stack) -> RightSides:
        m = b.matrix
        if u.k.lanes > 1 or m.by_column != 1:
            return RightSides(u, u.load_all(b), [1] * m.columns)
        widths = _vector_widths(u.t, m.columns)
        rows = [[_load_vector(u, m, i, j, lanes) for j, lanes in widths] for i in range(m.rows)]
        return RightSides(u, rows, [lanes for _, lanes in widths])

    @staticmethod
    def identity(u: Unrolled, n: int) -> RightSides:
        if u.k.lanes > 1:
            rows = [[u.k.constant(float(i == j)) for j in range(n)] for i in range(n)]
            return RightSides(u, rows, [1] * n)
        widths = _vector_widths(u.t, n)
        rows = [[_unit_vector(u, i - j, lanes) for j, lanes in widths] for i in range(n)]
        return RightSides(u, rows, [lanes for _, lanes in widths])

    def exchange(self, truth: IRValue, i: int, j: int) -> None:
        _exchange(self.u, truth, self.rows, i, j, 0)

    def eliminate(self, i: int, factor: IRValue, j: int) -> None:
        """row i -= factor * row j."""
        self.rows[i] = [self.u.subtract_multiple(x, factor, y) for x, y in zip(self.rows[i], self.rows[j], strict=True)]

    def divide(self, i: int, by: IRValue) -> None:
        self.rows[i] = [self.u.divide(x, by) for x in self.rows[i]]

    def store(self, out: Stack) -> None:
        m, at = out.matrix, 0
        for vector, width in enumerate(self.widths):
            for i, row in enumerate(self.rows):
                if width == 1:
                    self.u.store(row[vector], out, i, at)
                else:
                    place = emit_address(self.u.k, m.dtype, m.pointer, offset=i * m.by_row + at)
                    mask = constant_mask(min(width, m.columns - at), width)
                    emit_store(self.u.t.builder(width), row[vector], place, m.dtype, mask)
            at += width


def _vector_widths(t: RoutineText, columns: int) -> list[tuple[int, int]]:
    """The first columns and lanes of the vectors of a row; the last may be partial."""
    lanes = min(t.lanes, 1 << max(columns - 1, 0).bit_length())
    return [(j, lanes) for j in range(0, columns, lanes)]


def _load_vector(u: Unrolled, m: MatrixRef, i: int, j: int, lanes: int) -> IRValue:
    k = u.t.builder(lanes)
    place = emit_address(k, m.dtype, m.pointer, offset=i * m.by_row + j)
    return emit_load(k, place, m.dtype, constant_mask(min(lanes, m.columns - j), lanes), missing=0)


def _unit_vector(u: Unrolled, at: int, lanes: int) -> IRValue:
    if lanes == 1:
        return u.k.constant(float(at == 0))
    kind = llvm_element_type(u.t.dtype)
    numbers = ", ".join(f"{kind} {u.k.constant(float(n == at)).name}" for n in range(lanes))
    return IRValue(f"<{numbers}>", u.t.dtype, lanes)


def _exchange(u: Unrolled, truth: IRValue, rows: list[list[IRValue]], i: int, j: int, first: int) -> None:
    """Exchange two rows from a column on, where a bit is set."""
    for c in range(first, len(rows[i])):
        x, y = rows[i][c], rows[j][c]
        rows[i][c], rows[j][c] = u.select(truth, y, x), u.select(truth, x, y)


def _eliminate(u: Unrolled, rows: list[list[IRValue]], right: RightSides | None) -> IRValue | None:
    """Make a matrix upper triangular by rows exchanged for the largest pivots; whether their number is odd."""
    n, odd = len(rows), None
    for c in range(n):
        for i in range(c + 1, n):
            larger = u.k.greater(u.k.abs(rows[i][c]), u.k.abs(rows[c][c]))
            _exchange(u, larger, rows, c, i, c)
            odd = larger if odd is None else u.k.logical_xor(odd, larger)
            if right is not None:
                right.exchange(larger, c, i)
        for i in range(c + 1, n):
            factor = u.k.divide(rows[i][c], rows[c][c])
            rows[i][c + 1 :] = [u.subtract_multiple(x, factor, y) for x, y in
                                zip(rows[i][c + 1 :], rows[c][c + 1 :], strict=True)]  # fmt: skip
            if right is not None:
                right.eliminate(i, factor, c)
        u.fail_if(_is_no_pivot(u, rows[c][c]))
    return odd


def _is_no_pivot(u: Unrolled, x: IRValue) -> IRValue:
    """Whether it is zero, or no number."""
    return u.k.logical_not(u.k.greater(u.k.abs(x), u.k.constant(0.0)))


def _substitute_back(rows: list[list[IRValue]], right: RightSides) -> None:
    for i in reversed(range(len(rows))):
        for j in range(i + 1, len(rows)):
            right.eliminate(i, rows[i][j], j)
        right.divide(i, rows[i][i])


def solve(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    rows, right = u.load_all(args[0]), RightSides.loaded(u, args[1])
    _eliminate(u, rows, right)
    _substitute_back(rows, right)
    right.store(outs[0])


def inverse(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    rows, right = u.load_all(args[0]), RightSides.identity(u, args[0].matrix.rows)
    _eliminate(u, rows, right)
    _substitute_back(rows, right)
    right.store(outs[0])


def solve_with_inverse(u: Unrolled, a: Stack, b: Stack, out: Stack) -> None:
    """The solution for one right side, and beside it the inverse."""
    rows, n = u.load_all(a), a.matrix.rows
    first = [[u.load(b, i, 0)] for i in range(n)]
    unit = [[u.k.constant(float(i == j)) for j in range(n)] for i in range(n)]
    right = RightSides(u, [x + y for x, y in zip(first, unit, strict=True)], [1] * (n + 1))
    _eliminate(u, rows, right)
    _substitute_back(rows, right)
    right.store(out)


def triangular_solve(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    static = u.t.static
    a, right = args[0], RightSides.loaded(u, args[1])
    n = a.matrix.rows
    for i in range(n) if static["lower"] else reversed(range(n)):
        for j in range(i) if static["lower"] else range(i + 1, n):
            right.eliminate(i, u.load(a, i, j), j)
        if not static["unit"]:
            pivot = u.load(a, i, i)
            u.fail_if(_is_no_pivot(u, pivot))
            right.divide(i, pivot)
    right.store(outs[0])


def cholesky(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    """By columns, of the symmetric part."""
    given, n = u.load_all(args[0]), args[0].matrix.rows
    rows = [[_mean(u, given[i][j], given[j][i]) if i != j else given[i][i] for j in range(i + 1)] for i in range(n)]
    for j in range(n):
        for c in range(j):
            rows[j][j] = u.subtract_multiple(rows[j][j], rows[j][c], rows[j][c])
        # what is not positive, or no number, is left to NumPy
        u.fail_if(u.k.logical_not(u.k.greater(rows[j][j], u.k.constant(0.0))))
        rows[j][j] = u.k.sqrt(rows[j][j])
        for i in range(j + 1, n):
            for c in range(j):
                rows[i][j] = u.subtract_multiple(rows[i][j], rows[i][c], rows[j][c])
            rows[i][j] = u.k.divide(rows[i][j], rows[j][j])
    for i in range(n):
        for j in range(n):
            u.store(rows[i][j] if j <= i else u.k.constant(0.0), outs[0], i, j)


def _mean(u: Unrolled, x: IRValue, y: IRValue) -> IRValue:
    return u.k.multiply(u.k.add(x, y), u.k.constant(0.5))


def determinant(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    u.store(_product_of_pivots(u, args[0]), outs[0], 0)


def log_determinant(u: Unrolled, args: Sequence[Stack], outs: Sequence[Stack]) -> None:
    found = _product_of_pivots(u, args[0])
    u.store(u.k.copysign(u.k.constant(1.0), found), outs[0], 0)
    u.store(u.k.log(u.k.abs(found)), outs[1], 0)


def _product_of_pivots(u: Unrolled, a: Stack) -> IRValue:
    """The determinant; where a product on the way might lose digits or overflow, NumPy is asked."""
    rows = u.load_all(a)
    odd = _eliminate(u, rows, None)
    reach = 2.0 ** (100 if u.t.dtype.itemsize == 4 else 1000)
    found = rows[0][0]
    for i in range(len(rows)):
        found = u.k.multiply(found, rows[i][i]) if i else found
        size = u.k.abs(found)
        inside = u.k.logical_and(u.k.greater(size, u.k.constant(1 / reach)), u.k.less(size, u.k.constant(reach)))
        u.fail_if(u.k.logical_not(inside))
    return found if odd is None else u.select(odd, u.k.negative(found), found)


#: The routines, and whether one takes right sides.
ROUTINES: dict[str, Callable[[Unrolled, Sequence[Stack], Sequence[Stack]], None]] = {
    "cholesky": cholesky, "solve": solve, "inverse": inverse, "triangular_solve": triangular_solve,
    "determinant": determinant, "log_determinant": log_determinant,
}  # fmt: skip


def is_unrolled(name: str, shapes: Sequence[tuple[int, ...]], lanes: int) -> bool:
    """Whether a routine is unrolled for arguments and results of these shapes."""
    if name not in ROUTINES or shapes[0][-1] > MAX_ROWS:
        return False
    return name not in ("solve", "triangular_solve") or shapes[-1][-1] <= MAX_VECTORS * max(lanes, 1)
