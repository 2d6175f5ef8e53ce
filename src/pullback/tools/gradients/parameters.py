"""Parameter rows of a gradient report: sizes, zeros, dead units, and the verdict by the limits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ...errors import ArgumentError

#: Parts of a path such as `['conv'][0].weight`.
_PART = re.compile(r"\['([^']*)'\]|\[([^\]]*)\]|\.?([^.\[]+)")


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


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """One parameter: the root mean squares of its values and of its gradient, the norm of the gradient, the share of
    elements whose gradient is zero, the slices that are zero altogether as (axis, how many, of how many) along the
    axis that has the largest share of them, and the verdict: "", "vanishing", "exploding", "dead", "not finite".
    """

    name: str
    shape: tuple[int, ...]
    size: float
    gradient: float
    norm: float
    zeros: float
    dead: tuple[int, int, int] | None
    state: str = ""

    @property
    def layer(self) -> str:
        """The name without its last part: what the parameter belongs to."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def ratio(self) -> float:
        """The gradient's size as a part of the values'."""
        return self.gradient / self.size if self.size else math.inf if self.gradient else 0.0

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        dead = "" if self.dead is None else f"{self.dead[1]} of {self.dead[2]} along axis {self.dead[0]}"
        shape = "x".join(map(str, self.shape)) or "one"
        return self.name, shape, f"{self.norm:.2e}", f"{self.ratio:.2e}", f"{self.zeros:.0%}", dead, self.state


def dotted_path(path: str) -> str:
    """A path in dotted form.

    >>> dotted_path("['conv'][0].weight"), dotted_path("")
    ('conv.0.weight', 'parameter')
    """
    return ".".join(next(filter(None, found), "") for found in _PART.findall(path)) or "parameter"


def parameter_row(name: str, value: Any, gradient: Any, zero: Any) -> ParameterRow:
    """The statistics, without a verdict; `zero` is True where a gradient counts as zero. Sums are taken in double
    precision, of values scaled by the largest, so that squares of huge ones stay finite.
    """
    size, gradient_size = _root_mean_square(value), _root_mean_square(gradient)
    zeros = float(np.mean(zero)) if zero.size else 0.0
    norm = gradient_size * math.sqrt(gradient.size)
    return ParameterRow(name, tuple(value.shape), size, gradient_size, norm, zeros, _dead_slices(zero))


def _root_mean_square(array: Any) -> float:
    if not array.size:
        return 0.0
    absolute = np.abs(array).astype(np.float64)
    largest = float(absolute.max())
    if not largest or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.mean(np.square(absolute / largest))))


def _dead_slices(zero: Any) -> tuple[int, int, int] | None:
    """The axis whose slices are zero altogether most often; which axis the units lie along is unknown."""
    found = []
    for axis in range(zero.ndim):
        if zero.shape[axis] > 1 and zero.size:
            others = tuple(i for i in range(zero.ndim) if i != axis)
            found.append((axis, int(np.sum(np.all(zero, axis=others))), zero.shape[axis]))
    best = max(found, key=lambda f: f[1] / f[2], default=None)
    return best if best is not None and best[1] else None


def assign_verdicts(rows: Sequence[ParameterRow], limits: Limits) -> tuple[ParameterRow, ...]:
    """The rows with their verdicts, each by comparison with the others."""
    sizes = [r.gradient for r in rows if math.isfinite(r.gradient) and r.gradient]
    largest, middle = max(sizes, default=0.0), median(sizes) if sizes else 0.0
    values = [r.size for r in rows if math.isfinite(r.size) and r.size]
    scale = median(values) if values else 1.0

    def verdict(row: ParameterRow) -> str:
        if not math.isfinite(row.gradient) or not math.isfinite(row.size):
            return "not finite"
        if math.prod(row.shape) and row.zeros == 1.0:
            return "dead"
        if row.gradient > max(10 * scale, limits.exploding * middle) or row.gradient > limits.exploding * scale:
            return "exploding"
        if row.gradient < limits.vanishing * largest:
            return "vanishing"
        return "partly dead" if row.zeros >= limits.much else ""

    return tuple(replace(row, state=verdict(row)) for row in rows)
