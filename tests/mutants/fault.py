"""The fold-spread-fold fault put back: `python tests/mutants/fault.py JUDGE` prints what a judge says of it.

A store of a row's fold belonged to the phase that folds it, and was written once a row: a fold of a fold that is spread
over the row was added once for the row, before it was known. Each judge meets it in a process of its own; only the
judge of legality has legality.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import mutants
import numpy as np
from composed import folds, try_program
from pairs import Cell, evaluate
from pairs_run import FEATURES

import pullback as pb
from pullback.compile import legality
from pullback.compile.cpu.kernel import render, row_loop
from pullback.compile.loop_ir import Store
from pullback.compile.schedule import row_plan

__all__ = ["JUDGES", "reintroduce"]


def _old_phase(self: Store) -> int:
    lines = (self.line, *self.args)
    return max(line.phase + (line.kind == "fold") for line in lines) if self.args else self.line.phase


def _old_render(self: Any, number: int) -> None:
    stores = [s for s in self.kernel.stores if s.phase == number and s.line.kind != "fold"]
    phase = row_loop.RowPhase(
        number,
        [line for line in self.used if line.kind == "fold" and line.phase == number],
        [s for s in stores if self._is_stored_along_row(s)],
        [line for line in self.used if self.row_scratch.plan.phases.get(id(line)) == number],
    )
    once = [s for s in stores if not self._is_stored_along_row(s)]
    for line in (line for store in once for line in (store.line, *store.args)):
        self.values.row_scalar(line)
    if phase.folds or phase.stores or phase.saved:
        row_loop.RowWriter(self.values, self.row_scratch, phase, self.used, self.kept).write()
    for store in (*once, *(s for s in self.kernel.stores if s.line.kind == "fold" and s.line.phase == number)):
        self._store_once(store)


def _old_targets(kernel: Any, phase: int, used: list[Any]) -> list[Any]:
    folded = [line.args[0] for line in used if line.kind == "fold" and line.phase == phase]
    stored = [x for s in kernel.stores if s.phase == phase and s.line.kind != "fold" for x in (s.line, *s.args)]
    return [*folded, *stored]


def reintroduce(legal: bool) -> None:
    """Compile as it was before the fault was mended; `legal` leaves the check of legality in its place."""
    Store.phase = property(_old_phase)  # type: ignore[assignment, method-assign]
    render._Renderer._render_phase = _old_render  # type: ignore[method-assign]
    row_plan.phase_targets = _old_targets
    if not legal:
        legality._problems = lambda kernel, placed: iter(())


def spread_fold(x: Any) -> Any:
    return pb.sum(pb.broadcast_to(pb.sum(x, axis=1, keepdims=True), x.shape), axis=0)


def by_legality() -> str:
    reintroduce(legal=True)
    return _said(lambda: pb.jit(spread_fold)(np.ones((3, 3))))


def by_reference() -> str:
    reintroduce(legal=False)
    return _said(lambda: pb.jit(spread_fold, check=True)(np.ones((3, 3))))


def by_generators() -> str:
    """Every 29th chain of folds and spreads, as in each run of the tests."""
    reintroduce(legal=False)
    for number, program in enumerate(itertools.islice(folds(), 0, None, 29)):
        for fault in try_program(program, number, extra=False):
            return str(fault)
    return ""


def by_pairs() -> str:
    """Cells of the matrix that are asked in each run of the tests."""
    reintroduce(legal=False)
    cells = [(Cell(FEATURES["jit"], FEATURES["folds"]), mode) for mode in ("value", "grad")]
    return next((wrong for cell, mode in cells if (wrong := evaluate(cell, mode).wrong)), "")


def by_equal_widths() -> str:
    reintroduce(legal=False)
    return evaluate(Cell(FEATURES["jit"], FEATURES["equal_widths"]), "grad").wrong


def _said(call: Callable[[], Any]) -> str:
    try:
        call()
    except pb.errors.MiscompiledError as error:
        return " ".join(str(error).split())
    return ""


JUDGES = {
    "legality": by_legality, "reference": by_reference, "generators": by_generators, "pairs": by_pairs,
    "equal_widths": by_equal_widths,
}  # fmt: skip


def main() -> None:
    mutants.prepare()
    print(JUDGES[sys.argv[1]]() or "saw nothing")


if __name__ == "__main__":
    main()
