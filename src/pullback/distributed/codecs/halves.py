"""Half precision: numbers are sent in two bytes each, and summed by the ranks in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...ops.shape.reshaping import astype
from .codec import Codec, Coded, Running, SumOver, no_state


@picklable
def bfloat16() -> Codec:
    """Send bfloat16: the range of float32 with 8 bits of precision. Sums over ranks are computed in float32 and rounded
    once, so a total has the error of two roundings: at most 1/128 of the sum of absolute values.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.bfloat16())
    >>> def step():
    ...     g = np.array([1.0, 1 / 3])
    ...     return rule.update(g, rule.init(g), g)[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[2.0, 0.66796875], [2.0, 0.66796875]]
    """
    return _half_codec("bfloat16()", as_dtype("bfloat16"))


@picklable
def float16() -> Codec:
    """Send float16: 11 bits of precision, numbers from 6e-8 to 65504 only. What is larger becomes infinite, so
    gradients of a scaled loss may overflow; `bfloat16` has no such limit.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.codecs.float16().ratio(pb.spec_of(np.ones(3, np.float32)))
    2.0
    """
    return _half_codec("float16()", np.dtype(np.float16))


def _half_codec(name: str, half: Any) -> Codec:
    def run(x: Any, state: Any, step: Any) -> Running:
        dtype = spec_of(x).dtype
        payload = astype(x, half)
        (summed,) = yield SumOver((payload,))
        return Coded(astype(summed, dtype), astype(payload, dtype), state)

    return Codec(name, no_state, run, lambda spec: 2.0 * spec.size)
