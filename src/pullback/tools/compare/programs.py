"""One program run twice: by NumPy op by op, and compiled; equation by equation, and into loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.origin import Origin
from ...compile.target import Options
from ...program.ir import Equation, Program, Symbol
from ...program.run import run
from ...settings import override_modes, override_native
from ..inner_programs import programs_inside
from ..observed_build import Observation, observe, run_compiled
from .difference import Tolerance, measure
from .run_log import RunLog, Step

Found = tuple[Step, Step]


def run_on_numpy(program: Program, arrays: Sequence[Any]) -> tuple[list[Step], list[Any]]:
    """The equations of a program as steps of NumPy, and its outputs."""
    log = RunLog(is_shallow=True)
    with override_modes(log, grad=False), override_native(False), np.errstate(all="ignore"):
        outs = run(program, arrays)
    return log.steps, outs


class ProgramPair:
    """Compares what NumPy and native code compute of a program; equations that were not observed are passed over."""

    def __init__(self, options: Options, tolerance: Tolerance) -> None:
        self.options, self.tolerance = options, tolerance
        self.compared = 0
        self.note = ""

    def find(self, program: Program, left: Sequence[Step], seen: Observation, *places: str) -> Found | None:
        """The first equation that differs, as a step of each side: `left` are NumPy's, `seen` native code's values."""
        self.note = self.note or seen.doubt
        for e, step in zip(program.equations, left, strict=True):
            other = as_step(e, seen, places)
            if all(x is None for x in other.outs):
                continue
            self.compared += 1
            if self.differs(step.outs, other.outs):
                inside = None if e.effects.runs_once else self._look_inside(e, other.args, places)
                return inside or (step, other)
        return None

    def differs(self, lefts: Sequence[Any], rights: Sequence[Any]) -> bool:
        """Whether any pair of values differs by more than asked."""
        found = [measure(x, y, self.tolerance) for x, y in zip(lefts, rights, strict=True) if y is not None]
        return any(apart is not None and apart.is_more for apart in found)

    def _look_inside(self, e: Equation, args: Sequence[Any], places: tuple[str, ...]) -> Found | None:
        """The first equation that differs in the programs of a loop or a branch, each round on the arguments that
        native code had in it.
        """
        if any(x is None for x in args):
            return None
        for program, given, place in programs_inside(e, args, self.options):
            seen = observe(program, given, self.options, run_compiled(program, given, self.options))
            found = self.find(program, run_on_numpy(program, given)[0], seen, *places, place)
            if found is not None:
                return found
        return None


def as_step(e: Equation, seen: Observation, places: Sequence[str]) -> Step:
    origin = e.site.inside(*places) if isinstance(e.site, Origin) else None
    outs = [seen.values.get(id(s)) for s in e.results]
    return Step(e.op, e.static, [seen.read(a) if isinstance(a, Symbol) else a for a in e.args], outs, origin)
