"""Arguments of public functions in, the same out if they are of the kind that is wanted, else an error that says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError

__all__ = ["short", "wants_argnums", "wants_functions", "wants_number"]


def short(x: Any) -> str:
    """A value as an error shows it: a number or a name itself, of anything larger its type."""
    if isinstance(x, (bool, int, float, complex, str, type(None))) and len(repr(x)) < 60:
        return repr(x)
    return f"a {type(x).__name__}"


def wants_functions(what: str, *functions: Any, hint: str = "") -> None:
    """Raise where something else stands in the place of a function."""
    for function in functions:
        if not callable(function):
            raise ArgumentTypeError(f"{what}: wants a function, got a {type(function).__name__}.{hint}")


def wants_argnums(what: str, argnums: Any) -> None:
    """Raise where something else stands in the place of the positions of arguments."""
    for i in argnums if isinstance(argnums, (tuple, list)) else (argnums,):
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise ArgumentTypeError(
                f"{what}: argnums must be integers, got {short(i)}.\n"
                f"  pb.{what}(f) is a function; the arguments go to that: pb.{what}(f)(x)."
            )


def wants_number(what: str, number: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """A finite real number, from `least` up and above `above`."""
    try:
        found = float(number)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{what} must be a number, got {short(number)}.") from None
    if not math.isfinite(found) or found < least or found <= above:
        bound = f" from {least:g} up" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
        raise ArgumentError(f"{what} must be a finite number{bound}, got {short(number)}.")
    return found
