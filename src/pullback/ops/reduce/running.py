"""Further scans: logcumsumexp, running extremes, and sums and products that skip NaNs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import make_spec, spec_of
from ...errors import DtypeError
from .. import statics
from ..dispatch import apply, as_value
from ..elementwise import pointwise
from ..families import general
from ..index import indexing
from ..op_samples import normal_samples
from ..shape import arrange, reshaping
from ..signatures import of_array
from . import scans


@of_array
@attributed_to_caller
def nancumsum(x: Any, /, axis: int | None = None, dtype: Any = None) -> Any:
    """Running sums that count a NaN as zero.

    >>> import numpy as np, pullback as pb
    >>> pb.nancumsum(np.array([1.0, np.nan, 2.0]))
    array([1., 1., 3.])
    """
    x = as_value(x)
    return scans.cumulative_sum(pointwise.where(pointwise.isnan(x), 0, x), axis, dtype)


@of_array
@attributed_to_caller
def nancumprod(x: Any, /, axis: int | None = None, dtype: Any = None) -> Any:
    """Running products that count a NaN as one.

    >>> import numpy as np, pullback as pb
    >>> pb.nancumprod(np.array([2.0, np.nan, 3.0]))
    array([2., 2., 6.])
    """
    x = as_value(x)
    return scans.cumulative_prod(pointwise.where(pointwise.isnan(x), 1, x), axis, dtype)


# out_i = logaddexp(out_(i-1), x_i), so
#   dout_i = w_i dout_(i-1) + v_i dx_i  with  w_i = sigmoid(out_(i-1) - x_i), v_i = 1 - w_i, and w_0 = 0.
def _log_sum_weights(x: Any, out: Any, axis: int) -> tuple[Any, Any]:
    before, now = indexing.slice_along(out, axis, None, -1), indexing.slice_along(x, axis, 1, None)
    both_infinite = pointwise.logical_and(pointwise.isinf(now), pointwise.equal(before, now))
    lead = pointwise.where(both_infinite, 0.0, pointwise.subtract(now, before))
    old, new = pointwise.sigmoid(pointwise.negative(lead)), pointwise.sigmoid(lead)
    return (
        arrange.concat([scans.edge_slice(x, axis, 0), old], axis=axis),
        arrange.concat([scans.edge_slice(x, axis, 1), new], axis=axis),
    )


def _pull_log_sums(bar: Any, x: Any, out: Any, axis: int) -> Any:
    old, new = _log_sum_weights(x, out, axis)
    return pointwise.multiply(scans.reverse_recurrence(bar, old, axis), new)


def _push_log_sums(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    old, new = _log_sum_weights(primals[0], out, static["axis"])
    return apply(scans.recurrence, old, pointwise.multiply(new, tangents[0]), axis=static["axis"])


def _log_sums_value(xp: Any, x: Any, axis: int) -> Any:
    if x.dtype.kind not in "f":
        raise DtypeError(f"logcumsumexp: wants real floating-point numbers, got {x.dtype}.")
    if xp is np:
        return np.logaddexp.accumulate(x, axis=axis, dtype=x.dtype)
    moved = xp.moveaxis(x, axis, 0)
    out = moved.copy()
    for i in range(1, len(out)):
        out[i] = xp.logaddexp(out[i - 1], moved[i])
    return xp.moveaxis(out, 0, axis)


_logcumsumexp = general(
    "logcumsumexp",
    statics={"axis": statics.axis},
    value=_log_sums_value,
    pulls={"x": _pull_log_sums},
    push=_push_log_sums,
    samples=normal_samples([(4,), (2, 3), (0, 2), (2, 1)], axis=[0, 1, 0, 1]),
    autocast="high",
)


@of_array
def logcumsumexp(x: Any, /, axis: int | None = None) -> Any:
    """log(cumulative_sum(exp(x))) along an axis, without overflow.

    >>> import numpy as np, pullback as pb
    >>> pb.logcumsumexp(np.array([1000.0, 1000.0]))
    array([1000.        , 1000.69314718])
    """
    x, axis = scans.prepare_scan(x, axis, None, "logcumsumexp")
    x = x if spec_of(x).inexact else reshaping.astype(x, np.float64)
    return apply(_logcumsumexp, x, axis=axis)


def _running_index_value(xp: Any, x: Any, axis: int, least: bool) -> Any:
    """The index of the running extreme: the latest of equal ones, and a NaN once there was one."""
    pick = xp.minimum if least else xp.maximum
    so_far = pick.accumulate(x, axis=axis) if xp is np else _accumulate(xp, pick, x, axis)
    steps = xp.arange(x.shape[axis]).reshape((-1, *(1,) * (x.ndim - axis - 1)))
    places = xp.where((x == so_far) | xp.isnan(x), steps, 0)
    return np.maximum.accumulate(places, axis=axis) if xp is np else _accumulate(xp, xp.maximum, places, axis)


def _accumulate(xp: Any, pick: Any, x: Any, axis: int) -> Any:
    out = xp.moveaxis(x, axis, 0).copy()
    for i in range(1, len(out)):
        out[i] = pick(out[i - 1], out[i])
    return xp.moveaxis(out, 0, axis)


# The index of the greatest (or least) element so far along an axis.
_running_index = general(
    "running_index",
    statics={"axis": statics.axis, "least": statics.flag},
    value=_running_index_value,
    spec=lambda x, axis, least: make_spec(x.shape, np.dtype(np.intp), x.device),
    samples=normal_samples([(4,), (2, 3), (0,)], axis=[0, 1, 0], least=[False, True, True]),
)


@of_array
@attributed_to_caller
def cummax(x: Any, /, axis: int | None = None) -> Any:
    """The greatest element so far along an axis; of equal ones the latest gets the cotangent.

    >>> import numpy as np, pullback as pb
    >>> pb.cummax(np.array([1.0, 3.0, 2.0]))
    array([1., 3., 3.])
    """
    x, axis = scans.prepare_scan(x, axis, None, "cummax")
    return indexing.take_along_axis(x, apply(_running_index, x, axis=axis, least=False), axis=axis)


@of_array
@attributed_to_caller
def cummin(x: Any, /, axis: int | None = None) -> Any:
    """The least element so far along an axis; of equal ones the latest gets the cotangent.

    >>> import numpy as np, pullback as pb
    >>> pb.cummin(np.array([2.0, 1.0, 3.0]))
    array([2., 1., 1.])
    """
    x, axis = scans.prepare_scan(x, axis, None, "cummin")
    return indexing.take_along_axis(x, apply(_running_index, x, axis=axis, least=True), axis=axis)
