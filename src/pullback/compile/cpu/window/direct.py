"""Convolutions of few channels, as depthwise ones: vectors of neighbouring windows, each times a number of the filter.

A product has too few columns there to fill vectors of them. Sums stay in registers while a loop goes over all taps, or
for a gradient by filters one over all windows.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..builder.function_text import disable_unroll
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type
from .grid_moves import render_copy
from .jobs import (
    EMPTY,
    I64,
    JobText,
    choose_destination,
    framed_left,
    open_blocks,
    render_module,
    render_run,
    render_scatter,
    render_task,
    render_task_module,
    scatter_if,
    task_memory,
)

#: Vectors of windows whose sums are computed together, and taps of one gradient.
VECTORS, TAPS = 4, 9


def render_direct(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with sums over taps of patches times filters, `right`."""
    declared: set[str] = set()
    lanes = vector_bytes // dtype.itemsize
    functions = [
        render_copy(dtype, lanes, declared),
        _render_sums(dtype, lanes, declared),
        render_scatter(dtype, declared),
    ]
    text = JobText(dtype, declared)
    blocks, _ = open_blocks(text)
    image = text.counters[-1]
    group = text.open(text.number("groups"))
    g = text.counters[-1]
    left = framed_left(text, (image, "left_step"), (g, "left_group"))
    panel = task_memory(text, "panel_at")
    column = text.open(text.number("panels"))
    out = text.move(text.address("out"), (image, "out_step"), (g, "out_group"), (text.counters[-1], "out_panel"))
    right = text.move(text.address("right"), (g, "right_group"), (text.counters[-1], "right_panel"))
    aside, to = choose_destination(text, panel, out)
    vectors = text.open(text.number("rows"), VECTORS)
    places = [text.entry_of(text.address(name), text.counters[-1]) for name in ("row_places", "out_places")]
    depth = f"ptr {text.address('depth_places')}, i64 {text.number('depth')}"
    text.one.emit(f"call void @sums(ptr {to}, ptr {left}, ptr {right}, ptr {places[0]}, ptr {places[1]}, {depth})")
    text.close(vectors, stays=True)
    scatter_if(text, aside, panel, out)
    for loop in (column, group, blocks):
        text.close(loop, stays=True)
    return render_task_module(functions, text, vector_bytes)


def _render_sums(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """Some vectors of windows: `from` and `to` are tables of their offsets in the grid and in the result."""
    builder = IRBuilder(lanes, itertools.count(), declared)
    builder.dtype = dtype
    element, kind = llvm_element_type(dtype), llvm_type(dtype, lanes)
    for v in range(VECTORS):
        offset = builder.assign(f"load i64, ptr {emit_address(builder, I64, '%from', offset=v)}")
        builder.emit(f"%at{v} = getelementptr {element}, ptr %left, i64 {offset}")
    builder.emit("br label %loop")
    builder.label("loop")
    builder.emit("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
    for v in range(VECTORS):
        builder.emit(f"%s{v} = phi {kind} [ zeroinitializer, %entry ], [ %t{v}, %loop ]")
    tap = builder.assign(f"load i64, ptr {emit_address(builder, I64, '%taps', ('%k', 1))}")
    place = emit_address(builder, dtype, "%right", ("%k", 1))
    weight = builder.splat(IRValue(builder.assign(f"load {element}, ptr {place}, align {dtype.itemsize}"), dtype))
    for v in range(VECTORS):
        seen = emit_load(builder, emit_address(builder, dtype, f"%at{v}", (tap, 1)), dtype)
        name_last(builder, builder.fma(weight, seen, IRValue(f"%s{v}", dtype, lanes)), f"%t{v}")
    close_loop(builder, "%depth")
    for v in range(VECTORS):
        offset = builder.assign(f"load i64, ptr {emit_address(builder, I64, '%to', offset=v)}")
        emit_store(builder, IRValue(f"%t{v}", dtype, lanes), emit_address(builder, dtype, "%out", (offset, 1)), dtype)
    parameters = "ptr noalias %out, ptr noalias %left, ptr noalias %right, ptr %from, ptr %to, ptr %taps, i64 %depth"
    return render_function("sums", parameters, builder)


def render_direct_weight(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with sums over windows of patches times the grid `right`: each
    task adds up vectors, these are added up in the order of tasks, and their lanes at last.
    """
    declared: set[str] = set()
    lanes = vector_bytes // dtype.itemsize
    functions = [render_copy(dtype, lanes, declared), _render_tap_sums(dtype, lanes, declared)]
    text = JobText(dtype, declared)
    blocks, first = open_blocks(text)
    image = text.counters[-1]
    again = text.one.assign(f"icmp ne i64 {image}, {first}")
    group = text.open(text.number("groups"))
    g = text.counters[-1]
    left = framed_left(text, (image, "left_step"), (g, "left_group"))
    column = text.open(text.number("panels"))
    f = text.counters[-1]
    right = text.move(text.address("right"), (image, "right_step"), (g, "right_group"), (f, "right_panel"))
    sums = text.move(text.address("sums"), ("%block", "sums_step"), (g, "packed_group"), (f, "packed_panel"))
    taps = text.open(text.number("depth"), TAPS)
    out = text.move(sums, (text.counters[-1], lanes))
    places = text.entry_of(text.address("depth_places"), text.counters[-1])
    rows = [f"ptr {text.address(name)}" for name in ("row_places", "out_places", "masks")]
    given = [f"ptr {out}, ptr {left}, ptr {right}, ptr {places}", *rows, f"i64 {text.number('rows')}, i1 {again}"]
    text.one.emit(f"call void @sums({', '.join(given)})")
    for loop in (taps, column, group, blocks):
        text.close(loop, stays=True)
    own = [render_task(text), _render_total(dtype, lanes, declared), render_run(declared), EMPTY % "before"]
    return render_module([*functions, *own], declared, vector_bytes)


def _render_tap_sums(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """Some taps over all windows of a plane, by vectors; masks say which of their lanes are windows."""
    builder = IRBuilder(lanes, itertools.count(), declared)
    builder.dtype = dtype
    element, kind = llvm_element_type(dtype), llvm_type(dtype, lanes)
    masks = llvm_type(np.dtype(f"i{dtype.itemsize}"), lanes)
    for t in range(TAPS):
        offset = builder.assign(f"load i64, ptr {emit_address(builder, I64, '%taps', offset=t)}")
        builder.emit(f"%at{t} = getelementptr {element}, ptr %left, i64 {offset}")
    builder.emit("br label %loop")
    builder.label("loop")
    builder.emit("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
    for t in range(TAPS):
        builder.emit(f"%s{t} = phi {kind} [ zeroinitializer, %entry ], [ %t{t}, %loop ]")
    here, there = (
        builder.assign(f"load i64, ptr {emit_address(builder, I64, table, ('%k', 1))}") for table in ("%from", "%to")
    )
    place = builder.assign(f"getelementptr {masks}, ptr %masks, i64 %k")
    mask = builder.assign(f"load {masks}, ptr {place}, align {dtype.itemsize}")
    mask = builder.assign(f"icmp slt {masks} {mask}, zeroinitializer")
    bar = emit_load(builder, emit_address(builder, dtype, "%right", (there, 1)), dtype, mask, missing=0)
    for t in range(TAPS):
        seen = emit_load(builder, emit_address(builder, dtype, f"%at{t}", (here, 1)), dtype, mask, missing=0)
        name_last(builder, builder.fma(bar, seen, IRValue(f"%s{t}", dtype, lanes)), f"%t{t}")
    close_loop(builder, "%rows")
    for t in range(TAPS):
        to = emit_address(builder, dtype, "%out", offset=t * lanes)
        value = IRValue(f"%t{t}", dtype, lanes)
        total = builder.add(emit_load(builder, to, dtype), value)
        chosen = builder.assign_value(f"select i1 %again, {kind} {total.name}, {kind} {value.name}", dtype)
        emit_store(builder, chosen, to, dtype)
    pointers = "ptr noalias %out, ptr noalias %left, ptr noalias %right, ptr %taps, ptr %from, ptr %to, ptr %masks"
    return render_function("sums", f"{pointers}, i64 %rows, i1 %again", builder)


def _render_total(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The sums of tasks and of lanes."""
    text = JobText(dtype, declared)
    text.add_up_tasks(lanes)
    many = text.builder(lanes)
    column = text.open(text.number("columns"))
    tap = text.open(text.number("out_panel"))
    f, t = text.counters
    source = text.move(text.address("sums"), (f, "packed_panel"), (t, lanes))
    start = IRValue("-0.0", dtype)
    name = f"llvm.vector.reduce.fadd.{many.suffix(dtype)}"
    total = text.one.call(name, dtype, start, emit_load(many, source, dtype), flags="reassoc")
    emit_store(text.one, total, text.move(text.address("out"), (f, "out_panel"), (t, 1)), dtype)
    text.close(tap, stays=True)
    text.close(column, stays=True)
    return text.render("define void @after(ptr %given)")


def name_last(builder: IRBuilder, value: IRValue, name: str) -> None:
    """Rename the value of the last line: a phi of the loop needs a name that is known before."""
    builder.lines[-1] = builder.lines[-1].replace(f"  {value.name} =", f"  {name} =", 1)


def close_loop(builder: IRBuilder, count: str) -> None:
    builder.emit("%next = add nuw nsw i64 %k, 1")
    builder.emit(f"%more = icmp ult i64 %next, {count}")
    builder.emit(f"br i1 %more, label %loop, label %end{disable_unroll(builder.declared)}")
    builder.label("end")


def render_function(name: str, parameters: str, builder: IRBuilder) -> str:
    body = "\n".join(builder.lines)
    return f"define internal void @{name}({parameters}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"
