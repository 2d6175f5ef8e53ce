"""Advice on the program of a function: what NumPy executes, float64 constants, recomputation, copies, long traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import make_spec, spec_of
from ...arrays.text import format_bytes, format_seconds
from ...arrays.trees import flatten
from ...arrays.value import unwrap_array
from ...compile.inspect import step_summaries
from ...compile.jit import Jitted
from ...compile.loop_ir import Host, Step, Steps
from ...compile.pipeline import plan_program
from ...compile.specialization import Specialization
from ...compile.stage.captures import as_native_contiguous
from ...compile.target import Options, Runner
from ...compile.targets import make_runner
from ...ops.dispatch import compute
from ...ops.forms import Recompute
from ...program.ir import Equation, Program
from ...program.passes import optimize
from ...program.run import run
from ...program.stage import stage
from ..observed_build import observe, options_of, run_compiled
from .report import Advice
from .subject import Subject, line_of
from .timing import best_of, compare_times

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
#: A line that is traced so often is a loop of Python.
_MANY = 64
#: Copies of fewer bytes cost less than a look at them.
_LARGE = 1 << 20


def arrays_of(subject: Subject) -> list[Any] | None:
    """The arrays of a call as its program takes them; None for a function that sets variables."""
    form = subject.form
    if form is None or form.states:
        return None
    static = subject.f.static if isinstance(subject.f, Jitted) else ()
    dynamic = [x for i, x in enumerate(subject.args) if i not in {n % len(subject.args) for n in static}]
    names = subject.f.names if isinstance(subject.f, Jitted) else ()
    named = {n: x for n, x in subject.kwargs.items() if n not in names}
    leaves = [unwrap_array(x) for x in (*flatten((dynamic, named))[0], *form.captured)]
    return [as_native_contiguous(x, s) for x, s in zip(leaves, form.specs, strict=True)]


def _build(program: Program, options: Options) -> Runner:
    return make_runner(optimize(program), options)


def _try_program(
    subject: Subject, topic: str, what: str, change: str, where: str, changed: Program, given: Sequence[Any]
) -> Advice:
    """Measure the compiled program beside a changed one."""
    form, arrays = subject.form, arrays_of(subject)
    assert form is not None
    assert arrays is not None
    before, after = _build(form.staged, options_of(form)), _build(changed, options_of(form))
    times = compare_times(partial(before.run, arrays), partial(after.run, given), subject.seconds)
    return Advice(topic, what, f"{change} (compiled)", where, *times)


def advise_fallbacks(subject: Subject) -> Iterator[Advice]:
    """Ops that NumPy executes between pieces of native code, with the time that each takes."""
    form, arrays = subject.form, arrays_of(subject)
    if form is None:
        return
    steps = plan_steps(form)
    if steps is None:
        yield Advice("fallback", f"no native code: {form.code.why_fallback}", "", subject.where)
        return
    hosts: dict[tuple[str, str], list[Equation | None]] = {}
    for host in (s for s in steps.steps if isinstance(s, Host) and s.routine is None):
        e = _equation_of(form.graph, steps, host)
        hosts.setdefault((host.name, "" if e is None else line_of(e)), []).append(e)
    for (name, line), found in hosts.items():
        took = "" if found[0] is None or arrays is None else _time_equation(subject, found[0], arrays)
        times = f" ({len(found)} times)" if len(found) > 1 else ""
        what = f"{name}{times} has no native form: NumPy executes it between pieces of native code{took}"
        yield Advice("fallback", what, "", line)


def plan_steps(form: Specialization) -> Steps | None:
    """The steps of a form in terms of its own symbols: its code may be that of an equal program, traced before."""
    c = form.code.compilation
    return None if c is None else plan_program(form.graph, c.target, c.options).fused


def _equation_of(program: Program, steps: Steps, step: Step) -> Equation | None:
    """The equation whose result a step writes; of a copy to a result, the one that made it."""
    makers = {id(s): e for e in program.equations for s in e.results}
    written = set(map(id, step.writes()))
    symbols = [symbol for symbol, layout in steps.places if id(layout.buffer) in written]
    symbols += [o for o, b in zip(program.outputs, steps.outputs, strict=True) if id(b) in written]
    return next((makers[id(s)] for s in symbols if id(s) in makers), None)


def _time_equation(subject: Subject, e: Equation, arrays: Sequence[Any]) -> str:
    """The time of one op on the values that the program gives it."""
    form = subject.form
    assert form is not None
    options = options_of(form)
    seen = observe(form.graph, arrays, options, run_compiled(form.graph, arrays, options))
    args = [seen.read(a) for a in e.args]
    if any(x is None for x in args):
        return ""
    return f", {format_seconds(best_of(lambda: compute(e.op, args, e.static), subject.seconds / 4)[1])} a call"


def advise_constants(subject: Subject) -> Iterator[Advice]:
    """float64 constants that meet float32 values, so that what follows is float64."""
    form, arrays = subject.form, arrays_of(subject)
    if form is None or arrays is None:
        return
    count = len(form.staged.inputs) - len(form.captured)
    computed = {id(s) for s in form.staged.inputs[:count]}
    for e in form.staged.equations:
        doubles = [a for a in e.args if _is_double(a)]
        if any(id(a) not in computed for a in doubles) and any(_is_single(a) for a in e.args):
            changed, given = _with_single_constants(form.staged, arrays, count)
            what = f"{e.op.name} of float32 and a float64 constant is float64, and so is what follows"
            change = "make the constant float32, or a Python number"
            yield _try_program(subject, "float64", what, change, line_of(e), changed, given)
            return
        computed |= {id(s) for s in e.results}


def _is_double(x: Any) -> bool:
    spec = None if isinstance(x, (bool, int, float, complex)) else spec_of(x)
    return spec is not None and spec.weak is None and spec.dtype == _DOUBLE


def _is_single(x: Any) -> bool:
    return not isinstance(x, (bool, int, float, complex)) and spec_of(x).dtype == _SINGLE


def _with_single_constants(program: Program, arrays: Sequence[Any], count: int) -> tuple[Program, list[Any]]:
    """The program on captured arrays and constants in float32; dtypes of what follows are inferred anew."""
    equations = tuple(replace(e, args=tuple(map(_as_single_constant, e.args))) for e in program.equations)
    narrow = Program(program.inputs, equations, program.outputs)
    given = [x.astype(_SINGLE) if i >= count and x.dtype == _DOUBLE else x for i, x in enumerate(arrays)]
    specs = [make_spec(x.shape, x.dtype) for x in given]
    return stage(lambda *xs: run(narrow, xs), *specs), given


def _as_single_constant(x: Any) -> Any:
    return x.astype(_SINGLE) if is_array(x) and x.dtype == _DOUBLE else x


def advise_recomputation(subject: Subject) -> Iterator[Advice]:
    """What checkpoints compute again, and a memory budget."""
    form, arrays = subject.form, arrays_of(subject)
    if form is None or arrays is None:
        return
    fences = [e for e in form.staged.equations if isinstance(e.op.form, Recompute)]
    if fences:
        changed = _without_fences(form.staged)
        more = len(optimize(form.staged).equations) - len(optimize(changed).equations) - len(fences)
        what = f"a checkpoint computes {max(more, 0)} ops again"
        line = next(filter(None, map(line_of, fences)), "")
        yield _try_program(subject, "checkpoint", what, "leave pb.checkpoint out", line, changed, arrays)
    if isinstance(subject.f, Jitted) and subject.f.limit is not None:
        free = subject.f.make_alike(None)(subject.f.f)
        what = f"a memory budget of {format_bytes(subject.f.limit)} computes values again"
        yield subject.try_change(
            "budget", what, "leave memory_budget out", subject.where,
            lambda: free(*subject.args, **subject.kwargs),
        )  # fmt: skip


def _without_fences(program: Program) -> Program:
    """The program in which what is computed again is merged with what was computed before."""
    names = {id(e.results[0]): e.args[0] for e in program.equations if isinstance(e.op.form, Recompute)}

    def resolve(x: Any) -> Any:
        while id(x) in names:
            x = names[id(x)]
        return x

    kept = [e for e in program.equations if not isinstance(e.op.form, Recompute)]
    equations = tuple(replace(e, args=tuple(map(resolve, e.args))) for e in kept)
    return Program(program.inputs, equations, tuple(map(resolve, program.outputs)))


def advise_copies(subject: Subject) -> Iterator[Advice]:
    """Large arrays that native code only copies, into another order of axes or beside each other."""
    form = subject.form
    fused = None if form is None else plan_steps(form)
    if form is None or fused is None:
        return
    for step, runs, moved in step_summaries(fused):
        if runs == "copy" and moved >= _LARGE:
            e = _equation_of(form.graph, fused, step)
            name = "an array" if e is None else f"the result of {e.op.name}"
            yield Advice(
                "layout", f"{name} is copied: {format_bytes(moved)} moved", "keep axes in the order they are used in",
                "" if e is None else line_of(e),
            )  # fmt: skip


def advise_long_traces(subject: Subject) -> Iterator[Advice]:
    """Lines that are traced many times: loops of Python, each round of which is compiled."""
    form = subject.form
    if form is None:
        return
    lines = Counter((line_of(e), e.op.name) for e in form.staged.equations)
    by_line: dict[str, int] = {}
    for (line, _), count in lines.items():
        by_line[line] = max(by_line.get(line, 0), count)
    worst = max(by_line, key=lambda line: by_line[line], default="")
    if by_line.get(worst, 0) >= _MANY and worst:
        _ = form.code  # compiled, so that the time is that of both
        what = f"{len(form.staged.equations)} equations, one line {by_line[worst]} times; traced and compiled in "
        yield Advice("trace", what + format_seconds(form.seconds), "pb.scan or pb.fori_loop traces one round", worst)


PROBES: tuple[Callable[[Subject], Iterator[Advice]], ...] = (
    advise_fallbacks, advise_constants, advise_recomputation, advise_copies, advise_long_traces,
)  # fmt: skip
