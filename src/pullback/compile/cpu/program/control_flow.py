"""Loop or branch in, LLVM text out: nested programs are functions, each with its own table on the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...loop_ir import Buffer, Loop
from ..builder.memory import emit_address

if TYPE_CHECKING:
    from .render import ProgramWriter


class _InnerProgram:
    """A nested program, called by `call void @name(ptr table)`."""

    def __init__(self, outer: ProgramWriter, steps: Any) -> None:
        self.steps, self.builder = steps, outer.builder
        before = len(outer.hosts)
        self.name, self.writer = outer.write_inner_program(steps)
        # only an error in Python ends a loop early: a bad index is reported when the program has run
        self.calls_python = len(outer.hosts) > before
        self.table = f"%table{next(outer.text.counter)}"
        outer.text.entry.append(f"  {self.table} = alloca [{self.writer.next} x ptr]")

    def set_pointer(self, buffer: Buffer, pointer: str) -> None:
        """Set the pointer of one of its arrays."""
        self.set_entry(self.writer.table[buffer], pointer)

    def set_entry(self, number: int, pointer: str) -> None:
        place = self.builder.assign(f"getelementptr inbounds ptr, ptr {self.table}, i64 {number}")
        self.builder.emit(f"store ptr {pointer}, ptr {place}")

    def call(self) -> None:
        self.builder.emit(f"call void @{self.name}(ptr {self.table})")


def emit_control_flow(writer: ProgramWriter, step: Loop) -> None:
    """Append the instructions."""
    programs = [_InnerProgram(writer, p) for p in step.programs]
    # nested programs never run at the same time, so all start at one place
    base = writer.arena_pointer(writer.nested)
    status = writer.load_entry(writer.base + 1)
    given, made = [writer.address_of(x) for x in step.inputs], [writer.address_of(x) for x in step.outputs]
    number = "" if step.number is None else writer.address_of(step.number)
    for program in programs:
        program.set_entry(program.writer.base, base)
        program.set_entry(program.writer.base + 1, status)
        # constants are in the table of the outermost program, and passed on
        for buffer in program.writer.constant_buffers:
            program.set_pointer(buffer, writer.pointer(buffer))
        for buffer, pointer in zip(program.steps.inputs, given, strict=True):
            program.set_pointer(buffer, pointer)
    if step.kind == "iterate":
        _emit_iterate(writer, step, programs[0], given, made, status)
    elif step.kind == "repeat":
        _emit_repeat(writer, programs[0], programs[1], number, status)
    else:
        _emit_branch(writer, programs, made, number, status)


def _emit_iterate(
    writer: ProgramWriter, step: Loop, body: _InnerProgram, given: list[str], made: list[str], status: str
) -> None:
    builder, outputs = writer.builder, body.steps.new_outputs
    for buffer, pointer in zip(outputs, made, strict=True):
        body.set_pointer(buffer, pointer)
    loop = writer.text.open(step.rounds)
    at = writer.text.counters[-1]
    at = builder.assign(f"sub nsw i64 {step.rounds - 1}, {at}") if step.reverse else at
    advancing = zip((*body.steps.inputs, *outputs), (*given, *made), (*step.moves, *step.shifts), strict=True)
    for buffer, pointer, by in advancing:
        # what does not advance is in the table already
        if by:
            body.set_pointer(buffer, emit_address(builder, buffer.dtype, pointer, (at, by)))
    body.call()
    writer.text.close(loop, only_if=_emit_no_error(writer, status) if body.calls_python else "")


def _emit_repeat(writer: ProgramWriter, test: _InnerProgram, body: _InnerProgram, number: str, status: str) -> None:
    builder, tag = writer.builder, next(writer.text.counter)
    (truth,) = test.steps.new_outputs
    writer.text.entry.append(f"  %truth{tag} = alloca i8")
    test.set_pointer(truth, f"%truth{tag}")
    builder.emit(f"store i64 0, ptr {number}")
    builder.emit(f"br label %L{tag}")
    builder.label(f"L{tag}")
    test.call()
    found = builder.assign(f"load i8, ptr %truth{tag}")
    holds = builder.assign(f"icmp ne i8 {found}, 0")
    if test.calls_python or body.calls_python:
        holds = builder.assign(f"and i1 {holds}, {_emit_no_error(writer, status)}")
    builder.emit(f"br i1 {holds}, label %B{tag}, label %Q{tag}")
    builder.label(f"B{tag}")
    body.call()
    before = builder.assign(f"load i64, ptr {number}")
    after = builder.assign(f"add nuw nsw i64 {before}, 1")
    builder.emit(f"store i64 {after}, ptr {number}")
    builder.emit(f"br label %L{tag}")
    builder.label(f"Q{tag}")


def _emit_no_error(writer: ProgramWriter, status: str) -> str:
    """Whether a loop continues: not after an error in a Python callback."""
    found = writer.builder.assign(f"load i32, ptr {status}")
    return writer.builder.assign(f"icmp eq i32 {found}, 0")


def _emit_branch(
    writer: ProgramWriter, branches: list[_InnerProgram], made: list[str], number: str, status: str
) -> None:
    builder, tag = writer.builder, next(writer.text.counter)
    for branch in branches:
        for buffer, pointer in zip(branch.steps.new_outputs, made, strict=True):
            branch.set_pointer(buffer, pointer)
    which = builder.assign(f"load i64, ptr {number}")
    cases = " ".join(f"i64 {i}, label %W{tag}_{i}" for i in range(len(branches)))
    builder.emit(f"switch i64 {which}, label %D{tag} [ {cases} ]")
    for i, branch in enumerate(branches):
        builder.label(f"W{tag}_{i}")
        branch.call()
        builder.emit(f"br label %Q{tag}")
    # a number without a branch is reported as a bad index is
    builder.label(f"D{tag}")
    builder.emit(f"store i32 1, ptr {status}")
    builder.emit(f"br label %Q{tag}")
    builder.label(f"Q{tag}")
