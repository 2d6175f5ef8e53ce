"""What a method must know of a minimum with constraints: how its unknowns and its conditions lie in vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ops.shape.arrange import concat
from .cones import Cones


@dataclass(frozen=True)
class ProgramShape:
    """Unknowns (x, y, z): so many variables, multipliers of equations, and multipliers of what must lie in cones.

    To minimize f(x) with E(x) = 0 and C(x) in the cones, the Lagrangian is f - y^T E - z^T C. The conditions are given
    as one vector: the gradient of the Lagrangian, E, C, and f.
    """

    variables: int
    equalities: int
    cones: Cones

    def cut_unknown(self, w: Any) -> tuple[Any, Any, Any]:
        """x, y and z."""
        n, last = self.variables, self.variables + self.equalities
        return w[:n], w[n:last], w[last:]

    def cut_conditions(self, conditions: Any) -> tuple[Any, Any, Any]:
        """The gradient of the Lagrangian, E and C, or rows that belong to them."""
        return self.cut_unknown(conditions[: self.variables + self.equalities + self.cones.length])

    def residual(self, conditions: Any, w: Any, pieces: Any = None) -> Any:
        """What is zero at a solution: the gradient, E, and C less the closest point of the cones to C - z, which says
        that C and z lie in the cones and are orthogonal. The projection is that of its pieces, by default where C - z
        lies.
        """
        gradient, equal, inside = self.cut_conditions(conditions)
        if not self.cones.length:
            return concat([gradient, equal])
        apart = inside - self.cut_unknown(w)[2]
        pieces = self.cones.pieces(apart) if pieces is None else pieces
        return concat([gradient, equal, inside - self.cones.project(apart, pieces)])
