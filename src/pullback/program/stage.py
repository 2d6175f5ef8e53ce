"""`stage`, function and specs in, program out: the same ops, traced instead of computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..arrays.call_site import user_line
from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..ops import basis
from ..ops.user_calls import call_function
from ..settings import enable_grad, modes, override_modes
from .constants import Constants
from .decisions import Decisions
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
    decisions: Decisions | None = None,
) -> Program:
    """Trace a function on symbols; what it captured are constants of the program. A function of the package, which
    writes to no array, may have its constants `shared` instead of copied. Another `name` means that the function has
    concrete primals to decide by, and symbols only for tangents. For "jit", ops on captured tensors are traced as well.
    `lines` is filled with the user's line of each equation. `decisions` say which way Python branches on symbols go;
    without them such a branch is an error.
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
        scope.decisions = decisions
        if decisions is not None and constants is not None:
            decisions.begin(inputs, equations, constants)
        with _modes_inside(name, inputs, Symbol(_NO_SPEC, scope, equations, constants)):
            out = call_function(function, inputs, {})
        outputs = tuple([_as_output(x) for x in (out if isinstance(out, (list, tuple)) else [out])])
    scope.lift = _last_argument  # equations no longer refer to their list: no reference cycle is left
    for symbol in (*inputs, *(s for e in equations for s in e.results)):
        symbol.equations, symbol.constants = [], None
    return Program(inputs, tuple(equations), outputs)


def _as_output(x: Any) -> Any:
    """What a program returns for a result of the function: a symbol, also for a tensor that the function wrote into, as
    into what `np.zeros(n)` made. What it captured, or what is tracked, stays.
    """
    while type(x) is Tensor and x.node is None and isinstance(x.value, (Tensor, Symbol)):
        x = x.value
    return resolve_symbol(x)


#: The spec of a symbol that only stands for its program.
_NO_SPEC = Spec((), np.dtype(bool))


def _modes_inside(name: str, inputs: Sequence[Symbol], handle: Symbol) -> AbstractContextManager[None]:
    """A program is the same one whether or not the place it is traced at records: that place runs it. Inside of `jit`,
    bodies of loops and branches record ops that run exactly once, also those on constants.
    """
    if name == "jit":
        return override_modes(tracing=inputs[0] if inputs else handle, staging=handle)
    if name != "staging":
        return nullcontext()
    if modes().tracing is not None:
        return override_modes(grad=True, inference=False, staging=handle)
    return nullcontext() if modes().grad else enable_grad()


def _last_argument(*x: Any) -> Any:
    return x[-1]
