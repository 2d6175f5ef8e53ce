"""The largest elements: their values and places are sent, others count as zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.argument_checks import check_number
from ...arrays.picklable import picklable
from ...arrays.spec import Spec, spec_of
from ...ops.elementwise import pointwise
from ...ops.index.indexing import take
from ...ops.order.largest import largest_places
from ...ops.shape.reshaping import astype, reshape
from .codec import Codec, Coded, GatherFrom, Running, no_state
from .fractions import check_fraction, count_of, place_values


@picklable
def top_k(fraction: float) -> Codec:
    """Send the elements of largest absolute value, such a fraction of all, with their places; others count as zero. Use
    it inside `error_feedback`, which keeps those for later.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.top_k(0.25))
    >>> def step():
    ...     g = np.array([1.0, -2.0, 0.5, 0.0]) if pb.distributed.rank() else np.array([0.1, 0.2, 0.0, 0.3])
    ...     return rule.update(g, rule.init(g), np.zeros(4))[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[0.0, -2.0, 0.0, 0.3], [0.0, -2.0, 0.0, 0.3]]
    """
    return _largest_codec(f"top_k({fraction:g})", check_fraction(fraction, "top_k: fraction"), None)


@picklable
def threshold(limit: float, capacity: float = 0.01) -> Codec:
    """Send elements whose absolute value exceeds a limit, the largest of them where they are more than a fraction
    `capacity` of all. So much is sent in any case, since sizes must not depend on values.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.threshold(1.0, capacity=0.25))
    >>> g = np.array([0.5, 3.0, -2.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    >>> rule.update(g, rule.init(g), g)[0].tolist()
    [0.0, 3.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    least = check_number("threshold: limit", limit, least=0.0)
    return _largest_codec(f"threshold({least:g})", check_fraction(capacity, "threshold: capacity"), least)


def _largest_codec(name: str, fraction: float, limit: float | None) -> Codec:
    def run(x: Any, state: Any, step: Any) -> Running:
        spec = spec_of(x)
        flat = reshape(x, (-1,))
        places = largest_places(flat, count_of(fraction, spec))
        values = take(flat, places)
        if limit is not None:
            values = pointwise.where(pointwise.less_equal(pointwise.abs(values), limit), 0.0, values)
        all_values, all_places = yield GatherFrom((values, astype(places, _place_dtype(spec))))
        return Coded(place_values(all_values, all_places, spec), place_values(values, places, spec), state)

    return Codec(name, no_state, run, lambda spec: count_of(fraction, spec) * _bytes_per_element(spec))


def _place_dtype(spec: Spec) -> Any:
    return np.dtype(np.int32 if spec.size < 2**31 else np.int64)


def _bytes_per_element(spec: Spec) -> float:
    return float(max(spec.dtype.itemsize, 4) + _place_dtype(spec).itemsize)
