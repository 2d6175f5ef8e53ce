"""The text of an LLVM function while it is emitted: its lines, open loops and declarations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ...varying import placeholder
from .ir_builder import IRBuilder

INDEX = "i64"


def disable_unroll(declared: set[str]) -> str:
    """The suffix of a loop's branch that stops LLVM from unrolling it: its body is long enough."""
    declared |= {"!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}'}
    return ", !llvm.loop !0"


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """An open counted loop: the slot of its counter, its tag, its end and its step."""

    slot: str
    tag: int
    size: int | str
    step: int | str


class FunctionText:
    """The lines so far, those of the function's entry, the counters of open loops, and its declarations."""

    def __init__(self, vector_bytes: int = 0, declared: set[str] | None = None) -> None:
        self.vector_bytes = vector_bytes
        self.counter = itertools.count()
        self.declared: set[str] = set() if declared is None else declared
        self.functions: dict[str, str] = {}
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.counters: list[str] = []
        self.is_paired = False
        self.has_long_nans = True

    def builder(self, lanes: int) -> IRBuilder:
        """A builder that appends to the function's lines."""
        found = IRBuilder(lanes, self.counter, self.declared, self.functions, self.vector_bytes)
        # builders of other widths append to the same lines, in the order they are used
        found.lines = self.lines
        found.is_paired, found.has_long_nans = self.is_paired, self.has_long_nans
        return found

    def open(self, size: int | str, step: int | str = 1, start: str = "0") -> OpenLoop:
        """Open a counted loop; its counter is a slot on the stack, which LLVM promotes to a register."""
        tag = next(self.counter)
        # slots are made in the entry block: one inside a loop would grow the stack in each round
        self.entry.append(f"  %c{tag} = alloca {INDEX}")
        self.lines += [f"  store {INDEX} {start}, ptr %c{tag}", f"  br label %L{tag}", f"L{tag}:"]
        self.lines.append(f"  %i{tag} = load {INDEX}, ptr %c{tag}")
        self.counters.append(f"%i{tag}")
        return OpenLoop(f"%c{tag}", tag, size, step)

    def close(self, loop: OpenLoop, stays: bool = False, only_if: str = "") -> None:
        """Close a loop; one that `stays` is not unrolled. It may go on only if a condition holds."""
        index, tag = self.counters.pop(), loop.tag
        rest = disable_unroll(self.declared) if stays else ""
        more = f"%o{tag}" if only_if else f"%m{tag}"
        self.lines += [
            f"  %n{tag} = add nuw nsw {INDEX} {index}, {loop.step}",
            f"  store {INDEX} %n{tag}, ptr {loop.slot}",
            f"  %m{tag} = icmp ult {INDEX} %n{tag}, {loop.size}",
            *([f"  %o{tag} = and i1 %m{tag}, {only_if}"] if only_if else []),
            f"  br i1 {more}, label %L{tag}, label %E{tag}{rest}",
            f"E{tag}:",
        ]

    def operand(self, number: int) -> str:
        """A number that follows from sizes that vary, read when the code runs; never one of others that are equal."""
        return placeholder(str(int(number)), f"own{next(self.counter)}", INDEX)

    def begin_if_less(self, x: str, y: str) -> str:
        """Open a block that runs only if one number is less than another."""
        truth = f"%t{next(self.counter)}"
        self.lines.append(f"  {truth} = icmp ult {INDEX} {x}, {y}")
        return self.begin_if(truth)

    def begin_if(self, truth: str) -> str:
        """Open a conditional block; `end_if` of the returned tag closes it."""
        tag = str(next(self.counter))
        self.lines += [f"  br i1 {truth}, label %I{tag}, label %J{tag}", f"I{tag}:"]
        return tag

    def begin_else(self, tag: str) -> str:
        """Close a conditional block and open the other one."""
        self.lines += [f"  br label %J{tag}.end", f"J{tag}:"]
        return f"{tag}.end"

    def end_if(self, tag: str) -> None:
        self.lines += [f"  br label %J{tag}", f"J{tag}:"]

    def add_offset(self, counter: str, by: int) -> str:
        if not by:
            return counter
        name = f"%s{next(self.counter)}"
        self.lines.append(f"  {name} = add nuw nsw {INDEX} {counter}, {by}")
        return name

    def slot(self, kind: str, start: str) -> str:
        """A slot on the stack, initialized with `start` here."""
        name = f"%a{next(self.counter)}"
        self.entry.append(f"  {name} = alloca {kind}")
        self.lines.append(f"  store {kind} {start}, ptr {name}")
        return name

    def first_slot(self, kind: str, start: str) -> str:
        """A slot that is initialized where the function begins."""
        name = f"%a{next(self.counter)}"
        self.entry += [f"  {name} = alloca {kind}", f"  store {kind} {start}, ptr {name}"]
        return name

    def render(self, head: str, *first: str) -> str:
        """The whole function; its slots, and the lines that come `first`, are in its entry block."""
        return "\n".join([f"{head} #0 {{", "entry:", *self.entry, *first, *self.lines, "  ret void", "}"])
