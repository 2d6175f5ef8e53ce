"""What counts as too small, too large, dead and saturated: the limits of a gradient report."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds of `gradient_report`.

    A gradient vanishes if its mean size is below `vanishing` times the largest layer's. It explodes if its mean size is
    above `exploding` times the median layer's and ten times that of the values (the median layer's), so that a step at
    a rate of 0.1 would replace them, or above `exploding` times that of the values. An element is zero if it is for the
    share `most` of the examples. An activation is flat where its derivative is below `flat`, a unit of it stuck if it
    is flat for the share `nearly` of the examples; it is saturated if the share `much` of its units is stuck, dead if
    the share `much` of them passes no gradient.
    """

    vanishing: float = 1e-4
    exploding: float = 1e3
    most: float = 1.0
    flat: float = 0.01
    nearly: float = 0.9
    much: float = 0.5

    def __post_init__(self) -> None:
        for name in ("vanishing", "exploding", "most", "flat", "nearly", "much"):
            number = getattr(self, name)
            top = 1.0 if name in ("most", "nearly", "much") else math.inf
            if not 0 < number <= top:
                raise ArgumentError(f"gradient_report: {name} must be above 0 and at most {top:g}, got {number!r}.")
