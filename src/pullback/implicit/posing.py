"""Equation, start and parameters as trees in, its answer as a tree out: found, checked, and differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConvergenceError, DtypeError
from ..ops import elementwise as pointwise
from ..transforms.border import at_places, scalars_become_arrays
from ..transforms.rules import carries
from .closed import closed
from .equation import Equation, rooted
from .linear_methods import Auto
from .policies import (
    Implicit,
    OneStep,
    PhantomGradient,
    Unrolled,
    adjoint_tolerance,
    checked_method,
    checked_steps,
    checked_tolerance,
    default_tolerance,
)
from .report import Report, Solution
from .vectors import Layout

__all__ = ["Wishes", "posed_and_solved", "tolerance_of"]

Function = Callable[..., Any]
#: Functions of (x, *arguments), the arguments, and whether they met a tensor.
Opened = tuple[dict[str, Function], list[Any], bool]


@dataclass(frozen=True)
class Wishes:
    """What a caller may say about a solve."""

    solver: Any
    derivative: Any
    tol: float | None
    max_steps: int
    callback: Callable[[int, Any], None] | None
    strict: bool


def posed_and_solved(
    equation: Function, x0: Any, params: tuple[Any, ...], wishes: Wishes, what: str, choice: Callable[[int], Any],
    *, objective: Function | None = None, inner: Function | None = None, symmetric: bool = False,
) -> Solution:  # fmt: skip
    """Lay the problem out in vectors, find what it depends on, and run the op that solves it."""
    layout, leaves = Layout.of(x0, what, scalar=True)
    start = layout.joined([_constant(x) for x in leaves])
    if layout.dtype.itemsize < 4:
        raise DtypeError(
            f"{what}: unknowns of {layout.dtype} are too coarse to solve for.\n  Solve in float32, and cast the answer."
        )
    given, structure = flatten(params)
    p = [scalars_become_arrays(x, what) for x in given]

    def on_vectors(function: Function) -> Function:
        return lambda x, *q: function(x, layout, *unflatten(structure, q))

    named = {"equation": equation, "objective": objective, "inner": inner}
    functions = {k: on_vectors(f) for k, f in named.items() if f is not None}
    quick = _as_it_stands(functions, start, p) if layout.scalar and wishes.solver is None else None
    opened, arguments, met_tensors = quick or _opened(functions, start, p)
    _check_policy(wishes.derivative, what)
    policy = wishes.derivative if isinstance(wishes.derivative, Implicit) else Implicit()
    method = choice(layout.size) if wishes.solver is None else wishes.solver
    checked_method(method, f"{what}: solver", "Newton()")
    tolerance = tolerance_of(wishes, layout)
    report = Report(type(method).__name__, tolerance)
    function = opened.pop("equation")
    mapped = function if what == "fixed_point" else None
    posed = Equation(
        function if mapped is None else _less_unknown(function), method, policy.adjoint or Auto(), tolerance,
        policy.tol or adjoint_tolerance(wishes.tol, layout.dtype), checked_steps(wishes.max_steps, what), what,
        report, wishes.strict, wishes.callback, {"symmetric": symmetric}, opened,
        mapped=mapped, chosen=wishes.solver is None, scalar=layout.scalar, size=layout.size,
    )  # fmt: skip
    try:
        found = rooted(posed, start, *arguments)
    except ConvergenceError as error:
        if spec_of(error.best).shape == layout.shape:
            error.best = layout.tree(error.best)
        raise
    if not isinstance(found, Value) and (met_tensors or any(isinstance(x, Tensor) for x in (*leaves, *p))):
        found = wrap(found, spec_of(found))  # tensors in, tensors out
    return Solution(layout.tree(found), report)


def _less_unknown(mapped: Function) -> Function:
    return lambda x, *p: pointwise.subtract(mapped(x, *p), x)


def _constant(x: Any) -> Any:
    """A value of the start, which has no derivative."""
    return x.detach() if isinstance(x, Tensor) else pointwise.stop_gradient(x) if isinstance(x, Value) else x


def _opened(functions: dict[str, Function], start: Any, p: list[Any]) -> Opened:
    """Functions of (x, *parameters) as functions of (x, *arguments), where arguments are all that they depend on."""
    written = {name: closed(at_places(f, (start, *p), (0,)), start) for name, f in functions.items()}
    arguments: list[Any] = [] if all(written.values()) else list(p)
    opened: dict[str, Function] = {}
    for name, function in functions.items():
        program, found = written[name] or (function, p)
        first = len(arguments) if written[name] else 0
        arguments += found if written[name] else []
        opened[name] = _picking(program, first, first + len(found))
    return opened, arguments, any(program[0].on_tensors for program in written.values() if program)


def _as_it_stands(functions: dict[str, Function], start: Any, p: list[Any]) -> Opened | None:
    """The same for one number, whose function is evaluated faster than it is written down: one evaluation shows that it
    closes over nothing that carries derivatives. None where it does, or where values are not plain.
    """
    bare = [x.value if isinstance(x, Tensor) else x for x in p]
    if len(functions) > 1 or type(start) is not np.ndarray or any(isinstance(x, Value) for x in bare):
        return None
    ((name, function),) = functions.items()
    with np.errstate(all="ignore"):
        if isinstance(function(start, *bare), Value):
            return None
    moving = [i for i, x in enumerate(p) if carries(x)]
    return {name: at_places(function, (start, *bare), [0, *(i + 1 for i in moving)])}, [p[i] for i in moving], False


def _picking(function: Function, first: int, last: int) -> Function:
    return lambda x, *q: function(x, *q[first:last])


def _check_policy(policy: Any, what: str) -> None:
    if policy is None or isinstance(policy, Implicit):
        return
    if what != "fixed_point" or not isinstance(policy, (Unrolled, OneStep, PhantomGradient)):
        raise ArgumentError(f"{what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")


def tolerance_of(wishes: Wishes, layout: Layout) -> float:
    """The tolerance of the norm, from that of the root mean square."""
    tol = default_tolerance(layout.dtype) if wishes.tol is None else checked_tolerance(wishes.tol, "tol")
    return tol * math.sqrt(max(layout.size, 1))
