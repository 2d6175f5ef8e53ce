"""The pattern of a product of arrays, from the pattern of one factor.

A contraction multiplies its factors and sums over the axes they share. Which axes those are is found by running it, so
that any op of the family will do; an axis about which nothing can be shown counts as summed over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.spec import spec_of
from .op_call import OpCall, known_numbers
from .pattern_rows import boolean_matrix, unite_rows
from .probe import AxisLink, linked_axes, same_coordinate

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    Matrix = csr_matrix[Any]

#: The most pairs of elements to list for a tight pattern instead of a cautious one.
_MAX_PAIRS = 1 << 26


def contract_pattern(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """A sum of products: results share the axes that are not summed over with each factor. Zeros of a constant factor
    are absent for good; those of any other only locally.
    """
    shape, wanted = call.spec(position).shape, spec_of(call.outs[0]).shape
    shapes = [call.spec(i).shape for i in range(len(call.values))]
    links = linked_axes(call.as_product_function(position), shape, wanted)
    zeros = {q: mask for q in range(len(shapes)) if q != position and (mask := _nonzero_mask(call, q)) is not None}
    if zeros:
        labels = _label_axes(len(wanted), len(shape), links)
        named = [(mask, _label_other_axes(call, shapes, (position, q), wanted, labels)) for q, mask in zeros.items()]
        pairs = _list_pairs(named, labels, shape, wanted)
        if pairs is not None:
            return boolean_matrix(*pairs, math.prod(wanted), math.prod(shape)) @ pattern
    return unite_rows(pattern, links, shape, wanted)


def _nonzero_mask(call: OpCall, position: int) -> Any:
    """Where a factor is not zero, if that may be relied upon and tells anything."""
    if not (call.local or call.fixed[position]):
        return None
    numbers = known_numbers(call.values[position])
    return None if numbers is None or numbers.all() else numbers != 0


def _label_axes(rank: int, own_rank: int, links: Sequence[AxisLink]) -> list[int]:
    """A name for each axis of a factor: that of the axis of the result it is linked to, or one of its own."""
    named = dict(links)
    return [named.get(a, rank + a) for a in range(own_rank)]


def _label_other_axes(
    call: OpCall, shapes: Sequence[tuple[int, ...]], pair: AxisLink, wanted: tuple[int, ...], labels: Sequence[int]
) -> list[int | None]:
    """The names of another factor's axes: a result axis, an axis summed over with ours, or None if neither is sure."""
    position, other = pair
    links = dict(linked_axes(call.as_product_function(other), shapes[other], wanted))
    both = call.as_product_function(position, other)
    names: list[int | None] = []
    for c in range(len(shapes[other])):
        summed = (
            name
            for a, name in enumerate(labels)
            if name >= len(wanted) and same_coordinate(both, (shapes[position], shapes[other]), (a, c))
        )
        names.append(links[c] if c in links else next(summed, None))
    return names


def _list_pairs(
    masks: Sequence[tuple[Any, list[int | None]]], labels: Sequence[int], shape: Sequence[int], wanted: Sequence[int]
) -> tuple[Any, Any] | None:
    """(result, source) pairs that no mask excludes: places where the masks hold, times all places of other axes."""
    sizes = {**dict(enumerate(wanted)), **dict(zip(labels, shape, strict=True))}
    named = sorted({name for _, names in masks for name in names if name is not None})
    whole: Any = True
    for mask, names in masks:
        whole = whole & _spread_mask(mask, names, named)
    places = np.nonzero(whole) if named else ()
    rest = [name for name in sizes if name not in named]
    count = math.prod(sizes[name] for name in rest)
    if not places or len(places[0]) * count > _MAX_PAIRS:
        return None
    at = {name: place[:, None] for name, place in zip(named, places, strict=True)}
    at |= dict(zip(rest, np.indices([sizes[name] for name in rest]).reshape(len(rest), 1, count), strict=True))
    full = len(places[0]), count
    results = _flat_numbers([at[name] for name in range(len(wanted))], wanted, full)
    return results, _flat_numbers([at[name] for name in labels], shape, full)


def _spread_mask(mask: Any, names: Sequence[int | None], named: Sequence[int]) -> Any:
    """A mask over all named axes; an axis without a name, or with one that stands twice, holds if any place does."""
    unclear = tuple(i for i, name in enumerate(names) if name is None or name in names[:i])
    mask = mask.any(axis=unclear)
    sizes = dict(zip((name or 0 for i, name in enumerate(names) if i not in unclear), mask.shape, strict=True))
    order = sorted(range(mask.ndim), key=lambda i: list(sizes)[i])
    return mask.transpose(order).reshape([sizes.get(name, 1) for name in named])


def _flat_numbers(places: Sequence[Any], shape: Sequence[int], full: tuple[int, int]) -> Any:
    number: Any = np.zeros((1, 1), np.intp)
    for place, n in zip(places, shape, strict=True):
        number = number * n + place
    return np.broadcast_to(number, full).reshape(-1)
