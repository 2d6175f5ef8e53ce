"""The problem that a solver sees: evaluations of an equation and products with its Jacobian, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...transforms.forward import jvp
from ...transforms.vectorize import vmap


class SolverProblem:
    """One equation for a solver: `residual(x)`, with the parameters in their places, and `tolerance` for its norm.

    `objective(x)` is the scalar whose gradient the residual is, for a minimum; `inner(x)` the vector whose squares are
    summed, for least squares; else None. `linear` solves linear systems, `xp` is NumPy or CuPy.
    Evaluations are counted.
    """

    objective: Callable[[Any], Any] | None = None
    inner: Callable[[Any], Any] | None = None

    def __init__(
        self,
        residual: Callable[[Any], Any],
        size: int,
        dtype: Any,
        tolerance: float,
        linear: Any,
        xp: Any = np,
    ) -> None:
        self.xp = xp
        self._residual = residual
        self.size = size
        self.dtype = dtype
        self.tolerance = tolerance
        self.linear = linear
        self.functions = 0
        self.products = 0
        self._latest: tuple[Any, Any] = None, None

    def residual(self, x: Any) -> Any:
        """F(x)."""
        self.functions += 1
        found = self._residual(x)
        self._latest = x, found
        return found

    def residual_at_solution(self, x: Any, safe: bool) -> Any:
        """F(x) at the end. If that was the latest evaluation it is not repeated, if it is `safe` to assume that x
        was not written to in between.
        """
        latest, found = self._latest
        return found if safe and latest is x else self.residual(x)

    def push(self, x: Any, v: Any) -> tuple[Any, Any]:
        """F(x) and F'(x) v."""
        self.functions += 1
        self.products += 1
        found: tuple[Any, Any] = jvp(self._residual, (x,), (v,))
        return found

    def jacobian(self, x: Any) -> Any:
        """The matrix F'(x), all columns at once."""
        self.products += self.size
        columns: Any = vmap(lambda v: jvp(self._residual, (x,), (v,))[1], 0, 1)(
            self.xp.eye(self.size, dtype=self.dtype)
        )
        return columns
