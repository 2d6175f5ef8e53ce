"""The cost model: rough nanoseconds that a step takes on one thread."""

from __future__ import annotations

import math

from ..loop_ir import Blocks, Host, Kernel, Layout, Loop, Product, Step
from ..target import Costs


def estimate_nanoseconds(step: Step, costs: Costs) -> float:
    """An estimate, within a factor of two or three on a machine of today; 0 for an op that NumPy executes."""
    if isinstance(step, Kernel):
        moved = sum(b.nbytes for b in {id(b): b for b in (*step.reads(), *step.writes())}.values())
        work = sum(_points(step, line.axes) * line.weight for line in step.live_lines())
        return max(costs.operation_ns * work, costs.byte_ns * moved)
    if isinstance(step, Product):
        return costs.multiplication_ns * step.out.size * step.depth
    if isinstance(step, Blocks):
        return step.count * sum(estimate_nanoseconds(inner, costs) for inner in step.steps)
    if isinstance(step, Loop):
        inside = sum(estimate_nanoseconds(s, costs) for program in step.programs for s in program.steps)
        return inside * {"iterate": step.rounds, "repeat": costs.assumed_rounds, "branch": 1}[step.kind]
    return costs.multiplication_ns * count_multiplications(step)


def count_multiplications(step: Host) -> float:
    """Those of a routine; 0 for an op that NumPy executes, whose work is unknown."""
    if step.routine is None:
        return 0.0
    layouts = [x for x in (*step.args, *step.outs) if isinstance(x, Layout)]
    stacks = max(math.prod(x.shape[:-2]) for x in layouts)
    sizes = [x.shape[-2:] for x in layouts]
    return step.routine.weight * stacks * math.prod(sizes[0]) * max(n for size in sizes for n in size[-1:])


def _points(kernel: Kernel, axes: frozenset[int]) -> int:
    return math.prod([int(kernel.extents[a]) for a in axes])
