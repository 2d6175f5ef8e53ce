"""Checks of the options of solvers, and their default tolerances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.argument_checks import short_repr
from ..errors import ArgumentError
from .solvers.method_loop import Method, PackageMethod


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


def check_positive_count(value: Any, what: str) -> int:
    """A positive integer, or an error."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{what} must be a positive integer, got {value!r}.")
    return int(value)


def check_share(value: Any, what: str) -> None:
    """Raise unless a parameter is a number in (0, 1]."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise ArgumentError(f"{what} must be in (0, 1], got {value!r}.")


def check_method(method: Any, what: str, example: str) -> Any:
    """A method, which has what a solve asks it for, or an error."""
    # the package's own first: a check against a protocol takes longer than a step
    if not isinstance(method, PackageMethod) and (isinstance(method, type) or not isinstance(method, Method)):
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
