"""A loop or a branch in, LLVM text out: programs inside are functions, each with a table of its own on the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loops import Buffer, Layout, Loop
from .lanes import element_type
from .words import Words

if TYPE_CHECKING:
    from .program import Writer

__all__ = ["loop_text"]


class _Inside:
    """A program inside, called by `call void @name(ptr table)`."""

    def __init__(self, writer: Writer, steps: Any, words: Words, tag: int) -> None:
        self.steps = steps
        before = len(writer.hosts)
        self.name, self.writer = writer.child(steps)
        self.calls_back = len(writer.hosts) > before
        self.status = ""
        self.table = f"%table{tag}"
        self.slot = f"  {self.table} = alloca [{self.writer.next} x ptr]"

    def put(self, words: Words, buffer: Buffer, pointer: str) -> None:
        """Say where one of its arrays lies."""
        self._store(words, self.writer.table[buffer], pointer)

    def _store(self, words: Words, number: int, pointer: str) -> None:
        place = words.emit(f"getelementptr inbounds ptr, ptr {self.table}, i64 {number}")
        words.say(f"store ptr {pointer}, ptr {place}")

    def prepare(self, words: Words, base: str, status: str, constants: list[str]) -> None:
        self._store(words, self.writer.base, base)
        self._store(words, self.writer.base + 1, status)
        self.status = status
        for buffer, pointer in zip(self.writer.constant_buffers, constants, strict=True):
            self.put(words, buffer, pointer)

    def call(self, words: Words) -> None:
        words.say(f"call void @{self.name}(ptr {self.table})")


def loop_text(writer: Writer, step: Loop, words: Words, known: dict[Buffer, str]) -> list[str]:
    """Append the instructions; what the function must have at its beginning comes back."""
    tag = next(writer.counter)
    inside = [_Inside(writer, p, words, next(writer.counter)) for p in step.programs]
    base = writer.entry(words, writer.base)
    own = words.emit(f"load i64, ptr {writer.mark}")
    base = words.emit(f"getelementptr inbounds i8, ptr {base}, i64 {own}")
    status = writer.entry(words, writer.base + 1)
    given = [writer.at(words, known, x) for x in step.inputs]
    made = [writer.at(words, known, x) for x in step.outputs]
    number = None if step.number is None else writer.at(words, known, step.number)
    for program in inside:
        constants = [writer.pointer(words, known, b) for b in program.writer.constant_buffers]
        program.prepare(words, base, status, constants)
        for buffer, pointer in zip(program.steps.inputs, given, strict=True):
            program.put(words, buffer, pointer)
    slots = [p.slot for p in inside]
    if step.kind == "iterate":
        slots += _iterate(step, inside[0], given, made, words, tag)
    elif step.kind == "repeat":
        slots += _repeat(inside[0], inside[1], str(number), words, tag)
    else:
        _branch(inside, made, str(number), status, words, tag)
    return slots


def _fresh(program: _Inside) -> list[Buffer]:
    """The buffers that a program makes anew."""
    return [b for b in program.steps.outputs if b.kind == "output"]


def _moved(words: Words, layout: Layout, pointer: str, at: str, by: int) -> str:
    offset = words.emit(f"mul nsw i64 {at}, {by}")
    kind = element_type(layout.buffer.dtype, True)
    return words.emit(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {offset}")


def _iterate(
    step: Loop, body: _Inside, given: list[str], made: list[str], words: Words, tag: int
) -> list[str]:  # fmt: skip
    words.say(f"store i64 0, ptr %round{tag}")
    words.say(f"br label %L{tag}")
    words.lines.append(f"L{tag}:")
    number = words.emit(f"load i64, ptr %round{tag}")
    at = words.emit(f"sub nsw i64 {step.rounds - 1}, {number}") if step.reverse else number
    for buffer, layout, pointer, by in zip(body.steps.inputs, step.inputs, given, step.moves, strict=True):
        if by:
            body.put(words, buffer, _moved(words, layout, pointer, at, by))
    for buffer, layout, pointer, by in zip(_fresh(body), step.outputs, made, step.shifts, strict=True):
        body.put(words, buffer, _moved(words, layout, pointer, at, by))
    body.call(words)
    after = words.emit(f"add nuw nsw i64 {number}, 1")
    words.say(f"store i64 {after}, ptr %round{tag}")
    more = _unless_failed(words, body, words.emit(f"icmp ult i64 {after}, {step.rounds}"))
    words.say(f"br i1 {more}, label %L{tag}, label %Q{tag}")
    words.lines.append(f"Q{tag}:")
    return [f"  %round{tag} = alloca i64"]


def _repeat(test: _Inside, body: _Inside, number: str, words: Words, tag: int) -> list[str]:
    (truth,) = _fresh(test)
    test.put(words, truth, f"%truth{tag}")
    words.say(f"store i64 0, ptr {number}")
    words.say(f"br label %L{tag}")
    words.lines.append(f"L{tag}:")
    test.call(words)
    truth_there = words.emit(f"load i8, ptr %truth{tag}")
    holds = words.emit(f"icmp ne i8 {truth_there}, 0")
    holds = _unless_failed(words, body, _unless_failed(words, test, holds))
    words.say(f"br i1 {holds}, label %B{tag}, label %Q{tag}")
    words.lines.append(f"B{tag}:")
    body.call(words)
    before = words.emit(f"load i64, ptr {number}")
    after = words.emit(f"add nuw nsw i64 {before}, 1")
    words.say(f"store i64 {after}, ptr {number}")
    words.say(f"br label %L{tag}")
    words.lines.append(f"Q{tag}:")
    return [f"  %truth{tag} = alloca i8"]


def _unless_failed(words: Words, program: _Inside, more: str) -> str:
    """Whether the loop goes on: not after an error in Python that the program calls."""
    if not program.calls_back:
        return more
    status = words.emit(f"load i32, ptr {program.status}")
    fine = words.emit(f"icmp eq i32 {status}, 0")
    return words.emit(f"and i1 {more}, {fine}")


def _branch(ways: list[_Inside], made: list[str], which: str, status: str, words: Words, tag: int) -> None:
    for way in ways:
        for buffer, pointer in zip(_fresh(way), made, strict=True):
            way.put(words, buffer, pointer)
    number = words.emit(f"load i64, ptr {which}")
    cases = " ".join(f"i64 {i}, label %W{tag}_{i}" for i in range(len(ways)))
    words.say(f"switch i64 {number}, label %D{tag} [ {cases} ]")
    for i, way in enumerate(ways):
        words.lines.append(f"W{tag}_{i}:")
        way.call(words)
        words.say(f"br label %Q{tag}")
    words.lines.append(f"D{tag}:")
    words.say(f"store i32 1, ptr {status}")
    words.say(f"br label %Q{tag}")
    words.lines.append(f"Q{tag}:")
