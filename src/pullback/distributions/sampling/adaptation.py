"""Warmup: dual averaging of the step size, and the covariance of windows as the mass, as Stan does it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...ops.creation import eye
from ...ops.elementwise.pointwise import log, sqrt, where
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import expand_dims


class DualAverage(NamedTuple):
    """A step size on its way (Nesterov's dual averaging, as in Hoffman and Gelman's paper on NUTS)."""

    log_step: Any
    log_average: Any
    error: Any
    count: Any
    center: Any


def start_average(step: Any) -> DualAverage:
    """Begin at a step size, drawn towards ten times of it."""
    zero = step * 0.0
    return DualAverage(log(step), log(step), zero, zero, log(10.0 * step))


def update_average(state: DualAverage, acceptance: Any, target: float) -> DualAverage:
    """One more acceptance, which should have been the target."""
    count = state.count + 1.0
    share = 1.0 / (count + 10.0)
    error = (1.0 - share) * state.error + share * (target - acceptance)
    log_step = state.center - sqrt(count) / 0.05 * error
    weight = count**-0.75
    return DualAverage(log_step, weight * log_step + (1.0 - weight) * state.log_average, error, count, state.center)


class Moments(NamedTuple):
    """A running mean and sum of squares (Welford), or of products of coordinates, as a matrix."""

    count: Any
    mean: Any
    squares: Any


def start_moments(position: Any, dense: bool) -> Moments:
    """No points yet."""
    none = position * 0.0
    return Moments(total(none), none, expand_dims(none, axis=1) * none if dense else none)


def add_point(state: Moments, x: Any, counts: Any) -> Moments:
    """One more point, where it counts."""
    count = state.count + counts
    gap = x - state.mean
    mean = state.mean + where(counts > 0, gap / where(count > 0, count, 1.0), 0.0)
    left = gap if state.squares.ndim == 1 else expand_dims(gap, axis=1)
    return Moments(count, mean, state.squares + counts * left * (x - mean))


def shrink_covariance(state: Moments) -> Any:
    """The variances or the covariance, drawn a little towards small variances, as far as few points say little."""
    found = state.squares / where(state.count > 1.0, state.count - 1.0, 1.0)
    weight = state.count / (state.count + 5.0)
    small = 1e-3 if found.ndim == 1 else 1e-3 * eye(found.shape[0], dtype=found.dtype)
    return weight * found + small * (1.0 - weight)


class Schedule(NamedTuple):
    """For each step of a warmup: whether its point counts for the mass (0 or 1), and whether a window ends there."""

    counts: Any
    ends: Any


def plan_windows(warmup: int) -> Schedule:
    """A fast start, windows that double, a fast end; short warmups in proportion, the shortest have no windows."""
    counts, ends = np.zeros(warmup), np.zeros(warmup, bool)
    first, last, window = (75, 50, 25) if warmup >= 150 else (int(0.15 * warmup), int(0.1 * warmup), warmup)
    stop = warmup - last
    if warmup < 20:
        return Schedule(counts, ends)
    counts[first:stop] = 1.0
    at = first
    while at < stop:
        # the next window would not fit: this one takes what is left
        end = stop if at + 3 * window > stop else at + window
        ends[end - 1] = True
        at, window = end, 2 * window
    return Schedule(counts, ends)
