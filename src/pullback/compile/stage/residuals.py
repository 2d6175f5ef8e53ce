"""Which residuals of a compiled backward pass are recomputed: those that cost less than loading them."""

from __future__ import annotations

from ...ops.forms import Cast
from ...program.ir import Equation
from ..lower.views import is_view
from ..vocabulary import MAX_RECOMPUTE_WEIGHT, Weigher


def is_cheap(e: Equation) -> bool:
    """Whether recomputing a value costs less than loading it."""
    if e.op.kernel is not None:
        return Weigher.weigh(e.op, len(e.args)) <= MAX_RECOMPUTE_WEIGHT
    return isinstance(e.op.form, Cast) or is_view(e)
