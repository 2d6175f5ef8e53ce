"""The cost model: rough nanoseconds that a step takes on one thread."""

from __future__ import annotations

import math

from ..loop_ir import Blocks, Kernel, Loop, Product, Step

#: Nanoseconds per point of one addition's weight, in vectors; per byte moved; per multiplication of a product.
OPERATION_NS, BYTE_NS, MULTIPLICATION_NS = 0.025, 0.015, 0.012
#: The assumed number of rounds of a loop of unknown length.
ASSUMED_ROUNDS = 100


def estimate_nanoseconds(step: Step) -> float:
    """An estimate, within a factor of two or three on a machine of today."""
    if isinstance(step, Kernel):
        moved = sum(b.nbytes for b in {id(b): b for b in (*step.reads(), *step.writes())}.values())
        work = sum(_points(step, line.axes) * line.weight for line in step.live_lines())
        return max(OPERATION_NS * work, BYTE_NS * moved)
    if isinstance(step, Product):
        return MULTIPLICATION_NS * step.out.size * step.left.shape[2]
    if isinstance(step, Blocks):
        return step.count * sum(estimate_nanoseconds(inner) for inner in step.steps)
    if isinstance(step, Loop):
        inside = sum(estimate_nanoseconds(s) for program in step.programs for s in program.steps)
        return inside * {"iterate": step.rounds, "repeat": ASSUMED_ROUNDS, "branch": 1}[step.kind]
    return 0.0


def _points(kernel: Kernel, axes: frozenset[int]) -> int:
    return math.prod(kernel.extents[a] for a in axes)
