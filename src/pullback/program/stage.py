"""`stage`, function and specs in, program out; `hoist` turns values that it captured into inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import is_
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import user_line
from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..ops import basis
from ..settings import enable_grad, modes, override_modes
from .constants import Constants
from .ir import Equation, Program, Symbol, resolve_symbol


class _LocatedEquations(list[Equation]):
    """Equations with the user's line of each, by the id of its first result."""

    def __init__(self, lines: dict[int, Any]) -> None:
        self.lines = lines

    def append(self, equation: Equation) -> None:
        list.append(self, equation)
        self.lines[id(equation.results[0])] = user_line(sys._getframe(1))


def stage(
    function: Callable[..., Any],
    *specs: Spec,
    shared: bool = False,
    name: str = "staging",
    constants: Constants | None = None,
    lines: dict[int, Any] | None = None,
) -> Program:
    """Trace a function on symbols; what it captured are constants of the program. A function of the package, which
    writes to no array, may have its constants `shared` instead of copied. Another `name` means that the function has
    concrete primals to decide by, and symbols only for tangents. For "jit", ops on captured tensors are traced as well.
    `lines` is filled with the user's line of each equation.
    """
    equations: list[Equation] = [] if lines is None else _LocatedEquations(lines)
    constants = None if shared else constants or Constants()

    def lift(scope: Scope, x: Any) -> Symbol:
        result = Symbol(spec_of(x), scope, equations, constants)
        kept = x if constants is None else constants.keep(x)
        equations.append(Equation((result,), basis.positive.op, (kept,), {}))
        return result

    with Scope(name, lift, _last_argument) as scope:
        inputs = tuple([Symbol(spec, scope, equations, constants) for spec in specs])
        with _modes_inside(name, inputs):
            out = function(*inputs)
        outputs = tuple([resolve_symbol(x) for x in out] if isinstance(out, (list, tuple)) else [resolve_symbol(out)])
    scope.lift = _last_argument  # equations no longer refer to their list: no reference cycle is left
    for symbol in (*inputs, *(s for e in equations for s in e.results)):
        symbol.equations, symbol.constants = [], None
    return Program(inputs, tuple(equations), outputs)


def _modes_inside(name: str, inputs: Sequence[Symbol]) -> AbstractContextManager[None]:
    """A program is the same one whether or not the place it is traced at records: that place runs it."""
    if name == "jit" and inputs:
        return override_modes(tracing=inputs[0])
    return enable_grad() if name == "staging" and not modes().grad else nullcontext()


def _last_argument(*x: Any) -> Any:
    return x[-1]


def is_array_or_value(x: Any) -> bool:
    """Whether a captured thing has its own data: a value of ours, or an array that is not one number."""
    return isinstance(x, Value) or (is_array(x) and bool(x.ndim))


def hoist(
    program: Program,
    is_captured: Callable[[Any], bool] = is_array_or_value,
    origin: Callable[[Any], Any] = _last_argument,
    spec: Callable[[Any], Spec] = spec_of,
) -> tuple[Program, list[Any]]:
    """Turn captured values into the program's last inputs; returns it and those values. `origin` finds what a constant
    is a copy of. A tensor that is not tracked, and was made inside, counts as its array.
    """
    own = {id(s) for s in program.inputs} | {id(s) for e in program.equations for s in e.results}
    symbols: dict[int, Symbol] = {}
    values: list[Any] = []

    def hoist_value(constant: Any) -> Any:
        x = origin(constant)
        if type(x) is Tensor and x is constant and x.node is None and is_array(x.value):
            x = x.value
        if not is_captured(x) or (not program.inputs and not isinstance(x, Value)):
            return x
        if id(x) not in symbols:
            symbols[id(x)] = Symbol(spec(x), program.inputs[0].scope if program.inputs else x.scope, [], None)
            values.append(x)
        return symbols[id(x)]

    def hoist_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([x if id(x) in own else hoist_value(x) for x in values])

    def rewrite(e: Equation) -> Equation:
        args = hoist_values(e.args)
        return e if all(map(is_, args, e.args)) else Equation(e.results, e.op, args, e.static)

    equations, outputs = tuple([rewrite(e) for e in program.equations]), hoist_values(program.outputs)
    if all(map(is_, equations, program.equations)) and all(map(is_, outputs, program.outputs)):
        return program, values
    return replace(program, inputs=(*program.inputs, *symbols.values()), equations=equations, outputs=outputs), values
