"""What NumPy's functions take and ours cannot honour, refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UnsupportedFunction
from ..late import public

__all__ = ["NOT_GIVEN", "library", "refuse", "unknown"]

#: NumPy's own mark of an argument that was not given.
NOT_GIVEN: Any = np._NoValue

_LAYOUTS = ("K", "C", "A", None)


def refuse(function: str, **given: Any) -> None:
    """Raise for the first argument that was given; values that ask for nothing (None, no value, a layout) may pass."""
    for name, value in given.items():
        if value is None or value is NOT_GIVEN or (name == "order" and value in _LAYOUTS) or (name == "subok"):
            continue
        raise UnsupportedFunction(
            f"np.{function}: {name}={value!r} has no rule here.\n"
            f"  Leave {name} out, or register a rule: @pb.register_numpy(np.{function})."
        )


def unknown(function: str) -> UnsupportedFunction:
    """The error for a function that nobody has given a rule."""
    return UnsupportedFunction(
        f"np.{function} has no rule here, and a bare array would lose the derivative.\n"
        f"  Use functions of pullback, x.detach().numpy() where no derivative is wanted, or register a rule:\n"
        f"  @pb.register_numpy(np.{function})"
    )


def library(name: str, wanted_by: str) -> Any:
    """A function of the package by its public name, such as "linalg.solve"."""
    found = public(name)
    if found is None:
        raise unknown(wanted_by)
    return found
