"""Derivatives of a density in its parameters, as multiples of the density, from those of its logarithm.

For p = exp(g), D[j, k] = (d/da)^j (d/db)^k p / p follows from differentiating p_a = g_a p:
    D[j, k] = sum over i < j, l <= k of C(j-1, i) C(k, l) g[j-i, k-l] D[i, l],    D[0, 0] = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

from ..elementwise.pointwise import add, multiply


def density_derivative(g: Callable[[int, int], Any], j: int, k: int = 0) -> Any:
    """D[j, k] from the derivatives g(j, k) of the log-density, of any interpreter; needs j + k > 0."""
    known: dict[tuple[int, int], Any] = {(0, 0): None}
    for total in range(1, j + k + 1):
        for left in range(min(total, j) + 1):
            right = total - left
            if right <= k:
                known[left, right] = _next_entry(g, known, left, right)
    return known[j, k]


def _next_entry(g: Callable[[int, int], Any], known: dict[tuple[int, int], Any], j: int, k: int) -> Any:
    """One entry from those before it; with j = 0 the roles of the two parameters change."""
    pairs = [
        (comb(j - 1, i) * comb(k, m), (j - i, k - m), (i, m)) for i in range(j) for m in range(k + 1)
    ] if j else [(comb(k - 1, m), (0, k - m), (0, m)) for m in range(k)]  # fmt: skip
    out: Any = None
    for weight, of_g, of_known in pairs:
        term = g(*of_g) if known[of_known] is None else multiply(g(*of_g), known[of_known])
        term = term if weight == 1 else multiply(term, weight)
        out = term if out is None else add(out, term)
    return out
