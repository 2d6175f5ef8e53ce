"""Validation of static parameters: the kinds that op records name, checked when a program is read from a file.

Public functions normalize what a user wrote and refuse the rest; rules and interpreters pass that
form on. A graph read from text or JSON bypasses the public functions, so each kind is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.dtypes import NAMES
from ..arrays.spec import Spec
from ..errors import ArgumentError, ShapeError
from .op import Op

#: Beyond what any machine holds: a larger size is a mistake or an attack.
MAX_ELEMENTS = 1 << 48
#: Elements that padding may add to those of arguments and results, as scratch memory.
_MAX_PADDING = 1 << 24

#: What names the axes of a contraction. Spelled out: the module `string` takes a millisecond to import.
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Statics = Mapping[str, Any]


class Static(NamedTuple):
    """One kind of static parameter: a description, a predicate of (value, specs, all statics), and how a batch axis in
    front changes it: an "axis" moves on, an "order" of axes too, a "shape" grows. A predicate that raises
    (because another parameter is malformed) counts as false.
    """

    wanted: str
    holds: Callable[[Any, Sequence[Spec], Statics], bool]
    batching: str = ""


def check_statics(op: Op, specs: Sequence[Spec], static: Statics) -> None:
    """Raise if static parameters are missing, unknown, or do not match the op's record. A custom op checks its own."""
    if op.statics is None:
        return
    if static.keys() != op.statics.keys():
        wanted, got = (", ".join(sorted(map(str, names))) or "none" for names in (op.statics, static))
        raise ArgumentError(f"{op.name}: static parameters are {wanted}, got {got[:200]}.")
    for name, kind in op.statics.items():
        try:
            fits = kind.holds(static[name], specs, static)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
            fits = False
        if not fits:
            raise ArgumentError(f"{op.name}: {name} must be {kind.wanted}, got {_short_repr(static[name])}.")


def _short_repr(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__}"


def is_integer_between(value: Any, least: int = 0, most: int = MAX_ELEMENTS) -> bool:
    """Whether it is an integer (not a bool) between two bounds."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(least <= value <= most)


def _are_integers(values: Any, least: int = 0, most: int = MAX_ELEMENTS) -> bool:
    return type(values) is tuple and all(is_integer_between(v, least, most) for v in values)


def integer(least: int, most: int = MAX_ELEMENTS) -> Static:
    """One integer between bounds."""
    return Static(f"an integer from {least} to {most}", lambda v, specs, static: is_integer_between(v, least, most))


def choice(*options: Any) -> Static:
    """One of a few values."""
    listed = ", ".join(map(repr, options))
    return Static(f"one of {listed}", lambda v, specs, static: any(type(v) is type(o) and v == o for o in options))


def integers(least: int) -> Static:
    """A tuple of integers."""
    return Static(f"a tuple of integers, each {least} or more", lambda v, specs, static: _are_integers(v, least))


def _is_shape(v: Any) -> bool:
    return _are_integers(v) and len(v) <= 64 and math.prod(max(n, 1) for n in v) <= MAX_ELEMENTS


def _are_letters(v: Any) -> bool:
    return isinstance(v, str) and all(c in LETTERS for c in v) and len(set(v)) == len(v)


def _are_contracted(result: str, static: Statics) -> bool:
    """A product of two operands sums only over letters that both have."""
    first, *rest = map(set, static["labels"])
    return len(rest) != 1 or bool(first ^ rest[0] <= set(result))


def _are_axes(v: Any, rank: int) -> bool:
    return _are_integers(v, 0, rank - 1) and len(set(v)) == len(v)


flag = Static("True or False", lambda v, specs, static: isinstance(v, (bool, np.bool_)))
text = Static("a string", lambda v, specs, static: isinstance(v, str))
dtype = Static("a dtype", lambda v, specs, static: isinstance(v, np.dtype) and v.name in NAMES)
floating_dtype = Static(
    "a dtype of real floating-point numbers",
    lambda v, specs, static: isinstance(v, np.dtype) and v.name in ("float64", "float32", "float16", "bfloat16"),
)
shape = Static("a shape", lambda v, specs, static: _is_shape(v), "shape")


def _axes_kind(wanted: str, holds: Callable[[Any, int], bool], batching: str = "axis") -> Static:
    """A kind that depends on the number of axes of the first argument."""
    return Static(wanted, lambda v, specs, static: holds(v, specs[0].ndim), batching)


axis = _axes_kind("an axis of the argument, counted from the front", lambda v, rank: is_integer_between(v, 0, rank - 1))
axes = _axes_kind("different axes of the argument", _are_axes)
axes_in_order = _axes_kind(
    "different axes of the argument, in rising order", lambda v, rank: _are_axes(v, rank) and list(v) == sorted(v)
)
permutation = _axes_kind(
    "each axis of the argument once", lambda v, rank: _are_axes(v, rank) and len(v) == rank, "order"
)
axes_with_repeats = Static(
    "axes of the argument, one for each shift",
    lambda v, specs, static: _are_integers(v, 0, specs[0].ndim - 1) and len(v) == len(static["shift"]),
    "axis",
)
shifts = Static("a tuple of integers", lambda v, specs, static: _are_integers(v, -MAX_ELEMENTS))
places = Static(
    "places along the axis", lambda v, specs, static: _are_integers(v, 0, specs[0].shape[static["axis"]] - 1)
)
cuts = Static(
    "places along the axis, in rising order",
    lambda v, specs, static: _are_integers(v, 0, specs[0].shape[static["axis"]]) and list(v) == sorted(v),
)
labels = Static(
    "a string for each argument, with a letter for each of its axes",
    lambda v, specs, static: (
        type(v) is tuple
        and [len(label) for label in v] == [s.ndim for s in specs]
        and all(_are_letters(label) for label in v)
    ),
)
result = Static(
    "letters of the arguments' labels, each once",
    lambda v, specs, static: (
        _are_letters(v) and set(v) <= set("".join(static["labels"])) and _are_contracted(v, static)
    ),
)


def _is_padding(v: Any, specs: Sequence[Spec], static: Statics) -> bool:
    pairs = type(v) is tuple and all(_are_integers(p) and len(p) == 2 for p in v)
    if not pairs:
        return False
    sizes = static.get("sizes", specs[0].shape[2:])
    inner = specs[0].shape[2:] if len(v) != len(sizes) else sizes
    padded = math.prod(specs[0].shape[:2]) * math.prod(n + low + high for n, (low, high) in zip(inner, v, strict=True))
    # padding costs memory that no spec shows
    return bool(padded <= 64 * (math.prod(inner) + sum(s.size for s in specs)) + _MAX_PADDING)


#: How windows lie on a grid. Whether they fit is checked by the op's spec.
WINDOW: dict[str, Static] = {
    "stride": integers(1),
    "padding": Static("a pair of numbers for each size, not negative and of bounded extent", _is_padding),
    "dilation": integers(1),
}
#: The sizes of a grid that is made.
GRID: dict[str, Static] = {"sizes": shape}


def check_shape(what: str, found: Any, wanted: Any) -> None:
    """Raise if the shape of an argument is not the one that the others imply."""
    if tuple(found) != tuple(wanted):
        raise ShapeError(f"{what}: an argument has shape {tuple(found)} , expected {tuple(wanted)}.")
