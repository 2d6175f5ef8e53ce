"""Indices in, places out: how far into memory they point, checked, and loads and stores there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .access import Access, Place, gathered, truths
from .lanes import BOOL, Lane, element_type, type_of
from .text import INDEX
from .words import Words

__all__ = ["base_at", "looked_up", "moved_by"]

_WHOLE = np.dtype(np.int64)


def moved_by(words: Words, slots: Sequence[tuple[int, int]], indices: Sequence[Lane], mask: str | None) -> Lane:
    """How far indices point, counted in elements; `slots` are the (stride, size) of their axes. A negative index counts
    from the end; one out of range is noted in `%status`, and points at the first element.
    """
    before, words.dtype = words.dtype, _WHOLE
    total: Lane | None = None
    for (stride, size), index in zip(slots, indices, strict=True):
        by = words.multiply(_checked(words, words.cast(index, _WHOLE), size, mask), words.constant(stride))
        total = by if total is None else words.add(total, by)
    words.dtype = before
    assert total is not None
    return total


def _checked(words: Words, index: Lane, size: int, mask: str | None) -> Lane:
    wrapped = words.select(words.less(index, words.constant(0)), words.add(index, words.constant(size)), index)
    kind = type_of(_WHOLE, words.lanes)
    inside = words.made(f"icmp ult {kind} {wrapped.name}, {words.constant(size).name}", BOOL)
    if mask is not None:
        unused = words.made(f"xor {type_of(BOOL, words.lanes)} {mask}, {words.number(True, BOOL).name}", BOOL)
        inside = words.logical_or(inside, unused)
    _note(words, inside)
    safe = words.select(inside, wrapped, words.constant(0))
    return safe if mask is None else words.select(Lane(mask, BOOL, words.lanes), safe, words.constant(0))


def _note(words: Words, inside: Lane) -> None:
    """Remember if an index was out of range; the loop goes on, so that it stays without branches."""
    every = inside.name
    if words.lanes > 1:
        every = words.call(f"llvm.vector.reduce.and.v{words.lanes}i1", BOOL, inside, lanes=1).name
    bad = words.emit(f"xor i1 {every}, true")
    wide = words.emit(f"zext i1 {bad} to i32")
    there = words.emit("load i32, ptr %status")
    words.say(f"store i32 {words.emit(f'or i32 {there}, {wide}')}, ptr %status")


def base_at(
    access: Access, scalar: Words, place: Place, slots: Sequence[tuple[int, int]], indices: Sequence[Lane]
) -> Place:
    """A place moved by indices that are the same for all lanes."""
    by = moved_by(scalar, slots, indices, None)
    element = element_type(place.buffer.dtype, True)
    base = scalar.emit(f"getelementptr {element}, ptr {access.pointer(place.buffer)}, {INDEX} {by.name}")
    return Place(place.buffer, place.strides, place.offset, place.counters, base)


def looked_up(
    access: Access,
    words: Words,
    place: Place,
    slots: Sequence[tuple[int, int]],
    indices: Sequence[Lane],
    mask: str | None,
) -> Lane:
    """A load at places of which each lane has its own."""
    lanes = words.lanes
    by = moved_by(words, slots, indices, mask)
    base = access.address(words, place)
    if place.last:
        steps = ", ".join(f"{INDEX} {i * place.last}" for i in range(lanes))
        by = words.made(f"add <{lanes} x {INDEX}> {by.name}, <{steps}>", by.dtype)
    element = element_type(place.buffer.dtype, True)
    places = words.emit(f"getelementptr {element}, ptr {base}, <{lanes} x {INDEX}> {by.name}")
    return truths(words, gathered(words, place.buffer, places, mask), place.buffer.dtype)
