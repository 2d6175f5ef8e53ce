"""Finds the oracle of an op by its name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.op import Op
from ..cases import Case, as_results
from .matrices import MATRIX_LAWS, MATRIX_ORACLES
from .random_draws import RANDOM_ORACLES
from .scalars import EXACT_SCALARS, map_mpmath_scalars, map_python_scalars, mpmath_function
from .structural import STRUCTURAL_LAWS, STRUCTURAL_ORACLES
from .windows import WINDOW_ORACLES

#: Pairs of (found, expected).
Pairs = list[tuple[Any, Any]]

_VALUES = {**STRUCTURAL_ORACLES, **WINDOW_ORACLES, **MATRIX_ORACLES, **RANDOM_ORACLES}
_LAWS = {**MATRIX_LAWS, **STRUCTURAL_LAWS}
_EDGE_AWARE = {*EXACT_SCALARS, *STRUCTURAL_ORACLES, *STRUCTURAL_LAWS, *WINDOW_ORACLES, "matmul", "matvec", "einsum"} - {
    "fft",
    "rfft",
    "irfft",
    "sinc",
}


def has_oracle(op: Op) -> bool:
    """Whether an op has an oracle; mpmath, which many need, may not be installed."""
    name = op.name
    known = name in _VALUES or name in _LAWS or name in _DTYPE_DEPENDENT or name in EXACT_SCALARS
    return known or mpmath_function(name) is not None


def has_edge_oracle(op: Op) -> bool:
    """Whether an op's oracle is also defined at ties, infinities and NaN, and for integers and booleans."""
    return op.name in _EDGE_AWARE


def oracle_of(case: Case) -> Callable[[Any], Pairs] | None:
    """A function from the results of a case to pairs (found, expected), in double precision; None: no oracle."""
    if case.op is None or not has_oracle(case.op):
        return None
    args, name = [_widen(a) for a in case.args], case.op.name
    if name in _LAWS:
        return lambda found: _LAWS[name]([_widen(x) for x in as_results(found)], *args, **case.static)
    function, given = _oracle_function(name), case.args if name in _DTYPE_DEPENDENT else args
    return lambda found: list(zip(as_results(found), as_results(function(*given, **case.static)), strict=True))


def _oracle_function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = _VALUES.get(name) or _DTYPE_DEPENDENT.get(name)
    if found is not None:
        return found
    exact, precise = EXACT_SCALARS.get(name), mpmath_function(name)
    if exact is not None:
        return lambda *xs: map_python_scalars(exact, xs)
    return functools.partial(_apply_mpmath, precise)


def _apply_mpmath(function: Any, *args: Any) -> Any:
    return map_mpmath_scalars(function, args)


def _widen(x: Any) -> Any:
    a = np.asarray(x)
    return a.astype("complex128" if a.dtype.kind == "c" else "float64") if a.dtype.kind in "fc" else a


def _spacing(x: Any) -> Any:
    """The distance to the next number of the dtype away from zero, by its exponent; it has the number's sign."""
    info = np.finfo(x.dtype)
    exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, info.minexp)
    gap = np.where(x == 0, info.smallest_subnormal, np.ldexp(np.copysign(1.0, x), exponent - info.nmant))
    return np.where(np.isfinite(x), gap, np.nan)


def _nextafter(x: Any, y: Any) -> Any:
    """The next float by counting: the bits of floats, read as integers, are in their order."""
    x, y = np.broadcast_arrays(x, y)
    whole = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.array(x).view(whole)
    away = (np.abs(y) > np.abs(x)) & (np.signbit(x) == np.signbit(y)) | (x == 0)
    tiny = np.copysign(np.finfo(x.dtype).smallest_subnormal, y)
    stepped = np.where(x == 0, tiny, (bits + np.where(away, 1, -1).astype(whole)).view(x.dtype))
    return np.where(x == y, y, np.where(np.isnan(x) | np.isnan(y), np.nan, stepped))


#: Ops whose result is about the digits of the dtype itself.
_DTYPE_DEPENDENT: dict[str, Callable[..., Any]] = {"nextafter": _nextafter, "spacing": _spacing}
