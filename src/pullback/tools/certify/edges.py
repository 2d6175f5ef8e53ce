"""A case in, its awkward relatives out: other strides, ties, whole numbers, infinities and NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import DtypeError
from .cases import Case
from .oracles import knows_edges

__all__ = ["edges_of", "turn_memory"]

#: What every exact elementwise op of one or two numbers is asked, in all pairs.
_NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, np.inf, -np.inf, np.nan, 1e-300, 1e300])
#: Ops whose argument is sorted by promise, that want a place, or that multiply by zeros which the oracle leaves out.
_FINITE = {
    "searchsorted", "quantile_neighbours", "linear_recurrence", "convolution", "convolution_back",
    "convolution_weight",
}  # fmt: skip


def edges_of(case: Case) -> Iterator[tuple[str, Case]]:
    """Each relative of a case with its name, where the op's oracle is exact and has a meaning there."""
    if case.op is None or not knows_edges(case.op):
        return
    yield "ties", _change(case, np.round)
    whole = _change(case, lambda a: np.round(2 * a).astype(np.int64))
    if _is_taken(whole):
        yield "whole numbers", whole
    if case.op.family == "elementwise":
        yield from _of_numbers(case)
    elif case.op.name not in _FINITE:
        for number in (np.nan, np.inf):
            yield str(number), _change(case, lambda a, number=number: _put(a, number))  # type: ignore[misc]


def _change(case: Case, how: Callable[[Any], Any]) -> Case:
    """A case with its real arguments changed."""
    args = (np.asarray(a) for a in case.args)
    return replace(case, args=tuple(np.asarray(how(a)) if a.dtype.kind == "f" else a for a in args))


def turn_memory(case: Case) -> Case:
    """The same numbers in Fortran's order and from the last to the first."""

    def turn(a: Any) -> Any:
        back = tuple(slice(None, None, -1) for _ in a.shape)
        return np.asfortranarray(a[back])[back] if a.ndim else a

    return _change(case, turn)


def _put(a: Any, number: float) -> Any:
    """A number in the middle."""
    out = np.array(a)
    if out.size > 1:
        out.flat[out.size // 2] = number
    return out


def _of_numbers(case: Case) -> Iterator[tuple[str, Case]]:
    kinds = [np.asarray(a).dtype.kind for a in case.args]
    if not case.number and kinds in (["f"], ["f", "f"]):
        yield "special numbers", replace(case, args=(_NUMBERS,) if len(kinds) == 1 else (_NUMBERS[:, None], _NUMBERS))


def _is_taken(case: Case) -> bool:
    """Whether an op takes arguments of these dtypes; some are for floats alone, and say so."""
    try:
        case.call(*case.args)
    except DtypeError:
        return False
    return True
