"""Error feedback: what a codec lost in one step is added to what it is given in the next."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...ops.elementwise import pointwise
from ...optim.leaves import zero_update
from ..marks import mark_summed
from .codec import Codec, Coded, Running, check_codec


@picklable
def error_feedback(codec: Codec) -> Codec:
    """Keep what a codec did not send, and add it to the next gradient: nothing is lost, some of it comes late. The sums
    over all steps so far and the residuals of all ranks add up to the sum of all gradients. Biased codecs (`one_bit`,
    `top_k`, `random_k`, `power_sgd`) need it to converge. The residual is state, of the size of the parameters.

    >>> import numpy as np, pullback as pb
    >>> codecs = pb.distributed.codecs
    >>> rule = pb.distributed.aggregate(codecs.error_feedback(codecs.top_k(0.25)))
    >>> g = np.array([4.0, 3.0, 0.0, 0.0])
    >>> first, state = rule.update(g, rule.init(g), g)
    >>> second, state = rule.update(g, state, g)
    >>> first.tolist(), second.tolist()
    ([4.0, 0.0, 0.0, 0.0], [0.0, 6.0, 0.0, 0.0])
    """
    check_codec(codec, "error_feedback")

    def start(x: Any) -> dict[str, Any]:
        # of the residuals of ranks the sum matters: files hold that, for any number of ranks
        return {"residual": mark_summed(zero_update(x)), "codec": codec.init(x)}

    def run(x: Any, state: Any, step: Any) -> Running:
        held = state["residual"]
        given = pointwise.add(x, held.tree)
        coded = yield from codec.send(given, state["codec"], step)
        # what was sent although it is not finite was seen by all, and must not stay; what was not sent yet does
        left = pointwise.subtract(given, coded.sent)
        residual = pointwise.where(pointwise.isfinite(coded.sent), left, 0.0)
        return Coded(coded.total, coded.sent, {"residual": held._replace(tree=residual), "codec": coded.state})

    return Codec(f"error_feedback({codec.name})", start, run, codec.sent_bytes)
