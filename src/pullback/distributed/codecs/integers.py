"""Bytes: numbers are sent as integers from -127 to 127, with the size of a unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.picklable import picklable
from ...arrays.spec import Spec, spec_of
from ...errors import ArgumentError
from ...ops.elementwise import pointwise
from ...ops.elementwise.rounding import rint
from ...ops.reduce import reductions
from ...ops.shape.reshaping import astype
from .codec import Codec, Coded, GatherFrom, Running, no_state
from .gathered import add_shares

_LARGEST = 127


@picklable
def int8(per: str = "tensor") -> Codec:
    """Send each number as an integer from -127 to 127 times a scale, which is that of the largest number of the array,
    or of each of its rows with `per="row"` (slices along the first axis). An element is off by half a unit at most.

    Each rank has a scale of its own, so the ranks' arrays are gathered and then added up: with many ranks more bytes
    come to each than a sum of halves brings.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.int8())
    >>> def step():
    ...     g = np.array([127.0, -50.4])
    ...     return rule.update(g, rule.init(g), g)[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[254.0, -100.0], [254.0, -100.0]]
    """
    if per not in ("tensor", "row"):
        raise ArgumentError(f"int8: per is 'tensor' or 'row', got {per!r}.")

    def run(x: Any, state: Any, step: Any) -> Running:
        unit = _find_unit(x, per)
        rounded = rint(pointwise.multiply(x, pointwise.divide(1.0, unit)))
        # NaN has no integer; the unit is NaN too, and so is the result
        payload = astype(pointwise.where(pointwise.isnan(rounded), 0.0, rounded), np.int8)
        gathered = yield GatherFrom((payload, unit))
        return Coded(add_shares(_decode, *gathered), _decode(payload, unit), state)

    return Codec(f"int8(per={per!r})", no_state, run, lambda spec: _sent_bytes(spec, per))


def _find_unit(x: Any, per: str) -> Any:
    """What an integer of 1 stands for; of one shape with x, or a number."""
    spec = spec_of(x)
    axes = tuple(range(1, spec.ndim)) if _has_rows(spec, per) else None
    largest = reductions.max(pointwise.abs(x), axis=axes, keepdims=axes is not None)
    # below, one over it would be infinite: such numbers are sent as zeros
    least = _LARGEST * 4.0 * float(np.finfo(spec.dtype).tiny)
    return pointwise.where(pointwise.less(largest, least), 1.0, pointwise.divide(largest, _LARGEST))


def _decode(payload: Any, unit: Any) -> Any:
    return pointwise.multiply(astype(payload, spec_of(unit).dtype), unit)


def _has_rows(spec: Spec, per: str) -> bool:
    return per == "row" and spec.ndim > 1


def _sent_bytes(spec: Spec, per: str) -> float:
    units = spec.shape[0] if _has_rows(spec, per) else 1
    return float(spec.size + units * max(spec.dtype.itemsize, 4))
