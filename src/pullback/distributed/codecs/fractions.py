"""Some elements of an array: how many, and an array of zeros with these in their places."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.argument_checks import check_number
from ...arrays.backends import namespace_on
from ...arrays.spec import Spec
from ...errors import ArgumentError
from ...ops.index.indexing import add_at
from ...ops.shape.reshaping import broadcast_to, reshape


def check_fraction(fraction: Any, what: str) -> float:
    """A number above 0, at most 1."""
    found = check_number(what, fraction, above=0.0)
    if found > 1.0:
        raise ArgumentError(f"{what}: is at most 1, got {fraction!r}.")
    return found


def count_of(fraction: float, spec: Spec) -> int:
    """How many elements a fraction of an array is: one at least."""
    return min(max(1, math.ceil(fraction * spec.size)), spec.size)


def place_values(values: Any, places: Any, spec: Spec) -> Any:
    """Zeros of a spec, with values added at places."""
    zero = namespace_on(spec.device).zeros((), spec.dtype)
    flat = add_at(broadcast_to(zero, (spec.size,)), reshape(places, (-1,)), reshape(values, (-1,)))
    return reshape(flat, spec.shape)
