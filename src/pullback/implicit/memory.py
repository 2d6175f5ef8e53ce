"""Systems solved before in, a start for the next one out.

Derivatives of higher order solve again and again with one matrix, often for the very same right side: each order goes
through what the orders below it did. A right side that is nearly a combination of earlier ones has nearly the same
combination of their solutions as its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Solved"]

#: How many systems are kept, for the matrix and for its transpose.
_KEPT = 4
#: A start is worth the product that it costs if it explains the right side but for this share.
_WORTH = 0.5


class Solved:
    """Right sides and solutions of the latest systems with one matrix. Whether it is still the same matrix is for the
    caller to find out, by the residual of the start.
    """

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {True: [], False: []}

    def start(self, back: bool, b: Any) -> np.ndarray | None:
        """Where to start for A x = b, or A^T x = b if `back`; None where nothing is known that helps."""
        pairs = [pair for pair in self._pairs[back] if pair[0].dtype == b.dtype and pair[0].shape == b.shape]
        if not pairs:
            return None
        known = np.stack([right for right, _ in pairs], 1)
        weights = np.linalg.lstsq(known, b, rcond=None)[0]
        if not np.linalg.norm(b - known @ weights) < _WORTH * np.linalg.norm(b):
            return None
        start: np.ndarray = np.stack([x for _, x in pairs], 1) @ weights
        return start

    def keep(self, back: bool, b: Any, x: Any) -> None:
        """One more system that was solved."""
        if np.isfinite(b).all() and np.isfinite(x).all():
            self._pairs[back] = [*self._pairs[back][1 - _KEPT :], (b, x)]
