"""A linear system in, its solution out: all methods for it, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..errors import ArgumentError
from ..ops import elementwise as pointwise
from .direct import Dense, Sparse
from .krylov import GMRES, State, answer, finished, preconditioned, started, true_residual
from .linear import System
from .recurrences import CG, LSMR, MINRES, BiCGStab

__all__ = ["CG", "GMRES", "LSMR", "MINRES", "Auto", "BiCGStab", "Dense", "Neumann", "Sparse"]


@final
@dataclass(frozen=True)
class Neumann:
    """x <- x + (b - A x), the series b + (I - A) b + (I - A)^2 b + ..., for matrices near the unit matrix; with a
    preconditioner M, x <- x + M (b - A x).
    """

    def init(self, system: System, b: Any) -> State:
        state = started(b)
        return {**state, "at": state["x"], "r": state["b"]}

    def step(self, system: System, state: State) -> State:
        at = state["at"] + preconditioned(system, state["r"])
        r, left = true_residual(system, state, at)
        better = left < state["left"]
        if isinstance(better, np.ndarray) and better:  # what follows, where there is nothing to choose by element
            return {**state, "at": at, "r": r, "x": at, "left": left}
        # where the terms outgrow b by this much, rounding has already lost all digits of the sum
        going = pointwise.logical_and(state["going"], left < 1 / float(np.finfo(system.dtype).eps))
        return {
            **state, "at": at, "r": r, "going": going,
            "x": pointwise.where(better, at, state["x"]), "left": pointwise.where(better, left, state["left"]),
        }  # fmt: skip

    done = staticmethod(finished)
    value = staticmethod(answer)


@final
@dataclass(frozen=True)
class Auto:
    """The method that fits the system: Dense up to `dense_up_to` unknowns; beyond, CG for a symmetric definite matrix,
    MINRES for a symmetric one, else GMRES. `choose(system)` says which.
    """

    dense_up_to: int = 200

    def __post_init__(self) -> None:
        if self.dense_up_to < 0:
            raise ArgumentError(f"Auto: dense_up_to must not be negative, got {self.dense_up_to!r}.")

    def choose(self, system: System) -> Dense | CG | MINRES | GMRES:
        """The method for a system."""
        if system.size <= self.dense_up_to:
            return Dense()
        if system.symmetric:
            return CG() if system.definite else MINRES()
        return GMRES()

    def init(self, system: System, b: Any) -> State:
        return self.choose(system).init(system, b)

    def step(self, system: System, state: State) -> State:
        return self.choose(system).step(system, state)

    done = staticmethod(finished)
    value = staticmethod(answer)
