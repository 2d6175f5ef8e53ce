"""The Neumann series, and `Auto`, which chooses among the linear methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...errors import ArgumentError
from ...ops.elementwise import pointwise
from ..solvers.method_loop import PackageMethod, State
from .direct import Dense
from .krylov import (
    GMRES,
    apply_correction,
    apply_preconditioner,
    initial_state,
    is_finished,
    solution_of,
    true_residual,
)
from .operator import ChoosingMethod, LinearSystem
from .recurrences import CG, MINRES


@final
@dataclass(frozen=True)
class Neumann(PackageMethod):
    """x <- x + (b - A x), the series b + (I - A) b + (I - A)^2 b + ..., for matrices near the unit matrix; with a
    preconditioner M, x <- x + M (b - A x).
    """

    def init(self, system: LinearSystem, b: Any) -> State:
        state = initial_state(b)
        return {**state, "at": state["x"], "r": state["b"]}

    def step(self, system: LinearSystem, state: State) -> State:
        at = state["at"] + apply_preconditioner(system, state["r"])
        r, left = true_residual(system, state, at)
        better = left < state["left"]
        if isinstance(better, np.bool_) and better:  # a shortcut, where there is nothing to choose by element
            return {**state, "at": at, "r": r, "x": at, "left": left}
        # where the terms outgrow b by this much, rounding has already lost all digits of the sum
        going = state["going"] & (left < 1 / float(np.finfo(system.dtype).eps))
        return {
            **state, "at": at, "r": r, "going": going,
            "x": pointwise.where(better, at, state["x"]), "left": pointwise.where(better, left, state["left"]),
        }  # fmt: skip

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


@final
@dataclass(frozen=True)
class Structured(PackageMethod):
    """The solver that the structure of a matrix gives, see `pb.implicit.Diagonal` and others; steps after the first
    refine the solution. The default for such matrices, and for derivatives of minima with constraints.
    """

    def init(self, system: LinearSystem, b: Any) -> State:
        if system.precondition is None:
            raise ArgumentError("Structured: wants a matrix with a structure, such as pb.implicit.Banded(bands, 1, 1).")
        state = initial_state(b)
        return {**state, "r": state["b"]}

    def step(self, system: LinearSystem, state: State) -> State:
        return apply_correction(system, state, apply_preconditioner(system, state["r"]))

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)


@final
@dataclass(frozen=True)
class Auto(ChoosingMethod):
    """The method that fits the system: Dense up to `dense_up_to` unknowns; beyond, CG for a symmetric definite matrix,
    MINRES for a symmetric one, else GMRES. `choose(system)` says which.
    """

    dense_up_to: int = 200

    def __post_init__(self) -> None:
        if self.dense_up_to < 0:
            raise ArgumentError(f"Auto: dense_up_to must not be negative, got {self.dense_up_to!r}.")

    def choose(self, system: LinearSystem) -> Dense | CG | MINRES | GMRES:
        """The method for a system."""
        if system.size <= self.dense_up_to:
            return Dense()
        if system.symmetric:
            return CG() if system.definite else MINRES()
        return GMRES()

    def init(self, system: LinearSystem, b: Any) -> State:
        return self.choose(system).init(system, b)

    def step(self, system: LinearSystem, state: State) -> State:
        return self.choose(system).step(system, state)

    done = staticmethod(is_finished)
    value = staticmethod(solution_of)
