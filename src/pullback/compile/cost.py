"""Step in, how long it will take out: rough nanoseconds of one thread, known before anything runs."""

from __future__ import annotations

import math

from .fuse import Step
from .loops import Blocks, Kernel, Loop, Product

__all__ = ["nanoseconds"]

#: What weighs as much as one addition takes so long for each point, in vectors; a byte that is moved; a multiplication.
OPERATION, BYTE, MULTIPLICATION = 0.025, 0.015, 0.012
#: How often a loop of unknown length is taken to go round.
ROUNDS = 100


def nanoseconds(step: Step) -> float:
    """An estimate, within a factor of two or three on a machine of today."""
    if isinstance(step, Kernel):
        moved = sum(b.nbytes for b in {id(b): b for b in (*step.reads(), *step.writes())}.values())
        work = sum(_points(step, line.axes) * line.weight for line in step.used())
        return max(OPERATION * work, BYTE * moved)
    if isinstance(step, Product):
        return MULTIPLICATION * step.out.size * step.left.shape[2]
    if isinstance(step, Blocks):
        return step.count * sum(nanoseconds(inner) for inner in step.steps)
    if isinstance(step, Loop):
        inside = sum(nanoseconds(s) for program in step.programs for s in program.steps)
        return inside * {"iterate": step.rounds, "repeat": ROUNDS, "branch": 1}[step.kind]
    return 0.0


def _points(kernel: Kernel, axes: frozenset[int]) -> int:
    return math.prod(kernel.extents[a] for a in axes)
