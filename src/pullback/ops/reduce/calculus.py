"""Finite differences, interpolation and unwrapping of sampled functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ..axes import axes_tuple, normalize_axis
from ..concrete import as_bare_array
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..elementwise.arithmetic import remainder
from ..elementwise.pointwise import add, divide, multiply, subtract, where
from ..index import indexing
from ..order.sorting import searchsorted
from ..placement import as_value_beside
from ..round_once import rounds_once
from ..shape import arrange, reshaping
from ..signatures import of_array, of_mixed_arrays
from . import scans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


def _lay_along(x: Any, axis: int, rank: int) -> Any:
    """A vector laid along one axis of an array."""
    return reshaping.reshape(x, (1,) * axis + (-1,) + (1,) * (rank - axis - 1))


@of_array
@attributed_to_caller
@rounds_once
def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbors along an axis, n times over.

    >>> import numpy as np, pullback as pb
    >>> pb.diff(np.array([1, 4, 9, 16]), n=2)
    array([2, 2])
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "diff")
    if n < 0:
        raise ArgumentError(f"diff: n must not be negative, got {n}.")
    if n and (prepend is not None or append is not None):
        x = arrange.concat([_edge_array(e, x, axis) for e in (prepend, x, append) if e is not None], axis=axis)
    less = pointwise.not_equal if spec_of(x).dtype.kind == "b" else subtract
    for _ in range(n):
        x = less(indexing.slice_along(x, axis, 1, None), indexing.slice_along(x, axis, None, -1))
    return x


def _edge_array(edge: Any, x: Any, axis: int) -> Any:
    edge = as_value_beside(x, edge)
    if edge is x or ndim(edge):
        return edge
    return reshaping.broadcast_to(edge, tuple(1 if i == axis else size for i, size in enumerate(shape(x))))


@of_array
@attributed_to_caller
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbors in the flattened array, with optional values before and after them.

    >>> import numpy as np, pullback as pb
    >>> pb.ediff1d(np.array([1.0, 4.0]), to_end=[9.0])
    array([3., 9.])
    """
    flat = reshaping.reshape(as_value(ary), (-1,))
    around = [None if e is None else reshaping.reshape(as_value(e), (-1,)) for e in (to_begin, to_end)]
    dtype = spec_of(flat).dtype
    parts = [around[0], diff(flat), around[1]]
    return arrange.concat([reshaping.astype(p, dtype) for p in parts if p is not None])


@overload
def gradient(f: V, *varargs: Plain, axis: int, edge_order: int = 1) -> V: ...
@overload
def gradient(f: Plain, *varargs: Plain, axis: int, edge_order: int = 1) -> NDArray[Any]: ...
@overload
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any: ...
@attributed_to_caller
@rounds_once
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes of samples along each axis: central differences inside, one-sided ones of order 1 or 2 at the edges.

    The spacings are one number, or for each axis a number or the coordinates of its samples.

    >>> import numpy as np, pullback as pb
    >>> pb.gradient(np.array([1.0, 4.0, 9.0, 16.0]))
    array([3., 4., 6., 7.])
    """
    f = as_value(f)
    if not spec_of(f).inexact:
        f = reshaping.astype(f, "float64")
    axes = tuple(range(ndim(f))) if axis is None else axes_tuple(axis, ndim(f), "gradient")
    spacings = list(varargs) or [1.0]
    if len(spacings) == 1 and not ndim(as_value(spacings[0])):
        spacings = spacings * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(f"gradient: got {len(spacings)} spacings for {len(axes)} axes.")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is 1 or 2, got {edge_order}.")
    steps = [as_value_beside(f, h) for h in spacings]
    slopes = tuple(_gradient_along(f, h, a, edge_order) for h, a in zip(steps, axes, strict=True))
    return slopes[0] if len(axes) == 1 else slopes


def _gradient_along(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    """Along one axis. With steps a (before) and b (after), the parabola through three samples has the slope
    (a/b f_+ - b/a f_- + (b/a - a/b) f_0) / (a + b) in the middle; for a = b that is the central difference.
    """
    size = shape(f)[axis]
    if size < edge_order + 1:
        raise ShapeError(f"gradient: axis {axis} has {size} samples, edge_order {edge_order} wants {edge_order + 1}.")
    steps = diff(h) if ndim(h) else reshaping.broadcast_to(reshaping.astype(h, _real_dtype(f)), (size - 1,))
    if shape(steps) != (size - 1,):
        raise ShapeError(f"gradient: {shape(h)[0]} coordinates for {size} samples along axis {axis}.")
    steps = _lay_along(steps, axis, ndim(f))
    rise = divide(diff(f, axis=axis), steps)
    a, b = indexing.slice_along(steps, axis, None, -1), indexing.slice_along(steps, axis, 1, None)
    left, right = indexing.slice_along(rise, axis, None, -1), indexing.slice_along(rise, axis, 1, None)
    middle = divide(add(multiply(left, b), multiply(right, a)), add(a, b))
    first, last = indexing.slice_along(rise, axis, 0, 1), indexing.slice_along(rise, axis, -1, None)
    if edge_order == 2:  # the same parabola, at its ends
        bend = divide(subtract(right, left), add(a, b))
        first = subtract(first, multiply(indexing.slice_along(bend, axis, 0, 1), indexing.slice_along(a, axis, 0, 1)))
        last = add(last, multiply(indexing.slice_along(bend, axis, -1, None), indexing.slice_along(b, axis, -1, None)))
    return reshaping.astype(arrange.concat([first, middle, last], axis=axis), spec_of(f).dtype)


def _real_dtype(x: Any) -> Any:
    return np.empty(0, spec_of(x).dtype).real.dtype


@of_mixed_arrays
@attributed_to_caller
@rounds_once
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """The straight line between the samples (xp, fp) at x, also as a function of the samples; at a sample its slope is
    the one to the right. Beyond the ends: `left` and `right`, else the end samples; or all of it periodic.

    >>> import numpy as np, pullback as pb
    >>> pb.interp(np.array([1.5, 9.0]), np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    array([15., 20.])
    """
    x, xp, fp = as_value(x), as_value(xp), as_value(fp)
    if ndim(xp) != 1 or shape(xp) != shape(fp) or not shape(xp)[0]:
        raise ShapeError(f"interp: xp and fp are vectors of one size, got shapes {shape(xp)} and {shape(fp)}.")
    if period is not None:
        x, xp, fp = _unroll_period(x, xp, fp, period)
        left = right = None
    if shape(xp)[0] == 1:
        inside = reshaping.broadcast_to(fp[0], shape(x))
    else:
        at = pointwise.clip_to(subtract(searchsorted(xp, x, side="right"), 1), 0, shape(xp)[0] - 2)
        start, low = indexing.take(xp, at), indexing.take(fp, at)
        wide = subtract(indexing.take(xp, add(at, 1)), start)
        rise = subtract(indexing.take(fp, add(at, 1)), low)
        inside = add(multiply(divide(rise, wide), subtract(x, start)), low)
    beyond = fp[-1] if right is None else right
    inside = where(
        pointwise.greater(x, xp[-1]), beyond, where(pointwise.equal(x, xp[-1]), _exact_at_end(fp, inside), inside)
    )
    return where(pointwise.less(x, xp[0]), fp[0] if left is None else left, inside)


def _exact_at_end(fp: Any, inside: Any) -> Any:
    """At the last sample: its exact value, and the slope of the last piece."""
    return add(inside, pointwise.stop_gradient(subtract(fp[-1], inside)))


def _unroll_period(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """The samples sorted within one period, and one more at either side."""
    period = pointwise.abs(as_value(period))
    x, xp = remainder(x, period), remainder(xp, period)
    order = np.argsort(as_bare_array(xp, "interp with a period"))
    xp, fp = indexing.take(xp, order), indexing.take(fp, order)
    xp = arrange.concat([subtract(xp[-1:], period), xp, add(xp[:1], period)])
    return x, xp, arrange.concat([fp[-1:], fp, fp[:1]])


@of_array
@attributed_to_caller
@rounds_once
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    """Angles along an axis with whole periods added, so that no step is more than half a period (or `discont`).

    >>> import numpy as np, pullback as pb
    >>> pb.unwrap(np.array([0.0, 3.0, -3.0]))
    array([0.        , 3.        , 3.28318531])
    """
    p = as_value(p)
    axis = normalize_axis(axis, ndim(p), "unwrap")
    steps = pointwise.stop_gradient(diff(p, axis=axis))
    low = -period / 2
    if spec_of(p).inexact or not isinstance(period, int):
        wrapped = add(remainder(subtract(steps, low), period), low)
        at_edge = pointwise.logical_and(pointwise.equal(wrapped, low), pointwise.greater(steps, 0))
    else:
        low = -(period // 2)
        wrapped = add(remainder(subtract(steps, low), period), low)
        at_edge = pointwise.logical_and(
            pointwise.equal(wrapped, low) if period % 2 == 0 else False, pointwise.greater(steps, 0)
        )
    wrapped = where(at_edge, -low if not spec_of(p).inexact else period / 2, wrapped)
    small = pointwise.less(pointwise.abs(steps), max(period / 2 if discont is None else discont, 0))
    jumps = scans.cumulative_sum(where(small, 0, subtract(wrapped, steps)), axis=axis)
    before = [(1, 0) if i == axis else (0, 0) for i in range(ndim(p))]
    return add(p, arrange.pad(jumps, before))
