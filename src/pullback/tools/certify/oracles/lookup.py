"""Finds the oracle of an op by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.op import Op
from ..cases import Case, as_results
from .matrices import MATRIX_LAWS, MATRIX_ORACLES
from .random_draws import RANDOM_ORACLES
from .scalars import DIGIT_ORACLES, EXACT_SCALARS, map_mpmath_scalars, map_python_scalars, mpmath_function
from .structural import STRUCTURAL_LAWS, STRUCTURAL_ORACLES
from .windows import WINDOW_ORACLES

#: Pairs of (found, expected).
Pairs = list[tuple[Any, Any]]

_VALUES = {**STRUCTURAL_ORACLES, **WINDOW_ORACLES, **MATRIX_ORACLES, **RANDOM_ORACLES, **DIGIT_ORACLES}
_LAWS = {**MATRIX_LAWS, **STRUCTURAL_LAWS}
_EDGE_AWARE = {*EXACT_SCALARS, *STRUCTURAL_ORACLES, *STRUCTURAL_LAWS, *WINDOW_ORACLES, "matmul", "matvec", "einsum"} - {
    "fft",
    "rfft",
    "irfft",
    "sinc",
}


def has_oracle(op: Op) -> bool:
    """Whether an op has an oracle; mpmath, which many need, may not be installed."""
    return op.name in _LAWS or _oracle_function(op.name) is not None


def has_edge_oracle(op: Op) -> bool:
    """Whether an op's oracle is also defined at ties, infinities and NaN, and for integers and booleans."""
    return op.name in _EDGE_AWARE


def oracle_of(case: Case) -> Callable[[Any], Pairs] | None:
    """A function from the results of a case to pairs (found, expected), in double precision; None: no oracle."""
    if case.op is None:
        return None
    args, name = [_widen(a) for a in case.args], case.op.name
    if name in _LAWS:
        return lambda found: _LAWS[name]([_widen(x) for x in as_results(found)], *args, **case.static)
    function, given = _oracle_function(name), case.args if name in DIGIT_ORACLES else args
    if function is None:
        return None
    return lambda found: list(zip(as_results(found), as_results(function(*given, **case.static)), strict=True))


def _oracle_function(name: str) -> Callable[..., Any] | None:
    if name in _VALUES:
        return _VALUES[name]
    if name in EXACT_SCALARS:
        return lambda *xs: map_python_scalars(EXACT_SCALARS[name], xs)
    precise = mpmath_function(name)
    return None if precise is None else lambda *xs: map_mpmath_scalars(precise, xs)


def _widen(x: Any) -> Any:
    a = np.asarray(x)
    return a.astype("complex128" if a.dtype.kind == "c" else "float64") if a.dtype.kind in "fc" else a
