"""Rendered program and a number of bytes in, one that fits them out, or an error with the least that was reached."""

from __future__ import annotations

from dataclasses import replace

from ...arrays.text import format_bytes
from ...errors import MemoryBudgetError
from ..inspect import CallMemory, memory_of
from ..loop_ir import Step, Steps
from ..schedule.arena import plan_arena
from ..schedule.division import divide_steps
from ..schedule.rematerialize import fit_steps
from .program.render import RenderedProgram, render_program
from .runtime.link import vector_bytes


def fit_memory_budget(limit: int, steps: Steps, native: RenderedProgram, fast: bool) -> tuple[Steps, RenderedProgram]:
    """Arguments, results, arena and constants together take at most `limit` bytes. The row scratch of kernels is in the
    arena too and is known once they are rendered, so a second or third try may be needed.
    """
    least = memory_of(steps, native.arena)
    if least.peak <= limit:
        return steps, native
    room = _arena_bytes(steps.steps) - (least.peak - limit)
    for _ in range(3):
        fit = fit_steps(steps.steps, max(room, 0), _arena_bytes)
        found = replace(steps, steps=fit.steps)
        rendered = render_program(found, vector_bytes(), fast)
        reached = memory_of(found, rendered.arena)
        if reached.peak <= limit:
            return found, rendered
        least = min(least, reached, key=lambda m: m.peak)
        if fit.arena > room:
            break
        room = fit.arena - (reached.peak - limit)  # other kernels may need more row scratch: leave that much room
    raise _budget_error(limit, least)


def _arena_bytes(steps: list[Step]) -> int:
    return plan_arena(divide_steps(steps, vector_bytes()))


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
