"""Derivative policies: how the solution of an equation is differentiated, each with its cost and its error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from ..arrays.trees import unflatten
from ..checkpoint.loops.checkpoint_loop import checkpoint_loop
from ..errors import ArgumentError
from ..ops.elementwise import pointwise
from .constrained.active_set import WeaklyActive
from .equation.problem import Problem
from .option_checks import check_method, check_positive_count, check_relative_tolerance, check_share
from .solve_report import Report, Solution
from .vector_layout import VectorLayout


class DerivativePolicy(ABC):
    """Solves a problem such that its solution has the derivatives of the policy."""

    @abstractmethod
    def solve(self, problem: Problem) -> Solution:
        """The solution and its report."""


@final
@dataclass(frozen=True)
class Implicit(DerivativePolicy):
    """By the implicit function theorem: exact, in memory that does not depend on the number of steps.

    `adjoint` solves the linear system, `tol` is that of its residual relative to the right side, below 1. Without one,
    it is that of the equation, but at most 1e-6 (1e-4 in single precision).

    Of a minimum with constraints, `weakly_active` says what becomes of those that are active with a multiplier of zero:
    there are two one-sided derivatives then, that where such a constraint stays "active" and that where it is
    "inactive". By default, "raise", asking for a derivative is a `DegenerateError`.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.implicit.Implicit(adjoint=pb.implicit.GMRES(), tol=1e-12)
    >>> slope = pb.grad(lambda b: pb.fixed_point(lambda x, b: 0.99 * x + b, 0.0, b, derivative=policy))(1.0)
    >>> bool(abs(slope - 100.0) < 1e-8)
    True
    """

    adjoint: Any = None
    tol: float | None = None
    weakly_active: WeaklyActive = "raise"

    def __post_init__(self) -> None:
        if self.weakly_active not in ("raise", "active", "inactive"):
            raise ArgumentError(
                f'Implicit: weakly_active is "raise", "active" or "inactive", got {self.weakly_active!r}.'
            )
        if self.adjoint is not None:
            check_method(self.adjoint, "Implicit: adjoint", "GMRES()")
        if self.tol is not None:
            check_relative_tolerance(self.tol, "Implicit: tol")

    def solve(self, problem: Problem) -> Solution:
        return problem.solve(self.adjoint, self.tol)


@final
@dataclass(frozen=True)
class Unrolled(DerivativePolicy):
    """By the backward pass of `steps` steps of the map from the start, as a loop on the tape. Its error is that of the
    iteration after so many steps. Memory grows with them, or with `checkpoints` only: then so many states are
    saved, and the rest recomputed in the backward pass (`pb.checkpoint_loop`).

    >>> import pullback as pb
    >>> f = lambda x, b: 0.5 * x + b
    >>> pb.grad(lambda b: pb.fixed_point(f, 0.0, b, derivative=pb.implicit.Unrolled(steps=4)))(3.0)
    array(1.875)
    """

    steps: int
    checkpoints: int | None = None

    def __post_init__(self) -> None:
        check_positive_count(self.steps, "Unrolled: steps")
        if self.checkpoints is not None:
            check_positive_count(self.checkpoints, "Unrolled: checkpoints")

    def solve(self, problem: Problem) -> Solution:
        _require_map(problem, self)
        layout, leaves = VectorLayout.from_tree(problem.x0, problem.what)
        report = Report("Unrolled", problem.tolerance(layout), steps=self.steps)
        report.note = "steps of the map from the start; their residual was not computed"
        start = unflatten(layout.structure, leaves)
        return Solution(_apply_map(problem, start, self.steps, 1.0, self.checkpoints), report)


@final
@dataclass(frozen=True)
class OneStep(DerivativePolicy):
    """By one step of the map at the fixed point: cheap, and wrong by the factor that the map contracts with.

    >>> import pullback as pb
    >>> f = lambda x, b: 0.5 * x + b
    >>> pb.grad(lambda b: pb.fixed_point(f, 0.0, b, derivative=pb.implicit.OneStep()))(3.0)
    array(1.)
    """

    def solve(self, problem: Problem) -> Solution:
        return _solve_and_step(problem, self, 1, 1.0)


@final
@dataclass(frozen=True)
class PhantomGradient(DerivativePolicy):
    """By a few damped steps at the fixed point: the sum of the first terms of the Neumann series, for training that can
    do with a direction of descent.

    >>> import pullback as pb
    >>> f = lambda x, b: 0.5 * x + b
    >>> pb.grad(lambda b: pb.fixed_point(f, 0.0, b, derivative=pb.implicit.PhantomGradient(steps=3)))(3.0)
    array(1.75)
    """

    steps: int = 5
    damping: float = 1.0

    def __post_init__(self) -> None:
        check_positive_count(self.steps, "PhantomGradient: steps")
        check_share(self.damping, "PhantomGradient: damping")

    def solve(self, problem: Problem) -> Solution:
        return _solve_and_step(problem, self, self.steps, self.damping)


def _solve_and_step(problem: Problem, policy: DerivativePolicy, steps: int, damping: float) -> Solution:
    """The fixed point, and steps of the map from there, which alone are differentiated."""
    _require_map(problem, policy)
    found = Implicit().solve(problem)
    return Solution(_apply_map(problem, found.value, steps, damping), found.report)


def _require_map(problem: Problem, policy: DerivativePolicy) -> None:
    """Only a fixed point has a map to take steps of."""
    if not problem.is_map:
        raise ArgumentError(f"{problem.what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")


def _apply_map(problem: Problem, tree: Any, steps: int, damping: float, checkpoints: int | None = None) -> Any:
    """Steps of the map from a point that counts as a constant, on the tape, or with so many snapshots of them."""
    layout, leaves = VectorLayout.from_tree(tree, problem.what)
    x = layout.join_leaves([pointwise.stop_gradient(leaf) for leaf in leaves])
    mapped = problem.functions["equation"]

    def step(i: Any, x: Any, *params: Any) -> Any:
        after = mapped(x, layout, *params)
        return after if damping == 1.0 else pointwise.add(x * (1 - damping), after * damping)

    if checkpoints is not None:
        return layout.to_tree(checkpoint_loop(step, x, steps, *problem.params, snapshots=checkpoints))
    for i in range(steps):
        x = step(i, x, *problem.params)
    return layout.to_tree(x)
