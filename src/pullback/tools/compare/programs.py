"""One program run twice: by NumPy op by op, and compiled; equation by equation, and into loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.origin import Origin
from ...compile.target import Options
from ...ops.forms import Flow
from ...program.ir import Equation, Program, Symbol
from ...program.run import run
from ...settings import override_modes, override_native
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
        if not isinstance(e.op.form, Flow) or any(x is None for x in args):
            return None
        for program, given, place in _INSIDE[e.op.form.kind](self, e, list(args)):
            seen = observe(program, given, self.options, run_compiled(program, given, self.options))
            found = self.find(program, run_on_numpy(program, given)[0], seen, *places, place)
            if found is not None:
                return found
        return None

    def _rounds_of_iterate(self, e: Equation, args: list[Any]) -> Iterator[tuple[Program, list[Any], str]]:
        body, carries = e.static["body"], e.static["carries"]
        held = carries + e.static["constants"]
        carry, constants, xs = args[:carries], args[carries:held], args[held:]
        for i in range(e.static["length"])[:: -1 if e.static["reverse"] else 1]:
            given = as_inputs(body, [*carry, *constants, *(x[i] for x in xs)])
            yield body, given, f"round {i} of {e.op.name}"
            carry = run_compiled(body, given, self.options)[:carries]

    def _rounds_of_repeat(self, e: Equation, args: list[Any]) -> Iterator[tuple[Program, list[Any], str]]:
        condition, body, carries = e.static["condition"], e.static["body"], e.static["carries"]
        carry, constants, rounds = args[:carries], args[carries:], 0
        while bool(run_compiled(condition, given := as_inputs(body, [*carry, *constants]), self.options)[0]):
            yield body, given, f"round {rounds} of {e.op.name}"
            carry, rounds = run_compiled(body, given, self.options), rounds + 1

    def _way_of_branch(self, e: Equation, args: list[Any]) -> Iterator[tuple[Program, list[Any], str]]:
        number = int(args[0])
        way = e.static["ways"][number]
        yield way, as_inputs(way, args[1:]), f"way {number} of {e.op.name}"


#: The programs that ran inside of an op, each with its arguments and its place, by the kind of the op's form.
_INSIDE: dict[str, Callable[[ProgramPair, Equation, list[Any]], Iterator[tuple[Program, list[Any], str]]]] = {
    "iterate": ProgramPair._rounds_of_iterate,
    "repeat": ProgramPair._rounds_of_repeat,
    "branch": ProgramPair._way_of_branch,
}


def as_inputs(program: Program, given: Sequence[Any]) -> list[Any]:
    """Arrays for the inputs of a program; a row of a sequence may be a number."""
    return [x if is_array(x) else np.asarray(x, s.spec.dtype) for x, s in zip(given, program.inputs, strict=True)]


def as_step(e: Equation, seen: Observation, places: Sequence[str]) -> Step:
    origin = e.site.inside(*places) if isinstance(e.site, Origin) else None
    outs = [seen.values.get(id(s)) for s in e.results]
    return Step(e.op, e.static, [seen.read(a) if isinstance(a, Symbol) else a for a in e.args], outs, origin)
