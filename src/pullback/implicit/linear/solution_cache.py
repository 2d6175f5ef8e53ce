"""Initial guesses for a linear system from systems solved before.

Derivatives of higher order solve again and again with one matrix, often for the very same right side: each order
repeats the solves of the orders below it. A right side that is nearly a combination of earlier ones has nearly the same
combination of their solutions as its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: How many systems are stored, for the matrix and for its transpose.
_CACHE_SIZE = 4
#: An initial guess is worth its product if it explains the right side but for this share.
_MAX_UNEXPLAINED_SHARE = 0.5


class SolutionCache:
    """Right sides and solutions of the latest systems with one matrix. Whether it is still the same matrix is for the
    caller to find out, by the residual of the guess.
    """

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {True: [], False: []}

    def initial_guess(self, is_transposed: bool, b: Any) -> np.ndarray | None:
        """The initial guess for A x = b, or A^T x = b if `is_transposed`; None where no earlier solution helps."""
        pairs = [pair for pair in self._pairs[is_transposed] if pair[0].dtype == b.dtype and pair[0].shape == b.shape]
        if not pairs:
            return None
        known = np.stack([right for right, _ in pairs], 1)
        weights = np.linalg.lstsq(known, b, rcond=None)[0]
        if not np.linalg.norm(b - known @ weights) < _MAX_UNEXPLAINED_SHARE * np.linalg.norm(b):
            return None
        start: np.ndarray = np.stack([x for _, x in pairs], 1) @ weights
        return start

    def keep(self, is_transposed: bool, b: Any, x: Any) -> None:
        """Add a solved system."""
        if np.isfinite(b).all() and np.isfinite(x).all():
            self._pairs[is_transposed] = [*self._pairs[is_transposed][1 - _CACHE_SIZE :], (b, x)]
