"""GMRES, and what the iterative linear methods share.

A state is a dict. In all of them `x` is the best solution so far, for the right side `b`, which was divided by `scale`;
`left` is the last residual that was recomputed, relative to b, infinite where the latest one was only estimated; and
`going` says that another step may help. A residual that a recurrence carries along drifts from the true one, so where
it claims success the true one is computed, and the method starts again from there if the claim was wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...arrays.spec import make_spec, spec_of, zeros
from ...arrays.value import unwrap_array
from ...errors import ArgumentError, ConversionError
from ...ops.batching import move_batch_first
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.elementwise.rounding import floor
from ...ops.elementwise.transcendental import exp2, log2
from ...ops.forms import Expand
from ...ops.index.indexing import getitem
from ...ops.op import Op
from ...ops.reduce import reductions
from ...ops.shape.arrange import stack
from ...transforms.control.staging import is_staged
from ...transforms.custom.rules import make_custom_record
from ..solvers.method_loop import PackageMethod, State
from ..solvers.method_tools import dot
from .operator import LinearSystem, norm, replace_zeros


def nearest_powers_of_two(xp: Any, sizes: Any) -> Any:
    """The powers of two next to sizes: to divide by them is exact. One where there is none."""
    usable = xp.isfinite(sizes) & (sizes > 0)
    return xp.ldexp(xp.ones_like(sizes), xp.frexp(xp.where(usable, sizes, 1))[1])


def _power_of_two_near(xp: Any, b: Any) -> Any:
    return nearest_powers_of_two(xp, xp.max(xp.abs(b), axis=-1) if b.shape[-1] else xp.zeros(b.shape[:-1], b.dtype))


def _stage_power_near(b: Any) -> Any:
    """The same in ops of a traced program."""
    if not spec_of(b).shape[-1]:
        return None
    size = reductions.max(pointwise.abs(b), axis=-1)
    usable = pointwise.logical_and(pointwise.isfinite(size), pointwise.greater(size, 0))
    return exp2(floor(log2(pointwise.where(usable, size, 1))) + 1)


_power_near_op: Op = make_custom_record(
    "power_near", ("b",), _power_of_two_near, None, None,
    lambda size, axes, b: (apply(_power_near_op, move_batch_first(b, axes[0], size)), 0),
    lambda b: make_spec(b.shape[:-1], b.dtype, b.device), form=Expand(_stage_power_near),
)  # fmt: skip


def any_in_batch(mask: Any) -> bool:
    """Whether a boolean holds for some element of some batch."""
    if is_staged(mask):
        raise ConversionError("this method needs concrete values, so it cannot be traced as a loop.")
    return bool(unwrap_array(mask).any())


def divide_or_zero(x: Any, y: Any) -> Any:
    """x / y, zero where y is zero."""
    return pointwise.where(pointwise.equal(y, 0), 0, x) / replace_zeros(y)


def apply_preconditioner(system: LinearSystem, v: Any) -> Any:
    """v times something near the inverse of the matrix."""
    return v if system.precondition is None else system.precondition(v)


def pivot_tolerance(system: LinearSystem) -> float:
    """The rounding that is left of one where all should have cancelled: a pivot no larger is zero."""
    return 16 * float(np.finfo(system.dtype).eps)


def initial_state(b: Any) -> State:
    """The state at x = 0. Without scaling, a right side of 1e-30 in float32 would have the norm zero."""
    scale = apply(_power_near_op, b)
    unit = b / scale
    size = norm(unit)
    left = size / replace_zeros(size)
    return {
        "b": unit, "size": replace_zeros(size), "scale": scale,
        "x": pointwise.where(unit == unit, 0, zeros(spec_of(unit))),
        "left": left, "going": pointwise.isfinite(size),
    }  # fmt: skip


def solution_of(state: State) -> Any:
    """The solution as far as a state has it."""
    return state["x"] * state["scale"]


def is_finished(system: LinearSystem, state: State) -> Any:
    """Whether the recomputed residual is small enough, or no step will make it so."""
    return (state["left"] <= system.tolerance) | ~state["going"]


def true_residual(system: LinearSystem, state: State, x: Any) -> tuple[Any, Any]:
    """b - A x, and its norm relative to b."""
    r = state["b"] - system.apply(x)
    return r, pointwise.divide(norm(r), state["size"])


def apply_correction(system: LinearSystem, state: State, correction: Any) -> State:
    """The state with a correction where that reduces the true residual. Elsewhere this was the last step."""
    x = state["x"] + correction
    r, left = true_residual(system, state, x)
    better = left < state["left"]
    chosen = {k: pointwise.where(better, v, state[k]) for k, v in (("x", x), ("r", r), ("left", left))}
    return {**state, **chosen, "going": state["going"] & better}


@final
@dataclass(frozen=True)
class GMRES(PackageMethod):
    """Generalised minimal residuals, for any matrix: the smallest residual over the Krylov space of `restart` products,
    then again from there. Preconditioned from the right, so that the residual is that of the system itself.

    A step is a whole cycle. A cycle that does not reduce the true residual is the last: the next would be the same.
    """

    restart: int = 30

    def __post_init__(self) -> None:
        if self.restart < 1:
            raise ArgumentError(f"GMRES: restart must be 1 or more, got {self.restart!r}.")

    def init(self, system: LinearSystem, b: Any) -> State:
        state = initial_state(b)
        return {**state, "r": state["b"]}

    def step(self, system: LinearSystem, state: State) -> State:
        return apply_correction(system, state, _minimize_residual(system, state, min(self.restart, system.size)))

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


def _minimize_residual(system: LinearSystem, state: State, length: int) -> Any:
    """What makes |r - A M y| least for y in the Krylov space of r.

    Arnoldi: A M V_k = V_{k+1} H with orthonormal V and r = beta v_0, so |r - A M V_k y| = |beta e_0 - H y|. Rotations
    Q of neighbouring rows make H triangular. Of Q one row is still to change, `last`; times beta, its first element is
    the residual so far. Rows and columns of an element that is done are those of the unit matrix, and y is zero there.
    """
    beta = norm(state["r"])
    active = state["going"] & (state["left"] > system.tolerance)
    goal = system.tolerance * state["size"]
    unit = system.xp.eye(length + 1, dtype=system.dtype)
    basis = KrylovBasis(divide_or_zero(state["r"], beta), length)
    last, rows, columns, shares = unit[0], [], [], []
    for k in range(length):
        w = system.apply(apply_preconditioner(system, basis.newest))
        rest, heights = basis.orthogonalize(w)
        below = norm(rest)
        column = heights @ unit[: k + 1] + below * unit[k + 1]
        here = dot(last, column)
        height = pointwise.sqrt(here * here + below * below)
        active = active & (height > pivot_tolerance(system) * norm(w))  # a NaN is not greater
        c, s = divide_or_zero(here, height), divide_or_zero(below, height)
        row = c * last + s * unit[k + 1]
        rows.append(pointwise.where(active, row, unit[k]))
        columns.append(pointwise.where(active, column, unit[k]))
        shares.append(pointwise.where(active, beta * getitem(row, 0), 0))
        last = pointwise.where(active, c * unit[k + 1] - s * last, last)
        active = active & (pointwise.abs(beta * getitem(last, 0)) > goal)
        if k + 1 == length or not any_in_batch(active):
            break
        basis.add(pointwise.where(active, divide_or_zero(rest, below), 0))
    y = _back_substitute(matmul(stack(rows), stack(columns, axis=1)), shares)
    return apply_preconditioner(system, matmul(y, basis.vectors()))


def _back_substitute(upper: Any, right: list[Any]) -> Any:
    """y with R y = right, for a triangular R without zeros on its diagonal."""
    size = len(right)
    found: list[Any] = []
    for i in reversed(range(size)):
        rest = right[i] if not found else right[i] - dot(getitem(upper, (i, slice(i + 1, size))), stack(found))
        found.insert(0, rest / getitem(upper, (i, i)))
    return stack(found)


class KrylovBasis:
    """Orthonormal vectors. Bare ones are stored in one array, so that none is copied twice."""

    def __init__(self, first: Any, length: int) -> None:
        self._bare = isinstance(first, np.ndarray)
        self._store: Any = np.empty((length, first.shape[0]), first.dtype) if self._bare else []
        self._count = 0
        self.newest: Any = None
        self.add(first)

    def add(self, v: Any) -> None:
        """Append a vector."""
        if self._bare:
            self._store[self._count] = v
        else:
            self._store.append(v)
        self._count += 1
        self.newest = v

    def vectors(self) -> Any:
        """The vectors, as rows."""
        return self._store[: self._count] if self._bare else stack(self._store)

    def orthogonalize(self, w: Any) -> tuple[Any, Any]:
        """What of w is orthogonal to all vectors, and its parts along them. Projected twice: that is enough to be
        orthogonal to rounding, however small the rest is.
        """
        vectors = self.vectors()
        first = matmul(vectors, w)
        w = w - matmul(first, vectors)
        again = matmul(vectors, w)
        return w - matmul(again, vectors), first + again
