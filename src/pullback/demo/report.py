"""The results of a demo run, and their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.arrays.text import format_bytes

from .memory_use import MemoryUse
from .training import TrainingRun

#: The name of the compiled step among the times.
COMPILED = "pullback, compiled"


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What a run of the demo did: both runs, the best seconds of a step by name, memory, and where the page is."""

    parameters: int
    steps: int
    tape: TrainingRun
    compiled: TrainingRun
    native: bool
    times: dict[str, float]
    omissions: list[str]
    memory: dict[str, MemoryUse]
    path: Any
    machine: str = ""

    @property
    def loss(self) -> float:
        """The loss of the last compiled step."""
        return self.compiled.losses[-1]

    @property
    def accuracy(self) -> float:
        """The lower of the two accuracies on held-out digits."""
        return min(self.tape.accuracy, self.compiled.accuracy)

    @property
    def largest_loss_gap(self) -> float:
        """The largest difference between the losses of tape and compiled, step by step."""
        return float(np.max(np.abs(np.subtract(self.tape.losses, self.compiled.losses))))


def report_rows(report: DemoReport) -> list[tuple[str, str]]:
    """The findings as (what, how much)."""
    tape, compiled = report.tape, report.compiled
    how = "native code" if report.native else "run by NumPy: llvmlite is not installed (extra jit)"
    rows = [
        ("held-out accuracy", f"{tape.accuracy:.1%} by tape, {compiled.accuracy:.1%} compiled"),
        ("loss, last step", f"{tape.losses[-1]:.4f} by tape, {compiled.losses[-1]:.4f} compiled"),
        ("largest difference", f"{report.largest_loss_gap:.1e} between the losses of the two, step by step"),
        ("compiled", f"{how}; the first step took {compiled.seconds[0]:.2f} s"),
    ]
    fastest = min(report.times.values())
    rows += [
        (f"a step, {name}", f"{1e3 * seconds:.2f} ms, {_format_ratio(seconds, fastest)}")
        for name, seconds in sorted(report.times.items(), key=lambda pair: pair[1])
    ]
    rows += [("", line) for line in report.omissions]
    rows += [("machine", report.machine)] if report.machine else []
    rows += [(f"memory, {name}", _format_memory(weight)) for name, weight in report.memory.items()]
    return rows


def _format_ratio(seconds: float, fastest: float) -> str:
    return "the fastest" if seconds == fastest else f"{seconds / fastest:.1f}x slower"


def headlines(report: DemoReport) -> list[tuple[str, str]]:
    """The numbers for the top of the page: what was learned, how fast, and beside whom."""
    compiled = report.times[COMPILED]
    found = [
        (f"{report.accuracy:.1%}", f"of held-out digits read right, after {report.steps:,} steps"),
        (f"{1e3 * compiled:.2f} ms", f"a compiled training step: {1 / compiled:,.0f} steps a second"),
    ]
    for name, seconds in sorted(report.times.items(), key=lambda pair: pair[1]):
        if name != COMPILED:
            ratio = max(seconds, compiled) / min(seconds, compiled)
            word = "faster" if seconds >= compiled else "slower"
            found.append((f"{ratio:.1f}x {word}", f"the compiled step, than {name}"))
    return found


def _format_memory(weight: MemoryUse) -> str:
    predicted = "" if weight.predicted is None else f"predicted {format_bytes(weight.predicted)}, "
    return f"{predicted}measured {format_bytes(weight.measured)}"
