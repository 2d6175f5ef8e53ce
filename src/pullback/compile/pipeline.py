"""The compiler as a list: `STEPS` turn a program into a runner, one after the other, for any target."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ..arrays.spec import Spec, spec_of
from ..arrays.timing import COMPILE, span
from ..program.ir import Program
from .legality import check_legality
from .loop_ir import Kernel, Steps, map_inner, map_programs
from .lower.equations import lower_program
from .reference.verify import verify_arena, verify_steps
from .schedule import arena
from .schedule.division import divide_steps
from .schedule.memory_budget import fit_memory_budget
from .schedule.order import order_steps
from .schedule.pack import pack_steps
from .schedule.split import split_steps
from .siblings import SIZES
from .target import Compilation, Options, Runner, Target

#: The environment variable that has the steps of every program verified.
VERIFY = "PULLBACK_VERIFY"


def lower(c: Compilation) -> None:
    """Equations become kernels, products and loops; what fits into one loop shares it."""
    assert c.program is not None
    c.steps = lower_program(c.program, c.target, c.options.donated)
    if not c.options.deterministic:
        map_programs(c.steps, _take_any_order)


def order(c: Compilation) -> None:
    """Fills run just before their memory is used, updates as soon as what they overwrite is read; what is read several
    times against the order of memory is copied first.
    """
    c.steps = map_programs(c.steps, lambda steps: pack_steps(order_steps(steps), c.target.limits))


def split(c: Compilation) -> None:
    """Chains of costly functions become one loop for each."""
    c.steps = c.fused = map_programs(c.steps, lambda steps: split_steps(steps, c.target.limits))
    map_programs(c.fused, _checked)


def fit(c: Compilation) -> None:
    """Within a memory budget, values are evicted and recomputed until a call fits."""
    if c.options.limit is None:
        return
    before, extra = c.steps, c.target.extra_bytes(_place(c.steps, c.target))
    c.steps = _fit(c, before, extra)
    # steps that were changed may work in more
    if (more := c.target.extra_bytes(_place(c.steps, c.target))) > extra:
        c.steps = _fit(c, before, more)


def vary(c: Compilation) -> None:
    """If the program was compiled for other sizes, numbers that differ are read when the code runs, so that one code
    serves all further sizes.
    """
    c.planned = c.steps
    if c.program is None or not c.target.takes_varying_sizes:
        return
    # relaxed arithmetic may be rounded in another way where LLVM knows a number
    if c.options.fast:
        c.scope = "these sizes alone: fast_math"
    else:
        SIZES.compare(c)


def divide(c: Compilation) -> None:
    """Long kernels and batches of products become blocks that run in parallel; short steps, groups for one launch."""
    inner = map_inner(c.planned, lambda program: map_programs(program, lambda steps: _divide(steps, c.target)))
    # kernels in loops are short, or run by one thread anyway
    c.planned = _divide(inner, c.target, leaves_open=True)


def plan_memory(c: Compilation) -> None:
    """Buffers get their offsets in the arena; those that are never alive together share a place."""
    c.planned = map_programs(c.planned, lambda steps: arena.plan_memory(steps, c.target))


def verify(c: Compilation) -> None:
    """No kernel violates the conditions of fusion; with PULLBACK_VERIFY=1, no step reads what no step wrote."""
    if is_variable_set(VERIFY):
        verify_placement(c)
    map_programs(c.planned, _checked)


def render(c: Compilation) -> None:
    """The steps as text of the target."""
    c.code = c.target.render(c.planned, c.options.fast)


def link(c: Compilation) -> None:
    """The text as something that runs."""
    c.runner = c.target.link(c)


STEPS: tuple[Callable[[Compilation], None], ...] = (
    lower, order, split, fit, vary, divide, plan_memory, verify, render, link,
)  # fmt: skip


def compile_program(program: Program, target: Target, options: Options) -> Runner:
    """A program compiled for a target."""
    specs, out_specs = [s.spec for s in program.inputs], [spec_of(o) for o in program.outputs]
    return _run_pipeline(Compilation(target, options, specs, out_specs, program), STEPS)


def plan_program(program: Program, target: Target, options: Options) -> Compilation:
    """A program scheduled and placed in memory, but not rendered."""
    specs, out_specs = [s.spec for s in program.inputs], [spec_of(o) for o in program.outputs]
    c = Compilation(target, options, specs, out_specs, program)
    for step in STEPS[: STEPS.index(render)]:
        step(c)
    return c


def compile_steps(steps: Steps, specs: list[Spec], target: Target, options: Options) -> Runner:
    """Steps that are lowered already, without results of their own: they write to their inputs."""
    # nothing to lower or to fit
    c = Compilation(target, options, specs, [], None)
    c.steps = c.fused = steps
    return _run_pipeline(c, STEPS[STEPS.index(vary) :])


def _run_pipeline(c: Compilation, steps: tuple[Callable[[Compilation], None], ...]) -> Runner:
    for step in steps:
        with span(COMPILE, step.__name__):
            step(c)
    runner: Runner = c.runner
    return runner


def _divide(steps: Steps, target: Target, leaves_open: bool = False) -> Steps:
    return replace(steps, steps=target.group(divide_steps(steps.steps, target, steps.varies, leaves_open)))


def _fit(c: Compilation, steps: Steps, extra: int) -> Steps:
    def place(steps: Steps) -> Steps:
        placed = _place(steps, c.target)
        return replace(placed, workspace=placed.workspace + extra)

    assert c.options.limit is not None
    return fit_memory_budget(c.options.limit, steps, c.target, place)


def _place(steps: Steps, target: Target) -> Steps:
    return map_programs(steps, lambda s: arena.plan_memory(_divide(s, target), target))


def _take_any_order(steps: Steps) -> Steps:
    """What is scattered may be added in any order."""
    for kernel in steps.steps:
        if isinstance(kernel, Kernel):
            for store in kernel.stores:
                store.any_order = bool(store.args)
    return steps


def _checked(steps: Steps) -> Steps:
    check_legality(steps.steps)
    return steps


def verify_placement(c: Compilation) -> None:
    """Verify the steps, and their places in the arena."""
    verify_steps(c.steps)
    verify_arena(c.planned.steps)


def is_variable_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")
