"""The active set at a solution that is differentiated: which constraints are in it, and errors where none can tell.

A solution has a derivative if each constraint is either active, with a multiplier that is not zero, or not active.
Where one is active with a multiplier of zero it has two one-sided ones: that of the problem in which the constraint
stays active, and that of the one in which it does not matter. Numbers that a solve cannot tell from zero count as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...arrays.backends import to_host
from ...errors import DegenerateError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply
from ...ops.op import Op
from ...transforms.custom.rules import make_custom_record
from ..cones.cone_blocks import BESIDE, OUTSIDE
from ..cones.program_shape import ProgramShape

WeaklyActive = Literal["raise", "active", "inactive"]
#: Singular values of the active rows below this share of the largest are zero; rows that weigh so much are named.
_RANK, _WEIGHT = 1e-8, 0.1
#: The most rows that a message names.
_NAMED = 6


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """How to decide for the constraints of a program; what the user calls its inequalities and equations, by row."""

    shape: ProgramShape
    what: str
    weakly_active: WeaklyActive
    margin: float
    name_row: Callable[[int], str]
    name_equation: Callable[[int], str]

    def pieces(self, apart: Any) -> Any:
        """For each cone, the formula of the projection of C - z whose derivative counts."""
        cones = self.shape.cones
        if not cones.length:
            return apart
        inactive, active = cones.pieces(apart, self.margin), cones.pieces(apart, -self.margin)
        if self.weakly_active == "raise":
            return apply(_check_decided_op, inactive, active, decider=self)
        return active if self.weakly_active == "active" else inactive

    def name_cone(self, number: int) -> str:
        """What the user calls a cone."""
        seen = first = 0
        for block in self.shape.cones.blocks:
            if number < seen + block.degree:
                return self.name_row(first + (number - seen) * block.size)
            seen, first = seen + block.degree, first + block.length
        raise IndexError(number)

    def check_decided(self, inactive: Any, active: Any) -> Any:
        """What both decisions agree on, or an error with the names of the others."""
        weak = np.argwhere(to_host(inactive != active))
        if not len(weak):
            return inactive
        names = list(dict.fromkeys(self.name_cone(int(place[-1])) for place in weak))
        raise DegenerateError(
            f"{self.what}: the solution has no derivative: {_list_names(names)} "
            f"{'is' if len(names) == 1 else 'are'} active with a multiplier of zero (both below {self.margin:.1e}).\n"
            '  Choose a one-sided one: derivative=pb.implicit.Implicit(weakly_active="inactive"), or "active".'
        )


def _batch_check(size: int, axes: tuple[int | None, ...], *both: Any, decider: ActiveSet) -> tuple[Any, int]:
    moved = [move_batch_first(x, axis, size) for x, axis in zip(both, axes, strict=True)]
    return apply(_check_decided_op, *moved, decider=decider), 0


_check_decided_op: Op = make_custom_record(
    "check_active_set", ("inactive", "active"),
    lambda xp, inactive, active, decider: decider.check_decided(inactive, active),
    None, None, _batch_check, lambda inactive, active, decider: inactive,
)  # fmt: skip


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def name_dependent_rows(active_set: ActiveSet, equal: Any, inside: Any, apart: Any) -> list[str]:
    """The names of active constraints whose slopes depend on each other, from the rows of E' and C'; none if they do
    not.
    """
    shape = active_set.shape
    pieces = to_host(shape.cones.pieces(apart)) if shape.cones.length else ()
    rows = [(active_set.name_equation(i), row) for i, row in enumerate(to_host(equal))]
    inside, apart = to_host(inside), to_host(apart)
    for first, row in enumerate(inside):
        number, start, size = shape.cones.cone_of_row(first)
        if pieces[number] == OUTSIDE:
            rows.append((active_set.name_row(first), row))
        elif pieces[number] == BESIDE and first == start:
            normal = apart[start + 1 : start + size]
            rows.append(
                (active_set.name_row(first), row - normal / np.linalg.norm(normal) @ inside[start + 1 :][: size - 1])
            )
    if not rows:
        return []
    left, values, _ = np.linalg.svd(np.stack([row / (np.linalg.norm(row) or 1.0) for _, row in rows]))
    rank = int((values > _RANK * values[0]).sum()) if values[0] > 0 else 0
    heavy = np.abs(left[:, rank:]).max(1, initial=0.0) > _WEIGHT
    return [name for (name, _), is_heavy in zip(rows, heavy, strict=True) if is_heavy]
