"""A clock in native code: a build of a program that notes, after each step, how long it took.

The steps are the same functions as without a clock, so results have the same bits. Times are added to a table of the
module, two numbers for each step: nanoseconds and runs; several threads may run the program.
"""

from __future__ import annotations

import ctypes
import functools
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...loop_ir import Step
from ..builder.function_text import FunctionText
from ..builder.ir_builder import IRBuilder
from ..runtime.link import add_symbol

#: The table of the module, and what reads the time in nanoseconds.
TIMES = "step_times"
_NOW, _CLOCK = "pb_now", "pb_clock_gettime"


@dataclass(frozen=True, slots=True, eq=False)
class ClockedStep:
    """A step that is timed, and the number of the loop around it; None if it is the program's own."""

    step: Step
    outer: int | None


@dataclass(slots=True)
class StepClock:
    """The steps that are timed, by number, while a program is rendered."""

    steps: list[ClockedStep] = field(default_factory=list)

    def add(self, step: Step, outer: int | None) -> int:
        self.steps.append(ClockedStep(step, outer))
        return len(self.steps) - 1

    def begin(self, text: FunctionText, builder: IRBuilder) -> str:
        """Start to count here; returns the slot that holds the time."""
        return text.slot("i64", builder.assign(f"call i64 @{_NOW}()"))

    def note(self, builder: IRBuilder, slot: str, number: int) -> None:
        """What passed since the last note was spent on a step."""
        now, before = builder.assign(f"call i64 @{_NOW}()"), builder.assign(f"load i64, ptr {slot}")
        spent = builder.assign(f"sub i64 {now}, {before}")
        for at, amount in ((2 * number, spent), (2 * number + 1, "1")):
            place = builder.assign(f"getelementptr inbounds i64, ptr @{TIMES}, i64 {at}")
            builder.assign(f"atomicrmw add ptr {place}, i64 {amount} monotonic")
        # writing it down is no part of the next step
        builder.emit(f"store i64 {builder.assign(f'call i64 @{_NOW}()')}, ptr {slot}")

    def render(self) -> list[str]:
        """The table, and the function that reads the clock of `time.perf_counter`."""
        return [
            f"@{TIMES} = global [{max(2 * len(self.steps), 1)} x i64] zeroinitializer",
            f"declare i32 @{_CLOCK}(i32, ptr)",
            f"define internal i64 @{_NOW}() noinline nounwind {{",
            "  %t = alloca [2 x i64]",
            f"  call i32 @{_CLOCK}(i32 {time.CLOCK_MONOTONIC}, ptr %t)",
            "  %s = load i64, ptr %t",
            "  %p = getelementptr inbounds i64, ptr %t, i64 1",
            "  %n = load i64, ptr %p",
            "  %m = mul i64 %s, 1000000000",
            "  %r = add i64 %m, %n",
            "  ret i64 %r",
            "}",
        ]


@functools.cache
def register_clock() -> bool:
    """Make the C library's clock known to LLVM; whether there is one."""
    try:
        found = ctypes.CDLL(None).clock_gettime
    except (AttributeError, OSError, TypeError):  # Windows
        return False
    add_symbol(_CLOCK, ctypes.cast(found, ctypes.c_void_p).value or 0)
    return True


@dataclass(frozen=True, slots=True, eq=False)
class ClockedBuild:
    """A runner whose program notes the time of its steps."""

    runner: Any
    steps: tuple[ClockedStep, ...]

    def read(self) -> Any:
        """Nanoseconds and runs of each step until now."""
        address = self.runner.linked.engine.get_global_value_address(TIMES)
        table = (ctypes.c_int64 * (2 * len(self.steps))).from_address(address)
        return np.array(table, np.int64).reshape(-1, 2)
