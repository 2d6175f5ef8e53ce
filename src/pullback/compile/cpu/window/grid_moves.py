"""How numbers move between grids, packed panels and results: LLVM functions that copy, pack and transpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..builder.function_text import FunctionText
from ..builder.memory import Number, emit_address, emit_load, emit_store
from ..builder.vector_types import llvm_type
from ..matmul.transpose_panel import render_transpose


def emit_least(text: FunctionText, x: str, y: Number) -> str:
    """The lesser of two numbers."""
    builder = text.builder(1)
    less = builder.assign(f"icmp ult i64 {x}, {y}")
    return builder.assign(f"select i1 {less}, i64 {x}, i64 {y}")


def render_copy(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The function `@copy(to, from, counts, steps to, steps from, pieces, number of pieces, step)`: for every point of
    three axes each piece of a row, given as (place there, place here, length); it is read at every `step`-th element.
    """
    text = FunctionText(declared=declared)
    one = text.builder(1)
    piece = text.open("%pieces")
    three = one.assign(f"mul nuw nsw i64 {text.counters[-1]}, 3")
    first, begin, length = (
        one.assign(f"load i64, ptr {emit_address(one, np.dtype('i8'), '%table', (three, 1), offset=i)}")
        for i in range(3)
    )
    to, source = emit_address(one, dtype, "%to", (first, 1)), emit_address(one, dtype, "%from", (begin, 1))
    long = one.assign(f"icmp uge i64 {length}, {lanes}")
    some = "false"
    for step in (1, 2):
        fits = one.assign(f"and i1 {long}, {one.assign(f'icmp eq i64 %step, {step}')}")
        tag = text.begin_if(fits)
        _copy_rows(text, dtype, to, source, partial(_copy_vectors, text, dtype, lanes, length, step))
        text.end_if(tag)
        some = one.assign(f"or i1 {some}, {fits}")
    tag = text.begin_if(one.assign(f"xor i1 {some}, true"))
    _copy_rows(text, dtype, to, source, partial(_copy_elements, text, dtype, length))
    text.end_if(tag)
    text.close(piece, stays=True)
    numbers = [f"i64 %{name}{i}" for name in ("count", "there", "here") for i in range(3)]
    parameters = ["ptr noalias %to", "ptr noalias %from", *numbers, "ptr %table", "i64 %pieces", "i64 %step"]
    return text.render(f"define internal void @copy({', '.join(parameters)}) noinline")


def _copy_rows(
    text: FunctionText, dtype: np.dtype[Any], to: str, source: str, copy_row: Callable[[str, str], None]
) -> None:
    loops = [text.open(f"%count{i}") for i in range(3)]
    one, counters = text.builder(1), text.counters[-3:]
    steps = [[(c, f"%{name}{i}") for i, c in enumerate(counters)] for name in ("there", "here")]
    copy_row(emit_address(one, dtype, to, *steps[0]), emit_address(one, dtype, source, *steps[1]))
    for loop in reversed(loops):
        text.close(loop, stays=True)


def _copy_elements(text: FunctionText, dtype: np.dtype[Any], length: str, to: str, source: str) -> None:
    one, loop = text.builder(1), text.open(length)
    value = emit_load(one, emit_address(one, dtype, source, (text.counters[-1], "%step")), dtype)
    emit_store(one, value, emit_address(one, dtype, to, (text.counters[-1], 1)), dtype)
    text.close(loop, stays=True)


def _copy_vectors(
    text: FunctionText, dtype: np.dtype[Any], lanes: int, length: str, step: int, to: str, source: str
) -> None:
    """A row of at least a vector; the last vector ends where the row ends, over the one before it."""
    many, one = text.builder(lanes), text.builder(1)
    end = one.assign(f"sub nuw nsw i64 {length}, {lanes}")
    loop = text.open(length, lanes)
    at = emit_least(text, text.counters[-1], end)
    here = emit_address(one, dtype, source, (at, step))
    value = emit_load(many, here, dtype)
    if step == 2:
        # the even elements of a vector, and the odd ones of another that ends with the last element wanted
        more = emit_load(many, emit_address(one, dtype, here, offset=lanes - 1), dtype)
        kind, half = llvm_type(dtype, lanes), range(lanes // 2)
        chosen = ", ".join(f"i32 {i}" for i in [2 * i for i in half] + [lanes + 2 * i + 1 for i in half])
        mask = f"<{lanes} x i32> <{chosen}>"
        value = many.assign_value(f"shufflevector {kind} {value.name}, {kind} {more.name}, {mask}", dtype)
    emit_store(many, value, emit_address(one, dtype, to, (at, 1)), dtype)
    text.close(loop, stays=True)


def render_turn(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    return render_transpose(dtype, lanes, declared).replace("@NAME", "@turn")


def render_pack(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The function `@pack(to, from, wide, segments, between, apart, columns, depth)`: columns that lie `apart`, each in
    segments of `depth` contiguous numbers, become rows of `wide` numbers, zeros where there is no column. Up to a
    vector of rows behind them is overwritten.
    """
    text = FunctionText(declared=declared)
    segment = text.open("%segments")
    one, s = text.builder(1), text.counters[-1]
    source = emit_address(one, dtype, "%from", (s, "%between"))
    rows = one.assign(f"mul nuw nsw i64 {s}, %depth")
    to = emit_address(one, dtype, "%to", (rows, "%wide"))
    deep = text.open("%depth", lanes)
    k = text.counters[-1]
    left = one.assign(f"sub nsw i64 %depth, {k}")
    square = text.open("%wide", lanes)
    first = text.counters[-1]
    there = emit_address(one, dtype, to, (k, "%wide"), (first, 1))
    here = emit_address(one, dtype, source, (k, 1), (first, "%apart"))
    count = one.assign(f"sub nsw i64 %columns, {first}")
    one.emit(f"call void @turn(ptr {there}, ptr {here}, i64 %apart, i64 %wide, i64 {count}, i64 {left})")
    for loop in (square, deep, segment):
        text.close(loop, stays=True)
    numbers = ", ".join(f"i64 %{name}" for name in ("wide", "segments", "between", "apart", "columns", "depth"))
    return text.render(f"define internal void @pack(ptr noalias %to, ptr noalias %from, {numbers}) noinline")


def render_store(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The function `@store(out, from, wide, places, rows, apart, columns)`: rows of `wide` numbers become columns of
    `out`, which lie `apart`; row r goes to `places[r]`. Rows that come to lie side by side are transposed in squares.
    """
    text = FunctionText(declared=declared)
    loop = text.open("%rows", lanes)
    one, r = text.builder(1), text.counters[-1]
    left = one.assign(f"sub nsw i64 %rows, {r}")
    first, last = (_place(text, r, i) for i in (0, lanes - 1))
    reach = one.assign(f"sub nsw i64 {last}, {first}")
    side_by_side = one.assign(f"icmp eq i64 {reach}, {lanes - 1}")
    whole = one.assign(f"and i1 {side_by_side}, {one.assign(f'icmp uge i64 {left}, {lanes}')}")
    squares = text.open("%columns", lanes)
    column = text.counters[-1]
    count = one.assign(f"sub nsw i64 %columns, {column}")
    square = one.assign(f"and i1 {whole}, {one.assign(f'icmp uge i64 {count}, {lanes}')}")
    out = emit_address(one, dtype, "%out", (column, "%apart"))
    source = emit_address(one, dtype, "%from", (r, "%wide"), (column, 1))
    tag = text.begin_if(square)
    there = emit_address(one, dtype, out, (first, 1))
    one.emit(f"call void @turn(ptr {there}, ptr {source}, i64 %wide, i64 %apart, i64 {lanes}, i64 {lanes})")
    text.end_if(tag)
    tag = text.begin_if(one.assign(f"xor i1 {square}, true"))
    _store_elements(text, dtype, r, out, source, (emit_least(text, left, lanes), emit_least(text, count, lanes)))
    text.end_if(tag)
    text.close(squares, stays=True)
    text.close(loop, stays=True)
    parameters = "ptr noalias %out, ptr noalias %from, i64 %wide, ptr %places, i64 %rows, i64 %apart, i64 %columns"
    return text.render(f"define internal void @store({parameters}) noinline")


def _place(text: FunctionText, row: str, offset: int = 0) -> str:
    one = text.builder(1)
    return one.assign(f"load i64, ptr {emit_address(one, np.dtype('i8'), '%places', (row, 1), offset=offset)}")


def _store_elements(
    text: FunctionText, dtype: np.dtype[Any], row: str, out: str, source: str, counts: tuple[str, str]
) -> None:
    one = text.builder(1)
    outer = text.open(counts[0])
    i = text.counters[-1]
    there = emit_address(one, dtype, out, (_place(text, one.assign(f"add nuw nsw i64 {row}, {i}")), 1))
    here = emit_address(one, dtype, source, (i, "%wide"))
    inner = text.open(counts[1])
    value = emit_load(one, emit_address(one, dtype, here, (text.counters[-1], 1)), dtype)
    emit_store(one, value, emit_address(one, dtype, there, (text.counters[-1], "%apart")), dtype)
    text.close(inner, stays=True)
    text.close(outer, stays=True)
