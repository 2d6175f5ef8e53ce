"""Derivatives of a function of one variable by extrapolated differences, each with an error estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

#: Steps are halved until the estimate is this small, relative to the size an error is measured by, or there is none.
_ENOUGH = 1e-10
_FIRST, _LEVELS, _COLUMNS = 0.125, 30, 7
#: A difference by a short step guards the long ones: those over many corners can agree by chance.
_SHORT, _LEEWAY = 2.0**-20, (1e-3, 1e-6)
#: A difference may be off by so many ulps of the values over its step.
_ULPS = 4.0


class Slope(NamedTuple):
    """A derivative by differences: its values, the error estimate of each, and the size of the function's values."""

    value: Any
    error: Any
    scale: Any


class _Row(NamedTuple):
    """One row of the table: the differences of a step, their roundoff, and the size of the values."""

    entries: list[Any]
    roundoff: Any
    scale: Any


def measure_slope(f: Callable[[float], Any], eps: float, least: Any = 0.0) -> Slope:
    """The derivative at 0 of a function that returns a vector, by Romberg's table of central differences.

    Halving a step h quarters the error h^2 of a central difference, so 4/3 of the second less 1/3 of the first has an
    error of h^4, and so on along a row. Each element is taken from the place in the table where its neighbors differ
    least from it: far from corners and poles (steps too large) and from roundoff (steps too small).
    The argument is such that f changes much where it moves by about 1; `eps` is the roundoff of its values,
    relative to themselves and to `least`.
    """
    short = _next_row(f, _SHORT, [], eps, least)
    rows: list[_Row] = []
    best: Slope | None = None
    for level in range(_LEVELS):
        row = _next_row(f, _FIRST / 2**level, rows[-1].entries if rows else [], eps, least)
        if row is None:
            continue
        rows.append(row)
        if len(rows) > 1:
            best = _improve(best, rows, short)
            if _is_enough(best):
                break
    if best is None:
        raise ArithmeticError("the function has no finite values near its argument, so there are no differences.")
    return best


def _next_row(f: Callable[[float], Any], step: float, above: list[Any], eps: float, least: Any) -> _Row | None:
    """The next row of the table; None where the step leaves the function's domain."""
    try:
        high, low = f(step), f(-step)
    except Exception:  # outside its domain a function may raise anything: a smaller step will do
        return None
    if high.shape != low.shape:
        return None
    entries = [(high - low) / (2 * step)]
    for column, left in enumerate(above[: _COLUMNS - 1]):
        entries.append(entries[-1] + (entries[-1] - left) / (4.0 ** (column + 1) - 1))
    scale = np.max([np.abs(high), np.abs(low), np.broadcast_to(least, high.shape)], axis=0)
    return _Row(entries, _ULPS * eps * scale / step, scale)


def _improve(best: Slope | None, rows: list[_Row], short: _Row | None) -> Slope:
    """The best of each element so far and of a new row: an entry is as good as its neighbors agree with it."""
    row, above = rows[-1], rows[-2].entries
    if best is None:
        best = Slope(row.entries[0], np.full(row.scale.shape, np.inf), rows[0].scale)
    scale = np.where(np.isfinite(best.scale), best.scale, row.scale)  # the first that is inside of the domain
    for column, entry in enumerate(row.entries):
        neighbors = [above[0]] if column == 0 else [row.entries[column - 1], above[column - 1]]
        error = row.roundoff + np.max([np.abs(entry - n) for n in neighbors], axis=0)
        closer = (error < best.error) & _agrees(entry, short, scale)
        best = Slope(np.where(closer, entry, best.value), np.where(closer, error, best.error), scale)
    return best


def _agrees(entry: Any, short: _Row | None, scale: Any) -> Any:
    """Where an entry roughly agrees with the short step."""
    if short is None:
        return True
    slope, (of_slope, of_value) = short.entries[0], _LEEWAY
    leeway = of_slope * np.abs(slope) + of_value * scale + short.roundoff
    return ~(np.abs(entry - slope) > leeway)  # true of NaN: the short step gave no value


def _is_enough(best: Slope) -> bool:
    if not np.isfinite(best.error).all():
        return False
    size = float(np.abs(best.value).max(initial=0.0)) or float(best.scale.max(initial=0.0))
    return bool(best.error.max(initial=0.0) <= _ENOUGH * size)
