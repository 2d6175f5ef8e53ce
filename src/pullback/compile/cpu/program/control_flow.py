"""Loop or branch in, LLVM text out: nested programs are functions, each with its own table on the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...loop_ir import Buffer, Layout, Loop
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import llvm_element_type

if TYPE_CHECKING:
    from .render import ProgramWriter


class _InnerProgram:
    """A nested program, called by `call void @name(ptr table)`."""

    def __init__(self, writer: ProgramWriter, steps: Any, builder: IRBuilder, tag: int) -> None:
        self.steps = steps
        before = len(writer.hosts)
        self.name, self.writer = writer.write_inner_program(steps)
        self.calls_python = len(writer.hosts) > before
        self.status = ""
        self.table = f"%table{tag}"
        self.slot = f"  {self.table} = alloca [{self.writer.next} x ptr]"

    def set_pointer(self, builder: IRBuilder, buffer: Buffer, pointer: str) -> None:
        """Set the pointer of one of its arrays."""
        self._set_entry(builder, self.writer.table[buffer], pointer)

    def _set_entry(self, builder: IRBuilder, number: int, pointer: str) -> None:
        place = builder.assign(f"getelementptr inbounds ptr, ptr {self.table}, i64 {number}")
        builder.emit(f"store ptr {pointer}, ptr {place}")

    def prepare(self, builder: IRBuilder, base: str, status: str, constants: list[str]) -> None:
        self._set_entry(builder, self.writer.base, base)
        self._set_entry(builder, self.writer.base + 1, status)
        self.status = status
        for buffer, pointer in zip(self.writer.constant_buffers, constants, strict=True):
            self.set_pointer(builder, buffer, pointer)

    def call(self, builder: IRBuilder) -> None:
        builder.emit(f"call void @{self.name}(ptr {self.table})")


def emit_control_flow(writer: ProgramWriter, step: Loop, builder: IRBuilder, known: dict[Buffer, str]) -> list[str]:
    """Append the instructions; returns the lines for the function's entry block."""
    tag = next(writer.counter)
    inside = [_InnerProgram(writer, p, builder, next(writer.counter)) for p in step.programs]
    base = writer.load_entry(builder, writer.base)
    base = builder.assign(f"getelementptr inbounds i8, ptr {base}, i64 {writer.nested}")
    status = writer.load_entry(builder, writer.base + 1)
    given = [writer.address_of(builder, known, x) for x in step.inputs]
    made = [writer.address_of(builder, known, x) for x in step.outputs]
    number = None if step.number is None else writer.address_of(builder, known, step.number)
    for program in inside:
        constants = [writer.pointer(builder, known, b) for b in program.writer.constant_buffers]
        program.prepare(builder, base, status, constants)
        for buffer, pointer in zip(program.steps.inputs, given, strict=True):
            program.set_pointer(builder, buffer, pointer)
    slots = [p.slot for p in inside]
    if step.kind == "iterate":
        slots += _emit_iterate(step, inside[0], given, made, builder, tag)
    elif step.kind == "repeat":
        slots += _emit_repeat(inside[0], inside[1], str(number), builder, tag)
    else:
        _emit_branch(inside, made, str(number), status, builder, tag)
    return slots


def _emit_offset(builder: IRBuilder, layout: Layout, pointer: str, at: str, by: int) -> str:
    offset = builder.assign(f"mul nsw i64 {at}, {by}")
    kind = llvm_element_type(layout.buffer.dtype, True)
    return builder.assign(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {offset}")


def _emit_iterate(
    step: Loop, body: _InnerProgram, given: list[str], made: list[str], builder: IRBuilder, tag: int
) -> list[str]:  # fmt: skip
    builder.emit(f"store i64 0, ptr %round{tag}")
    builder.emit(f"br label %L{tag}")
    builder.lines.append(f"L{tag}:")
    number = builder.assign(f"load i64, ptr %round{tag}")
    at = builder.assign(f"sub nsw i64 {step.rounds - 1}, {number}") if step.reverse else number
    for buffer, layout, pointer, by in zip(body.steps.inputs, step.inputs, given, step.moves, strict=True):
        if by:
            body.set_pointer(builder, buffer, _emit_offset(builder, layout, pointer, at, by))
    for buffer, layout, pointer, by in zip(body.steps.new_outputs, step.outputs, made, step.shifts, strict=True):
        body.set_pointer(builder, buffer, _emit_offset(builder, layout, pointer, at, by))
    body.call(builder)
    after = builder.assign(f"add nuw nsw i64 {number}, 1")
    builder.emit(f"store i64 {after}, ptr %round{tag}")
    more = _stop_on_error(builder, body, builder.assign(f"icmp ult i64 {after}, {step.rounds}"))
    builder.emit(f"br i1 {more}, label %L{tag}, label %Q{tag}")
    builder.lines.append(f"Q{tag}:")
    return [f"  %round{tag} = alloca i64"]


def _emit_repeat(test: _InnerProgram, body: _InnerProgram, number: str, builder: IRBuilder, tag: int) -> list[str]:
    (truth,) = test.steps.new_outputs
    test.set_pointer(builder, truth, f"%truth{tag}")
    builder.emit(f"store i64 0, ptr {number}")
    builder.emit(f"br label %L{tag}")
    builder.lines.append(f"L{tag}:")
    test.call(builder)
    truth_there = builder.assign(f"load i8, ptr %truth{tag}")
    holds = builder.assign(f"icmp ne i8 {truth_there}, 0")
    holds = _stop_on_error(builder, body, _stop_on_error(builder, test, holds))
    builder.emit(f"br i1 {holds}, label %B{tag}, label %Q{tag}")
    builder.lines.append(f"B{tag}:")
    body.call(builder)
    before = builder.assign(f"load i64, ptr {number}")
    after = builder.assign(f"add nuw nsw i64 {before}, 1")
    builder.emit(f"store i64 {after}, ptr {number}")
    builder.emit(f"br label %L{tag}")
    builder.lines.append(f"Q{tag}:")
    return [f"  %truth{tag} = alloca i8"]


def _stop_on_error(builder: IRBuilder, program: _InnerProgram, more: str) -> str:
    """Whether the loop continues: not after an error in a Python callback."""
    if not program.calls_python:
        return more
    status = builder.assign(f"load i32, ptr {program.status}")
    fine = builder.assign(f"icmp eq i32 {status}, 0")
    return builder.assign(f"and i1 {more}, {fine}")


def _emit_branch(
    branches: list[_InnerProgram], made: list[str], which: str, status: str, builder: IRBuilder, tag: int
) -> None:
    for branch in branches:
        for buffer, pointer in zip(branch.steps.new_outputs, made, strict=True):
            branch.set_pointer(builder, buffer, pointer)
    number = builder.assign(f"load i64, ptr {which}")
    cases = " ".join(f"i64 {i}, label %W{tag}_{i}" for i in range(len(branches)))
    builder.emit(f"switch i64 {number}, label %D{tag} [ {cases} ]")
    for i, branch in enumerate(branches):
        builder.lines.append(f"W{tag}_{i}:")
        branch.call(builder)
        builder.emit(f"br label %Q{tag}")
    builder.lines.append(f"D{tag}:")
    builder.emit(f"store i32 1, ptr {status}")
    builder.emit(f"br label %Q{tag}")
    builder.lines.append(f"Q{tag}:")
