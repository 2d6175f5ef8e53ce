"""A checked build of a compiled program: the same equations, compiled by the same options, whose values are results.

What is computed in between becomes a result of the compiled program, so the numbers are those of native code. More
results may change what is fused, or what a pass simplifies. So each build is compared with the program itself on the
same arguments: only a build whose results are bit by bit the program's has shown what the program does. Where the build
with all values differs, builds with fewer are tried, down to one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays.backends import to_host
from ..compile.specialization import Specialization
from ..compile.stage.captures import as_native_contiguous
from ..compile.target import Options, Runner
from ..compile.targets import make_runner
from ..program.agreement import agree_first
from ..program.ir import Program, Symbol
from ..program.passes import optimize
from ..settings import override_modes

#: The most builds for one program: each is compiled.
_MOST_BUILDS = 48


@dataclass(frozen=True, slots=True)
class Observation:
    """The values of a program's symbols, by their id, as native code computed them; those that no faithful build has
    shown are missing.
    """

    values: dict[int, Any]
    outputs: list[Any]
    #: Why values are missing, or are known only of a build that differs from the program; empty: all were seen.
    doubt: str = ""

    def read(self, x: Any) -> Any:
        """The value of an argument of an equation; None if it was not observed."""
        return self.values.get(id(x)) if isinstance(x, Symbol) else x


def options_of(form: Specialization) -> Options:
    """How a checked build of a compiled form is compiled: as the form, but it overwrites nothing."""
    return Options(fast=form.fast, deterministic=form.deterministic)


def run_compiled(program: Program, arrays: Sequence[Any], options: Options, more: Sequence[Symbol] = ()) -> list[Any]:
    """The outputs of a program, and `more` of its values, compiled; it overwrites no argument. A build is kept with the
    program, which may be the body of a loop and run many times.
    """
    key = "checked build", options.fast, options.deterministic, tuple(map(id, more))
    if key not in program.derived:
        program.derived[key] = _build(program, options, more)
    given = [as_native_contiguous(x, s.spec) for x, s in zip(arrays, program.inputs, strict=True)]
    with override_modes(instruments=None), np.errstate(all="ignore"):
        found = program.derived[key].run(given)
    assert found is not None, "a checked build was compiled for other arguments"
    return list(found)


def _build(program: Program, options: Options, more: Sequence[Symbol]) -> Runner:
    whole = Program(program.inputs, program.equations, (*program.outputs, *more))
    built = agree_first(optimize(whole), "a checked build")
    return make_runner(built, replace(options, donated={}, limit=None))


class _Observer:
    """Makes builds of one program on one call's arguments, until all values are seen or there were too many."""

    def __init__(self, program: Program, arrays: Sequence[Any], options: Options, wanted: Sequence[Any]) -> None:
        self.program, self.arrays, self.options, self.wanted = program, arrays, options, wanted
        self.values: dict[int, Any] = {}
        self.builds = 0
        self.unseen = 0

    def observe(self, symbols: Sequence[Symbol]) -> None:
        """See some values, by one build if it is faithful, else by two with half of them each."""
        if self.builds >= _MOST_BUILDS:
            self.unseen += len(symbols)
            return
        self.builds += 1
        count = len(self.program.outputs)
        found = run_compiled(self.program, self.arrays, self.options, symbols)
        if all(map(is_same, found[:count], self.wanted)):
            self.values |= {id(s): x for s, x in zip(symbols, found[count:], strict=True)}
        elif len(symbols) > 1:
            half = len(symbols) // 2
            self.observe(symbols[:half])
            self.observe(symbols[half:])
        else:
            self.unseen += 1


def observe(program: Program, arrays: Sequence[Any], options: Options, wanted: Sequence[Any]) -> Observation:
    """The values of all equations of a program whose call on these arrays returned `wanted`."""
    symbols = [s for e in program.equations for s in e.results]
    seen = _Observer(program, arrays, options, wanted)
    seen.values |= {id(s): x for s, x in zip(program.inputs, arrays, strict=True)}
    seen.values |= {id(o): x for o, x in zip(program.outputs, wanted, strict=True) if isinstance(o, Symbol)}
    hidden = [s for s in symbols if id(s) not in seen.values]
    if hidden:
        seen.observe(hidden)
    doubt = (
        f"{seen.unseen} of {len(symbols)} values were not observed: with them as results, the program computes others"
        if seen.unseen
        else ""
    )
    return Observation(seen.values, list(wanted), doubt)


def observe_once(program: Program, arrays: Sequence[Any], options: Options) -> Observation:
    """The values of a program that may run only once: by one build, which runs in its place."""
    symbols = [s for e in program.equations for s in e.results]
    found = run_compiled(program, arrays, options, symbols)
    outs, values = found[: len(program.outputs)], found[len(program.outputs) :]
    known = {id(s): x for s, x in zip((*program.inputs, *symbols), (*arrays, *values), strict=True)}
    return Observation(known, outs)


def is_same(x: Any, y: Any) -> bool:
    """Whether two arrays have the same bits, but for the payload of NaNs."""
    a, b = to_host(x), to_host(y)
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
