"""Reads and writes at indices, as rows taken from or put into an array whose indexed axes are merged into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops.families import broadcast_shape
from ..ops.index.normalize import SLOT, has_separated_arrays
from .graph_writer import GraphWriter, Ref
from .moves import write_index
from .words import GraphWords

_INT64: np.dtype[Any] = np.dtype(np.int64)


def write_gather(w: GraphWriter, x: Ref, index: tuple[Any, ...], arrays: Sequence[Ref]) -> Ref:
    """x at an index in which the arrays are slots."""
    if not arrays:
        return write_index(w, x, index)
    # numbers beside arrays are arrays of one element
    advanced = [n for n, i in enumerate(index) if i is SLOT or isinstance(i, int)]
    x = write_index(w, x, tuple(slice(None) if n in advanced else i for n, i in enumerate(index)))
    given = iter(arrays)
    chosen = [next(given) if index[n] is SLOT else w.constant(np.asarray(index[n], np.int64)) for n in advanced]
    sizes = [x.shape[n] for n in advanced]
    others = [n for n in range(x.ndim) if n not in advanced]
    rest = tuple(x.shape[n] for n in others)
    if (order := (*advanced, *others)) != tuple(range(x.ndim)):
        x = w.transpose(x, order)
    inner = broadcast_shape("getitem", *(c.shape for c in chosen))
    if not math.prod(inner) * math.prod(rest):
        found = w.expand(w.constant(np.zeros((), x.dtype)), (*inner, *rest))
    else:
        found = w.take(w.reshape(x, (math.prod(sizes), *rest)), w.expand(_flat_index(w, chosen, sizes), inner))
    at = 0 if has_separated_arrays(index) else advanced[0]
    if not at or not inner:
        return found
    count = len(inner)
    return w.transpose(found, (*range(count, count + at), *range(count), *range(count + at, found.ndim)))


def _flat_index(w: GraphWriter, chosen: Sequence[Ref], sizes: Sequence[int]) -> Ref:
    """Places in axes that are merged into one; a negative one counts from the end of its axis."""
    k = GraphWords(w, _INT64)
    total: Ref | None = None
    for number, (place, n) in enumerate(zip(chosen, sizes, strict=True)):
        if place.known is not None:
            known = np.asarray(place.known, np.int64)
            counted = w.constant(np.where(known < 0, known + n, known))
        else:
            counted = k.select(k.less(place, k.constant(0)), k.add(place, k.constant(n)), place)
        weight = math.prod(sizes[number + 1 :])
        term = counted if weight == 1 else k.multiply(counted, k.constant(weight))
        total = term if total is None else k.add(total, term)
    assert total is not None
    return total


def write_scatter(
    w: GraphWriter, x: Ref, rows: Ref, index: tuple[Any, ...], arrays: Sequence[Ref], word: str | None
) -> Ref:  # fmt: skip
    """x with rows combined by a word, or written, at an index. The places are what the numbers 0, 1, ... are there."""
    lead = next((n for n in range(len(index), 0, -1) if index[n - 1] != slice(None)), 0)
    named = sum(i is not None for i in index[:lead])
    count, rest = math.prod(x.shape[:named]), x.shape[named:]
    places = write_gather(w, w.reshape(w.iota(count), x.shape[:named]), index[:lead], arrays)
    if not math.prod(places.shape) * math.prod(rest):
        return x
    k = GraphWords(w, x.dtype)
    rows = w.expand(k.coerce(rows), (*places.shape, *rest))
    flat = w.reshape(x, (count, *rest))
    found = w.put(
        flat, w.reshape(places, (math.prod(places.shape),)), w.reshape(rows, (math.prod(places.shape), *rest)), word
    )
    return w.reshape(found, x.shape)
