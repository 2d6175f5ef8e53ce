"""Units of steps in, units out: what follows a short sum, such as the update of a bias, shares its launch."""

from __future__ import annotations

from collections.abc import Sequence

from ...loop_ir import Kernel, Step
from ..kernel.followers import join_follower
from .order import conflict


def join_sums(units: Sequence[list[Step]]) -> list[list[Step]]:
    """Each kernel of sums with the kernel that takes them next behind it, if nothing between forbids it."""
    left, found = list(units), list[list[Step]]()
    while left:
        unit = left.pop(0)
        at = _find_follower(unit, left)
        found.append(unit if at is None else [*unit, *left.pop(at)])
    return found


def _find_follower(unit: Sequence[Step], later: Sequence[Sequence[Step]]) -> int | None:
    (step, *rest) = unit
    if rest or not isinstance(step, Kernel) or not any(s.word for s in step.stores):
        return None
    written = set(step.writes())
    uses = (i for i, other in enumerate(later) if any(not written.isdisjoint((*s.reads(), *s.writes())) for s in other))
    at = next(uses, None)
    if at is None or len(later[at]) > 1 or not isinstance(follower := later[at][0], Kernel):
        return None
    between = [s for other in later[:at] for s in other]
    return None if join_follower(step, follower) is None or conflict(between, (follower,)) else at
