"""The patterns of the results of an op call, from those of its arguments.

How an op propagates patterns is read off its record; where the record does not say, every element of a result gets all
that any element of an argument has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.spec import ones, spec_of
from ...ops.op import Op
from .op_call import OpCall, known_numbers
from .probe import (
    AxisLink,
    Matrix,
    boolean_matrix,
    copy_rows,
    linked_axes,
    same_coordinate,
    single_sources,
    unit_sources,
    unite_rows,
)

#: The most elements to run through an op for a tight pattern instead of a cautious one.
_MAX_PROBE_ELEMENTS = 1 << 27
#: The same for convolutions: without it each element of an image would take a product of its own.
_MAX_WINDOW_ELEMENTS = 1 << 30
#: The most pairs of elements to list for a tight pattern instead of a cautious one.
_MAX_PAIRS = 1 << 26


def patterns_of(call: OpCall, below: Sequence[Matrix | None]) -> list[Matrix | None]:
    """The pattern of each result, None for a constant."""
    totals: list[Matrix | None] = [None] * len(call.outs)
    for position, pattern in enumerate(below):
        if pattern is None or _has_no_derivative(call.op, position):
            continue
        for i, part in enumerate(_propagate(call, position, pattern)):
            total = totals[i]
            # The sum of boolean matrices is their union.
            totals[i] = part if total is None or total is part else total + part
    return [t if spec_of(out).inexact else None for t, out in zip(totals, call.outs, strict=True)]


def _has_no_derivative(op: Op, position: int) -> bool:
    """Only what an op says is zero is taken to be zero; what tapes alone do not see is none of it."""
    return not op.stops_tapes and op.pulls.get(op.argument(position), ...) is None


def _propagate(call: OpCall, position: int, pattern: Matrix) -> list[Matrix]:
    """What the results have from one argument."""
    op, one_result = call.op, len(call.outs) == 1
    # From what the record alone tells to what must be found by running the op.
    if op.family == "elementwise" and one_result:
        return [_propagate_pointwise(call, position, pattern)]
    try:
        if op.family == "linear":
            return _propagate_linear(call, position, pattern)
        if op.family == "contraction" and one_result:
            return [_contract_pattern(call, position, pattern)]
        if op.family == "reduction" and op.rearranges and one_result:
            return [_propagate_reduction(call, position, pattern)]
    except Exception:  # an op need not run on probe values: then nothing is known of it
        pass
    return [unite_rows(pattern, (), call.spec(position).shape, spec_of(out).shape) for out in call.outs]


def _propagate_pointwise(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """Each result has what the elements that were broadcast to it have."""
    shape, wanted = call.spec(position).shape, spec_of(call.outs[0]).shape
    source = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), wanted).reshape(-1)
    keep = _nonzero_partial(call, position) if call.local else None
    return copy_rows(pattern, source, keep)


def _nonzero_partial(call: OpCall, position: int) -> Any:
    """Where the partial derivative is not zero: an elementwise op pushes a tangent of ones to its partial."""
    spec, out = call.spec(position), call.outs[0]
    if spec.dtype.kind == "c" or spec_of(out).dtype.kind == "c":
        return None
    tangents: list[Any] = [None] * len(call.values)
    tangents[position] = ones(spec)
    with np.errstate(all="ignore"):
        partial = known_numbers(call.op.push(tangents, out, call.values, call.static))
    return None if partial is None else np.broadcast_to(partial != 0, spec_of(out).shape).reshape(-1)


def _propagate_linear(call: OpCall, position: int, pattern: Matrix) -> list[Matrix]:
    """A linear op: each element of a result adds up elements of its argument, and running it shows which."""
    size = call.spec(position).size
    run = call.as_linear_function(position)
    if call.op.rearranges:
        copies = single_sources(run, size)
        if copies is not None:
            return [copy_rows(pattern, source, there) for source, there in copies]
        # No copies forward, but perhaps each element goes to one place: then the pull makes copies.
        if len(call.outs) == 1:
            targets = single_sources(call.as_pull_function(position), spec_of(call.outs[0]).size)
            if targets is not None:
                ((target, there),) = targets
                return [
                    boolean_matrix(target[there], np.flatnonzero(there), spec_of(call.outs[0]).size, size) @ pattern
                ]
    return [_propagate_by_units(call, position, i, run, pattern) for i in range(len(call.outs))]


def _propagate_by_units(
    call: OpCall, position: int, i: int, run: Callable[[Any], list[Any]], pattern: Matrix
) -> Matrix:
    """Element by element along the axes that the op mixes, if they are not too many."""
    shape, wanted = call.spec(position).shape, spec_of(call.outs[i]).shape

    def run_one(x: Any) -> Any:
        return run(x.reshape(-1))[i].reshape(wanted)

    # Weights that may be negative could cancel in a probe, so links are only proved for a rearrangement.
    links = linked_axes(run_one, shape, wanted) if call.op.rearranges else []
    return _unite_by_units(run_one, links, pattern, shape, wanted)


def _unite_by_units(
    run: Callable[[Any], Any], links: Sequence[AxisLink], pattern: Matrix, shape: Sequence[int], wanted: Sequence[int],
    limit: int = _MAX_PROBE_ELEMENTS,
) -> Matrix:  # fmt: skip
    """Each result has what the elements have that reach it when they are ones, found for one after the other."""
    size, count = math.prod(shape), math.prod(wanted)
    mixed = size // max(1, math.prod(shape[a] for a, _ in links))
    if mixed * (size + count) > limit:
        return unite_rows(pattern, links, shape, wanted)
    return boolean_matrix(*unit_sources(run, shape, wanted, links), count, size) @ pattern


def _propagate_reduction(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """A reduction: each result has what the elements along the folded axes have; locally, those that count."""
    (out,), spec = call.outs, call.spec(position)
    kept = tuple(1 if a in call.static["axis"] else n for a, n in enumerate(spec.shape))
    target = np.broadcast_to(np.arange(spec_of(out).size).reshape(kept), spec.shape).reshape(-1)
    counts = np.ones(spec.size, bool)
    # At these values a maximum has one source, found by pulling ones back.
    if call.local:
        (share,) = call.as_pull_function(position)(np.ones(spec_of(out).size))
        counts = share != 0
    return boolean_matrix(target[counts], np.flatnonzero(counts), spec_of(out).size, spec.size) @ pattern


def _contract_pattern(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """A sum of products: results share the axes that are not summed over with each factor. Zeros of a constant factor
    are absent for good; those of any other only locally. Which axes those are is found by running the op, so that any
    op of the family will do; an axis about which nothing can be shown counts as summed over.
    """
    shape, wanted = call.spec(position).shape, spec_of(call.outs[0]).shape
    shapes = [call.spec(i).shape for i in range(len(call.values))]
    run = call.as_product_function(position)
    links = linked_axes(run, shape, wanted)
    zeros = {q: mask for q in range(len(shapes)) if q != position and (mask := _nonzero_mask(call, q)) is not None}
    if not _reaches_all(run, links, shape, wanted):
        # a convolution, whose windows are no axes: each element reaches a few results near it
        masked, masks = call.as_product_function(position, *zeros), [mask.astype(np.float64) for mask in zeros.values()]
        return _unite_by_units(lambda x: masked(x, *masks), links, pattern, shape, wanted, _MAX_WINDOW_ELEMENTS)
    if zeros:
        labels = _label_axes(len(wanted), len(shape), links)
        named = [(mask, _label_other_axes(call, shapes, (position, q), wanted, labels)) for q, mask in zeros.items()]
        pairs = _list_pairs(named, labels, shape, wanted)
        if pairs is not None:
            return boolean_matrix(*pairs, math.prod(wanted), math.prod(shape)) @ pattern
    return unite_rows(pattern, links, shape, wanted)


def _reaches_all(
    run: Callable[[Any], Any], links: Sequence[AxisLink], shape: Sequence[int], wanted: Sequence[int]
) -> bool:
    """Whether one element, in the middle, reaches every result that shares its places along the linked axes."""
    if not math.prod(shape):
        return True
    unit = np.zeros(tuple(shape))
    unit[tuple(n // 2 for n in shape)] = 1.0
    linked = [b for _, b in links]
    return int(np.count_nonzero(run(unit))) == math.prod(n for b, n in enumerate(wanted) if b not in linked)


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
