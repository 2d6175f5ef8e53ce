"""Checks of arguments of public functions: each returns the argument, or raises an error that names what is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError


def short_repr(x: Any) -> str:
    """A value as shown in an error: numbers and strings by value, anything larger by type."""
    if isinstance(x, (bool, int, float, complex, str, type(None))) and len(repr(x)) < 60:
        return repr(x)
    return f"a {type(x).__name__}"


def check_functions(what: str, *functions: Any, hint: str = "") -> None:
    """Raise unless every argument is callable."""
    for function in functions:
        if not callable(function):
            raise ArgumentTypeError(f"{what}: wants a function, got a {type(function).__name__}.{hint}")


def check_argnums(what: str, argnums: Any) -> None:
    """Raise unless argnums are integers."""
    for i in argnums if isinstance(argnums, (tuple, list)) else (argnums,):
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise ArgumentTypeError(
                f"{what}: argnums must be integers, got {short_repr(i)}.\n"
                f"  pb.{what}(f) is a function; the arguments go to that: pb.{what}(f)(x)."
            )


def check_count(number: Any, what: str, low: int = 1) -> int:
    """A count, as a Python integer."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < low:
        raise ArgumentError(f"{what} must be an integer of at least {low}, got {short_repr(number)}.")
    return int(number)


def check_number(what: str, number: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """A finite real number, from `least` up and above `above`."""
    try:
        found = float(number)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{what} must be a number, got {short_repr(number)}.") from None
    if not math.isfinite(found) or found < least or found <= above:
        bound = f" from {least:g} up" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
        raise ArgumentError(f"{what} must be a finite number{bound}, got {short_repr(number)}.")
    return found
