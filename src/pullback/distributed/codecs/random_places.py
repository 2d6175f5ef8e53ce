"""Random elements: the same ones on all ranks, so that only their values are sent, and summed."""

from __future__ import annotations

from typing import Any

from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import Spec, spec_of
from ...ops.elementwise import pointwise
from ...ops.index.indexing import take
from ...ops.random import fold_in, key, uniform
from ...ops.shape.reshaping import astype, reshape
from .codec import Codec, Coded, Running, SumOver, no_state
from .fractions import check_fraction, count_of, place_values


@picklable
def random_k(fraction: float, seed: int = 0) -> Codec:
    """Send a random fraction of the elements, one out of each stretch of equal length, others as zero. All ranks draw
    the same places, from the seed and the number of the step, so values are summed without their places. Use it inside
    `error_feedback`, which sends what was left out when its turn comes.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.random_k(0.5))
    >>> def step():
    ...     g = np.arange(1.0, 7.0)
    ...     return rule.update(g, rule.init(g), g)[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[2.0, 0.0, 0.0, 8.0, 0.0, 12.0], [2.0, 0.0, 0.0, 8.0, 0.0, 12.0]]
    """
    share = check_fraction(fraction, "random_k: fraction")
    common = key(seed)

    def run(x: Any, state: Any, step: Any) -> Running:
        spec = spec_of(x)
        places = _draw_places(fold_in(common, step), spec, count_of(share, spec))
        values = take(reshape(x, (-1,)), places)
        (summed,) = yield SumOver((values,))
        return Coded(place_values(summed, places, spec), place_values(values, places, spec), state)

    return Codec(
        f"random_k({share:g})", no_state, run, lambda spec: count_of(share, spec) * max(spec.dtype.itemsize, 4)
    )


def _draw_places(drawn: Any, spec: Spec, count: int) -> Any:
    """A place in each of `count` stretches of an array."""
    xp = namespace_on(spec.device)
    starts = xp.arange(count + 1) * spec.size // count
    lengths = xp.diff(starts)
    shares = uniform(size=count, key=drawn, device=spec.device)
    steps = astype(pointwise.multiply(shares, lengths), starts.dtype)
    return pointwise.add(starts[:-1], pointwise.minimum(steps, lengths - 1))
