"""Ops that are neither kernels nor products, as launches: which there are, and their text."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays.spec import Spec
from ..loop_ir import Host, Routine
from .kernel.writer import FunctionLaunch
from .linalg import can_solve, render_system
from .products.attention import has_attention, is_attention
from .running import has_running, render_running


def has_routine(routine: Routine, specs: Sequence[Spec]) -> bool:
    """Whether a launch can do a routine for arguments and results of these specs."""
    return has_running(routine, specs) or has_attention(routine, specs) or can_solve(routine, specs)


def render_routine(step: Host) -> FunctionLaunch | None:
    """The launch of an op for which there is a routine of one; None for another op."""
    if step.routine is None or is_attention(step.routine):
        return None
    return render_running(step) if step.routine.name == "running" else render_system(step, step.routine)
