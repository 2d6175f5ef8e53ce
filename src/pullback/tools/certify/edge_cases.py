"""Edge cases of a sample: other strides, ties, integers, infinities and NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.spec import is_real_float
from ...errors import DtypeError
from .cases import Case
from .oracles import has_edge_oracle

#: Values at which every exact elementwise op of one or two arguments is checked, in all pairs.
_NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, np.inf, -np.inf, np.nan, 1e-300, 1e300])
#: Ops whose argument must be sorted or an index, or that multiply by zeros which the oracle leaves out.
_FINITE_ONLY = {
    "searchsorted", "quantile_neighbours", "linear_recurrence", "convolution", "convolution_back",
    "convolution_weight",
}  # fmt: skip


def edge_cases(case: Case) -> Iterator[tuple[str, Case]]:
    """Each edge case of a sample with its name, where the op's oracle is exact and defined there."""
    if case.op is None or not has_edge_oracle(case.op):
        return
    yield "ties", _map_real_arguments(case, np.round)
    whole = _map_real_arguments(case, lambda a: np.round(2 * a).astype(np.int64))
    if _is_accepted(whole):
        yield "integers", whole
    if case.op.family == "elementwise":
        yield from _special_number_cases(case)
    elif case.op.name not in _FINITE_ONLY:
        for number in (np.nan, np.inf):
            yield str(number), _map_real_arguments(case, lambda a, number=number: _insert_in_middle(a, number))  # type: ignore[misc]


def _map_real_arguments(case: Case, how: Callable[[Any], Any]) -> Case:
    """A case with its real arguments changed."""
    args = (np.asarray(a) for a in case.args)
    return replace(case, args=tuple(np.asarray(how(a)) if is_real_float(a.dtype) else a for a in args))


def reorder_memory(case: Case) -> Case:
    """The same values in Fortran order and with negative strides."""

    def reorder(a: Any) -> Any:
        back = tuple(slice(None, None, -1) for _ in a.shape)
        return np.asfortranarray(a[back])[back] if a.ndim else a

    return _map_real_arguments(case, reorder)


def _insert_in_middle(a: Any, number: float) -> Any:
    """The array with a value in the middle."""
    out = np.array(a)
    if out.size > 1:
        out.flat[out.size // 2] = number
    return out


def _special_number_cases(case: Case) -> Iterator[tuple[str, Case]]:
    kinds = [np.asarray(a).dtype.kind for a in case.args]
    if not case.number and kinds in (["f"], ["f", "f"]):
        yield "special numbers", replace(case, args=(_NUMBERS,) if len(kinds) == 1 else (_NUMBERS[:, None], _NUMBERS))


def _is_accepted(case: Case) -> bool:
    """Whether an op takes arguments of these dtypes; some raise for anything but floats."""
    try:
        case.call(*case.args)
    except DtypeError:
        return False
    return True
