"""What interior-point methods share: steps with a barrier, and Newton's method on the conditions at the end.

To minimize f(x) with E(x) = 0 and C(x) = s in cones, the methods follow the solutions of

    f' - E'^T y - C'^T z = 0,   E = 0,   C - s = 0,   s z = mu

for mu going to zero, with s and z inside of the cones. With a scaling W, the last equation is linear in steps as
W^-1 ds + W dz = r, and ds, dz are eliminated (see `Linearization`). The usual W z = W^-1 s gives active constraints the
weight z / s, beside which the Hessian would be lost to rounding at the end. So W z = W^-1 (s + d z) with a small d for
numbers, none for cones: the step is that of a problem with C + d dz in the place of C, and the next one corrects that.

Where mu is small, Newton's method on the conditions themselves, with each constraint either active or not, is tried
too: it needs no mu, so its result is as exact as rounding allows, also where a constraint is only just active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...transforms.control.branches_and_loops import while_loop
from ...transforms.forward import jvp
from ...transforms.vectorize import vmap
from ..cones.cones import Cones
from ..cones.program_shape import ProgramShape
from ..linear.operator import norm
from .method_loop import SolverProblem, State
from .method_tools import fit_dense

#: A step goes this share of the way to the boundary.
TO_BOUNDARY = 0.99
#: Newton's method on the conditions is tried below the rounding to this power, and again where the residual has fallen
#: by so much.
FIRST_TRIAL, _NEXT_TRIAL = 0.25, 1e-2
#: The most steps of it, by how much each has to reduce the residual, and the share of the tolerance that ends it: what
#: is small in the residual may be larger in the solution, and the last steps of Newton's method are the best.
_EXACT_STEPS, _EXACT_DECREASE, _EXACT_SHARE = 8, 0.5, 1e-3
#: Unknowns larger than the rounding to this power are on their way to infinity.
_DIVERGED = -0.75
#: What keeps systems with redundant rows solvable, relative to the largest entry; each step corrects for it.
_REGULARIZATION = 1e-13
#: d times the largest multiplier, as a power of the rounding.
_DUAL_SHIFT = 0.75


class Linearization(NamedTuple):
    """The conditions at a point, with s and its scaling.

    H dx - E'^T dy - C'^T dz = -gradient,  E' dx = -equal,  C' dx + d dz - ds = s - C,  W^-1 (ds - d dz) + W dz = r.
    From the last two, W dz = r - K dx - gap with K = W^-1 C' and gap = W^-1 (C - s), so that
    (H + K^T K) dx - E'^T dy = K^T (r - gap) - gradient.
    """

    cones: Cones
    scalings: Any
    dual_shift: Any
    #: W^-1 s and W z.
    scaled_s: Any
    scaled_z: Any
    gradient: Any
    equal: Any
    gap: Any
    hessian: Any
    equal_rows: Any
    scaled_rows: Any
    #: A little of the identity, for both halves of the matrix.
    small: tuple[Any, Any]

    def direction(self, r: Any, shift: Any = 0.0) -> dict[str, Any]:
        """The step for a right side of the last equation; ds and dz also as the scaling sees them."""
        n, (small_x, small_y) = self.hessian.shape[0], self.small
        largest = 1 + reductions.max(pointwise.abs(self.hessian))
        square = matmul(self.scaled_rows.T, self.scaled_rows) if self.cones.length else 0.0
        matrix = self.hessian + square + (largest + shift / _REGULARIZATION) * small_x
        right = matmul(self.scaled_rows.T, r - self.gap) - self.gradient if self.cones.length else -self.gradient
        if small_y.shape[0]:
            lower = concat([self.equal_rows, small_y], 1)
            matrix, right = concat([concat([matrix, -self.equal_rows.T], 1), lower]), concat([right, -self.equal])
        found = fit_dense(matrix, right)
        dx = found[:n]
        moved = matmul(self.scaled_rows, dx) + self.gap
        scaled_dz = r - moved
        dz = self.cones.unscale(self.scalings, scaled_dz)
        return {
            "dx": dx, "dy": found[n:], "ds": self.cones.scale(self.scalings, moved) + self.dual_shift * dz, "dz": dz,
            "scaled_ds": moved + self.dual_shift * self.cones.unscale(self.scalings, dz), "scaled_dz": scaled_dz,
        }  # fmt: skip

    def aim(self, product: Any) -> Any:
        """The right side r for a step after which s z, as the scaling sees them, is this product."""
        return self.cones.divide(self.scaled_z, product) - self.scaled_s

    def reach(self, step: dict[str, Any], limit: float = 1.0) -> tuple[Any, Any]:
        """How far s and z may go along a step, up to a limit."""
        along_s = self.cones.longest_step(self.scaled_s, step["scaled_ds"], limit)
        return along_s, self.cones.longest_step(self.scaled_z, step["scaled_dz"], limit)


class Derivatives(NamedTuple):
    """By the variables: of the gradient of the Lagrangian, of E, of C and of f."""

    hessian: Any
    equal: Any
    inside: Any
    slope: Any


def differentiate_conditions(problem: SolverProblem, w: Any) -> Derivatives:
    """The derivatives of the conditions by the variables, without the multipliers."""
    shape = problem.program
    if problem.slopes is not None:
        rows = problem.slopes(w)
    else:
        problem.products += shape.variables
        rows = push_variables(shape, problem.conditions, w)
    hessian, equal, inside = shape.cut_conditions(rows)
    return Derivatives(hessian, equal, inside, rows[-1])


def push_variables(shape: ProgramShape, conditions: Callable[[Any], Any], w: Any) -> Any:
    """A row for each condition, with its derivatives by the variables."""
    spec = spec_of(w)
    directions = namespace_on(spec.device).eye(shape.variables, spec.shape[0], dtype=spec.dtype)
    rows: Any = vmap(lambda v: jvp(conditions, (w,), (v,))[1], 0, 1)(directions)
    return rows


def linearize(
    problem: SolverProblem, conditions: Any, s: Any, z: Any, derivatives: Derivatives, scalings: Any = None
) -> Linearization:
    """The conditions linearized, by default with the scaling of s and z."""
    shape: ProgramShape = problem.program
    cones = shape.cones
    largest = reductions.max(pointwise.abs(z)) if cones.length else 0 * conditions[-1]
    numbers = cones.mark_numbers(problem.xp, problem.dtype)
    dual_shift = problem.eps**_DUAL_SHIFT / pointwise.where(largest > 0, largest, 1.0) * numbers
    scalings = cones.scaling(s + dual_shift * z, z) if scalings is None else scalings
    scaled_z = cones.scale(scalings, z)
    # without d they are the same, and at the tip of a cone W z is the more exact
    scaled_s = pointwise.where(numbers > 0, cones.unscale(scalings, s), scaled_z)
    gradient, equal, inside = shape.cut_conditions(conditions)
    small = tuple(
        _REGULARIZATION * problem.xp.eye(size, dtype=problem.dtype) for size in (shape.variables, shape.equalities)
    )
    return Linearization(
        cones, scalings, dual_shift, scaled_s, scaled_z, gradient, equal,
        cones.unscale(scalings, inside - s), derivatives.hessian, derivatives.equal,
        cones.unscale_rows(scalings, derivatives.inside), (small[0], small[1]),
    )  # fmt: skip


def require_program(problem: SolverProblem, method: Any) -> ProgramShape:
    """The shape of the program that a method for minima with constraints is to solve, or an error."""
    if problem.program is None:
        raise ArgumentError(
            f"{type(method).__name__} is for minima with constraints.\n  Use it in pb.argmin(f, x0, constraints=[...]) "
            "or pb.implicit.qp, or solve with BFGS()."
        )
    shape: ProgramShape = problem.program
    return shape


def constrained_state_at(problem: SolverProblem, w: Any, s: Any, more: State) -> State:
    """The state at a point, with its true residual; stuck where that is not a number, or at the way to infinity."""
    conditions = problem.conditions(w)
    problem.functions += 1
    residual = problem.program.residual(conditions, w)
    left = norm(residual)
    far = norm(w) > problem.eps**_DIVERGED
    return more | {
        "x": w, "s": s, "conditions": conditions, "residual": residual, "norm": left,
        "stuck": pointwise.logical_not(pointwise.isfinite(left)) | far,
    }  # fmt: skip


def advance(problem: SolverProblem, state: State, w: Any, s: Any) -> State:
    """The state at the next point, or this one, stuck, where the conditions of the next are not numbers."""
    after = constrained_state_at(problem, w, s, state)
    usable = pointwise.isfinite(after["norm"])
    names = ("x", "s", "conditions", "residual", "norm")
    return after | {name: pointwise.where(usable, after[name], state[name]) for name in names}


def finish_exactly(problem: SolverProblem, state: State, known: Derivatives | None = None) -> State:
    """The state, or the solution itself, if Newton's method on the conditions finds it from there. Derivatives are
    `known` where they are the same everywhere.
    """
    enough = _EXACT_SHARE * problem.tolerance
    near = (state["norm"] <= state["trial"]) & (state["norm"] > enough)

    def is_useful(c: State) -> Any:
        return c["useful"] & (c["norm"] > enough) & pointwise.less(c["count"], _EXACT_STEPS)

    def step(c: State) -> State:
        derivatives = differentiate_conditions(problem, c["x"]) if known is None else known
        problem.functions += 1
        there = c["x"] + _newton_step(problem, c, derivatives)
        conditions = problem.conditions(there)
        residual = problem.program.residual(conditions, there)
        useful = norm(residual) <= _EXACT_DECREASE * c["norm"]
        found = {"x": there, "conditions": conditions, "residual": residual, "norm": norm(residual)}
        return {name: pointwise.where(useful, x, c[name]) for name, x in found.items()} | {
            "useful": useful, "count": c["count"] + 1
        }  # fmt: skip

    names = ("x", "conditions", "residual", "norm")
    found = while_loop(is_useful, step, {name: state[name] for name in names} | {"useful": near, "count": 0})
    solved = found["norm"] <= problem.tolerance
    kept = {name: pointwise.where(solved, found[name], state[name]) for name in names}
    trial = pointwise.where(near, _NEXT_TRIAL * state["norm"], state["trial"])
    return state | kept | {"trial": trial}


def _newton_step(problem: SolverProblem, c: State, derivatives: Derivatives) -> Any:
    """The step (dx, dy, dz) of Newton's method on the conditions, with a little of the identity d I in its matrix: that
    keeps redundant constraints and flat directions where they are, and further steps correct for it.

    With D the slope of the projection at u = C - z, the last rows are (I - D) C' dx + (D + d I) dz = -r. So dz = -T r -
    S C' dx with T = (D + d I)^-1 and S = T (I - D), and (H + C'^T S C' + d I) dx - E'^T dy = -g - C'^T T r.
    """
    shape = problem.program
    cones, small = shape.cones, problem.eps**0.5
    (gradient, equal, missed), z = shape.cut_unknown(c["residual"]), shape.cut_unknown(c["x"])[2]
    apart = shape.cut_conditions(c["conditions"])[2] - z
    pieces = cones.pieces(apart)
    shares = cones.apply_slope(apart, pieces, lambda slope: 1 / (slope + small), missed)
    rows = cones.apply_slope(apart, pieces, lambda slope: (1 - slope) / (slope + small), derivatives.inside)
    matrix, right = derivatives.hessian + small * problem.xp.eye(shape.variables, dtype=problem.dtype), -gradient
    if cones.length:
        matrix, right = matrix + matmul(derivatives.inside.T, rows), right - matmul(derivatives.inside.T, shares)
    if shape.equalities:
        corner = small * problem.xp.eye(shape.equalities, dtype=problem.dtype)
        lower = concat([derivatives.equal, corner], 1)
        matrix, right = concat([concat([matrix, -derivatives.equal.T], 1), lower]), concat([right, -equal])
    found = fit_dense(matrix, right)
    if not cones.length:
        return found
    return concat([found, -shares - matmul(rows, found[: shape.variables])])


def is_constrained_done(problem: SolverProblem, state: State) -> Any:
    return (state["norm"] <= problem.tolerance) | state["stuck"]


def move_unknown(w: Any, shape: ProgramShape, step: dict[str, Any], primal: Any, dual: Any) -> Any:
    """The unknown after a step of these lengths in x and y, and in z."""
    x, y, z = shape.cut_unknown(w)
    return concat([x + primal * step["dx"], y + primal * step["dy"], z + dual * step["dz"]])
