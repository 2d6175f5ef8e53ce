"""Derived programs: the push, the pullback and the batch of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ....arrays.spec import Spec, make_spec
from ....arrays.tensor import Tensor
from ....errors import ArgumentError, ShapeError
from ....ops.batching import move_batch_first
from ....ops.statics import Static
from ....program.ir import Program, Symbol
from ....program.passes import drop_unused
from ....program.run import run
from ....program.stage import hoist, stage
from ...forward import jvp
from ...reverse import vjp
from ...vectorize import Batched, batch_scope, unbatch

T = TypeVar("T")

#: What programs inside of equations are, as static parameters.
PROGRAM = Static("a program", lambda v, specs, static: isinstance(v, Program))
PROGRAMS = Static(
    "programs, one at least",
    lambda v, specs, static: type(v) is tuple and bool(v) and all(isinstance(r, Program) for r in v),
)


def float_places(specs: Sequence[Spec]) -> tuple[int, ...]:
    """The places of values that can have a derivative."""
    return tuple(i for i, spec in enumerate(specs) if spec.inexact)


def stage_body(function: Callable[..., Sequence[Any]], *specs: Spec) -> tuple[Program, list[Any]]:
    """A function as a program of its arguments and of what it captured, and those values. What it computed from them
    alone was computed once, when it was traced, and not at each step.
    """
    program, captured = hoist(stage(function, *specs))
    return drop_unused(program), captured


def stage_derived(function: Callable[..., Sequence[Any]], *specs: Spec) -> Program:
    """A function of programs as a program; it captures nothing but constants."""
    return drop_unused(hoist(stage(function, *specs), lambda x: False)[0])


def derive(owner: Program, key: Any, function: Callable[..., Sequence[Any]], *specs: Spec) -> Program:
    """A program staged from a function that runs `owner`, once for each key."""
    return derive_once(owner, key, lambda: stage_derived(function, *specs))


def derive_once(owner: Program, key: Any, make: Callable[[], T]) -> T:
    """Derive something from a program, once for each key."""
    if key not in owner.derived:
        owner.derived[key] = make()
    found: T = owner.derived[key]
    return found


def replace_at(values: Sequence[Any], places: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    found = list(values)
    for i, x in zip(places, moved, strict=True):
        found[i] = x
    return found


def derive_push(body: Program, moving: tuple[int, ...]) -> Program:
    """(inputs, tangents of those that move) -> (outputs, tangents of the floating ones)."""
    count, floats = len(body.inputs), float_places(body.output_specs)

    def push_all(*values: Any) -> list[Any]:
        xs, dots = values[:count], values[count:]

        def outs_of(*moved: Any) -> Any:
            outs = run(body, replace_at(xs, moving, moved))
            return [outs[i] for i in floats], outs

        _, tangents, outs = jvp(outs_of, [xs[i] for i in moving], dots, has_aux=True)
        return [*outs, *tangents]

    specs = (*body.input_specs, *(body.input_specs[i] for i in moving))
    return derive(body, ("push", moving), push_all, *specs)


@dataclass(frozen=True, slots=True)
class ProgramPullback:
    """The backward of a program: (inputs, its own outputs, cotangents of the `barred` ones) -> cotangents of the
    `wanted` inputs. Where an output is a residual of the backward pass, it is read from there.

    `residuals` are the inputs and values of the program that the backward uses, outputs or not; `zero` says which
    cotangents are always zero.
    """

    code: Program
    residuals: tuple[Symbol, ...]
    zero: tuple[bool, ...]

    def used_inputs(self) -> list[bool]:
        """For each input of the code, whether it is used."""
        used = {id(a) for e in self.code.equations for a in e.args} | {id(o) for o in self.code.outputs}
        return [id(s) in used for s in self.code.inputs]


def derive_pullback(body: Program, wanted: tuple[int, ...], barred: tuple[int, ...]) -> ProgramPullback:
    """The backward from some outputs to some inputs."""
    return derive_once(body, ("pull", wanted, barred), lambda: _make_pullback(body, wanted, barred))


def _make_pullback(body: Program, wanted: tuple[int, ...], barred: tuple[int, ...]) -> ProgramPullback:
    count, results = len(body.inputs), body.output_specs
    made = [s for e in body.equations for s in e.results]
    whole = replace(body, outputs=(*body.outputs, *made))
    reached: list[Any] = []

    def pull_all(*values: Any) -> list[Any]:
        xs, bars = values[:count], values[count + len(results) :]
        if not wanted or not barred:
            return [0.0] * len(wanted)

        def outs_of(*moved: Any) -> Any:
            given = replace_at(xs, wanted, moved)
            found = run(whole, given)
            return [found[i] for i in barred], found[len(results) :]

        _, pull, found = vjp(outs_of, *(xs[i] for i in wanted), has_aux=True)
        reached.extend(map(_strip_tensor, found))
        return list(pull(list(bars)))

    # the code traces forward and backward; forward values that the body returns are read from its outputs, and
    # pruning drops the equations that made them
    specs = (*body.input_specs, *results, *(results[i] for i in barred))
    code = stage_derived(pull_all, *specs)
    origin = {id(new): old for new, old in zip((*code.inputs[:count], *reached), (*body.inputs, *made), strict=False)}
    residuals = _find_residuals(code, origin)
    outs = {id(o): new for o, new in zip(body.outputs, code.inputs[count:], strict=False) if isinstance(o, Symbol)}
    place = {new: outs[id(old)] for new, old in origin.items() if id(old) in outs}
    lines = tuple(replace(e, args=tuple(place.get(id(a), a) for a in e.args)) for e in code.equations)
    outputs = tuple(place.get(id(o), o) for o in code.outputs)
    zero = tuple(not isinstance(o, Symbol) for o in outputs)
    return ProgramPullback(drop_unused(Program(code.inputs, lines, outputs)), residuals, zero)


def _strip_tensor(x: Any) -> Any:
    """A value below the tape of the backward pass."""
    return x.value if type(x) is Tensor else x


def _find_residuals(code: Program, origin: dict[int, Symbol]) -> tuple[Symbol, ...]:
    """The residuals: values of the forward pass that the backward uses. A mere view of a value is recomputed, so that
    the value itself is the residual.
    """
    maker = {id(s): e for e in code.equations for s in e.results}
    found: dict[int, Symbol] = {}

    def add_residual(x: Any) -> None:
        while id(x) in maker and maker[id(x)].op.motion == "rearrange":
            moved = [a for a in maker[id(x)].args if isinstance(a, Symbol)]
            if len(moved) != 1 or moved[0].spec.size > x.spec.size:
                break
            x = moved[0]
        if id(x) in origin:
            found.setdefault(id(origin[id(x)]), origin[id(x)])

    for e in code.equations:
        if not all(id(s) in origin for s in e.results):
            for a in e.args:
                add_residual(a)
    for o in code.outputs:
        add_residual(o)
    return tuple(found.values())


def derive_batch(body: Program, axes: tuple[bool, ...], size: int) -> tuple[Program, tuple[bool, ...]]:
    """The program over a batch, and which outputs are batched; the batch axis comes first."""
    flags: list[bool] = []

    def run_batch(*values: Any) -> list[Any]:
        with batch_scope(size) as scope:
            given = [Batched(x, 0, scope) if has else x for x, has in zip(values, axes, strict=True)]
            outs = [scope_value(x, scope) for x in run(body, given)]
            flags.extend(has for _, has in outs)
            return [x for x, _ in outs]

    def scope_value(x: Any, scope: Any) -> tuple[Any, bool]:
        if type(x) is not Batched or x.scope is not scope:
            return x, False
        return (x.value, False) if x.axis is None else (unbatch(x, scope, 0), True)

    def make() -> tuple[Program, tuple[bool, ...]]:
        specs = [
            make_spec((size, *s.shape), s.dtype, s.device) if has else s
            for s, has in zip(body.input_specs, axes, strict=True)
        ]
        made = stage_derived(run_batch, *specs)
        return made, tuple(flags)

    return derive_once(body, ("batch", axes, size), make)


def check_program(what: str, code: Any, given: Sequence[Spec], carries: int = 0) -> Program:
    """The program, if it takes arguments of these specs and its carry keeps shape and dtype."""
    if not isinstance(code, Program):
        raise ArgumentError(f"{what}: wants a program, got a {type(code).__name__}.")
    wanted = [(s.shape, s.dtype) for s in code.input_specs]
    if wanted != [(s.shape, s.dtype) for s in given]:
        raise ShapeError(f"{what}: takes {', '.join(map(str, code.input_specs))}, got {', '.join(map(str, given))}.")
    if carries and [(s.shape, s.dtype) for s in code.output_specs[:carries]] != wanted[:carries]:
        raise ShapeError(f"{what}: what it carries has another shape or dtype after a step.")
    return code


def ensure_batch_axis(x: Any, has: bool, wanted: bool, size: int) -> Any:
    """A value with a batch axis in front if one is wanted."""
    return move_batch_first(x, 0 if has else None, size) if wanted else x


def stacked_spec(spec: Spec, length: int) -> Spec:
    return make_spec((length, *spec.shape), spec.dtype, spec.device)
