"""Jacobians as products: where a function passes through few numbers, one side is differentiated to them and the other
by them, each in the mode that suits it, and the chain rule multiplies.

With w numbers between n inputs and m outputs, w cotangents pulled to the inputs and w tangents pushed to the outputs do
what n tangents or m cotangents would have to go all the way for. Each side is planned like a function of its own, so
that it may be cut again: vertices of the graph of the function are eliminated a narrow set at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...arrays.backends import namespace_on
from ...arrays.spec import Spec, spec_of
from ...arrays.value import unwrap_array
from ...errors import ArgumentError, GraphError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise.pointwise import isfinite, logical_and
from ...ops.forms import Flow
from ...ops.reduce.reductions import all as all_of
from ...ops.replay.rehearsal import watched_dry_run
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, reshape
from ...program.ir import Program, nested_programs
from ...program.passes import drop_unused
from ...program.run import run
from ...program.stage import stage
from ..boundary import unwrap_to_level
from ..control.branches_and_loops import cond
from ..control.staging import is_staged
from ..flat_call import FlatCall
from .cost_model import RATE_NANOSECONDS, FunctionOutline, Surroundings, sketch_function
from .cuts import Halves, MovingProgram, find_cuts, split_at
from .directions import find_blocks
from .planner import Alternative, estimate_jacobians

#: How often a product may be of products.
_DEPTH = 3
#: Nanoseconds to stage an equation and find its place, at each call.
_STAGING = 30e3
#: With fewer directions than this in the better mode nothing is to be gained.
_LEAST_DIRECTIONS = 8

Blocks = list[list[Any]]


def stage_call(flat: FlatCall) -> MovingProgram | None:
    """The call as a program of its arrays; None for one that cannot be traced, or does more than compute."""

    def trace(*symbols: Any) -> list[Any]:
        return [unwrap_to_level(x, symbols[0].scope) for x in flat(*symbols)]

    try:
        with watched_dry_run(flat.holders, flat.xs) as effects:
            program = drop_unused(stage(trace, *map(spec_of, flat.xs)))
    except Exception:  # whatever is wrong is raised when the function runs on arrays
        return None
    return None if effects.seen or not _only_computes(program) else MovingProgram(program, len(flat.xs))


def _only_computes(program: Program) -> bool:
    """Whether a program may run more than once, and has the same derivatives in both modes."""
    programs = (program, *nested_programs(program.equations))
    return all(
        type(e.op.form) is Flow  # a loop or branch does what its programs do
        or (not e.op.stops_tapes and e.effects.repeat and e.effects.drop)
        for each in programs
        for e in each.equations
    )


def plan_product(
    flat: FlatCall, single: Sequence[Alternative], budget: int | None, around: Surroundings
) -> Alternative | None:
    """The best product for a call; `single` are the modes of the whole. None if there is nothing narrow on the way."""
    if flat.has_aux or min(way.directions for way in single) < _LEAST_DIRECTIONS:
        return None
    # where elements of a traced batch would choose between product and single mode, both would run
    if around.traced and around.copies > 1:
        return None
    whole = stage_call(flat)
    if whole is None:
        return None
    best = min(single, key=lambda way: way.nanoseconds)
    found = _find_product(whole, best, budget, around, _DEPTH)
    staging = 0.0 if around.traced else _STAGING * len(whole.program.equations)
    return None if found is None else replace(found, nanoseconds=found.nanoseconds + staging, of=_outline_of(whole))


def no_product_error(flat: FlatCall) -> ArgumentError:
    return ArgumentError(
        f"{flat.what}: this function has no Jacobian as a product: it passes through no fewer numbers than it takes or "
        "returns, cannot be traced, sets something, has aux, is holomorphic, or runs in a batch of compiled code.\n"
        '  Use mode="auto", which takes a product where it pays.'
    )


def _outline_of(whole: MovingProgram) -> tuple[Any, ...]:
    """What must be the same for a cut to be one: the ops, what they take and what they give."""
    places = {id(s): i for i, s in enumerate(whole.values)}
    lines = [
        (e.op.name, *[places.get(id(x)) for x in e.args], *[(s.spec.shape, s.spec.dtype) for s in e.results])
        for e in whole.program.equations
    ]
    return (*lines, *[places.get(id(x)) for x in whole.program.outputs])


def _plan_side(side: MovingProgram, budget: int | None, around: Surroundings, depth: int) -> Alternative:
    """The cheapest way to the Jacobian of a program."""
    outline = _sketch(side).repeated(around.copies)
    ways = estimate_jacobians(outline, side.program.input_specs[: side.moving], budget, around)
    best = min(ways, key=lambda way: way.nanoseconds)
    product = _find_product(side, best, budget, around, depth) if depth else None
    return product if product is not None and product.is_worth_more_than(best) else best


def _find_product(
    whole: MovingProgram, instead: Alternative, budget: int | None, around: Surroundings, depth: int
) -> Alternative | None:
    inputs = sum(s.size for s in whole.program.input_specs[: whole.moving])
    outputs = sum(spec_of(o).size for o in whole.program.outputs)
    found = []
    for cut in find_cuts(whole, min(inputs, outputs)):
        try:
            halves = split_at(whole, cut)
        except GraphError:  # one of several results of an op is in the cut, and another one is wanted
            continue
        parts = tuple(_plan_side(side, budget, around, depth - 1) for side in (halves.first, halves.second))
        found.append(_join_plans(cut, halves, parts, instead, inputs, outputs, around))
    return min(found, key=lambda way: way.nanoseconds, default=None)


def _join_plans(
    cut: tuple[int, ...],
    halves: Halves,
    parts: tuple[Alternative, ...],
    instead: Alternative,
    inputs: int,
    outputs: int,
    around: Surroundings,
) -> Alternative:
    """The plan of a product from those of its factors: besides these, the values of the cut and the multiplication."""
    width = sum(s.size for s in halves.second.program.input_specs[: halves.second.moving])
    values = sum(step.work() for step in _sketch(halves.first).steps)
    multiplying = RATE_NANOSECONDS["contraction"] * 2 * inputs * width * outputs
    cost = sum(part.nanoseconds for part in parts) + (values + multiplying) * around.copies
    nbytes = max(part.nbytes for part in parts) + 8 * width * (inputs + outputs) * around.copies
    return Alternative("product", width, max(width, 1), None, cost, nbytes, cut, parts, instead)


def _sketch(side: MovingProgram) -> FunctionOutline:
    return sketch_function(lambda *xs: (run(side.program, xs), None), side.program.inputs)


def multiply_out(flat: FlatCall, plan: Alternative) -> Blocks:
    """The blocks of the Jacobian of a call, by result and input. A plan is advice: where the function is another one by
    now, they are found in a single mode.
    """
    whole = stage_call(flat)
    if whole is None or _outline_of(whole) != plan.of:
        return _find_in_one_mode(flat, flat.xs, plan)
    return _multiply_program(whole, flat.xs, plan, flat)


def _find_in_one_mode(function: Callable[..., list[Any]], xs: Sequence[Any], plan: Alternative) -> Blocks:
    single = plan.instead or plan
    return find_blocks(FlatCall("jacobian", function, tuple(xs)), single.mode, single.chunk)[0]


def _multiply_program(
    side: MovingProgram, values: Sequence[Any], plan: Alternative, function: Callable[..., list[Any]]
) -> Blocks:
    """The Jacobian of a program by a product, or in a single mode that of a function which does the same."""
    halves = split_at(side, plan.cut)
    middle = [*run(halves.first.program, values), *run(halves.held, values)]
    specs = halves.second.program.input_specs[: halves.second.moving]
    left = _find_side(halves.first, values, plan.parts[0])
    right = _find_side(halves.second, middle, plan.parts[1])
    below, beside = _as_matrices(left, right, side, specs)
    factors, xs = (*below, *beside), values[: side.moving]

    def multiply(*xs: Any) -> Blocks:
        outs = side.program.output_specs
        return [
            [_as_block(matmul(a, b), out, x) for b, x in zip(below, xs, strict=True)]
            for a, out in zip(beside, outs, strict=True)
        ]

    def find_directly(*xs: Any) -> Blocks:
        return _find_in_one_mode(function, xs, plan)

    # A factor that is not finite would spread over rows and columns that it does not belong to: zero times infinity.
    if is_staged(*factors):
        finite = functools.reduce(logical_and, [all_of(isfinite(x)) for x in factors])
        return cond(finite, multiply, find_directly, *xs)  # type: ignore[no-any-return]
    return (multiply if all(map(_is_finite, factors)) else find_directly)(*xs)


def _find_side(side: MovingProgram, values: Sequence[Any], plan: Alternative) -> Blocks:
    held = values[side.moving :]

    def function(*moved: Any) -> list[Any]:
        return run(side.program, [*moved, *held])

    if plan.parts:
        return _multiply_program(side, values, plan, function)
    return _find_in_one_mode(function, values[: side.moving], plan)


def _as_matrices(
    left: Blocks, right: Blocks, side: MovingProgram, middle: Sequence[Spec]
) -> tuple[list[Any], list[Any]]:
    """For each input the Jacobian of the cut by it, for each output its Jacobian by the cut."""
    inputs, outs = side.program.input_specs[: side.moving], side.program.output_specs
    below = [
        concat([reshape(row[i], (m.size, x.size)) for row, m in zip(left, middle, strict=True)])
        for i, x in enumerate(inputs)
    ]
    beside = [
        concat([reshape(x, (out.size, m.size)) for x, m in zip(row, middle, strict=True)], axis=1)
        for row, out in zip(right, outs, strict=True)
    ]
    return below, beside


def _is_finite(x: Any) -> bool:
    """Of all elements of all batches around."""
    return bool(namespace_on(spec_of(x).device).isfinite(unwrap_array(x)).all())


def _as_block(product: Any, out: Spec, x: Any) -> Any:
    block = reshape(product, (*out.shape, *spec_of(x).shape))
    return block if spec_of(block).dtype == out.dtype else astype(block, out.dtype)
