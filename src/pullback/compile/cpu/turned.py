"""Square of a transposed matrix in, the function that turns it round out: columns far apart become vectors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .lanes import Lane, element_type, type_of
from .words import Words

__all__ = ["turn_text"]


def turn_text(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The function `@NAME(to, from, apart, wide, columns, rows)`: `columns` columns, `apart` elements from each other
    and each with `rows` elements side by side, become rows that are `wide` elements apart. A square of `lanes` is
    written always; what is not there is zero.
    """
    words = Words(lanes, itertools.count(), declared)
    words.dtype = dtype
    element, kind = element_type(dtype), type_of(dtype, lanes)
    count = words.splat(Lane("%rows", np.dtype(np.int64)))
    words.say(f"%there = icmp ult <{lanes} x i64> <{', '.join(f'i64 {i}' for i in range(lanes))}>, {count.name}")
    vectors = [_column(words, dtype, i) for i in range(lanes)]
    for k, vector in enumerate(_transposed(words, vectors, dtype)):
        by = words.emit(f"mul nuw nsw i64 %wide, {k}")
        place = words.emit(f"getelementptr inbounds {element}, ptr %to, i64 {by}")
        words.say(f"store {kind} {vector.name}, ptr {place}, align {dtype.itemsize}")
    parameters = "ptr noalias %to, ptr noalias %from, i64 %apart, i64 %wide, i64 %columns, i64 %rows"
    body = "\n".join(words.lines)
    return f"define internal void @NAME({parameters}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"


def _column(words: Words, dtype: np.dtype[Any], i: int) -> Lane:
    """What there is of column i; nothing is read where there is none."""
    lanes, kind = words.lanes, type_of(dtype, words.lanes)
    inside = words.emit(f"icmp ugt i64 %columns, {i}")
    mask = words.emit(f"select i1 {inside}, <{lanes} x i1> %there, <{lanes} x i1> zeroinitializer")
    by = words.emit(f"mul nsw i64 %apart, {i}")
    place = words.emit(f"getelementptr {element_type(dtype)}, ptr %from, i64 {by}")
    name = f"llvm.masked.load.{words.suffix(dtype)}.p0"
    words.declared.add(f"declare {kind} @{name}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
    given = f"ptr {place}, i32 {dtype.itemsize}, <{lanes} x i1> {mask}, {kind} zeroinitializer"
    return words.made(f"call {kind} @{name}({given})", dtype)


def _transposed(words: Words, rows: list[Lane], dtype: np.dtype[Any]) -> list[Lane]:
    """A square transposed: at each power of two, the blocks beside the diagonal change places."""
    lanes, rows = words.lanes, list(rows)
    kind, step = type_of(dtype, lanes), 1
    while step < lanes:
        upper = [lanes + i - step if i & step else i for i in range(lanes)]
        lower = [lanes + i if i & step else i + step for i in range(lanes)]
        for i in range(lanes):
            if not i & step:
                x, y = rows[i], rows[i + step]
                rows[i], rows[i + step] = (
                    words.made(f"shufflevector {kind} {x.name}, {kind} {y.name}, {_places(chosen)}", dtype)
                    for chosen in (upper, lower)
                )
        step *= 2
    return rows


def _places(chosen: list[int]) -> str:
    return f"<{len(chosen)} x i32> <{', '.join(f'i32 {i}' for i in chosen)}>"
