"""Arguments that a compiled function cannot take: which one it is, and what to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arrays.trees import flatten
from ...errors import ArgumentError
from ...ops.dispatch import as_value


def as_argument(x: Any, f: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A leaf of the arguments of f as a value."""
    found = None
    if not isinstance(x, (str, bytes)):
        try:
            return as_value(x)
        except Exception as error:
            found = error
    place = _find_place(x, args, kwargs)
    raise ArgumentError(
        f"jit: arguments of {_name(f)} are trees of arrays, got a {type(x).__name__} as argument {place!r}.\n"
        f"  {_advise(x, f, place)}"
    ) from found


def _find_place(x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | str:
    """The position or the name of the argument that a leaf belongs to."""
    places: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return next((place for place, arg in places if any(leaf is x for leaf in flatten(arg)[0])), 0)


def _advise(x: Any, f: Any, place: int | str) -> str:
    static = f"pb.jit(f, static_arg{'nums' if isinstance(place, int) else 'names'}={place!r})"
    if isinstance(x, (str, bytes)) or callable(x):
        return f"If it is a setting, for each value of which f is compiled: {static}."
    if hasattr(x, "tocsr"):
        return "Pass a sparse matrix as pb.sparse.from_scipy(A), which is a tree, or let the function close over it."
    if place == 0 and hasattr(type(x), _name(f)):
        return (
            f"Of a method, make the object static, {static}, or its class a pb.nn.Module, whose arrays are arguments."
        )
    return f"If it holds arrays, make its class a tree: pb.register_tree; if it is a setting: {static}."


def describe_unhashable(f: Any, static: Sequence[tuple[int | str, Any]]) -> str:
    """Which static argument has no hash, and what to pass in its place."""
    place, value = next((pair for pair in static if not _is_hashable(pair[1])), (0, None))
    instead = {"list": "a tuple", "dict": "a tuple of its items", "set": "a frozenset"}.get(type(value).__name__)
    advice = f"Pass {instead}." if instead else "Pass arrays as arguments that are not static."
    return (
        f"jit: static arguments must be hashable, got a {type(value).__name__} as argument {place!r} of {_name(f)}.\n"
        f"  {advice}"
    )


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


def _name(f: Any) -> str:
    return getattr(f, "__name__", type(f).__name__)
