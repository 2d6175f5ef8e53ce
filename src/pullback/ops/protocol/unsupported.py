"""Errors for NumPy functions and options that have no rule here."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UnsupportedFunction
from ..lazy import find_public

#: NumPy's own mark of an argument that was not given.
NOT_GIVEN: Any = np._NoValue

_LAYOUTS = ("K", "C", "A", None)


def refuse(function: str, **given: Any) -> None:
    """Raise for the first option that was set; values without effect (None, no value, the CPU, a layout) pass."""
    for name, value in given.items():
        if value is None or value is NOT_GIVEN or (name, value) == ("device", "cpu"):
            continue
        if (name == "order" and value in _LAYOUTS) or name == "subok":
            continue
        raise UnsupportedFunction(
            f"np.{function}: {name}={value!r} has no rule here.\n"
            f"  Leave {name} out, or register a rule: @pb.register_numpy(np.{function})."
        )


def unsupported_error(function: str) -> UnsupportedFunction:
    """The error for a function without a rule."""
    return UnsupportedFunction(
        f"np.{function} has no rule here, and a bare array would lose the derivative.\n"
        f"  Use functions of pullback, x.detach().numpy() where no derivative is wanted, or register a rule:\n"
        f"  @pb.register_numpy(np.{function})"
    )


def package_function(name: str, wanted_by: str) -> Any:
    """A function of the package by its public name, such as "linalg.solve"."""
    found = find_public(name)
    if found is None:
        raise unsupported_error(wanted_by)
    return found
