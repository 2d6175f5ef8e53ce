"""Plain sums in the first steps, a codec later."""

from __future__ import annotations

from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.picklable import picklable
from ...ops.concrete import is_concrete, strip_derivatives
from .codec import ChooseByStep, Codec, Coded, Running, check_codec, sum_plainly


@picklable
def after(steps: int, codec: Codec) -> Codec:
    """Sum plainly in the first steps, when gradients change quickly, and by a codec from then on. In a compiled step
    both ways are compiled, and only one of them communicates.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.after(1, pb.distributed.codecs.one_bit()))
    >>> g = np.array([1.0, -2.0, 6.0])
    >>> first, state = rule.update(g, rule.init(g), g)
    >>> first.tolist(), rule.update(g, state, g)[0].tolist()
    ([1.0, -2.0, 6.0], [3.0, -3.0, 3.0])
    """
    steps = check_count(steps, "after: steps", 0)
    check_codec(codec, "after")

    def run(x: Any, state: Any, step: Any) -> Running:
        if is_concrete(step):
            is_early = int(strip_derivatives(step)) < steps
            return (yield from sum_plainly(x, state) if is_early else codec.send(x, state, step))
        chosen: Coded = yield ChooseByStep(steps, lambda: sum_plainly(x, state), lambda: codec.send(x, state, step))
        return chosen

    return Codec(f"after({steps}, {codec.name})", codec.start, run, codec.sent_bytes)
