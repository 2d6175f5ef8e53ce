"""Axis scales: values to positions between 0 and 1, and ticks; linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

#: Anything smaller counts as zero: its multiples and powers would underflow.
_TINY = 1e-290
#: Steps that read well, times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class AxisScale:
    """An axis from `low` to `high`, both finite, `low < high`, and above zero if it goes by powers of ten."""

    low: float
    high: float
    log: bool = False

    def can_show(self, number: float) -> bool:
        """Whether a value can be shown: it is finite, and has a logarithm if the axis needs one."""
        return math.isfinite(number) and (number > _TINY or not self.log)

    def position(self, number: float) -> float:
        """0 at the lower end, 1 at the upper, and not beyond them."""
        low, high, at = (math.log10(x) if self.log else x for x in (self.low, self.high, number))
        return min(max((at - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers along the axis, each with its text."""
        numbers = self._decade_ticks() if self.log else self._linear_ticks()
        return [(number, format_short(number)) for number in numbers]

    def _decade_ticks(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 2:  # few powers of ten: their multiples of 2 and 5 too
            fine = [digit * 10.0**power for power in range(first - 1, last + 1) for digit in (1, 2, 5)]
            shown = [number for number in fine if self.low * 0.999 <= number <= self.high * 1.001]
            return shown if len(shown) > 1 else [self.low, self.high]
        step = -(-(last - first) // 6)
        return [10.0**power for power in range(first, last + 1, step)]

    def _linear_ticks(self) -> list[float]:
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in _STEPS if s * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def fit_scale(numbers: Iterable[float], *, log: bool = False, zero: bool = False) -> AxisScale:
    """The axis that covers all values that can be shown; with `zero` a linear one starts there.

    >>> fit_scale([1.0, 3.0, float("nan")], zero=True)
    AxisScale(low=0.0, high=3.0, log=False)
    """
    shown = np.fromiter(numbers, np.float64)
    shown = np.where(np.abs(shown) > _TINY, shown, 0.0)[np.isfinite(shown)]
    shown = shown[shown > 0] if log else shown
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (1.0, 1.0)
    if zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    if high / 2 - low / 2 <= 1e-12 * max(abs(low), abs(high)):
        low, high = (low / 2, low * 2) if log else (low - (abs(low) or 1.0) / 2, low + (abs(low) or 1.0) / 2)
    return AxisScale(low, high, log)


def format_short(number: float) -> str:
    """A number in a few characters.

    >>> [format_short(x) for x in (0.0, 0.25, 1500.0, 1e-5, 3.0)]
    ['0', '0.25', '1500', '1e-5', '3']
    """
    if number and not 1e-3 <= abs(number) < 1e5:
        digits, _, power = f"{number:.2g}".partition("e")
        return f"{digits}e{int(power)}" if power else f"{number:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{number:.4g}"
