"""Which residuals of a compiled backward pass are recomputed: those that cost less than loading them."""

from __future__ import annotations

from ...ops.forms import Cast, Gather
from ...program.ir import Equation, Symbol
from ..lower.views import is_view
from ..vocabulary import MAX_RECOMPUTE_WEIGHT, Weigher, is_float8

#: Up to this weight, what is computed of one array and statistics of it (a division by them) is not worth saving: it
#: would be written, held, and read again.
_MAX_ROW_WEIGHT = 4


def is_cheap(e: Equation) -> bool:
    """Whether recomputing a value costs less than saving it."""
    if e.op.kernel is not None:
        return Weigher.weigh(e.op, len(e.args)) <= (_MAX_ROW_WEIGHT if _scales_rows(e) else MAX_RECOMPUTE_WEIGHT)
    if isinstance(e.op.form, Cast):
        # CuPy has no arrays of eight bits that could be saved
        return not any(isinstance(a, Symbol) and is_float8(a.spec.dtype) and a.spec.device != "cpu" for a in e.args)
    return is_view(e) or (isinstance(e.op.form, Gather) and _repeats_elements(e))


def _scales_rows(e: Equation) -> bool:
    """Whether one argument is as large as the result and the others are small beside it."""
    sizes = [a.spec.size for a in e.args if isinstance(a, Symbol)]
    size = e.results[0].spec.size
    return sizes.count(size) == 1 and len(sizes) > 1 and 4 * (sum(sizes) - size) <= size


def _repeats_elements(e: Equation) -> bool:
    """Whether a gather reads elements several times: the result is much larger than what it is read from."""
    read = sum(a.spec.nbytes for a in e.args if isinstance(a, Symbol))
    return 2 * read <= e.results[0].spec.nbytes
