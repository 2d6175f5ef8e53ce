"""Derivative policies: how the solution of an equation is differentiated, each with its cost and its error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.argument_checks import short_repr
from ..errors import ArgumentError


def check_tolerance(value: Any, what: str) -> float:
    """A positive number, or an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)) or not 0 < value < math.inf:
        raise ArgumentError(f"{what} must be a positive number, got {value!r}.")
    return float(value)


def check_relative_tolerance(value: Any, what: str) -> float:
    """A positive number below 1, or an error: with 1 and more, zero would count as a solution."""
    found = check_tolerance(value, what)
    if found >= 1:
        raise ArgumentError(f"{what} is relative and must be below 1, got {value!r}.")
    return found


def check_max_steps(max_steps: Any, what: str) -> int:
    """A positive number of steps, or an error."""
    if not isinstance(max_steps, (int, np.integer)) or isinstance(max_steps, bool) or max_steps < 1:
        raise ArgumentError(f"{what}: max_steps must be a positive integer, got {max_steps!r}.")
    return int(max_steps)


def checked_method(method: Any, what: str, example: str) -> Any:
    """A method, which has what a solve asks it for, or an error."""
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("init", "step", "done", "value")):
        raise ArgumentError(f"{what} must be one of pb.implicit, such as {example}, got {short_repr(method)}.")
    return method


def default_tolerance(dtype: Any) -> float:
    """The default tolerance of a solve."""
    return 1e-10 if np.dtype(dtype).itemsize >= 8 else 1e-5


def adjoint_tolerance(tol: float | None, dtype: Any) -> float:
    """The default tolerance of the linear systems of derivatives, relative to their right sides: an absolute one may be
    any number, a relative one of 1 would accept zero as a solution.
    """
    coarsest = 1e-6 if np.dtype(dtype).itemsize >= 8 else 1e-4
    return default_tolerance(dtype) if tol is None else min(float(tol), coarsest)


def check_positive_count(value: Any, what: str) -> None:
    """Raise unless a parameter is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{what} must be a positive integer, got {value!r}.")


@dataclass(frozen=True)
class Implicit:
    """By the implicit function theorem: exact, in memory that does not depend on the number of steps.

    `adjoint` solves the linear system, `tol` is that of its residual relative to the right side, below 1. Without one,
    it is that of the equation, but at most 1e-6 (1e-4 in single precision).

    >>> import numpy as np, pullback as pb
    >>> policy = pb.implicit.Implicit(adjoint=pb.implicit.GMRES(), tol=1e-12)
    >>> slope = pb.grad(lambda b: pb.fixed_point(lambda x, b: 0.99 * x + b, 0.0, b, derivative=policy))(1.0)
    >>> bool(abs(slope - 100.0) < 1e-8)
    True
    """

    adjoint: Any = None
    tol: float | None = None

    def __post_init__(self) -> None:
        if self.adjoint is not None:
            checked_method(self.adjoint, "Implicit: adjoint", "GMRES()")
        if self.tol is not None:
            check_relative_tolerance(self.tol, "Implicit: tol")


@dataclass(frozen=True)
class Unrolled:
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


@dataclass(frozen=True)
class OneStep:
    """By one step of the map at the fixed point: cheap, and wrong by the factor that the map contracts with.

    >>> import pullback as pb
    >>> f = lambda x, b: 0.5 * x + b
    >>> pb.grad(lambda b: pb.fixed_point(f, 0.0, b, derivative=pb.implicit.OneStep()))(3.0)
    array(1.)
    """


@dataclass(frozen=True)
class PhantomGradient:
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
        if not 0 < self.damping <= 1:
            raise ArgumentError(f"PhantomGradient: damping must be in (0, 1], got {self.damping!r}.")
