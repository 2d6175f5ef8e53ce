"""A function in, what it reads from outside itself out: a changed global or closure is never answered by old code."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

__all__ = ["Watched", "watched"]


class Watched:
    """Places a function reads from (cells of closures, globals) and what stood there when it was compiled."""

    def __init__(self) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.globals: list[tuple[dict[str, Any], str, Any]] = []

    def is_same(self) -> bool:
        """Whether all of it is still there."""
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                return False
        return all(names.get(name) is value for names, name, value in self.globals)


def watched(f: Callable[..., Any]) -> Watched:
    """What f and the functions it calls read from outside, as far as Python functions can be looked into."""
    found = Watched()
    seen: set[int] = set()
    stack: list[Any] = [f]
    while stack:
        function = stack.pop()
        function = getattr(function, "__func__", getattr(function, "__wrapped__", function))
        if not isinstance(function, FunctionType) or id(function) in seen or _is_library(function):
            continue
        seen.add(id(function))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            found.cells.append((cell, value))
            stack.append(value)
        for name in _names(function.__code__):
            if name in function.__globals__:
                value = function.__globals__[name]
                found.globals.append((function.__globals__, name, value))
                stack.append(value)
    return found


def _names(code: CodeType) -> set[str]:
    """The names that a function and the functions written in it look up outside."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _is_library(function: FunctionType) -> bool:
    package = (function.__module__ or "").split(".")[0]
    return package in ("pullback", "numpy", "scipy", "optree")
