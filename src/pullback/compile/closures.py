"""A function in, what it reads from outside itself out: a changed global or closure is never answered by old code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..arrays.value import Value

__all__ = ["Watched", "watched"]

#: Longer containers are data, not settings.
_LONGEST = 64


class Watched:
    """Places a function reads from (cells of closures, globals, attributes, short containers) and what stood there
    when it was compiled.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.names: list[tuple[dict[str, Any], str, Any]] = []
        self.contents: list[tuple[Any, dict[Any, Any] | list[Any]]] = []

    def is_same(self) -> bool:
        """Whether all of it is still there."""
        for cell, value in self.cells:
            if _content(cell) is not value:
                return False
        for names, name, value in self.names:
            if names.get(name) is not value:
                return False
        return all(_still_there(holder, items) for holder, items in self.contents)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable was deleted
        return Watched


def _still_there(holder: Any, then: dict[Any, Any] | list[Any]) -> bool:
    """Whether a container holds what it held; what was added since was not there to be read."""
    if isinstance(then, dict):
        return all(holder.get(key) is value for key, value in then.items())
    return len(holder) >= len(then) and all(a is b for a, b in zip(holder, then, strict=False))


def watched(f: Callable[..., Any]) -> Watched:
    """What f and the functions it calls read from outside, as far as Python functions can be looked into. Of an object
    the attributes that a function names are watched.
    """
    found = Watched()
    seen: set[tuple[int, frozenset[str]]] = set()
    stack: list[tuple[Any, frozenset[str]]] = [(f, frozenset())]
    while stack:
        thing, names = stack.pop()
        thing = getattr(thing, "__wrapped__", thing)
        if (id(thing), names) in seen or isinstance(thing, (np.ndarray, Value, ModuleType, type)):
            continue
        seen.add((id(thing), names))
        if isinstance(thing, FunctionType):
            stack += _of_function(thing, found)
        elif isinstance(thing, MethodType):
            stack += [(thing.__func__, names), (thing.__self__, names | _names(thing.__func__.__code__))]
        elif isinstance(thing, functools.partial):
            inside = names | _names(thing.func.__code__) if isinstance(thing.func, FunctionType) else names
            stack += [(x, inside) for x in (thing.func, *thing.args, *thing.keywords.values())]
        elif isinstance(thing, (dict, list)) and len(thing) <= _LONGEST:
            found.contents.append((thing, thing.copy()))
            stack += [(x, names) for x in (thing.values() if isinstance(thing, dict) else thing)]
        elif isinstance(thing, tuple) and len(thing) <= _LONGEST:
            stack += [(x, names) for x in thing]
        else:
            stack += _of_object(thing, names, found)
    return found


def _of_function(function: FunctionType, found: Watched) -> list[tuple[Any, frozenset[str]]]:
    if _is_library(function.__module__):
        return []
    names = _names(function.__code__)
    held = []
    for cell in function.__closure__ or ():
        found.cells.append((cell, _content(cell)))
        held.append(_content(cell))
    for name in names & function.__globals__.keys():
        found.names.append((function.__globals__, name, function.__globals__[name]))
        held.append(function.__globals__[name])
    return [(x, names) for x in held]


def _of_object(thing: Any, names: frozenset[str], found: Watched) -> list[tuple[Any, frozenset[str]]]:
    """The attributes of an object that a function names; of one that is called, what its `__call__` names."""
    attributes = getattr(thing, "__dict__", None)
    if not isinstance(attributes, dict) or _is_library(type(thing).__module__):
        return []
    call = vars(type(thing)).get("__call__")
    held: list[tuple[Any, frozenset[str]]] = []
    if isinstance(call, FunctionType):
        names = names | _names(call.__code__)
        held.append((call, names))
    for name in names & attributes.keys():
        found.names.append((attributes, name, attributes[name]))
        held.append((attributes[name], names))
    for name in names:
        method = getattr(type(thing), name, None)
        if isinstance(method, FunctionType):
            held += [(method, names), (thing, names | _names(method.__code__))]
    return held


def _names(code: CodeType) -> frozenset[str]:
    """The names that a function and the functions written in it look up outside."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(code.co_names).union(*inner)


def _is_library(name: str | None) -> bool:
    return (name or "").split(".")[0] in ("pullback", "numpy", "scipy", "optree")
