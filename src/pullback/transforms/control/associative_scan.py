"""`associative_scan`: all prefixes of a sequence under an associative function, in a logarithmic number of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arrays.argument_checks import check_functions
from ...arrays.spec import spec_of
from ...arrays.tensor import alias
from ...arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ...errors import DtypeError, ShapeError
from ...ops.axes import normalize_axis
from ...ops.dispatch import ndim, shape
from ...ops.index.indexing import getitem
from ...ops.shape.arrange import concat, flip
from ...ops.shape.reshaping import astype, expand_dims, reshape
from ..boundary import as_array_leaf
from .carry import as_arrays, differ_by_autocast, has_same_type


def associative_scan(f: Callable[[Any, Any], Any], xs: Any, reverse: bool = False, axis: int = 0) -> Any:
    """x0, f(x0, x1), f(f(x0, x1), x2), ... along an axis, for an associative f, in about 2 log2(n) calls of f. f gets
    two runs of elements of equal length and combines them pair by pair. With `reverse`, from the last element on:
    each result is f(f(last, the one before), ...) down to its own place.

    >>> import numpy as np, pullback as pb
    >>> pb.associative_scan(pb.multiply, np.array([1.0, 2.0, 3.0, 4.0]))
    array([ 1.,  2.,  6., 24.])
    """
    check_functions("associative_scan", f)
    given, structure = flatten(xs)
    leaves = as_arrays(given, "associative_scan")
    if not leaves:
        return xs
    axes = [
        normalize_axis(axis, ndim(x), f"associative_scan: xs{p}")
        for x, p in zip(leaves, leaf_paths(structure), strict=True)
    ]
    sizes = {shape(x)[a] for x, a in zip(leaves, axes, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(f"associative_scan: lengths along axis {axis} differ: {sorted(sizes)}.")
    combine = PrefixScan(f, structure, axes)
    if reverse:
        leaves = combine.flip_leaves(leaves)
    # Aliases, since f may rebind what it is given.
    leaves = combine.scan_prefixes([alias(x) for x in leaves])
    return unflatten(structure, combine.flip_leaves(leaves) if reverse else leaves)


class PrefixScan:
    """An associative function and the axes along which it combines leaves."""

    __slots__ = ("_axes", "_f", "_structure")

    def __init__(self, f: Callable[[Any, Any], Any], structure: Any, axes: list[int]) -> None:
        self._f, self._structure, self._axes = f, structure, axes

    def scan_prefixes(self, leaves: list[Any]) -> list[Any]:
        """All prefixes. With y_i the combination of x_0 .. x_i:

        y_1, y_3, y_5, ...  are the prefixes of  f(x_0, x_1), f(x_2, x_3), ...   half as many
        y_0 = x_0,  y_2 = f(y_1, x_2),  y_4 = f(y_3, x_4), ...
        """
        count = shape(leaves[0])[self._axes[0]]
        if count < 2:
            return leaves
        # Neighbors are combined first: half as many elements, whose prefixes are every second result.
        odd = self.scan_prefixes(
            self._combine(self._slice_leaves(leaves, 0, count - 1, 2), self._slice_leaves(leaves, 1, count, 2))
        )
        even = self._slice_leaves(leaves, 0, 1, 1)
        if count > 2:
            later = self._combine(
                self._slice_leaves(odd, 0, (count - 1) // 2, 1), self._slice_leaves(leaves, 2, count, 2)
            )
            even = [concat(pair, axis=a) for *pair, a in zip(even, later, self._axes, strict=True)]
        return [_interleave(*row) for row in zip(even, odd, self._axes, strict=True)]

    def _combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        out = self._f(unflatten(self._structure, left), unflatten(self._structure, right))
        leaves = leaves_matching(self._structure, out, "associative_scan: the result of the function and its arguments")
        leaves = [as_array_leaf(x, "associative_scan") for x in leaves]
        return [_fit(*row) for row in zip(leaf_paths(self._structure), leaves, left, strict=True)]

    def _slice_leaves(self, leaves: list[Any], start: int, stop: int, step: int) -> list[Any]:
        along = slice(start, stop, step)
        return [getitem(x, (slice(None),) * a + (along,)) for x, a in zip(leaves, self._axes, strict=True)]

    def flip_leaves(self, leaves: list[Any]) -> list[Any]:
        return [flip(x, axis=a) for x, a in zip(leaves, self._axes, strict=True)]


def _fit(path: str, x: Any, given: Any) -> Any:
    """What the function returned for a leaf, as it must be."""
    found, wanted = spec_of(x), spec_of(given)
    if has_same_type(found, wanted):
        return x
    if differ_by_autocast(found, wanted):
        return astype(x, wanted.dtype)
    kind = ShapeError if found.shape != wanted.shape else DtypeError
    raise kind(
        f"associative_scan: the function got {wanted} for leaf{path} and returned {found}.\n"
        "  It combines runs of elements, and returns the shape and dtype it was given."
    )


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """even_0, odd_0, even_1, odd_1, ...; there may be one more even than odd."""
    count = shape(odd)[axis]
    before = (slice(None),) * axis
    first = getitem(even, (*before, slice(count))) if shape(even)[axis] > count else even
    sizes = shape(odd)
    # Pairs along a new axis, joined with the old one: two ops in place of a scatter.
    pairs = concat([expand_dims(first, axis + 1), expand_dims(odd, axis + 1)], axis=axis + 1)
    woven = reshape(pairs, (*sizes[:axis], 2 * count, *sizes[axis + 1 :]))
    return woven if first is even else concat([woven, getitem(even, (*before, slice(count, None)))], axis=axis)
