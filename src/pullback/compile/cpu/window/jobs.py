"""Jobs of window functions: the table of numbers that a call hands over, and the LLVM text that all modules share.

A job is the same for all its tasks, which threads share. A task goes over some blocks of images. Where the grid is
padded, a block is copied into a frame of zeros that the task has for itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder.function_text import FunctionText, OpenLoop
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_load, emit_store
from .grid_moves import emit_least

#: The numbers of a job, in order. `left` is the grid whose patches are taken, `right` what they are multiplied with:
#: packed panels, or for a gradient by filters the other grid. Steps and sizes count elements, places are addresses.
FIELDS = (
    "out", "left", "right", "status", "scratch", "task_step", "panel_at",
    "blocks", "rounds", "left_step", "right_step", "out_step",
    "is_framed", "n0", "n1", "n2", "t0", "t1", "t2", "f0", "f1", "f2", "pieces", "piece_count", "piece_step",
    "groups", "left_group", "right_group", "out_group",
    "rows", "row_places", "chunk", "depth", "depth_places", "depth_step", "out_places",
    "panels", "columns", "right_panel", "out_panel", "out_apart",
    "segments", "segment_step", "segment_depth", "apart",
    "packed", "packed_group", "packed_panel", "tasks", "sums", "sums_step", "sums_size",
    "scatter_places", "scatter_count", "masks", "frame_size",
)  # fmt: skip
NUMBER = {name: i for i, name in enumerate(FIELDS)}
I64 = np.dtype(np.int64)
#: A function of a job that has nothing to do.
EMPTY = "define void @%s(ptr %%given) #0 {\nentry:\n  ret void\n}"


class JobText(FunctionText):
    """A function over a job's tasks while it is emitted: `number` and `address` are fields of the job."""

    def __init__(self, dtype: np.dtype[Any], declared: set[str]) -> None:
        FunctionText.__init__(self, declared=declared)
        self.dtype = dtype

    @property
    def one(self) -> IRBuilder:
        return self.builder(1)

    def number(self, name: str) -> str:
        place = emit_address(self.one, I64, "%given", offset=NUMBER[name])
        return self.one.assign(f"load i64, ptr {place}")

    def address(self, name: str) -> str:
        place = emit_address(self.one, I64, "%given", offset=NUMBER[name])
        return self.one.assign(f"load ptr, ptr {place}")

    def move(self, pointer: str, *terms: tuple[str, str | int]) -> str:
        """An address further on, by counters times steps: numbers, or names of fields."""
        steps = [(c, s if isinstance(s, int) or s not in NUMBER else self.number(s)) for c, s in terms]
        return emit_address(self.one, self.dtype, pointer, *steps)

    def entry_of(self, table: str, row: str) -> str:
        """The address of a table's entry."""
        return emit_address(self.one, I64, table, (row, 1))

    def subtract(self, x: str, y: str) -> str:
        return self.one.assign(f"sub nsw i64 {x}, {y}")

    def begin_if_some(self, x: str) -> str:
        return self.begin_if(self.one.assign(f"icmp ne i64 {x}, 0"))

    def add_up_tasks(self, lanes: int) -> None:
        """Add the sums of all tasks to those of the first."""
        tasks, many = self.number("tasks"), self.builder(lanes)
        many.dtype = self.dtype
        tag = self.begin_if(self.one.assign(f"icmp ugt i64 {tasks}, 1"))
        outer = self.open(tasks, start="1")
        more = self.move(self.address("sums"), (self.counters[-1], self.number("sums_step")))
        inner = self.open(self.number("sums_size"), lanes)
        there, here = (self.move(start, (self.counters[-1], 1)) for start in (self.address("sums"), more))
        total = many.add(emit_load(many, there, self.dtype), emit_load(many, here, self.dtype))
        emit_store(many, total, there, self.dtype)
        self.close(inner, stays=True)
        self.close(outer, stays=True)
        self.end_if(tag)


def open_blocks(text: JobText) -> tuple[OpenLoop, str]:
    """The loop over a task's blocks of images, whose counter is the number of the block, and its first block. Before
    it, a frame is cleared if the memory was not the task's own.
    """
    size = text.number("frame_size")
    tag = text.begin_if_some(size)
    emit_clear(text, task_memory(text), size)
    text.end_if(tag)
    first = text.one.assign(f"mul nuw nsw i64 %block, {text.number('rounds')}")
    end = text.one.assign(f"add nuw nsw i64 {first}, {text.number('rounds')}")
    return text.open(emit_least(text, end, text.number("blocks")), start=first), first


def emit_clear(text: JobText, start: str, size: str) -> None:
    """Zeros from an address on."""
    text.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    count = text.one.assign(f"mul nuw nsw i64 {size}, {text.dtype.itemsize}")
    text.one.emit(f"call void @llvm.memset.p0.i64(ptr {start}, i8 0, i64 {count}, i1 false)")


def task_memory(text: JobText, field: str | None = None) -> str:
    """The memory of a task, from its start or from a field's offset."""
    start = text.move(text.address("scratch"), ("%block", text.number("task_step")))
    return start if field is None else text.move(start, (text.number(field), 1))


def emit_copy(text: JobText, to: str, source: str) -> None:
    """Copy between a grid and a frame, as the job says."""
    numbers = [f"i64 {text.number(f'{letter}{i}')}" for letter in "ntf" for i in range(3)]
    table = f"ptr {text.address('pieces')}, i64 {text.number('piece_count')}, i64 {text.number('piece_step')}"
    text.one.emit(f"call void @copy(ptr {to}, ptr {source}, {', '.join(numbers)}, {table})")


def framed_left(text: JobText, *terms: tuple[str, str]) -> str:
    """The block's images, or their copy in a frame."""
    source = text.move(text.address("left"), *terms)
    framed = text.number("is_framed")
    frame = task_memory(text)
    tag = text.begin_if_some(framed)
    emit_copy(text, frame, source)
    text.end_if(tag)
    chosen = text.one.assign(f"icmp ne i64 {framed}, 0")
    return text.one.assign(f"select i1 {chosen}, ptr {frame}, ptr {source}")


def choose_destination(text: JobText, panel: str, out: str) -> tuple[str, str]:
    """Whether rows shorter than a vector, or apart in the result, are laid out aside first; and where rows go."""
    aside = text.one.assign(f"icmp ne i64 {text.number('scatter_count')}, 0")
    return aside, text.one.assign(f"select i1 {aside}, ptr {panel}, ptr {out}")


def scatter_if(text: JobText, aside: str, panel: str, out: str) -> None:
    """What was laid out aside, each number to its place."""
    tag = text.begin_if(aside)
    table = f"ptr {text.address('scatter_places')}, i64 {text.number('scatter_count')}"
    text.one.emit(f"call void @scatter(ptr {out}, ptr {panel}, {table})")
    text.end_if(tag)


def render_scatter(dtype: np.dtype[Any], declared: set[str]) -> str:
    """Numbers that lie side by side, each to its place."""
    text = JobText(dtype, declared)
    loop = text.open("%count")
    i = text.counters[-1]
    place = text.one.assign(f"load i64, ptr {text.entry_of('%places', i)}")
    value = emit_load(text.one, text.move("%from", (i, 1)), dtype)
    emit_store(text.one, value, text.move("%out", (place, 1)), dtype)
    text.close(loop, stays=True)
    parameters = "ptr noalias %out, ptr noalias %from, ptr %places, i64 %count"
    return text.render(f"define internal void @scatter({parameters}) noinline")


def render_task(text: JobText) -> str:
    return text.render("define void @task(ptr %given, i64 %block, i64 %worker)")


def render_run(declared: set[str]) -> str:
    """The function `@run(job)`: all tasks, one after the other, between what comes before and after them."""
    text = FunctionText(declared=declared)
    one = text.builder(1)
    one.emit("call void @before(ptr %given)")
    place = emit_address(one, I64, "%given", offset=NUMBER["tasks"])
    loop = text.open(one.assign(f"load i64, ptr {place}"))
    one.emit(f"call void @task(ptr %given, i64 {text.counters[-1]}, i64 0)")
    text.close(loop, stays=True)
    one.emit("call void @after(ptr %given)")
    return text.render("define void @run(ptr %given)")


def render_module(functions: list[str], declared: set[str], vector_bytes: int) -> str:
    width = vector_bytes * 8
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}'
    return "\n".join([*sorted(declared), *functions, attributes])


def render_task_module(functions: list[str], text: JobText, vector_bytes: int) -> str:
    """A module around a task that needs nothing before and after it."""
    own = [render_task(text), render_run(text.declared), EMPTY % "before", EMPTY % "after"]
    return render_module([*functions, *own], text.declared, vector_bytes)
