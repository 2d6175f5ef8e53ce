"""A branch or a loop in, one step with programs inside out; what the programs carry along is overwritten in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..graph.ir import Graph
from ..graph.passes import optimised
from ..ops.routine import Routine
from ..ops.specialise import Equation, Symbol
from .fuse import Fuser, Steps
from .loops import Layout, Loop, contiguous, row_major

__all__ = ["flow"]

Lower = Callable[..., Steps]


def flow(f: Fuser, e: Equation, lower: Lower) -> None:
    """Add the step."""
    {"iterate": _iterate, "repeat": _repeat, "branch": _branch}[e.op.form.kind](f, e, lower)


def _iterate(f: Fuser, e: Equation, lower: Lower) -> None:
    body: Routine = e.static["body"]
    carries, constants, length = e.static["carries"], e.static["constants"], e.static["length"]
    moving = _moving(body, carries)
    fixed = [i for i in range(carries + constants) if i not in moving]
    rows = list(range(carries + constants, len(body.inputs)))
    ys = [i for i in range(carries, len(body.outputs)) if _is_used(f, e.results[i])]
    order = [*moving, *fixed, *rows]
    steps = _inside(body, order, [*moving, *ys], len(moving), lower)
    carry = [_started(f, e.args[i]) for i in moving]
    given = [_whole(f, e.args[i]) for i in (*fixed, *rows)]
    made = [f.new(e.results[i].spec) for i in ys]
    if length:
        moves = [0] * (len(moving) + len(fixed)) + [body.inputs[i].spec.size for i in rows]
        shifts = [e.results[i].spec.size // length for i in ys]
        loop = Loop(
            "iterate", (steps,), (*carry, *given), tuple(moves), tuple(made), tuple(shifts), len(moving),
            rounds=length, reverse=e.static["reverse"],
        )  # fmt: skip
        _add(f, loop)
    _found(f, e, [*moving, *ys], [*carry, *made])
    _found(f, e, *_handed_on(f, e, moving, carries))


def _repeat(f: Fuser, e: Equation, lower: Lower) -> None:
    condition, body, carries = e.static["condition"], e.static["body"], e.static["carries"]
    moving = _moving(body, carries)
    order = [*moving, *(i for i in range(len(body.inputs)) if i not in moving)]
    test = _inside(condition, order, [0], 0, lower)
    steps = _inside(body, order, moving, len(moving), lower)
    carry = [_started(f, e.args[i]) for i in moving]
    given = [_whole(f, e.args[i]) for i in order[len(moving) :]]
    rounds = f.new(e.results[-1].spec)
    zeros = (0,) * len(order)
    _add(f, Loop("repeat", (test, steps), (*carry, *given), zeros, (), (), len(moving), rounds))
    _found(f, e, [*moving, carries], [*carry, rounds])
    _found(f, e, *_handed_on(f, e, moving, carries))


def _branch(f: Fuser, e: Equation, lower: Lower) -> None:
    ways: tuple[Routine, ...] = e.static["ways"]
    wanted = [i for i, s in enumerate(e.results) if _is_used(f, s)]
    order = list(range(len(ways[0].inputs)))
    programs = [_inside(way, order, wanted, 0, lower) for way in ways]
    which, *given = (_whole(f, a) for a in e.args)
    made = [f.new(e.results[i].spec) for i in wanted]
    zeros = (0,) * len(given), (0,) * len(made)
    _add(f, Loop("branch", tuple(programs), tuple(given), zeros[0], tuple(made), zeros[1], 0, which))
    _found(f, e, wanted, made)


def _moving(body: Routine, carries: int) -> list[int]:
    """Carries that a round changes; the others are constants."""
    return [i for i in range(carries) if body.outputs[i] is not body.inputs[i]]


def _handed_on(f: Fuser, e: Equation, moving: Sequence[int], carries: int) -> tuple[list[int], list[Layout]]:
    fixed = [i for i in range(carries) if i not in moving]
    return fixed, [_whole(f, e.args[i]) for i in fixed]


def _is_used(f: Fuser, s: Symbol) -> bool:
    return id(s) in f.used


def _inside(code: Routine, order: Sequence[int], wanted: Sequence[int], carried: int, lower: Lower) -> Steps:
    """The steps of a routine with its inputs in an order, some of its outputs, the first of them over the first
    inputs.
    """
    outputs = [code.outputs[i] for i in wanted]
    outputs = [o if isinstance(o, Symbol) else np.asarray(o, spec_of(o).dtype) for o in outputs]
    graph = optimised(Graph(tuple(code.inputs[i] for i in order), code.equations, tuple(outputs)))
    return lower(graph.inputs, graph.equations, graph.outputs, {i: i for i in range(carried)})


def _started(f: Fuser, x: Any) -> Layout:
    """A carry in memory of its own, which starts as a value."""
    layout = f.new(spec_of(x))
    if layout.size:
        f.put(x, layout)
    return layout


def _whole(f: Fuser, x: Any) -> Layout:
    """Where a value lies, row by row."""
    if not isinstance(x, Symbol):
        x = np.asarray(x, spec_of(x).dtype)
        f.held.append(x)
    layout = f.stored(x)
    if not layout.size:
        return contiguous(layout.buffer, layout.shape)
    in_order = zip(layout.shape, layout.strides, row_major(layout.shape), strict=True)
    return layout if all(n == 1 or s == t for n, s, t in in_order) else f.copied(layout)


def _add(f: Fuser, loop: Loop) -> None:
    f.steps.append(loop)
    for buffer in loop.writes():
        f.note(len(f.steps) - 1, buffer)


def _found(f: Fuser, e: Equation, places: Sequence[int], layouts: Sequence[Layout]) -> None:
    for i, layout in zip(places, layouts, strict=True):
        f.places[id(e.results[i])] = layout
