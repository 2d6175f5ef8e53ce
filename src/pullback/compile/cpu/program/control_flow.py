"""Loop or branch in, LLVM text out: nested programs are functions, each with its own table on the stack, or lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...loop_ir import Buffer, Loop, Steps
from ..builder.memory import emit_address
from .small_loops import find_constants, runs_in_registers

if TYPE_CHECKING:
    from .render import ProgramWriter


class _CalledProgram:
    """A nested program, called by `call void @name(ptr table)`."""

    def __init__(self, outer: ProgramWriter, steps: Steps) -> None:
        self.steps, self.builder = steps, outer.builder
        before = len(outer.hosts)
        self.name, self.writer = outer.write_inner_program(steps)
        # only an error in Python ends a loop early: a bad index is reported when the program has run
        self.calls_python = len(outer.hosts) > before
        self.table = f"%table{next(outer.text.counter)}"
        outer.text.entry.append(f"  {self.table} = alloca [{self.writer.next} x ptr]")
        # nested programs never run at the same time, so all start at one place
        self._set_entry(self.writer.base, outer.arena_pointer(outer.nested))
        self._set_entry(self.writer.base + 1, outer.status())
        # constants are in the table of the outermost program, and passed on
        for buffer in self.writer.constant_buffers:
            self.set_pointer(buffer, outer.pointer(buffer))

    def set_pointer(self, buffer: Buffer, pointer: str) -> None:
        """Set the pointer of one of its arrays."""
        self._set_entry(self.writer.table[buffer], pointer)

    def _set_entry(self, number: int, pointer: str) -> None:
        place = self.builder.assign(f"getelementptr inbounds ptr, ptr {self.table}, i64 {number}")
        self.builder.emit(f"store ptr {pointer}, ptr {place}")

    def call(self) -> None:
        self.builder.emit(f"call void @{self.name}(ptr {self.table})")


class _InlineProgram:
    """A nested program of a few numbers, emitted where it runs: LLVM finds that its memory, a slot on the stack, can be
    registers.
    """

    calls_python = False

    def __init__(self, outer: ProgramWriter, steps: Steps) -> None:
        self.steps = steps
        self.writer = outer.make_inline_writer(steps, emit_slot(outer, steps.workspace))

    def set_pointer(self, buffer: Buffer, pointer: str) -> None:
        self.writer.known[buffer] = pointer

    def call(self) -> None:
        outside = dict(self.writer.known)
        for step in self.steps.steps:
            self.writer.emit_step(step)
        self.writer.known = outside  # pointers made inside are not known after the loop


InnerProgram = _CalledProgram | _InlineProgram


def emit_slot(writer: ProgramWriter, size: int) -> str:
    """A slot of so many bytes on the stack."""
    name = f"%memory{next(writer.text.counter)}"
    writer.text.entry.append(f"  {name} = alloca [{max(size, 1)} x i8], align 64")
    return name


def emit_control_flow(writer: ProgramWriter, step: Loop) -> None:
    """Append the instructions."""
    if runs_in_registers(step):
        _emit_in_registers(writer, step)
        return
    given = [writer.address_of(x) for x in step.inputs]
    number = "" if step.number is None else writer.address_of(step.number)
    _emit_flow(writer, step, [_CalledProgram(writer, p) for p in step.programs], given, number)


def _emit_in_registers(writer: ProgramWriter, step: Loop) -> None:
    """Carries are in slots on the stack while the loop runs."""
    given = [writer.address_of(x) for x in step.inputs]
    home = given[: step.carried]
    sizes = [int(layout.size) * layout.buffer.dtype.itemsize for layout in step.inputs[: step.carried]]
    for buffer in find_constants(step):
        writer.pointer(buffer)  # known before the loop, so after it too
    slots = [emit_slot(writer, size) for size in sizes]
    for slot, pointer, size in zip(slots, home, sizes, strict=True):
        _emit_copy(writer, slot, pointer, size)
    number = "" if step.number is None else emit_slot(writer, 8)
    programs = [_InlineProgram(writer, p) for p in step.programs]
    _emit_flow(writer, step, programs, [*slots, *given[step.carried :]], number)
    for slot, pointer, size in zip(slots, home, sizes, strict=True):
        _emit_copy(writer, pointer, slot, size)
    if step.number is not None:
        _emit_copy(writer, writer.address_of(step.number), number, 8)


def _emit_copy(writer: ProgramWriter, target: str, source: str, size: int) -> None:
    writer.declared.add("declare void @llvm.memcpy.inline.p0.p0.i64(ptr, ptr, i64 immarg, i1 immarg)")
    writer.builder.emit(f"call void @llvm.memcpy.inline.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _emit_flow(
    writer: ProgramWriter, step: Loop, programs: Sequence[InnerProgram], given: list[str], number: str
) -> None:
    status, made = writer.status(), [writer.address_of(x) for x in step.outputs]
    for program in programs:
        for buffer, pointer in zip(program.steps.inputs, given, strict=True):
            program.set_pointer(buffer, pointer)
    if step.kind == "iterate":
        _emit_iterate(writer, step, programs[0], given, made, status)
    elif step.kind == "repeat":
        _emit_repeat(writer, programs[0], programs[1], number, status)
    else:
        _emit_branch(writer, programs, made, number, status)


def _emit_iterate(
    writer: ProgramWriter, step: Loop, body: InnerProgram, given: list[str], made: list[str], status: str
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


def _emit_repeat(writer: ProgramWriter, test: InnerProgram, body: InnerProgram, number: str, status: str) -> None:
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
    writer: ProgramWriter, branches: Sequence[InnerProgram], made: list[str], number: str, status: str
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
