"""What policies that solve further equations share: parameters as a vector, the sensitivities, tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.trees import flatten
from ..errors import ArgumentError
from ..implicit.option_checks import check_tolerance
from ..implicit.vector_layout import VectorLayout
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype
from ..transforms.forward import jvp
from ..transforms.vectorize import vmap
from .differentiable import Differentiable
from .methods import Tolerance
from .policies import Call, DerivativePolicy, fill_tangents, may_be_pulled
from .problem import Outcome, Problem, Status
from .solve_op import solve_vectors

SENSITIVITIES = "the solve of its sensitivities"


class Parameters:
    """The arguments that can have derivatives, as one vector."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.moving = Differentiable(arguments)
        own = self.moving.own
        self.layout = VectorLayout(flatten(own)[1], [spec_of(x) for x in own]) if own else None
        self.size = 0 if self.layout is None else self.layout.size

    def fill(self, vector: Any) -> list[Any]:
        """All arguments, those that move from a vector."""
        return self.moving.fill(self._split(vector))

    def to_vector(self, problem: Problem) -> Any:
        """Those that move, as a vector."""
        if self.layout is None:
            return problem.place(np.zeros(0, problem.dtype))
        return self.layout.join_leaves(self.moving.own)

    def place(self, vector: Any) -> list[Any]:
        """Cotangents in their places among all arguments."""
        return self.moving.place(self._split(vector))

    def _split(self, vector: Any) -> Any:
        return () if self.layout is None else self.layout.to_tree(astype(vector, self.layout.dtype))


def _push_one(call: Call, problem: Problem, dots: Sequence[Any], xs: Sequence[Any]) -> Any:
    """The tangent of a solution by the equation of its sensitivity."""
    y0, t0, t1, times, *arguments = xs
    dy0, dt0, dt1, dtimes, *moves = dots
    n, count = problem.size, len(arguments)
    f, moving = problem.function, Differentiable(arguments)

    def slope(t: Any, z: Any, *both: Any) -> Any:
        here = Differentiable(both[:count])

        def of_moving(y: Any, *own: Any) -> Any:
            return f(t, y, *here.fill(own))

        return concat(list(jvp(of_moving, (z[:n], *here.own), (z[n:], *both[count:]))))

    start = concat([y0, dy0 - f(t0, y0, *arguments) * dt0])
    given = start, t0, t1, times, *arguments, *moving.select(moves)
    keeps = any(map(may_be_pulled, given)) and call.policy.saves_states(
        2 * n * problem.dtype.itemsize, problem.max_steps
    )
    both = problem.further(slope, 2 * n, SENSITIVITIES, saves_states=keeps)
    z = solve_further(call, both, *given)
    if not problem.has_times:
        return z[n:] + f(t1, z[:n], *arguments) * dt1
    return vmap(lambda z, t, dt: z[n:] + f(t, z[:n], *arguments) * dt)(z, times, dtimes)


def solve_further(call: Call, problem: Problem, *xs: Any) -> Any:
    """The solution of further equations: NaN, not a number that is wrong, where it did not reach its end."""
    done = solve_vectors(Call(problem, call.policy), *xs)
    if problem.strict:  # it raised
        return done.y
    return pointwise.where(pointwise.equal(getitem(done.counts, 2), int(Status.DONE)), done.y, np.nan)


def push_sensitivity(call: Call, problem: Problem, tangents: Sequence[Any], xs: Sequence[Any]) -> Any:
    dots = fill_tangents(tangents, xs)
    return call.in_batches(lambda dots, xs: _push_one(call, problem, dots, xs))(tuple(dots), tuple(xs))


def pull_in_batches(rule: Callable[..., Any], call: Call, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """Cotangents by a rule for one element, in their places."""
    moving = Differentiable(xs)

    def one(bar: Any, y: Any, xs: tuple[Any, ...]) -> tuple[Any, ...]:
        return moving.select(rule(bar, y, xs))

    return moving.place(call.in_batches(one)(bar, y, tuple(xs)))


def dot(a: Any, b: Any) -> Any:
    return reductions.sum(pointwise.multiply(a, b))


@dataclass(frozen=True)
class FurtherSolves(DerivativePolicy):
    """A policy that solves further equations, with tolerances of its own; by default those of the solution."""

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            if getattr(self, name) is not None:
                check_tolerance(getattr(self, name), f"{type(self).__name__}: {name}")

    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        return push_sensitivity(call, adjust_tolerance(call.problem, self), tangents, xs)


def adjust_tolerance(problem: Problem, policy: Any) -> Problem:
    """The problem with the tolerances of a policy; one whose method does not solve further equations is refused."""
    if not problem.method.solves_any:
        raise ArgumentError(
            f"ode.solve: {type(policy).__name__} solves further equations, which are not of positions and velocities.\n"
            "  With a symplectic step, differentiate by pb.ode.ThroughSteps()."
        )
    now = problem.tolerance
    rtol = now.rtol if policy.rtol is None else policy.rtol
    return replace(problem, tolerance=Tolerance(rtol, now.atol if policy.atol is None else policy.atol))
