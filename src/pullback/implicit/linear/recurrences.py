"""Linear methods by short recurrences, which keep a few vectors: CG, BiCGStab, MINRES, LSMR."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ..solvers.method_loop import PackageMethod, State
from ..solvers.method_tools import dot
from .krylov import (
    any_in_batch,
    apply_preconditioner,
    divide_or_zero,
    initial_state,
    is_finished,
    pivot_tolerance,
    solution_of,
    true_residual,
)
from .operator import LinearSystem, norm


def begin_recurrence(system: LinearSystem, b: Any, restart: Callable[..., State]) -> State:
    """The first state of a method that carries its residual along, `at` the point where it is, and `least` the smallest
    residual that it had; `restart(system, x, r, left)` returns what it needs to start from x.
    """
    state = initial_state(b)
    first = restart(system, state["x"], state["b"], state["left"])
    return {**state, **first, "at": state["x"], "least": state["left"], "checked": state["left"] * 0 + math.inf}


def finish_step(system: LinearSystem, old: State, new: State, guess: Any, restart: Callable[..., State]) -> State:
    """The state after a step whose own estimate of the residual is `guess`.

    Where that is small enough, the residual is recomputed; where it is not that small in truth, the method starts anew,
    unless it did so before and came no further.
    """
    fine = pointwise.isfinite(guess + reductions.sum(new["at"]))
    better = fine & (guess < old["least"])
    claimed = fine & (guess <= system.tolerance)
    new = {**old, **new, "going": old["going"] & fine, "left": guess * 0 + math.inf}
    new["x"] = pointwise.where(better, new["at"], old["x"])
    new["least"] = pointwise.where(better, guess, old["least"])
    return _verify_claimed(system, old, new, claimed, restart) if any_in_batch(claimed) else new


def _verify_claimed(system: LinearSystem, old: State, new: State, claimed: Any, restart: Callable[..., State]) -> State:
    """The state with the true residual where success is claimed."""
    r, left = true_residual(system, old, new["at"])
    found = {**restart(system, new["at"], r, left), "x": new["at"], "left": left, "least": left, "checked": left}
    nearer = pointwise.logical_not(claimed) | (left < old["checked"])
    for name, value in found.items():
        new[name] = pointwise.where(claimed, value, new[name])
    return {**new, "going": new["going"] & nearer}


@final
@dataclass(frozen=True)
class CG(PackageMethod):
    """Conjugate gradients, for symmetric positive definite matrices; a preconditioner must be of that kind too."""

    def init(self, system: LinearSystem, b: Any) -> State:
        return begin_recurrence(system, b, self._restart)

    @staticmethod
    def _restart(system: LinearSystem, x: Any, r: Any, left: Any) -> State:
        z = apply_preconditioner(system, r)
        return {"r": r, "p": z, "rz": dot(r, z)}

    def step(self, system: LinearSystem, state: State) -> State:
        p = state["p"]
        q = system.apply(p)
        far = state["rz"] / dot(p, q)  # without curvature along p this is NaN, and the last step
        x, r = state["at"] + far * p, state["r"] - far * q
        z = apply_preconditioner(system, r)
        rz = dot(r, z)
        new = {"at": x, "r": r, "p": z + divide_or_zero(rz, state["rz"]) * p, "rz": rz}
        return finish_step(system, state, new, norm(r) / state["size"], self._restart)

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


@final
@dataclass(frozen=True)
class BiCGStab(PackageMethod):
    """Stabilised biconjugate gradients, for any matrix: two products a step and few vectors, but no guarantee."""

    def init(self, system: LinearSystem, b: Any) -> State:
        return begin_recurrence(system, b, self._restart)

    @staticmethod
    def _restart(system: LinearSystem, x: Any, r: Any, left: Any) -> State:
        return {"r": r, "shadow": r, "p": r, "rho": dot(r, r)}

    def step(self, system: LinearSystem, state: State) -> State:
        shadow, p = state["shadow"], state["p"]
        along = apply_preconditioner(system, p)
        v = system.apply(along)
        alpha = state["rho"] / dot(shadow, v)
        s = state["r"] - alpha * v
        across = apply_preconditioner(system, s)
        t = system.apply(across)
        omega = divide_or_zero(dot(t, s), dot(t, t))
        x, r = state["at"] + alpha * along + omega * across, s - omega * t
        rho = dot(shadow, r)
        p = r + divide_or_zero(rho, state["rho"]) * divide_or_zero(alpha, omega) * (p - omega * v)
        # r orthogonal to its shadow, or no omega: the recurrence ends, and begins again with what is left
        orthogonal = pointwise.abs(rho) <= float(np.finfo(system.dtype).eps) * norm(shadow) * norm(r)
        lost = orthogonal | pointwise.equal(omega, 0)
        new = {"at": x, "r": r, "p": p, "rho": rho, "shadow": shadow}
        for name, value in self._restart(system, x, r, None).items():
            new[name] = pointwise.where(lost, value, new[name])
        return finish_step(system, state, new, norm(r) / state["size"], self._restart)

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


def _guard_singular(system: LinearSystem, pivot: Any, height: Any, far: Any) -> Any:
    """The step length along a direction; NaN, which ends the steps, where the pivot is zero up to rounding."""
    return pointwise.where(pivot > pivot_tolerance(system) * height, far, math.nan)


@final
@dataclass(frozen=True)
class MINRES(PackageMethod):
    """Minimal residuals, for symmetric matrices, definite or not; a preconditioner must be symmetric positive definite.

    Lanczos makes the matrix tridiagonal, rotations make that triangular, column by column, and each column moves x.
    """

    def init(self, system: LinearSystem, b: Any) -> State:
        return begin_recurrence(system, b, self._restart)

    @staticmethod
    def _restart(system: LinearSystem, x: Any, r: Any, left: Any) -> State:
        y = apply_preconditioner(system, r)
        beta = pointwise.sqrt(dot(r, y))
        none, zero = x * 0, left * 0
        return {
            "before": r, "here": r, "y": y, "beta_before": zero, "beta": beta, "diagonal": zero, "above": zero,
            "phi": beta, "c": zero - 1, "s": zero, "w": none, "w_before": none, "per_phi": divide_or_zero(left, beta),
            "height": zero,
        }  # fmt: skip

    def step(self, system: LinearSystem, state: State) -> State:
        beta = state["beta"]
        v = divide_or_zero(state["y"], beta)
        y = system.apply(v) - divide_or_zero(beta, state["beta_before"]) * state["before"]
        alpha = dot(v, y)
        here = y - divide_or_zero(alpha, beta) * state["here"]
        y = apply_preconditioner(system, here)
        beta_next = pointwise.sqrt(dot(here, y))
        new = {"before": state["here"], "here": here, "y": y, "beta_before": beta, "beta": beta_next}
        # the last rotation acts on the new column (alpha, beta_next), then one more makes its lower end zero
        c, s = state["c"], state["s"]
        delta, end = c * state["diagonal"] + s * alpha, s * state["diagonal"] - c * alpha
        gamma = pointwise.sqrt(end * end + beta_next * beta_next)
        w = (v - state["above"] * state["w_before"] - delta * state["w"]) / gamma
        new |= {"w": w, "w_before": state["w"], "c": end / gamma, "s": beta_next / gamma}
        new |= {"above": s * beta_next, "diagonal": -c * beta_next, "phi": new["s"] * state["phi"]}
        new["height"] = pointwise.maximum(state["height"], pointwise.sqrt(alpha * alpha + beta_next * beta_next))
        far = _guard_singular(system, gamma, new["height"], new["c"] * state["phi"])
        new["at"] = state["at"] + far * w
        return finish_step(system, state, new, pointwise.abs(new["phi"]) * state["per_phi"], self._restart)

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


@final
@dataclass(frozen=True)
class LSMR(PackageMethod):
    """Least squares by minimal residuals of A^T A x = A^T b: for any matrix, with products by its transpose. Slow where
    the condition of A is bad, but it never breaks down. Takes no preconditioner.

    Golub and Kahan's process makes A bidiagonal, two rotations a step solve that, and each step moves x along `across`.
    The images of both directions are carried along, and with them the residual.
    """

    def init(self, system: LinearSystem, b: Any) -> State:
        return begin_recurrence(system, b, self._restart)

    @staticmethod
    def _restart(system: LinearSystem, x: Any, r: Any, left: Any) -> State:
        beta = norm(r)
        u = divide_or_zero(r, beta)
        v = system.apply_transposed(u)
        alpha = norm(v)
        v = divide_or_zero(v, alpha)
        none, zero = x * 0, left * 0
        return {
            "r": r, "u": u, "v": v, "alpha": alpha, "zeta": alpha * beta, "edge": alpha, "rho": zero + 1,
            "rho_across": zero + 1, "c_across": zero + 1, "s_across": zero, "along": v, "across": none,
            "image_along": none, "image_across": none, "share": zero, "height": zero,
        }  # fmt: skip

    def step(self, system: LinearSystem, state: State) -> State:
        v, along, edge = state["v"], state["along"], state["edge"]
        image = system.apply(v)
        u = image - state["alpha"] * state["u"]
        beta = norm(u)
        u = divide_or_zero(u, beta)
        v = system.apply_transposed(u) - beta * v
        alpha = norm(v)
        v = divide_or_zero(v, alpha)
        rho = pointwise.sqrt(edge * edge + beta * beta)
        c, theta = edge / rho, beta / rho * alpha
        low = state["c_across"] * rho
        rho_across = pointwise.sqrt(low * low + theta * theta)
        back = state["s_across"] * rho * rho / (state["rho"] * state["rho_across"])
        c_across, s_across = low / rho_across, theta / rho_across
        height = pointwise.maximum(state["height"], rho)
        far = _guard_singular(system, rho_across, height, c_across * state["zeta"] / (rho * rho_across))
        image_along = image - state["share"] * state["image_along"]
        across, image_across = along - back * state["across"], image_along - back * state["image_across"]
        r = state["r"] - far * image_across
        new = {
            "at": state["at"] + far * across, "r": r, "u": u, "v": v, "alpha": alpha, "zeta": -s_across * state["zeta"],
            "edge": c * alpha, "rho": rho, "rho_across": rho_across, "c_across": c_across, "s_across": s_across,
            "share": theta / rho, "along": v - theta / rho * along, "across": across, "image_along": image_along,
            "image_across": image_across, "height": height,
        }  # fmt: skip
        return finish_step(system, state, new, norm(r) / state["size"], self._restart)

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)
