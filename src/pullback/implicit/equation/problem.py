"""A problem on trees as the user posed it: start and parameters in, a checked and differentiable solution out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ConvergenceError, DtypeError
from ...ops.elementwise import pointwise
from ...ops.user_calls import call_function
from ...transforms.boundary import as_array_leaf, restrict_arguments
from ...transforms.custom.rules import is_tracked
from ...transforms.stage import stage_with_captures
from ...transforms.vectorize import solve_apart
from ..linear.methods import Auto
from ..option_checks import adjoint_tolerance, check_method, check_positive_count, check_tolerance, default_tolerance
from ..solve_report import Report, Solution
from ..vector_layout import VectorLayout
from .implicit_equation import ImplicitEquation
from .root_op import find_root

Function = Callable[..., Any]
#: Functions of (x, *arguments), the arguments, and whether they met a tensor.
HoistedFunctions = tuple[dict[str, Function], list[Any], bool]

#: Functions that an equation has in fields of their own.
_ROLES = ("equation", "differentiated", "explain", "solve_directly")


@dataclass(frozen=True)
class SolveOptions:
    """The options of a solve that a caller may set, and whether it is to raise."""

    solver: Any = None
    derivative: Any = None
    tol: float | None = None
    max_steps: int = 1000
    callback: Callable[[int, Any], None] | None = None
    strict: bool = True


@dataclass(frozen=True)
class Problem:
    """`functions` of (x, layout, *params) by name: the "equation" F = 0, or the map where the problem `is_map` and F is
    map(x) - x; the "objective" of a minimum, whose gradient F is; the "inner" vector of a sum of squares.

    A minimum with constraints has a `program`, the shape of its unknowns, and only the "conditions" that it describes,
    and their "slopes" where it knows them; `derive` makes of them the equation, "differentiated", what has the
    derivatives that count, "explain" and "solve_directly".
    """

    what: str
    functions: dict[str, Function]
    x0: Any
    params: tuple[Any, ...]
    options: SolveOptions
    choose_method: Callable[[int], Any]
    symmetric: bool
    is_map: bool
    program: Any = None
    derive: Callable[[dict[str, Function]], dict[str, Function]] = dict
    adjoint: Any = field(default_factory=Auto)

    def tolerance(self, layout: VectorLayout) -> float:
        """The tolerance of the norm, from that of the root mean square."""
        tol = self.options.tol
        tol = default_tolerance(layout.dtype) if tol is None else check_tolerance(tol, "tol")
        return tol * math.sqrt(max(layout.size, 1))

    def solve(self, adjoint: Any, adjoint_tol: float | None) -> Solution:
        """Lay the problem out in vectors, find what it depends on, and run the op that solves it."""
        layout, leaves = VectorLayout.from_tree(self.x0, self.what, scalar=True)
        start = layout.join_leaves([detach(x) for x in leaves])
        if layout.dtype.itemsize < 4:
            raise DtypeError(
                f"{self.what}: unknowns of {layout.dtype} are too coarse to solve for.\n"
                "  Solve in float32, and cast the result."
            )
        given, structure = flatten(self.params)
        p = [as_array_leaf(x, self.what) for x in given]
        functions = {name: _on_vectors(f, layout, structure, self.what) for name, f in self.functions.items()}
        unstaged = _hoist_unstaged(functions, start, p) if layout.scalar and self.options.solver is None else None
        opened, arguments, met_tensors = unstaged or _hoist_captures(functions, start, p)
        posed = self._make_equation(self.derive(opened), layout, adjoint or self.adjoint, adjoint_tol)
        try:
            found = find_root(posed, start, *arguments)
        except ConvergenceError as error:
            if spec_of(error.best).shape == layout.shape:
                error.best = layout.to_tree(error.best)
            raise
        if not isinstance(found, Value) and (met_tensors or any(isinstance(x, Tensor) for x in (*leaves, *p))):
            found = wrap(found, spec_of(found))  # tensors in, tensors out
        return Solution(layout.to_tree(found), posed.report)

    def _make_equation(
        self, functions: dict[str, Function], layout: VectorLayout, adjoint: Any, adjoint_tol: float | None
    ) -> ImplicitEquation:
        options = self.options
        method = self.choose_method(layout.size) if options.solver is None else options.solver
        check_method(method, f"{self.what}: solver", "Newton()")
        tolerance = self.tolerance(layout)
        function = functions["equation"]
        return ImplicitEquation(
            _subtract_unknown(function) if self.is_map else function, method, adjoint, tolerance,
            adjoint_tol or adjoint_tolerance(options.tol, layout.dtype),
            check_positive_count(options.max_steps, f"{self.what}: max_steps"), self.what,
            Report(type(method).__name__, tolerance), options.strict, options.callback, {"symmetric": self.symmetric},
            {name: f for name, f in functions.items() if name not in _ROLES},
            fixed_point_map=function if self.is_map else None, is_default_method=options.solver is None,
            scalar=layout.scalar, size=layout.size, program=self.program,
            differentiated=functions.get("differentiated"), explain=functions.get("explain"),
            solve_directly=functions.get("solve_directly"),
        )  # fmt: skip


def _on_vectors(function: Function, layout: VectorLayout, structure: Any, what: str) -> Function:
    def on_vectors(x: Any, *q: Any) -> Any:
        with solve_apart(what):
            return call_function(function, (x, layout, *unflatten(structure, q)), {})

    return on_vectors


def _subtract_unknown(mapped: Function) -> Function:
    return lambda x, *p: pointwise.subtract(mapped(x, *p), x)


def detach(x: Any) -> Any:
    """A value of the start, which is not differentiated."""
    return x.detach() if isinstance(x, Tensor) else pointwise.stop_gradient(x) if isinstance(x, Value) else x


def _hoist_captures(functions: dict[str, Function], start: Any, p: list[Any]) -> HoistedFunctions:
    """Functions of (x, *parameters) as functions of (x, *arguments), where arguments are all that they depend on."""
    staged = {
        name: stage_with_captures(restrict_arguments(f, (start, *p), (0,)), start) for name, f in functions.items()
    }
    arguments: list[Any] = [] if all(staged.values()) else list(p)
    places = {id(argument): i for i, argument in enumerate(arguments)}
    opened: dict[str, Function] = {}
    for name, function in functions.items():
        program, found, _ = staged[name] or (function, p, False)
        for argument in found:  # what several functions depend on is one argument
            if places.setdefault(id(argument), len(arguments)) == len(arguments):
                arguments.append(argument)
        opened[name] = _select_arguments(program, [places[id(argument)] for argument in found])
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
    varying = restrict_arguments(function, (start, *bare), [0, *(i + 1 for i in tracked)])
    return {name: varying}, [p[i] for i in tracked], False


def _select_arguments(function: Function, places: list[int]) -> Function:
    return lambda x, *q: function(x, *(q[i] for i in places))
