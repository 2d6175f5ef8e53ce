"""Brownian motion as a function of a key: increments of a grid, and a tree that has the path at every time.

Over an interval of length h a path leaves its increment W and its area H, the mean of the path above the chord,
    H = (1 / h) integral of (W(s, r) - (r - s) / h W) over r,    W ~ N(0, h),  H ~ N(0, h / 12),  independent.
Halved, the parts follow from two more normal numbers z ~ N(0, h / 16) and n ~ N(0, h / 12) (Foster, Lyons, Oberhauser
2020):
    W_left = W / 2 + (3 / 2 H + z),   W_right = W / 2 - (3 / 2 H + z),
    H_left = (H / 4 - z / 2) + n / 2,   H_right = (H / 4 - z / 2) - n / 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.axes import as_integer, as_shape
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import greater_equal, less, less_equal, logical_and, sqrt, stop_gradient, where
from ..ops.placement import move
from ..ops.random.keys import fold_in, key_on_device
from ..ops.random.quick_normal import quick_normal
from ..ops.shape.reshaping import astype
from ..ops.value_objects import static, value_object
from ..transforms.control.branches_and_loops import fori_loop


class Noise(NamedTuple):
    """What a step sees of a path: its increment, and its area above the chord."""

    increment: Any
    area: Any


def draw_noise(key: Any, size: Any, h: Any, dtype: Any) -> Noise:
    """The noise of a step of length h by itself."""
    z = quick_normal((2, *size), key, dtype)
    return Noise(sqrt(h) * z[0], sqrt(h / 12) * z[1])


class _Point(NamedTuple):
    """The path at a time: its value, and its integral since the start."""

    value: Any
    integral: Any


class _Interval(NamedTuple):
    """An interval of the tree: where it begins, how long it is, the path there, its key and its noise."""

    start: Any
    length: Any
    point: _Point
    key: Any
    noise: Noise


@final
@value_object
class BrownianTree:
    """A Brownian path from t0 to t1, zero at t0, of numbers of a shape: `path(t)` is its value at a time. It is a
    function of its key, halved towards t `depth` times, so that it is the same for steps of any length; below
    (t1 - t0) / 2^depth it is smooth. Outside of (t0, t1) it is NaN.

    >>> import pullback as pb
    >>> path = pb.ode.BrownianTree(pb.random.key(0), 0.0, 2.0, (3,))
    >>> path(0.5).shape, bool(abs(path(0.0)).max() == 0)
    ((3,), True)
    """

    key: Any
    t0: Any
    t1: Any
    shape: Any = static(())
    depth: Any = static(20)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_shape(self.shape, "BrownianTree: shape"))
        if not 1 <= as_integer(self.depth, "BrownianTree: depth") <= 40:
            raise ArgumentError(f"BrownianTree: depth is from 1 to 40, got {self.depth}.")

    def __call__(self, t: Any) -> Any:
        """The value of the path at a time."""
        return self._find(t).value

    def noise(self, start: Any, end: Any) -> Noise:
        """Increment and area of the path between two times."""
        left, right = self._find(start), self._find(end)
        h = stop_gradient(end - start)
        w = right.value - left.value
        return Noise(w, (right.integral - left.integral) / h - left.value - 0.5 * w)

    def _find(self, t: Any) -> _Point:
        if shape(t):
            raise ShapeError(
                f"BrownianTree: t has shape {shape(t)}, wanted one time.\n  At many: pb.vmap(path)(times)."
            )
        t, device = stop_gradient(t), spec_of(t).device
        key = key_on_device(self.key, device, "BrownianTree")
        first, length = (move(as_value(stop_gradient(x)), device) for x in (self.t0, self.t1 - self.t0))
        dtype = spec_of(t + length + 0.0).dtype
        whole = draw_noise(fold_in(key, 2), self.shape, length, dtype)
        none = whole.increment * 0.0
        begin = _Interval(
            astype(first + 0.0 * t, dtype), astype(length + 0.0 * t, dtype), _Point(none, none), key, whole
        )

        leaf: _Interval = fori_loop(0, self.depth, lambda _, interval: self._halve(interval, t), begin)
        slack = 256 * float(np.finfo(dtype).eps)  # times are sums of steps
        share = (t - first) / length
        is_inside = logical_and(greater_equal(share, -slack), less_equal(share, 1 + slack))
        return _Point(*(where(is_inside, x, np.nan) for x in _interpolate(leaf, t)))

    def _halve(self, interval: _Interval, t: Any) -> _Interval:
        """The half that t lies in."""
        w, h = interval.noise
        length = interval.length
        half = 0.5 * length
        z, n = quick_normal((2, *self.shape), fold_in(interval.key, 3), spec_of(w).dtype)
        z, n = z * sqrt(length / 16), n * sqrt(length / 12)
        away, near, twist = 1.5 * h + z, 0.25 * h - 0.5 * z, 0.5 * n
        left, right = Noise(0.5 * w + away, near + twist), Noise(0.5 * w - away, near - twist)
        is_left = less(t, interval.start + half)
        value, integral = interval.point
        passed = _Point(value + left.increment, integral + half * (value + left.area + 0.5 * left.increment))
        return _Interval(
            where(is_left, interval.start, interval.start + half),
            half,
            _Point(*(where(is_left, a, b) for a, b in zip(interval.point, passed, strict=True))),
            where(is_left, fold_in(interval.key, 0), fold_in(interval.key, 1)),
            Noise(*(where(is_left, a, b) for a, b in zip(left, right, strict=True))),
        )


def _interpolate(leaf: _Interval, t: Any) -> _Point:
    """The expected path in an interval, given its noise: the chord and a parabola above it."""
    length = leaf.length
    x = (t - leaf.start) / length
    w, h = leaf.noise
    value, integral = leaf.point
    return _Point(
        value + x * w + 6 * x * (1 - x) * h,
        integral + length * (x * value + 0.5 * x * x * w + x * x * (3 - 2 * x) * h),
    )
