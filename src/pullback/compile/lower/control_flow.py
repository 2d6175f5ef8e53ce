"""Lowers a branch or a loop to one step with nested programs; carries are overwritten in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array, move_array, to_host
from ...arrays.spec import make_spec, spec_of
from ...ops.shape.reshaping import broadcast_op
from ...program.ir import Equation, Program, Symbol
from ...program.passes import optimize
from ..loop_ir import Kernel, Layout, Loop, Product, Steps, contiguous_layout
from .fuse import Fuser
from .loop_views import is_row_major, take_views_inside

Lower = Callable[[Program, dict[int, int]], Steps]


def lower_control_flow(f: Fuser, e: Equation, lower: Lower) -> None:
    """Add the step."""
    e = take_views_inside(f, e)
    {"iterate": _lower_iterate, "repeat": _lower_repeat, "branch": _lower_branch}[e.op.form.kind](f, e, lower)


def _lower_iterate(f: Fuser, e: Equation, lower: Lower) -> None:
    body: Program = e.static["body"]
    carries, constants, length = e.static["carries"], e.static["constants"], e.static["length"]
    changed = _changed_carries(body, carries)
    numbers = _held_numbers(f, body, e.args[: carries + constants], changed)
    fixed = [i for i in range(carries + constants) if i not in changed and i not in numbers]
    rows = list(range(carries + constants, len(body.inputs)))
    used = [i for i in range(carries, len(body.outputs)) if _is_used(f, e.results[i])]
    sources = [_source_of(body, i, changed) if length else i for i in used]
    outputs = (*body.outputs[:carries], *(body.outputs[i] for i in sources))
    body, ys = Program(body.inputs, body.equations, outputs), range(carries, len(outputs))
    steps = _lower_body(body, [*changed, *fixed, *rows], [*changed, *ys], len(changed), lower, numbers)
    carry = [_initialize_carry(f, e.args[i]) for i in changed]
    held = [_contiguous_layout_of(f, e.args[i]) for i in fixed]
    taken = [_Row(_contiguous_layout_of(f, e.args[i]), body.inputs[i].spec.size) for i in rows]
    made, found = [], []
    for i, source in zip(used, sources, strict=True):
        layouts = _new_rows(f, e, i) if i == source else _shifted_rows(f, e, i, e.args[source])
        made.append(_Row(layouts[0], e.results[i].spec.size // max(length, 1)))
        found.append(layouts[1])

    def append(steps: Steps, rounds: int, first: int, together: Sequence[int]) -> None:
        """Rounds from a row on, so many of them in one of the steps'."""
        by = len(together)
        given, new = ([x.start_at(first + k) for k in together for x in some] for some in (taken, made))
        moves = [0] * len((*carry, *held)) + [x.size * by for _ in together for x in taken]
        shifts = tuple(x.size * by for _ in together for x in made)
        loop = Loop(
            "iterate", (steps,), (*carry, *held, *given), tuple(moves), tuple(new), shifts, len(changed),
            rounds=rounds, reverse=e.static["reverse"],
        )  # fmt: skip
        _append_step(f, loop)

    # a loop of no rounds has no step: its carries are its results
    pairs = length // 2 if f.target.limits.doubles_rounds and overwrites_factor(steps) else 0
    left, is_reverse = length - 2 * pairs, e.static["reverse"]
    if pairs:
        double, count = _double_body(body, carries, constants), len(body.outputs) - carries
        order = [*changed, *fixed, *rows, *(i + len(rows) for i in rows)]
        wanted = [*changed, *ys, *(i + count for i in ys)]
        both = _lower_body(double, order, wanted, len(changed), lower, numbers)
        append(both, pairs, left if is_reverse else 0, (1, 0) if is_reverse else (0, 1))
    if left:
        append(steps, left, 0 if is_reverse else 2 * pairs, (0,))
    _bind_results(f, e, [*changed, *used], [*carry, *found])
    _bind_results(f, e, *_unchanged_carries(f, e, changed, carries))


def _source_of(body: Program, number: int, changed: Sequence[int]) -> int:
    """The output that has a row of results. What a round was given is what the round before made of a carry: it is
    stored by that one, so that the carry can be overwritten at once.
    """
    given = (k for k in changed if body.inputs[k] is body.outputs[number])
    return next((k for k in given if isinstance(body.outputs[k], Symbol)), number)


def _new_rows(f: Fuser, e: Equation, number: int) -> tuple[Layout, Layout]:
    layout = f.new_layout(e.results[number].spec)
    return layout, layout


def _shifted_rows(f: Fuser, e: Equation, number: int, start: Any) -> tuple[Layout, Layout]:
    """Where rounds store what they make of a carry, and where it is as the next one is given it: a row further, since
    the first is given the start.
    """
    spec, is_reverse = e.results[number].spec, e.static["reverse"]
    length, *shape = spec.shape
    whole = f.new_layout(make_spec((length + 1, *shape), spec.dtype, spec.device))
    first, later = replace(whole, shape=spec.shape), _Row(whole, spec.size // length).start_at(1)
    if spec.size:
        edge = length * (spec.size // length) if is_reverse else 0
        f.put(start, Layout(whole.buffer, tuple(shape), whole.strides[1:], edge))
    return (first, later) if is_reverse else (later, first)


class _Row(NamedTuple):
    """An array of which a round takes or makes a row of so many elements."""

    layout: Layout
    size: int

    def start_at(self, number: int) -> Layout:
        x = self.layout
        return replace(x, shape=(x.shape[0] - number, *x.shape[1:]), offset=x.offset + number * self.size)


def overwrites_factor(steps: Steps) -> bool:
    """Whether a kernel that could be computed with a product overwrites what the product reads, as the carry of a loop:
    in two rounds, the first would leave it alone.
    """
    for number, product in enumerate(steps.steps):
        if not isinstance(product, Product):
            continue
        for kernel in steps.steps[number + 1 :]:
            if isinstance(kernel, Kernel) and not kernel.inner:
                loads = [line for line in kernel.live_lines() if line.buffer is product.out.buffer]
                if len(loads) == 1 and not {*kernel.writes()}.isdisjoint(product.reads()):
                    return True
    return False


def _double_body(body: Program, carries: int, constants: int) -> Program:
    """Two rounds: the rows of the second are further inputs and outputs, after those of the first."""
    first = carries + constants
    rows = [_copy_symbol(s) for s in body.inputs[first:]]
    names: dict[int, Any] = {id(s): new for s, new in zip(body.inputs[first:], rows, strict=True)}
    names |= {id(s): o for s, o in zip(body.inputs[:carries], body.outputs[:carries], strict=True)}
    again: list[Equation] = []
    for e in body.equations:
        results = tuple(map(_copy_symbol, e.results))
        again.append(Equation(results, e.op, tuple(names.get(id(a), a) for a in e.args), e.static))
        names |= {id(s): new for s, new in zip(e.results, results, strict=True)}
    after = [names.get(id(o), o) for o in body.outputs]
    outputs = (*after[:carries], *body.outputs[carries:], *after[carries:])
    return Program((*body.inputs, *rows), (*body.equations, *again), outputs)


def _copy_symbol(s: Symbol) -> Symbol:
    new = Symbol(s.spec, s.scope, s.equations, s.constants)
    if hasattr(s, "site"):
        new.site = s.site
    return new


def _lower_repeat(f: Fuser, e: Equation, lower: Lower) -> None:
    condition, body, carries = e.static["condition"], e.static["body"], e.static["carries"]
    changed = _changed_carries(body, carries)
    numbers = _held_numbers(f, body, e.args, changed)
    order = [*changed, *(i for i in range(len(body.inputs)) if i not in changed and i not in numbers)]
    test = _lower_body(condition, order, [0], 0, lower, numbers)
    steps = _lower_body(body, order, changed, len(changed), lower, numbers)
    carry = [_initialize_carry(f, e.args[i]) for i in changed]
    given = [_contiguous_layout_of(f, e.args[i]) for i in order[len(changed) :]]
    rounds = f.new_layout(e.results[-1].spec)
    zeros = (0,) * len(order)
    _append_step(f, Loop("repeat", (test, steps), (*carry, *given), zeros, (), (), len(changed), rounds))
    _bind_results(f, e, [*changed, carries], [*carry, rounds])
    _bind_results(f, e, *_unchanged_carries(f, e, changed, carries))


def _lower_branch(f: Fuser, e: Equation, lower: Lower) -> None:
    branches: tuple[Program, ...] = e.static["ways"]
    wanted = [i for i, s in enumerate(e.results) if _is_used(f, s)]
    order = list(range(len(branches[0].inputs)))
    programs = [_lower_body(branch, order, wanted, 0, lower) for branch in branches]
    # the number of the branch is read from memory when the step runs
    which, *given = (_contiguous_layout_of(f, a) for a in e.args)
    made = [f.new_layout(e.results[i].spec) for i in wanted]
    zeros = (0,) * len(given), (0,) * len(made)
    loop = Loop("branch", tuple(programs), tuple(given), zeros[0], tuple(made), zeros[1], 0, which, site=e.site)
    _append_step(f, loop)
    _bind_results(f, e, wanted, made)


def _changed_carries(body: Program, carries: int) -> list[int]:
    """Carries that a round changes; the others are loop-invariant."""
    return [i for i in range(carries) if body.outputs[i] is not body.inputs[i]]


def _unchanged_carries(f: Fuser, e: Equation, changed: Sequence[int], carries: int) -> tuple[list[int], list[Layout]]:
    fixed = [i for i in range(carries) if i not in changed]
    return fixed, [_contiguous_layout_of(f, e.args[i]) for i in fixed]


def _is_used(f: Fuser, s: Symbol) -> bool:
    return id(s) in f.uses


def _held_numbers(f: Fuser, body: Program, args: Sequence[Any], changed: Sequence[int]) -> dict[int, Any]:
    """The arguments that no round changes and that repeat one number, which the body then knows."""
    # a weak input takes the dtype of what it meets, which an array does not
    strong = [i for i in range(len(args)) if i not in changed and body.inputs[i].spec.weak is None]
    bases = {i: f.base_value(args[i]) for i in strong}
    return {i: x for i, x in bases.items() if is_array(x) and not x.ndim}


def _lower_body(
    code: Program,
    order: Sequence[int],
    wanted: Sequence[int],
    carried: int,
    lower: Lower,
    numbers: Mapping[int, Any] = MappingProxyType({}),
) -> Steps:
    """The steps of a program with its inputs in an order and some of its outputs; the first `carried` outputs
    overwrite the first inputs. `numbers` are inputs that are no longer any.
    """
    outputs = [code.outputs[i] for i in wanted]
    # a routine may return a number, which has no place in memory: it becomes a constant
    outputs = [o if isinstance(o, Symbol) else _as_constant(o) for o in outputs]
    known = [_repeat_number(code.inputs[i], x) for i, x in numbers.items()]
    program = optimize(Program(tuple(code.inputs[i] for i in order), (*known, *code.equations), tuple(outputs)))
    return lower(program, {i: i for i in range(carried)})


def _repeat_number(s: Symbol, x: Any) -> Equation:
    """A symbol that is one number, on the device of the symbol."""
    return Equation((s,), broadcast_op, (move_array(x, s.spec.device),), {"shape": s.spec.shape})


def _initialize_carry(f: Fuser, x: Any) -> Layout:
    """The memory of a carry, which starts as a copy of a value."""
    layout = f.new_layout(spec_of(x))
    if layout.size:
        f.put(x, layout)
    return layout


def _as_constant(x: Any) -> Any:
    """A number or an array, of a GPU too, as an array of the host: constants are part of the code."""
    return np.asarray(to_host(x), spec_of(x).dtype)


def _contiguous_layout_of(f: Fuser, x: Any) -> Layout:
    """A value's layout, copied to row-major order if it is not."""
    if not isinstance(x, Symbol):
        # numbers are arrays in memory here, since nested programs take pointers
        x = _as_constant(x)
        f.held.append(x)
    layout = f.layout_of(x)
    if not layout.size:
        return contiguous_layout(layout.buffer, layout.shape)
    return layout if is_row_major(layout) else f.copy_layout(layout)


def _append_step(f: Fuser, loop: Loop) -> None:
    f.steps.append(loop)
    for buffer in loop.writes():
        f.note(len(f.steps) - 1, buffer)


def _bind_results(f: Fuser, e: Equation, places: Sequence[int], layouts: Sequence[Layout]) -> None:
    for i, layout in zip(places, layouts, strict=True):
        f.places[id(e.results[i])] = layout
