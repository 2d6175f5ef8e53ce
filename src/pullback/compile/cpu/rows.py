"""Row programs: a program of one row of numbers in, phases of native pieces out that run on rows of any length.

A row is a few arrays of one size and dtype, flattened: a parameter, its gradient, what an optimizer keeps for it. The
program is staged on rows of `chunk` elements and must treat each element alike. What it computes of scalars alone runs
once; sums over the row end a phase, since what uses them needs the whole row first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.forms import Cast, Reduce
from ...ops.shape.reshaping import astype
from ...program.ir import Equation, Program, Symbol
from ...program.run import run
from ...program.stage import stage
from ..loop_ir import Host
from ..pipeline import plan_program
from ..target import Options, Target
from ..vocabulary import IDENTITY
from .program.render import ProgramWriter
from .runtime.link import LinkedCode, link
from .runtime.row_code import FOLD_KINDS

#: Elements of a row that one call of a piece computes.
CHUNK = 256
_FLOAT = make_spec((), np.dtype(np.float64))
_MASK = make_spec((CHUNK,), np.dtype(bool))


class NotRowsError(Exception):
    """The program does not treat a row element by element."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A native function, the symbols (or, for folds, numbers) that it takes and makes, and the table that it wants."""

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    writer: ProgramWriter
    steps: Any
    workspace: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Scalars that are computed first, what then runs on each chunk, and the words of its folds."""

    scalars: Piece | None
    body: Piece
    folds: tuple[Equation, ...]


@dataclass(frozen=True, slots=True)
class RowCode:
    """A row program as native code. `arrays` are its inputs that are rows, `numbers` the others; `states` are pairs of
    (number, output) for the numbers that a run replaces.
    """

    arrays: tuple[Symbol, ...]
    numbers: tuple[Symbol, ...]
    states: tuple[tuple[Symbol, Any], ...]
    phases: tuple[Phase, ...]
    linked: LinkedCode


def compile_rows(program: Program, arrays: int, donated: dict[int, int], target: Target) -> RowCode:
    """The native code of a program whose first inputs are rows. `donated` maps each output to the input it replaces."""
    levels = _find_levels(program)
    rows, numbers = program.inputs[:arrays], program.inputs[arrays:]
    new_rows = {i: place for i, place in donated.items() if place < arrays}
    states = tuple((program.inputs[j], program.outputs[i]) for i, j in donated.items() if j >= arrays)
    builder = _PhaseBuilder(program, levels, rows, numbers, target)
    count = max(levels.values(), default=0)
    phases = [builder.fold_phase(level) for level in range(count)]
    phases.append(builder.last_phase(count, new_rows, [x for _, x in states]))
    text = builder.writers[0].render_module(False)
    names = [p.name for phase in phases for p in (phase.scalars, phase.body) if p is not None]
    return RowCode(rows, numbers, states, tuple(phases), link(text, names))


def _find_levels(program: Program) -> dict[int, int]:
    """How many folds, one after the other, each value waits for."""
    levels = {id(s): 0 for s in program.inputs}
    for e in program.equations:
        found = max((levels[id(a)] for a in e.args if isinstance(a, Symbol)), default=0)
        if is_fold(e):
            found += 1
        elif not (e.op.family == "elementwise" or isinstance(e.op.form, Cast)) or not _is_uniform(e):
            raise NotRowsError(e.op.name)
        levels |= dict.fromkeys(map(id, e.results), found)
    return levels


def is_fold(e: Equation) -> bool:
    """Whether an equation folds a whole row to a number."""
    form = e.op.form
    return isinstance(form, Reduce) and form.word in FOLD_KINDS and _is_row(e.args[0]) and not _is_row(e.results[0])


def _is_uniform(e: Equation) -> bool:
    """Whether all values are numbers or rows, constant rows with one number throughout."""
    constants = [a for a in e.args if isinstance(a, np.ndarray) and a.ndim]
    known = all(spec_of(x).shape in ((), (CHUNK,)) for x in (*e.args, *e.results))
    return known and all(np.all(a == a.flat[0]) for a in constants)


def _is_row(x: Any) -> bool:
    return spec_of(x).shape == (CHUNK,)


def is_same_for_rows(one: Program, other: Program) -> bool:
    """Whether two programs, staged on rows of different lengths, do the same to each element."""
    numbers = [_number_symbols(p) for p in (one, other)]

    def is_same(x: Any, y: Any) -> bool:
        if isinstance(x, Symbol) or isinstance(y, Symbol):
            return numbers[0].get(id(x), -1) == numbers[1].get(id(y), -2)
        x, y = np.asarray(x), np.asarray(y)  # constants are rows of one number, or numbers
        same = x.dtype == y.dtype and x.ndim == y.ndim
        return bool(same and np.array_equal(x.flat[:1], y.flat[:1], equal_nan=x.dtype.kind in "fc"))

    return len(one.equations) == len(other.equations) and all(
        e.op is f.op and e.static == f.static and len(e.args) == len(f.args) and all(map(is_same, e.args, f.args))
        for e, f in zip(one.equations, other.equations, strict=True)
    )


def _number_symbols(program: Program) -> dict[int, int]:
    symbols = [*program.inputs, *(s for e in program.equations for s in e.results)]
    return {id(s): i for i, s in enumerate(symbols)}


class _PhaseBuilder:
    """Cuts a program into pieces and renders them into one module."""

    def __init__(
        self,
        program: Program,
        levels: dict[int, int],
        rows: Sequence[Symbol],
        numbers: Sequence[Symbol],
        target: Target,
    ) -> None:
        self.program, self.levels, self.rows, self.numbers, self.target = program, levels, rows, numbers, target
        self.folds: list[Equation] = []
        self.writers: list[ProgramWriter] = []

    def fold_phase(self, level: int) -> Phase:
        """What must run on all rows before anything that is above `level`."""
        folds = [e for e in self.program.equations if is_fold(e) and self.levels[id(e.results[0])] == level + 1]
        part, used = self._cut_rows([e.args[0] for e in folds])
        scalars = self._scalars(used, [])

        def fold_chunk(*values: Any) -> list[Any]:
            operands = run(part, [*values[: len(self.rows)], *values[len(self.rows) + 1 :]])
            return [_fold_masked(e, x, values[len(self.rows)]) for e, x in zip(folds, operands, strict=True)]

        specs = [*(s.spec for s in self.rows), _MASK, *(s.spec for s in used)]
        body = self._piece(_stage(fold_chunk, specs), (*self.rows, None, *used), tuple(folds), {})
        self.folds += folds
        return Phase(scalars, body, tuple(folds))

    def last_phase(self, level: int, new_rows: dict[int, int], states: list[Any]) -> Phase:
        """What writes to the rows."""
        outputs = [self.program.outputs[i] for i in new_rows]
        part, used = self._cut_rows(outputs)
        scalars = self._scalars(used, states)
        places = dict(enumerate(new_rows.values()))
        return Phase(scalars, self._piece(part, part.inputs, part.outputs, places), ())

    def _cut_rows(self, outputs: list[Any]) -> tuple[Program, list[Symbol]]:
        """The program of rows that leads to some outputs, and the numbers that it takes after the rows."""
        needed = _needed(self.program, outputs, lambda e: not _is_row(e.results[0]))
        taken = [a for e in needed for a in e.args if isinstance(a, Symbol) and not _is_row(a)]
        used = list({id(a): a for a in taken}.values())
        return Program((*self.rows, *used), needed, tuple(outputs)), used

    def _scalars(self, used: list[Symbol], states: list[Any]) -> Piece | None:
        """The piece that computes numbers of the inputs and the folds so far; None if there are none to compute."""
        given = {id(s) for s in self.numbers}
        wanted = [*(s for s in used if id(s) not in given), *states]
        if not wanted:
            return None
        results = [e.results[0] for e in self.folds]
        before = {id(s) for s in results}
        needed = _needed(self.program, wanted, lambda e: id(e.results[0]) in before)
        part = Program((*self.numbers, *results), needed, tuple(wanted))

        def compute(*values: Any) -> list[Any]:
            totals = [astype(x, s.spec.dtype) for x, s in zip(values[len(self.numbers) :], results, strict=True)]
            return run(part, [*values[: len(self.numbers)], *totals])

        if results:
            part = _stage(compute, [*(s.spec for s in self.numbers), *[_FLOAT] * len(results)])
        return self._piece(part, (*self.numbers, *self.folds), tuple(wanted), {})

    def _piece(
        self, program: Program, inputs: tuple[Any, ...], outputs: tuple[Any, ...], donated: dict[int, int]
    ) -> Piece:
        """A program as a function of the module."""
        steps = plan_program(program, self.target, Options(donated)).planned
        if any(isinstance(s, Host) for s in steps.steps):
            raise NotRowsError("an op has no native code")
        writer = ProgramWriter(steps, self.target.limits, self.writers[0] if self.writers else None)
        self.writers.append(writer)
        name = writer.write_piece(steps.steps, f"piece{len(self.writers)}")
        return Piece(name, inputs, outputs, writer, steps, steps.workspace)


def _needed(program: Program, outputs: Sequence[Any], stops: Any) -> tuple[Equation, ...]:
    """The equations that lead to some outputs, back to those at which the search stops."""
    wanted = {id(o) for o in outputs}
    found = []
    for e in reversed(program.equations):
        if any(id(s) in wanted for s in e.results) and not stops(e):
            found.append(e)
            wanted |= {id(a) for a in e.args}
    return tuple(found[::-1])


def _stage(function: Any, specs: Sequence[Spec]) -> Program:
    return stage(function, *specs, shared=True)


def _fold_masked(e: Equation, x: Any, mask: Any) -> Any:
    """A fold of the elements under a mask, as float64."""
    word = e.op.form.word
    operand = pointwise.where(mask, x, IDENTITY[word])
    return astype(apply(e.op, operand, **e.static), np.float64)
