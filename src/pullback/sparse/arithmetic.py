"""Sums and elementwise products of sparse matrices, and functions of their elements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.concrete import as_bare_array, is_concrete
from ..ops.dispatch import ndim, shape
from ..ops.elementwise.pointwise import multiply
from ..ops.index import indexing
from ..ops.shape.reshaping import broadcast_to, reshape
from .entries import Entries
from .pattern import Pattern
from .products import add_rows
from .structure import sort_entries, sum_duplicates, to_dense


class Meeting(NamedTuple):
    """A pattern made of two: where the entries of each lie in it, or, of a common part, which of each they are."""

    pattern: Pattern
    left: Any
    right: Any


@functools.lru_cache(maxsize=16)
def _unite(left: Pattern, right: Pattern) -> Meeting:
    """The places of either pattern, both sorted by rows."""
    keys, targets = np.unique(np.concatenate((left.keys, right.keys)), return_inverse=True)
    width = max(1, left.shape[1])
    found = Pattern("csr", left.shape, keys // width, keys % width)
    return Meeting(found, *np.split(targets.reshape(-1), [left.rows.size]))


@functools.lru_cache(maxsize=16)
def _intersect(left: Pattern, right: Pattern) -> Meeting:
    """The places of both patterns, each of which lists a place once."""
    _, of_left, of_right = np.intersect1d(left.keys, right.keys, assume_unique=True, return_indices=True)
    return Meeting(Pattern("csr", left.shape, left.rows[of_left], left.cols[of_left]), of_left, of_right)


def join_entries(left: Entries, right: Entries, combine: Callable[[Any, Any], Any], sign: str) -> Entries:
    """The sum or the difference of two matrices of one shape."""
    _check_shapes(left, right, sign)
    if left.pattern == right.pattern:
        return Entries(combine(left.data, right.data), left.pattern)
    left, right = sort_entries(left, "csr"), sort_entries(right, "csr")
    pattern, of_left, of_right = _unite(left.pattern, right.pattern)
    count = pattern.rows.size
    return Entries(combine(add_rows(left.data, of_left, count), add_rows(right.data, of_right, count)), pattern)


def multiply_entries(left: Entries, right: Entries) -> Entries:
    """The product of the elements of two matrices of one shape."""
    _check_shapes(left, right, "*")
    left, right = sum_duplicates(left), sum_duplicates(right)
    if left.pattern == right.pattern:
        return Entries(multiply(left.data, right.data), left.pattern)
    left, right = sort_entries(left, "csr"), sort_entries(right, "csr")
    pattern, of_left, of_right = _intersect(left.pattern, right.pattern)
    data = multiply(indexing.take(left.data, of_left, axis=0), indexing.take(right.data, of_right, axis=0))
    return Entries(data, pattern)


def combine_with_dense(entries: Entries, x: Any, combine: Callable[[Any, Any], Any], sign: str) -> Entries:
    """Each number combined with the element of a dense array at its place; `x` broadcasts to the matrix."""
    if not ndim(x):
        return Entries(combine(entries.data, x), entries.pattern)
    pattern = entries.pattern
    try:
        fits = np.broadcast_shapes(shape(x), pattern.shape) == pattern.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"A {sign} x: x has shape {shape(x)}, which does not broadcast to {pattern.shape}.")
    x = reshape(x, (1,) * (2 - ndim(x)) + shape(x))
    rows, cols = pattern.entries.places_for(entries.data)
    places = (rows if shape(x)[0] > 1 else rows * 0, cols if shape(x)[1] > 1 else cols * 0)
    return Entries(combine(entries.data, reshape(indexing.getitem(x, places), shape(entries.data))), pattern)


def join_dense(entries: Entries, x: Any, combine: Callable[[Any, Any], Any], sign: str) -> Any:
    """The dense sum or difference with a dense matrix, or with what broadcasts to one."""
    if not ndim(x):
        raise ArgumentError(
            f"A {sign} number: every element would become nonzero.\n  Use A.todense() {sign} number, or A.with_data."
        )
    pattern = entries.pattern
    try:
        wide = broadcast_to(x, pattern.shape)
    except ShapeError:
        raise ShapeError(f"A {sign} x: x has shape {shape(x)}, which does not broadcast to {pattern.shape}.") from None
    return combine(to_dense(entries), wide)


def map_entries(entries: Entries, function: Callable[[Any], Any]) -> Entries:
    """The function of each element. Zeros are not stored, so it must map zero to zero."""
    name = getattr(function, "__name__", "the function")
    with np.errstate(all="ignore"):
        at_zero = function(np.zeros(1, spec_of(entries.data).dtype))
    if not is_concrete(at_zero):
        raise ArgumentError(f"map: what {name} makes of zero is hidden inside a transform.\n  Map A.data: A.with_data.")
    if as_bare_array(at_zero, "map").reshape(-1)[0] != 0:
        raise ArgumentError(
            f"map: {name} of zero is {as_bare_array(at_zero, 'map').reshape(-1)[0]}, so every element would become "
            "nonzero.\n  Use A.todense(), or A.with_data to change the stored numbers alone."
        )
    if shape(at_zero) != (1,):
        raise ShapeError(f"map: {name} returned shape {shape(at_zero)} for one number; it must map each element.")
    data, pattern = sum_duplicates(entries)
    found = function(data)
    if shape(found) != shape(data):
        raise ShapeError(f"map: {name} returned shape {shape(found)} for {shape(data)}; it must map each element.")
    return Entries(found, pattern)


def _check_shapes(left: Entries, right: Entries, sign: str) -> None:
    if left.pattern.shape != right.pattern.shape:
        raise ShapeError(f"A {sign} B: the matrices have shapes {left.pattern.shape} and {right.pattern.shape}.")
