"""Steps and a number of bytes in, steps whose calls fit them out, or an error with the least that was reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...arrays.text import format_bytes
from ...errors import MemoryBudgetError
from ..loop_ir import Loop, Step, Steps
from ..target import Target
from .rematerialize import fit_steps


@dataclass(frozen=True, slots=True)
class CallMemory:
    """The bytes of a call: of its arguments, of its results, of the arena between them, and of constants."""

    inputs: int
    outputs: int
    arena: int
    constants: int

    @property
    def peak(self) -> int:
        """The sum of all four, known before the program runs."""
        return self.inputs + self.outputs + self.arena + self.constants


def memory_of(steps: Steps, arena: int) -> CallMemory:
    # results that overwrite an argument take no memory of their own
    new = {id(b): b.nbytes for b in steps.outputs if b.kind == "output"}
    used = {id(b): b for step in _all_steps(steps) for b in step.reads() if b.kind == "constant"}
    return CallMemory(
        sum(b.nbytes for b in steps.inputs), sum(new.values()), arena, sum(b.nbytes for b in used.values())
    )


def _all_steps(steps: Steps) -> list[Step]:
    """All steps, those of nested programs too."""
    inside = [s for step in steps.steps if isinstance(step, Loop) for p in step.programs for s in _all_steps(p)]
    return [*steps.steps, *inside]


def fit_memory_budget(limit: int, steps: Steps, target: Target, place: Callable[[Steps], Steps]) -> Steps:
    """Arguments, results, arena and constants together take at most `limit` bytes; `place` plans memory."""
    placed = place(steps)
    least = memory_of(steps, placed.workspace)
    if least.peak <= limit:
        return steps
    beside = placed.workspace - (placed.arena or 0)  # scratch memory and nested programs, which hardly change
    room = placed.workspace - beside - (least.peak - limit)
    fit = fit_steps(steps.steps, max(room, 0), target, lambda x: place(replace(steps, steps=x)).workspace - beside)
    reached = memory_of(replace(steps, steps=fit.steps), fit.arena + beside)
    if reached.peak > limit:
        raise _budget_error(limit, min(least, reached, key=lambda m: m.peak))
    return replace(steps, steps=fit.steps)


def _budget_error(limit: int, least: CallMemory) -> MemoryBudgetError:
    rest = least.inputs + least.outputs + least.constants
    return MemoryBudgetError(
        f"jit: memory_budget is {format_bytes(limit)}, and the least that was reached is {format_bytes(least.peak)}:\n"
        f"  arguments {format_bytes(least.inputs)}, results {format_bytes(least.outputs)}, constants "
        f"{format_bytes(least.constants)}, and {format_bytes(least.arena)} of arena.\n"
        + (
            "  Arguments and results alone do not fit: donate arguments (donate_argnums) or pass less at once."
            if rest > limit
            else f"  Raise it to {least.peak} bytes, work on smaller pieces, or donate arguments (donate_argnums)."
        )
    )
