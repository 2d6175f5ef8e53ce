"""A rendered program and a number of bytes in, one that stays within them out, or an error that says what could."""

from __future__ import annotations

from dataclasses import replace

from ...checkpoint.report import mebibytes
from ...errors import MemoryBudgetError
from ..explain import Memory, memory_of
from ..fit import fitted
from ..fuse import Step, Steps
from ..memory import planned
from .division import divided
from .link import vector_bytes
from .program import Native, render_program

__all__ = ["within"]


def within(limit: int, steps: Steps, native: Native, fast: bool) -> tuple[Steps, Native]:
    """Arguments, results, arena and constants together take at most `limit` bytes. What kernels need for their rows
    lies in the arena too and is known once they are rendered, so a second or third try may be needed.
    """
    least = memory_of(steps, native.arena)
    if least.peak <= limit:
        return steps, native
    room = _arena(steps.steps) - (least.peak - limit)
    for _ in range(3):
        fit = fitted(steps.steps, max(room, 0), _arena)
        found = replace(steps, steps=fit.steps)
        rendered = render_program(found, vector_bytes(), fast)
        reached = memory_of(found, rendered.arena)
        if reached.peak <= limit:
            return found, rendered
        least = min(least, reached, key=lambda m: m.peak)
        if fit.arena > room:
            break
        room = fit.arena - (reached.peak - limit)
    raise _cannot(limit, least)


def _arena(steps: list[Step]) -> int:
    return planned(divided(steps, vector_bytes()))


def _cannot(limit: int, least: Memory) -> MemoryBudgetError:
    rest = least.inputs + least.outputs + least.constants
    return MemoryBudgetError(
        f"jit: memory_budget is {mebibytes(limit)}, and the least that was reached is {mebibytes(least.peak)}:\n"
        f"  arguments {mebibytes(least.inputs)}, results {mebibytes(least.outputs)}, constants "
        f"{mebibytes(least.constants)}, and {mebibytes(least.arena)} to work in.\n"
        + (
            "  Arguments and results alone do not fit: give arguments away (donate_argnums) or pass less at once."
            if rest > limit
            else f"  Raise it to {least.peak} bytes, work on smaller pieces, or give arguments away (donate_argnums)."
        )
    )
