"""How far apart two arrays are, and whether that is more than asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array, to_host
from ...arrays.spec import is_inexact
from ...ops.dtype_info import finfo


@dataclass(frozen=True, slots=True)
class Apart:
    """The largest difference of two arrays, relative to the largest number among them, the element that exceeds the
    tolerance by most, and both values there.
    """

    relative: float
    index: tuple[int, ...]
    left: Any
    right: Any
    is_more: bool


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|left - right| <= atol + rtol * |right|`. Without numbers, both are the square root of the spacing of the
    coarsest dtype, `atol` times the largest number of the array.
    """

    rtol: float | None = None
    atol: float | None = None
    #: The spacing of the coarsest dtype of both runs.
    spacing: float = 0.0

    def of(self, dtypes: Iterable[Any]) -> Tolerance:
        """For runs with values of these dtypes: what was rounded once stays so."""
        found = {np.dtype(d) for d in dtypes if is_inexact(d)}
        return replace(self, spacing=max((float(finfo(d).eps) for d in found), default=0.0))

    def bounds(self, scale: float) -> tuple[float, float]:
        """The two numbers for arrays whose largest number is known."""
        usual = self.spacing**0.5
        given = self.rtol is not None or self.atol is not None
        rtol = (0.0 if given else usual) if self.rtol is None else self.rtol
        return rtol, (0.0 if given else usual * scale) if self.atol is None else self.atol


def measure(left: Any, right: Any, tolerance: Tolerance) -> Apart | None:
    """How far two values are apart; None if they cannot be compared: no arrays, or of different shapes."""
    if not (is_array(left) and is_array(right)) or left.shape != right.shape:
        return None
    a, b = _widen(left), _widen(right)
    if not a.size:
        return Apart(0.0, (), None, None, False)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        distance = np.where(same, 0.0, np.abs(a - b))
        distance = np.where(np.isnan(distance), np.inf, distance)  # a NaN, or infinities, on one side alone
        sizes = np.abs(np.where(np.isfinite(b), b, 0.0))
        scale = float(max(sizes.max(), np.abs(np.where(np.isfinite(a), a, 0.0)).max()))
        rtol, atol = tolerance.bounds(scale)
        excess = np.where(same, -np.inf, distance - (atol + rtol * sizes))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), a.shape))
    largest = float(distance.max())
    relative = largest / scale if scale else largest
    return Apart(relative, index, a[index], b[index], bool(excess[index] > 0))


def largest_relative(lefts: Sequence[Any], rights: Sequence[Any]) -> float | None:
    """The largest relative difference of pairs of arguments; None if some cannot be compared."""
    if len(lefts) != len(rights):
        return None
    pairs = [(x, y) for x, y in zip(lefts, rights, strict=True) if is_array(x) or is_array(y)]
    found = [measure(x, y, Tolerance()) for x, y in pairs]
    return None if None in found else max((apart.relative for apart in found if apart is not None), default=0.0)


def _widen(x: Any) -> Any:
    host = to_host(x)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)
