"""Bounds of unknowns: how far x is from them, which elements they fix, and a start inside of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on, to_host
from ...arrays.trees import LEAF, flatten, leaves_matching
from ...errors import ArgumentError, ShapeError
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import broadcast_to, reshape
from ..equation.problem import detach
from ..vector_layout import VectorLayout
from .constraints import join_rows, real_leaf

Bounds = tuple[Any, Any]
#: How far inside of a bound a search starts at least, relative to the bound, and the share of what is between two.
_INSIDE, _SHARE = 1e-2, 0.25


def bound_distances(x: Any, layout: VectorLayout, bound: Any, sign: float) -> Any:
    """How far x, a vector, is above a lower bound, or, with sign -1, below an upper one; 1 where the bound is infinite:
    always fulfilled, and no function of anything.
    """
    rows, first = [], 0
    for b, spec in zip(_leaves_like(layout, bound), layout.specs, strict=True):
        rows.append(_distance(x[first : first + spec.size], b, spec.shape, sign))
        first += spec.size
    return join_rows(rows, layout.dtype)


def _distance(x: Any, bound: Any, wanted: tuple[int, ...], sign: float) -> Any:
    """The same for one leaf, flattened."""
    absent = -sign * math.inf  # the other infinity, and NaN, are bounds that nothing fulfills
    if isinstance(bound, (int, float)):
        return pointwise.where(pointwise.isnan(x), x, 1.0) if bound == absent else sign * (x - bound)
    bound = _flatten_bound(bound, wanted)
    is_absent = pointwise.equal(bound, absent)
    return pointwise.where(is_absent, 1.0, sign * (x - pointwise.where(is_absent, 0.0, bound)))


def find_fixed(layout: VectorLayout, bounds: Bounds) -> Any:
    """The elements of x that bounds fix: those of which both are known, and equal."""
    lower, upper = (_known_bound(layout, bound) for bound in bounds)
    return np.flatnonzero((lower == upper) & np.isfinite(lower))


def _known_bound(layout: VectorLayout, bound: Any) -> Any:
    """A bound as a vector of NumPy, with NaN where it is left out, or a value of a transform."""
    found = []
    for b, spec in zip(_leaves_like(layout, math.nan if bound is None else bound), layout.specs, strict=True):
        is_known = isinstance(b, (int, float)) or (is_array(b) and b.dtype.kind in "biuf")
        known = to_host(b) if is_known else np.array(math.nan)
        fits = known.shape == np.broadcast_shapes(known.shape, spec.shape) or known.ndim <= len(spec.shape)
        found.append(np.broadcast_to(known, spec.shape).reshape(-1) if fits else np.full(spec.size, math.nan))
    return np.concatenate(found)


def move_inside(layout: VectorLayout, x: Any, bounds: Bounds) -> Any:
    """A start, with elements that lie on a bound or beyond it moved inside: a function may not be defined there."""
    lower, upper = (
        _bound_vector(layout, bound, absent) for bound, absent in zip(bounds, (-math.inf, math.inf), strict=True)
    )
    low, high = (pointwise.where(pointwise.isfinite(b), b, 0.0) for b in (lower, upper))
    above = low + _distance_inside(low, upper - low)
    below = high - _distance_inside(high, high - lower)
    return pointwise.where(x <= lower, above, pointwise.where(x >= upper, below, x))


def _distance_inside(bound: Any, room: Any) -> Any:
    return pointwise.minimum(_INSIDE * pointwise.maximum(1.0, pointwise.abs(bound)), _SHARE * room)


def _bound_vector(layout: VectorLayout, bound: Any, absent: float) -> Any:
    """A bound as a vector, without derivatives."""
    leaves = _leaves_like(layout, absent if bound is None else bound)
    xp = namespace_on(layout.device)
    rows = []
    for b, spec in zip(leaves, layout.specs, strict=True):
        is_number = isinstance(b, (int, float))
        rows.append(xp.full(spec.size, b, layout.dtype) if is_number else _flatten_bound(detach(b), spec.shape))
    return join_rows(rows, layout.dtype)


def _flatten_bound(bound: Any, wanted: tuple[int, ...]) -> Any:
    bound = real_leaf(bound, "bounds")
    try:
        return reshape(broadcast_to(bound, wanted), (-1,))
    except ShapeError:
        raise ShapeError(f"bounds: shape {shape(bound)} does not fit {wanted}.") from None


def _leaves_like(layout: VectorLayout, bound: Any) -> list[Any]:
    """A bound for each leaf of x: the same for all, or those of a tree like x."""
    given, structure = flatten(bound)
    if structure is not LEAF and layout.structure is LEAF:
        raise ArgumentError(
            f"bounds: the pair is (lower, upper), each a number or an array like x, got {bound!r}.\n"
            "  Where SciPy has a pair for each number of x, write (np.array(lowers), np.array(uppers))."
        )
    return given * len(layout.specs) if structure is LEAF else leaves_matching(layout.structure, bound, "bounds")
