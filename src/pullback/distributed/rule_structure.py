"""What a rule does with its parameters, found by tracing it: element by element, leaf by leaf, or all together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.trees import flatten, unflatten
from ..errors import PullbackError
from ..ops.dispatch import as_value
from ..ops.forms import Cast
from ..ops.shape.reshaping import broadcast_op
from ..optim.rule import Rule
from ..program.ir import Equation, Program, Symbol
from ..program.stage import stage


def is_elementwise(rule: Rule, specs: Iterable[Spec]) -> bool:
    """Whether the rule steps each element of parameters like these by itself, and would step it the same way in a row
    of elements: then parts of parameters may be stepped apart. Some rules look at the size, or at the number of axes.
    """
    return all(_steps_elements(rule, spec) for spec in dict.fromkeys(specs))


def _steps_elements(rule: Rule, spec: Spec) -> bool:
    row = make_spec((spec.size,), spec.dtype)
    try:
        programs = [_stage_step(rule, [s]) for s in (spec, row)]
    except PullbackError:
        return False
    pairs = zip(programs, (spec, row), strict=True)
    acts = all(_acts_on_elements(e, s.shape) for program, s in pairs for e in program.equations)
    return acts and _skeleton(programs[0]) == _skeleton(programs[1])


def _skeleton(program: Program) -> list[Any]:
    """The ops of a program and what each is applied to, whatever the shapes."""
    numbers = {id(s): i for i, s in enumerate(program.inputs)}
    lines: list[Any] = []
    for e in program.equations:
        args = [numbers[id(a)] if isinstance(a, Symbol) else _range_of(a) for a in e.args]
        lines.append((e.op.name, None if e.op is broadcast_op else repr(e.static), args))
        numbers |= {id(s): len(numbers) + i for i, s in enumerate(e.results)}
    return [*lines, [numbers.get(id(s)) for s in program.outputs]]


def _range_of(constant: Any) -> Any:
    found = np.asarray(constant)
    return (float(found.min()), float(found.max())) if found.size else ()


def steps_leaves_alone(rule: Rule, specs: Sequence[Spec]) -> bool:
    """Whether the step of a parameter depends on no other parameter; tried on the first and the last."""
    ends = [specs[0], specs[-1]]
    try:
        program = _stage_step(rule, ends)
    except PullbackError:
        return False
    first, second = program.inputs[:2]
    return not _depends(program, program.outputs[0], second) and not _depends(program, program.outputs[1], first)


def _stage_step(rule: Rule, specs: Sequence[Spec]) -> Program:
    """A step of some parameters as a program: gradients in front of parameters and state, updates in front of what
    follows.
    """
    params = [np.ones(s.shape, s.dtype) for s in specs]
    state, structure = flatten(rule.start(params))
    count = len(specs)

    def step(*values: Any) -> list[Any]:
        grads, own, rest = values[:count], values[count : 2 * count], values[2 * count :]
        updates, after = rule.advance(list(grads), unflatten(structure, list(rest)), list(own), {})
        return [as_value(x) for x in (*flatten(updates)[0], *flatten(after)[0])]

    return stage(step, *specs, *specs, *(spec_of(as_value(x)) for x in state))


def _acts_on_elements(e: Equation, shape: tuple[int, ...]) -> bool:
    if any(spec_of(x).shape == shape for x in e.args):
        return e.op.family == "elementwise" or isinstance(e.op.form, Cast) or (not shape and e.op is broadcast_op)
    makes_one = any(s.spec.shape == shape for s in e.results)
    return not makes_one or e.op is broadcast_op or e.op.family == "elementwise"


def _depends(program: Program, output: Any, source: Symbol) -> bool:
    reached = {id(source)}
    for e in program.equations:
        if any(id(a) in reached for a in e.args):
            reached |= {id(s) for s in e.results}
    return id(output) in reached
