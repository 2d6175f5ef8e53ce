"""Max pooling as LLVM text: the places of maxima in their windows, the elements there, and cotangents put back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_type
from .direct import close_loop, name_last, render_function
from .grid_moves import render_copy
from .jobs import (
    I64,
    NUMBER,
    JobText,
    choose_destination,
    emit_clear,
    emit_copy,
    framed_left,
    open_blocks,
    render_scatter,
    render_task_module,
    scatter_if,
    task_memory,
)

_I32 = np.dtype(np.int32)


def render_places(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with the place of each window's first maximum; `right` has the
    places to start from, one for each window of a plane.
    """
    declared: set[str] = set()
    lanes = vector_bytes // dtype.itemsize
    functions = [
        render_copy(dtype, lanes, declared), _render_search(dtype, lanes, declared), render_scatter(_I32, declared)
    ]  # fmt: skip
    text, places = JobText(dtype, declared), JobText(_I32, declared)
    blocks, _ = open_blocks(text)
    plane = text.counters[-1]
    left, panel = framed_left(text, (plane, "left_step")), task_memory(text, "panel_at")
    # addresses of integers, in the same function
    places.lines, places.counter = text.lines, text.counter
    out = places.move(places.address("out"), (plane, "out_step"))
    aside, to = choose_destination(text, panel, out)
    vectors = text.open(text.number("rows"))
    here, there = (
        text.one.assign(f"load i64, ptr {text.entry_of(text.address(name), text.counters[-1])}")
        for name in ("row_places", "out_places")
    )
    pointers = [places.move(p, (there, 1)) for p in (to, text.address("right"))] + [text.move(left, (here, 1))]
    given = ", ".join(f"ptr {p}" for p in (*pointers, text.address("depth_places")))
    text.one.emit(f"call void @search({given}, i64 {text.number('depth')})")
    text.close(vectors, stays=True)
    scatter_if(text, aside, panel, out)
    text.close(blocks, stays=True)
    return render_task_module(functions, text, vector_bytes)


def _render_search(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """A vector of windows: from minus infinity on, each tap that is greater, or the first NaN, is the best so far."""
    builder = IRBuilder(lanes, itertools.count(), declared)
    builder.dtype = dtype
    kind, count = llvm_type(dtype, lanes), llvm_type(_I32, lanes)
    start = emit_load(builder, "%start", _I32)
    builder.emit("br label %loop")
    builder.label("loop")
    lowest = builder.constant(-np.inf).name
    builder.emit("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
    builder.emit(f"%best = phi {kind} [ {lowest}, %entry ], [ %best.next, %loop ]")
    builder.emit(f"%at = phi {count} [ {start.name}, %entry ], [ %at.next, %loop ]")
    tap = builder.assign(f"load i64, ptr {emit_address(builder, I64, '%taps', ('%k', 1))}")
    x, best = emit_load(builder, emit_address(builder, dtype, "%left", (tap, 1)), dtype), IRValue("%best", dtype, lanes)
    first_nan = builder.logical_and(builder.isnan(x), builder.logical_not(builder.isnan(best)))
    better = builder.logical_or(builder.greater(x, best), first_nan)
    name_last(builder, builder.select(better, x, best), "%best.next")
    number = builder.splat(IRValue(builder.assign("trunc i64 %k to i32"), _I32))
    chosen = f"select <{lanes} x i1> {better.name}, {count} {number.name}, {count} %at"
    name_last(builder, builder.assign_value(chosen, _I32), "%at.next")
    close_loop(builder, "%depth")
    emit_store(builder, IRValue("%at.next", _I32, lanes), "%out", _I32)
    parameters = "ptr noalias %out, ptr noalias %start, ptr noalias %left, ptr %taps, i64 %depth"
    return render_function("search", parameters, builder)


def render_take(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with the elements at the places `right` of windows, if they are
    places; else its `status` is set.
    """
    declared: set[str] = set()
    text = JobText(dtype, declared)
    blocks, _ = open_blocks(text)
    plane = text.counters[-1]
    left = framed_left(text, (plane, "left_step"))
    out = text.move(text.address("out"), (plane, "out_step"))
    windows = text.open(text.number("rows"))
    place = _element_place(text, plane)
    value = emit_load(text.one, text.move(left, (place, 1)), dtype)
    emit_store(text.one, value, text.move(out, (text.counters[-1], 1)), dtype)
    text.close(windows, stays=True)
    text.close(blocks, stays=True)
    copy = render_copy(dtype, vector_bytes // dtype.itemsize, declared)
    return render_task_module([copy], text, vector_bytes)


def render_spread(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """As `render_put`, at all places of the window."""
    return render_put(dtype, vector_bytes, everywhere=True)


def render_put(dtype: np.dtype[Any], vector_bytes: int, everywhere: bool = False) -> str:
    """A module whose function `run(job)` fills `out` with zeros and the elements of `left`, each added at its place of
    its window; where the grid has padding, in a frame from which it is copied.
    """
    declared: set[str] = set()
    text, lanes = JobText(dtype, declared), vector_bytes // dtype.itemsize
    blocks, _ = open_blocks(text)
    plane = text.counters[-1]
    source = text.move(text.address("left"), (plane, "left_step"))
    out, frame = text.move(text.address("out"), (plane, "out_step")), task_memory(text)
    framed = text.one.assign(f"icmp ne i64 {text.number('is_framed')}, 0")
    to = text.one.assign(f"select i1 {framed}, ptr {frame}, ptr {out}")
    emit_clear(text, to, text.number("apart"))
    windows = text.open(text.number("rows"))
    window, builder = text.counters[-1], text.one
    builder.dtype = dtype
    value = emit_load(builder, text.move(source, (window, 1)), dtype)
    if everywhere:
        start = text.move(to, (_table_entry(text, "row_places", window), 1))
        taps = text.open(text.number("depth"))
        _add_to(builder, text.move(start, (_table_entry(text, "depth_places", text.counters[-1]), 1)), value)
        text.close(taps, stays=True)
    else:
        _add_to(builder, text.move(to, (_element_place(text, plane), 1)), value)
    text.close(windows, stays=True)
    tag = text.begin_if(framed)
    emit_copy(text, out, frame)
    text.end_if(tag)
    text.close(blocks, stays=True)
    return render_task_module([render_copy(dtype, lanes, declared)], text, vector_bytes)


def render_sum(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with the sum of each window: where rows are short."""
    declared: set[str] = set()
    text = JobText(dtype, declared)
    blocks, _ = open_blocks(text)
    plane = text.counters[-1]
    left = framed_left(text, (plane, "left_step"))
    out = text.move(text.address("out"), (plane, "out_step"))
    windows = text.open(text.number("rows"))
    window, builder = text.counters[-1], text.one
    builder.dtype = dtype
    kind, start = llvm_type(dtype, 1), _table_entry(text, "row_places", window)
    total = text.slot(kind, builder.constant(0.0).name)
    taps = text.open(text.number("depth"))
    seen = emit_load(
        builder, text.move(left, (start, 1), (_table_entry(text, "depth_places", text.counters[-1]), 1)), dtype
    )
    so_far = builder.assign_value(f"load {kind}, ptr {total}", dtype)
    builder.emit(f"store {kind} {builder.add(so_far, seen).name}, ptr {total}")
    text.close(taps, stays=True)
    value = builder.assign_value(f"load {kind}, ptr {total}", dtype)
    emit_store(builder, value, text.move(out, (window, 1)), dtype)
    text.close(windows, stays=True)
    text.close(blocks, stays=True)
    copy = render_copy(dtype, vector_bytes // dtype.itemsize, declared)
    return render_task_module([copy], text, vector_bytes)


def _add_to(builder: IRBuilder, place: str, value: IRValue) -> None:
    emit_store(builder, builder.add(emit_load(builder, place, value.dtype), value), place, value.dtype)


def _table_entry(text: JobText, table: str, number: str) -> str:
    return text.one.assign(f"load i64, ptr {text.entry_of(text.address(table), number)}")


def _element_place(text: JobText, plane: str) -> str:
    """Where the element of a window lies: at the place that an integer names. One that names none counts as the first,
    and is noted.
    """
    one, window = text.one, text.counters[-1]
    step = one.assign(f"mul nuw nsw i64 {plane}, {text.number('right_step')}")
    at = one.assign(f"load i32, ptr {emit_address(one, _I32, text.address('right'), (step, 1), (window, 1))}")
    wide = one.assign(f"zext i32 {at} to i64")
    inside = one.assign(f"icmp ult i64 {wide}, {text.number('depth')}")
    tag = text.begin_if(one.assign(f"xor i1 {inside}, true"))
    one.emit(f"store i64 1, ptr {emit_address(one, I64, '%given', offset=NUMBER['status'])}")
    text.end_if(tag)
    safe = one.assign(f"select i1 {inside}, i64 {wide}, i64 0")
    tap, start = _table_entry(text, "depth_places", safe), _table_entry(text, "row_places", window)
    return one.assign(f"add nsw i64 {start}, {tap}")
