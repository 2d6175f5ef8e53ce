"""Derivatives of a density in its parameters, as multiples of it, from those of its logarithm; and integrals.

For p = exp(g), D[j, k] = (d/da)^j (d/db)^k p / p follows from differentiating p_a = g_a p:
    D[j, k] = sum over i < j, l <= k of C(j-1, i) C(k, l) g[j-i, k-l] D[i, l],    D[0, 0] = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np

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


# Double-exponential quadrature: with s = exp(u - exp(-u)) the trapezoid rule over u reaches full precision on
# integrands that are smooth and decay exponentially on a scale of about one; 145 nodes suffice once they are scaled.
_STEP = 1 / 16
_GRID = np.arange(-4.0, 5.0 + _STEP / 2, _STEP)
NODES = np.exp(_GRID - np.exp(-_GRID))
WEIGHTS = NODES * (1 + np.exp(-_GRID)) * _STEP
#: Elements at a time, so that the table of integrands stays in the cache.
_ROWS = 512


def integrate_half_line(xp: Any, integrand: Callable[..., Any], scale: Any, *parameters: Any) -> Any:
    """The integral over s > 0 of integrand(s, *parameters), which decays on the given scale, element by element."""
    arrays = xp.broadcast_arrays(scale, *parameters)
    shape = arrays[0].shape
    columns = [x.reshape(-1, 1) for x in arrays]
    nodes, weights = xp.asarray(NODES), xp.asarray(WEIGHTS)
    out = xp.empty(columns[0].shape[0])
    with np.errstate(all="ignore"):
        for start in range(0, out.size, _ROWS):
            width, *rows = (c[start : start + _ROWS] for c in columns)
            out[start : start + _ROWS] = (integrand(width * nodes, *rows) @ weights) * width[:, 0]
    return out.reshape(shape)
