"""The report of a solve: true residuals, recomputed, not the solver's own estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..arrays.html_text import html_report


@dataclass
class Report:
    """How a solve went. `residual` is the true one, recomputed at the solution: of the equation for a root, of A x = b
    for a linear system, relative to b there. For a batch it is the largest.

    `functions` and `products` count evaluations of the equation and products with its Jacobian. `contraction` estimates
    by how much a step reduces the error, from the last steps. `amplification`, of a linear system A x = b, is
    |x| / |b|: an estimate from below of how far a residual may be enlarged, |A^-1|. `adjoint` is the report of the
    latest solve for a derivative, filled in by its solve. `doubt` states why a small residual was not enough.
    """

    method: str
    tolerance: float
    residual: float = math.inf
    steps: int = 0
    functions: int = 0
    products: int = 0
    contraction: float | None = None
    amplification: float | None = None
    converged: bool = False
    note: str = ""
    doubt: str = ""
    adjoint: Report | None = None
    history: list[float] = field(default_factory=list, repr=False)

    @property
    def gradient_error(self) -> float | None:
        """An estimate of the relative error of the derivative, to first order: both residuals times the inverse of the
        distance to a singular equation. Of that there are two estimates, 1 / (1 - contraction) and the amplification of
        the solve for the derivative, and the larger counts. None before there was one.
        """
        if self.adjoint is None:
            return None
        seen = self.contraction
        reaches = [1 / (1 - seen) if seen is not None and seen < 1 else 0.0, self.adjoint.amplification or 0.0]
        return (self.residual + self.adjoint.residual) * max(reaches) if max(reaches) > 0 else None

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {'converged' if self.converged else 'NOT converged'} in {self.steps} steps",
            f"  true residual   {self.residual:.3e}  (tolerance {self.tolerance:.1e})",
            f"  evaluations     {self.functions} of the equation, {self.products} products with its Jacobian",
        ]
        if self.contraction is not None:
            lines.append(f"  contraction     about {self.contraction:.4g} a step")
        if self.amplification is not None:
            lines.append(f"  amplification   {self.amplification:.3g} at least, from a right side to the solution")
        if self.doubt:
            lines.append(f"  doubt           {self.doubt}")
        if self.note:
            lines.append(f"  note            {self.note}")
        if self.adjoint is not None:
            lines += ["  for the derivative:", *("  " + line for line in str(self.adjoint).splitlines())]
            if self.gradient_error is not None:
                lines.append(f"  error of the derivative about {self.gradient_error:.1e}, relative")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_report(str(self))


@dataclass(frozen=True)
class Solution:
    """What the forms that do not raise return: the value as far as it got, and the report. A minimum with constraints
    has `multipliers` too, by the name of the constraint: by how much the minimum would fall if it were relaxed. They
    are differentiable like the value.
    """

    value: Any
    report: Report
    multipliers: Any = None
