"""Solves an equation on trees: start and parameters in, a checked and differentiable solution out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError, ConvergenceError, DtypeError
from ...ops.elementwise import pointwise
from ...transforms.boundary import as_array_leaf, restrict_arguments
from ...transforms.custom.rules import is_tracked
from ...transforms.stage import stage_with_captures
from ..derivative_policies import (
    Implicit,
    OneStep,
    PhantomGradient,
    Unrolled,
    adjoint_tolerance,
    check_max_steps,
    check_tolerance,
    checked_method,
    default_tolerance,
)
from ..linear.methods import Auto
from ..solve_report import Report, Solution
from ..vector_layout import VectorLayout
from .implicit_equation import ImplicitEquation, find_root

Function = Callable[..., Any]
#: Functions of (x, *arguments), the arguments, and whether they met a tensor.
HoistedFunctions = tuple[dict[str, Function], list[Any], bool]


@dataclass(frozen=True)
class SolveOptions:
    """The options of a solve that a caller may set."""

    solver: Any
    derivative: Any
    tol: float | None
    max_steps: int
    callback: Callable[[int, Any], None] | None
    strict: bool


def solve_problem(
    equation: Function, x0: Any, params: tuple[Any, ...], options: SolveOptions, what: str,
    choice: Callable[[int], Any],
    *, objective: Function | None = None, inner: Function | None = None, symmetric: bool = False,
) -> Solution:  # fmt: skip
    """Lay the problem out in vectors, find what it depends on, and run the op that solves it."""
    layout, leaves = VectorLayout.from_tree(x0, what, scalar=True)
    start = layout.join_leaves([_detach(x) for x in leaves])
    if layout.dtype.itemsize < 4:
        raise DtypeError(
            f"{what}: unknowns of {layout.dtype} are too coarse to solve for.\n  Solve in float32, and cast the result."
        )
    given, structure = flatten(params)
    p = [as_array_leaf(x, what) for x in given]

    def on_vectors(function: Function) -> Function:
        return lambda x, *q: function(x, layout, *unflatten(structure, q))

    named = {"equation": equation, "objective": objective, "inner": inner}
    functions = {k: on_vectors(f) for k, f in named.items() if f is not None}
    unstaged = _hoist_unstaged(functions, start, p) if layout.scalar and options.solver is None else None
    opened, arguments, met_tensors = unstaged or _hoist_captures(functions, start, p)
    _check_policy(options.derivative, what)
    policy = options.derivative if isinstance(options.derivative, Implicit) else Implicit()
    method = choice(layout.size) if options.solver is None else options.solver
    checked_method(method, f"{what}: solver", "Newton()")
    tolerance = tolerance_of(options, layout)
    report = Report(type(method).__name__, tolerance)
    function = opened.pop("equation")
    mapped = function if what == "fixed_point" else None
    posed = ImplicitEquation(
        function if mapped is None else _subtract_unknown(function), method, policy.adjoint or Auto(), tolerance,
        policy.tol or adjoint_tolerance(options.tol, layout.dtype), check_max_steps(options.max_steps, what), what,
        report, options.strict, options.callback, {"symmetric": symmetric}, opened,
        fixed_point_map=mapped, is_default_method=options.solver is None, scalar=layout.scalar, size=layout.size,
    )  # fmt: skip
    try:
        found = find_root(posed, start, *arguments)
    except ConvergenceError as error:
        if spec_of(error.best).shape == layout.shape:
            error.best = layout.to_tree(error.best)
        raise
    if not isinstance(found, Value) and (met_tensors or any(isinstance(x, Tensor) for x in (*leaves, *p))):
        found = wrap(found, spec_of(found))  # tensors in, tensors out
    return Solution(layout.to_tree(found), report)


def _subtract_unknown(mapped: Function) -> Function:
    return lambda x, *p: pointwise.subtract(mapped(x, *p), x)


def _detach(x: Any) -> Any:
    """A value of the start, which is not differentiated."""
    return x.detach() if isinstance(x, Tensor) else pointwise.stop_gradient(x) if isinstance(x, Value) else x


def _hoist_captures(functions: dict[str, Function], start: Any, p: list[Any]) -> HoistedFunctions:
    """Functions of (x, *parameters) as functions of (x, *arguments), where arguments are all that they depend on."""
    staged = {
        name: stage_with_captures(restrict_arguments(f, (start, *p), (0,)), start) for name, f in functions.items()
    }
    arguments: list[Any] = [] if all(staged.values()) else list(p)
    opened: dict[str, Function] = {}
    for name, function in functions.items():
        program, found, _ = staged[name] or (function, p, False)
        first = len(arguments) if staged[name] else 0
        arguments += found if staged[name] else []
        opened[name] = _select_arguments(program, first, first + len(found))
    return opened, arguments, any(met for _, _, met in filter(None, staged.values()))


def _hoist_unstaged(functions: dict[str, Function], start: Any, p: list[Any]) -> HoistedFunctions | None:
    """The same for a scalar, whose function is evaluated faster than it is traced: one evaluation shows that it closes
    over no tracked value. None where it does, or where values are not plain arrays.
    """
    bare = [x.value if isinstance(x, Tensor) else x for x in p]
    if len(functions) > 1 or type(start) is not np.ndarray or any(isinstance(x, Value) for x in bare):
        return None
    ((name, function),) = functions.items()
    with np.errstate(all="ignore"):
        if isinstance(function(start, *bare), Value):
            return None
    tracked = [i for i, x in enumerate(p) if is_tracked(x)]
    return (
        {name: restrict_arguments(function, (start, *bare), [0, *(i + 1 for i in tracked)])},
        [p[i] for i in tracked],
        False,
    )


def _select_arguments(function: Function, first: int, last: int) -> Function:
    return lambda x, *q: function(x, *q[first:last])


def _check_policy(policy: Any, what: str) -> None:
    if policy is None or isinstance(policy, Implicit):
        return
    if what != "fixed_point" or not isinstance(policy, (Unrolled, OneStep, PhantomGradient)):
        raise ArgumentError(f"{what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")


def tolerance_of(options: SolveOptions, layout: VectorLayout) -> float:
    """The tolerance of the norm, from that of the root mean square."""
    tol = default_tolerance(layout.dtype) if options.tol is None else check_tolerance(options.tol, "tol")
    return tol * math.sqrt(max(layout.size, 1))
