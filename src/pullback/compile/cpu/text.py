"""Loops in, lines of LLVM out: the function of a kernel while it is being written."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .words import Words

__all__ = ["INDEX", "Loop", "Text", "rolled"]

INDEX = "i64"


def rolled(declared: set[str]) -> str:
    """What ends the branch of a loop that LLVM shall leave as it is: its body is long enough."""
    declared |= {"!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}'}
    return ", !llvm.loop !0"


@dataclass(frozen=True, slots=True)
class Loop:
    """A counted loop that is open: the slot of its counter, its tag, where it ends and by how much it steps."""

    slot: str
    tag: int
    size: int | str
    step: int


class Text:
    """Lines so far, what must stand at the function's entry, the counters of the open loops, and all it refers to."""

    def __init__(self, vector_bytes: int = 0) -> None:
        self.vector_bytes = vector_bytes
        self.counter = itertools.count()
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.counters: list[str] = []

    def words(self, lanes: int) -> Words:
        return Words(lanes, self.counter, self.declared, self.functions, self.vector_bytes)

    def open(self, size: int | str, step: int = 1, start: str = "0") -> Loop:
        """Begin a counted loop; its counter is a slot on the stack, which LLVM turns into a register."""
        tag = next(self.counter)
        self.entry.append(f"  %c{tag} = alloca {INDEX}")
        self.lines += [f"  store {INDEX} {start}, ptr %c{tag}", f"  br label %L{tag}", f"L{tag}:"]
        self.lines.append(f"  %i{tag} = load {INDEX}, ptr %c{tag}")
        self.counters.append(f"%i{tag}")
        return Loop(f"%c{tag}", tag, size, step)

    def close(self, loop: Loop, stays: bool = False) -> None:
        """End a loop; one that `stays` is not unrolled."""
        index, tag = self.counters.pop(), loop.tag
        rest = rolled(self.declared) if stays else ""
        self.lines += [
            f"  %n{tag} = add nuw nsw {INDEX} {index}, {loop.step}",
            f"  store {INDEX} %n{tag}, ptr {loop.slot}",
            f"  %m{tag} = icmp ult {INDEX} %n{tag}, {loop.size}",
            f"  br i1 %m{tag}, label %L{tag}, label %E{tag}{rest}",
            f"E{tag}:",
        ]

    def only_if(self, truth: str) -> str:
        """Begin what happens only where a truth holds; `end_if` of the answer ends it."""
        tag = str(next(self.counter))
        self.lines += [f"  br i1 {truth}, label %I{tag}, label %J{tag}", f"I{tag}:"]
        return tag

    def end_if(self, tag: str) -> None:
        self.lines += [f"  br label %J{tag}", f"J{tag}:"]

    def shifted(self, counter: str, by: int) -> str:
        if not by:
            return counter
        name = f"%s{next(self.counter)}"
        self.lines.append(f"  {name} = add nuw nsw {INDEX} {counter}, {by}")
        return name

    def slot(self, kind: str, start: str) -> str:
        """A place on the stack, filled with `start` here."""
        name = f"%a{next(self.counter)}"
        self.entry.append(f"  {name} = alloca {kind}")
        self.lines.append(f"  store {kind} {start}, ptr {name}")
        return name
