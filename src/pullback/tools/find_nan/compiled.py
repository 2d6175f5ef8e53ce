"""`find_nan` in compiled code: the equations of a program with the numbers of native code, and into loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...arrays.origin import Origin, find_origin, register_reader
from ...compile.target import Options
from ...errors import PullbackError
from ...instrument import ProgramCall
from ...ops.forms import Flow
from ...program.ir import Equation, Program, Symbol
from ...program.passes import expand_equation
from ...settings import override_modes
from ..inner_programs import as_inputs, programs_inside
from ..observed_build import Observation, observe, observe_once, options_of, run_compiled
from .classify import is_finite

if TYPE_CHECKING:
    from .watch import NanWatch


def search_program(watch: NanWatch, call: ProgramCall, below: Callable[[], Any]) -> Any:
    """Run a compiled program; where its results are not finite, find the equation that made them so."""
    form = call.form
    if form is None:
        return below()
    options = options_of(form)
    program: Program = form.staged
    line = find_origin(sys._getframe(1))
    if program.effects.runs_once:  # the checked build runs in place of the program, since only one of them may
        seen = observe_once(program, call.arrays, options)
        ProgramSearch(watch, options, form.name, line).walk(program, seen)
        return seen.outputs
    given = [x.copy() if i in form.donated.values() else x for i, x in enumerate(call.arrays)]
    try:
        outs = below()
    except PullbackError:  # a check inside of it, as of a solver that did not converge
        ProgramSearch(watch, options, form.name, line).walk_failed(program, given)
        raise
    if not all(map(is_finite, outs)):
        seen = observe(program, given, options, outs)
        ProgramSearch(watch, options, form.name, line).walk(program, seen)
    return outs


class ProgramSearch:
    """Walks programs that native code ran; the lines of equations without one are those of the call."""

    def __init__(self, watch: NanWatch, options: Options, name: str, line: Origin | None) -> None:
        self.watch, self.options, self.name, self.line = watch, options, name, line
        #: Whether to look into loops whose results are finite: a solver drops steps that are not.
        self.is_thorough = False

    def walk(self, program: Program, seen: Observation, *places: str) -> None:
        """Judge each equation by its observed values; where a loop or a branch is at fault, look inside of it."""
        for e in program.equations:
            outs = [seen.values.get(id(s)) for s in e.results]
            args = [seen.read(a) for a in e.args]
            if all(x is None or is_finite(x) for x in outs):
                if self.is_thorough and isinstance(e.op.form, Flow) and all(x is not None for x in args):
                    self._descend(e, args, places)
                continue
            known = [x for x in args if x is not None]
            doubt = seen.doubt if len(known) < len(args) else ""
            before = len(self.watch.faults)
            if len(known) == len(args) and all(map(is_finite, known)):
                self._descend(e, args, places)
            self.watch.look(e.op, known, outs, partial(self._origin, e, places), before, self.name, doubt)

    def walk_failed(self, program: Program, arrays: Sequence[Any], *places: str) -> None:
        """The same for a program that raises: as far as it runs, and then into the equation that raises."""
        known = len(self.watch.faults)
        runs, seen = self._longest_run(program, arrays)
        self.walk(runs, seen, *places)
        if len(self.watch.faults) == known:
            self.is_thorough = True
            self.walk(runs, seen, *places)
        if len(self.watch.faults) == known and len(runs.equations) < len(program.equations):
            e = program.equations[len(runs.equations)]
            inner = _expand_at(e)
            if inner is not None:
                given = [seen.read(a) for a in e.args if isinstance(a, Symbol)]
                self.walk_failed(inner, given, *places)

    def _longest_run(self, program: Program, arrays: Sequence[Any]) -> tuple[Program, Observation]:
        """The most equations that run without an error, and their values."""
        runs, fails = 0, len(program.equations)
        best = Program(program.inputs, (), ()), Observation(dict(zip(map(id, program.inputs), arrays, strict=True)), [])
        while fails - runs > 1:
            middle = (runs + fails) // 2
            part = Program(program.inputs, program.equations[:middle], ())
            try:
                best = part, observe_once(part, as_inputs(part, arrays), self.options)
                runs = middle
            except PullbackError:
                fails = middle
        return best

    def _origin(self, e: Equation, places: Sequence[str]) -> Origin | None:
        found = e.site if isinstance(e.site, Origin) else self.line
        return None if found is None else found.inside(*places)

    def _descend(self, e: Equation, args: Sequence[Any], places: tuple[str, ...]) -> None:
        """Look into a loop, a branch or an op that is expanded, if it may run again; by the faults it notes inside, the
        whole is explained.
        """
        if e.effects.runs_once:
            return
        known = len(self.watch.faults)
        for program, given, place in programs_inside(e, args, self.options):
            outs = self._enter(program, given, *places, place)
            if len(self.watch.faults) > known or not all(map(is_finite, outs)):
                return
        inner = _expand_at(e)
        if inner is not None:
            given = [x for a, x in zip(e.args, args, strict=True) if isinstance(a, Symbol)]
            self._enter(inner, as_inputs(inner, given), *places)

    def _enter(self, program: Program, given: Sequence[Any], *places: str) -> list[Any]:
        """Run a program by itself; where its results are not finite, look inside."""
        outs = run_compiled(program, given, self.options)
        if self.is_thorough or not all(map(is_finite, outs)):
            self.walk(program, observe(program, given, self.options, outs), *places)
        return outs


def _expand_at(e: Equation) -> Program | None:
    """The expansion of an equation; what it computes itself comes from the line of the equation."""
    with override_modes(locates=True, instruments=None):
        return expand_equation(e)


register_reader(_expand_at, lambda trail, local: trail.adopt(local["e"].site))
