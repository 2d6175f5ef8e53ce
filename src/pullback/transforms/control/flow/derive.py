"""Derived programs: the push, the pullback and the batch of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ....arrays.spec import Spec, make_spec
from ....arrays.tensor import Tensor
from ....errors import ArgumentError, GraphError, ShapeError
from ....ops.batching import move_batch_first
from ....ops.statics import Static
from ....program.constants import Constants
from ....program.decisions import Decisions
from ....program.hoist import hoist
from ....program.ir import Equation, Program, Symbol
from ....program.passes import drop_unused
from ....program.run import run
from ....program.split import ForwardBackward, split_forward_backward
from ....program.stage import stage
from ....settings import override_modes
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
    constants = Constants()
    return as_body(stage_unseen(function, *specs, constants=constants), constants)


def as_body(program: Program, constants: Constants) -> tuple[Program, list[Any]]:
    """A program with what it captured as its last inputs, and those values: tensors themselves, which a program around
    this one may reread at each run.
    """
    program, captured = hoist(program, origin=lambda x: constants.origin(x) if type(x) is Tensor else x)
    return drop_unused(program), captured


def stage_derived(function: Callable[..., Sequence[Any]], *specs: Spec) -> Program:
    """A function of programs as a program; it captures nothing but constants."""
    return drop_unused(hoist(stage_unseen(function, *specs), lambda x: False)[0])


def stage_unseen(
    function: Callable[..., Sequence[Any]],
    *specs: Spec,
    constants: Constants | None = None,
    decisions: Decisions | None = None,
) -> Program:
    """Stage what instruments do not look into: they see the loop, one step of the program around it."""
    with override_modes(instruments=None):
        return stage(function, *specs, constants=constants, decisions=decisions)


def derive(owner: Program, key: Any, function: Callable[..., Sequence[Any]], *specs: Spec) -> Program:
    """A program staged from a function that runs `owner`, once for each key."""
    return derive_once(owner, key, lambda: stage_derived(function, *specs))


def derive_once(owner: Program, key: Any, make: Callable[[], T]) -> T:
    """Derive something from a program, once for each key."""
    if key not in owner.derived:
        owner.derived[key] = make()
    found: T = owner.derived[key]
    return found


def refuse_repeating(body: Program) -> None:
    """A derivative that runs the body again may not run what may only run once."""
    names = sorted({e.op.name for e in body.equations if e.effects.has_side_effects})
    if names:
        raise GraphError(
            f"the derivative of this staged loop or branch would run {', '.join(names)} again, which is not pure.\n"
            "  Call it outside of the loop or branch, or outside of jit, or declare custom_op(pure=True)."
        )


def refuse_collecting(*programs: Program) -> None:
    """Where elements go different ways, none may read values of all."""
    if not all(program.effects.by_element for program in programs):
        raise GraphError(
            "a branch or loop that some elements of a batch take and others do not reads values of all elements "
            "(pb.batch_sum or its like).\n  Call that before, for all elements, and use its result inside."
        )


def replace_at(values: Sequence[Any], places: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    found = list(values)
    for i, x in zip(places, moved, strict=True):
        found[i] = x
    return found


def derive_push(body: Program, moving: tuple[int, ...]) -> Program:
    """(inputs, tangents of those that move) -> (outputs, tangents of the floating ones)."""
    refuse_repeating(body)
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


def derive_pull(body: Program, wanted: tuple[int, ...], barred: tuple[int, ...]) -> Program:
    """(inputs, cotangents of the `barred` outputs) -> cotangents of the `wanted` inputs."""
    refuse_repeating(body)
    count = len(body.inputs)

    def pull_all(*values: Any) -> list[Any]:
        return _run_with_pull(body, values[:count], wanted, barred)[1](values[count:])

    return derive(body, ("pull", wanted, barred), pull_all, *_pullback_specs(body, barred))


def derive_split(body: Program, wanted: tuple[int, ...], barred: tuple[int, ...], carries: int) -> ForwardBackward:
    """The body with residuals as more outputs, and the pull from these to the `wanted` inputs."""
    count = len(body.inputs)
    own: dict[int, Symbol] = {}  # what the body computes itself

    def pull_whole(*values: Any) -> list[Any]:
        outs, pull = _run_with_pull(body, values[:count], wanted, barred)
        own.update((id(s), s) for e in values[0].equations for s in e.results)
        return [*outs, *pull(values[count:])]

    def is_cheap(e: Equation) -> bool:
        """What a rule computes besides is recomputed; so is a mere view, and the value itself is the residual."""
        return id(e.results[0]) not in own or e.op.rearranges

    def make() -> ForwardBackward:
        whole = stage_derived(pull_whole, *_pullback_specs(body, barred))
        return split_forward_backward(whole, count, len(body.outputs), is_cheap, carries)

    return derive_once(body, ("split", wanted, barred, carries), make)


def _pullback_specs(body: Program, barred: Sequence[int]) -> tuple[Spec, ...]:
    return (*body.input_specs, *(body.output_specs[i] for i in barred))


def _run_with_pull(
    body: Program, xs: Sequence[Any], wanted: Sequence[int], barred: Sequence[int]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The outputs, and the function from cotangents of some outputs to those of some inputs."""
    if not wanted or not barred:
        return run(body, xs), lambda bars: [0.0] * len(wanted)

    def outs_of(*moved: Any) -> Any:
        outs = run(body, replace_at(xs, wanted, moved))
        return [outs[i] for i in barred], outs

    _, pull, outs = vjp(outs_of, *(xs[i] for i in wanted), has_aux=True)
    return [_strip_tensor(x) for x in outs], lambda bars: list(pull(list(bars)))


def _strip_tensor(x: Any) -> Any:
    """A value below the tape of the backward pass."""
    return x.value if type(x) is Tensor else x


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
        specs = [stacked_spec(s, size) if has else s for s, has in zip(body.input_specs, axes, strict=True)]
        return stage_derived(run_batch, *specs), tuple(flags)

    return derive_once(body, ("batch", axes, size), make)


def add_batch_axes(code: Program, flags: Sequence[bool], wanted: Sequence[bool], size: int) -> Program:
    """A program over a batch with all its outputs batched that should be."""
    if tuple(flags) == tuple(wanted):
        return code

    def add_axes(*values: Any) -> list[Any]:
        pairs = zip(run(code, values), flags, wanted, strict=True)
        return [ensure_batch_axis(x, has, want, size) for x, has, want in pairs]

    return derive(code, ("led", tuple(wanted)), add_axes, *code.input_specs)


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
