"""Shapes with unknown sizes in a `Graph`: named, shown, and checked when they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arrays.size import Guard, Size, Unknowns, evaluate
from ..arrays.spec import Spec
from ..errors import ArgumentError, ShapeError


def shape_with_unknowns(unknowns: Unknowns, given: Any) -> tuple[Any, ...]:
    """A shape in which None and names stand for unknown sizes."""
    entries = given if isinstance(given, (tuple, list)) else (given,)
    return tuple(unknowns.size(n) if n is None or isinstance(n, str) else _check_size(n) for n in entries)


def _check_size(n: Any) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ArgumentError(f"a shape is made of sizes, None and names of unknown sizes, got {n!r}.")
    return n


def show_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape with unknown sizes as their names, and None for what was computed from them."""
    return tuple(n if not isinstance(n, Size) else n.name[0] if n.name else None for n in shape)


def check_guards(guards: Sequence[Guard], known: Mapping[Any, int]) -> None:
    """Raise if the known sizes decide a comparison differently than the graph was built for."""
    for guard in guards:
        if not guard.holds(known):
            raise ShapeError(
                f"this graph was built for sizes with {guard}; they are {dict(known)}.\n"
                "  Give the placeholders their whole shapes, in a separate graph."
            )


def check_shape(found: Spec, recorded: Spec, known: Mapping[Any, int], where: str) -> None:
    """Raise if a result does not have the shape that it should have for the known sizes."""
    wanted = evaluate(recorded.shape, known)
    if found.shape != wanted:
        raise ShapeError(
            f"{where}: its result has shape {found.shape} where the graph expects {wanted}: its shape depends on an "
            "unknown size in a way that is not followed.\n  Give the placeholder its whole shape."
        )
