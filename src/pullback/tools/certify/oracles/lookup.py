"""The oracle of an op by its name, and what it says about a case."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.op import Op
from ..cases import Case, parts
from .draws import DRAWS
from .grids import GRIDS
from .matrices import LAWS, MATRICES
from .movement import MOVEMENT, MOVEMENT_LAWS
from .scalars import EXACT, each_element, each_number, mpmath_function

__all__ = ["Pairs", "has_oracle", "knows_edges", "oracle_of"]

#: What was found beside what it must be equal to.
Pairs = list[tuple[Any, Any]]

_VALUES = {**MOVEMENT, **GRIDS, **MATRICES, **DRAWS}
_LAWS = {**LAWS, **MOVEMENT_LAWS}
_EDGED = {*EXACT, *MOVEMENT, *MOVEMENT_LAWS, *GRIDS, "matmul", "matvec", "einsum"} - {"fft", "rfft", "irfft", "sinc"}


def has_oracle(op: Op) -> bool:
    """Whether the value of an op is known from elsewhere; mpmath, which many need, may not be installed."""
    name = op.name
    known = name in _VALUES or name in _LAWS or name in _OF_DTYPE or name in EXACT
    return known or mpmath_function(name) is not None


def knows_edges(op: Op) -> bool:
    """Whether an op's oracle also has a meaning at ties, infinities and NaN, and for whole numbers and truths."""
    return op.name in _EDGED


def oracle_of(case: Case) -> Callable[[Any], Pairs] | None:
    """What says of the results of a case what they must be, in double precision; None: no oracle is known."""
    if case.op is None or not has_oracle(case.op):
        return None
    args, name = [_widen(a) for a in case.args], case.op.name
    if name in _LAWS:
        return lambda found: _LAWS[name]([_widen(x) for x in parts(found)], *args, **case.static)
    function, given = _function(name), case.args if name in _OF_DTYPE else args
    return lambda found: list(zip(parts(found), parts(function(*given, **case.static)), strict=True))


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = _VALUES.get(name) or _OF_DTYPE.get(name)
    if found is not None:
        return found
    exact, precise = EXACT.get(name), mpmath_function(name)
    if exact is not None:
        return lambda *xs: each_element(exact, xs)
    return functools.partial(_of_numbers, precise)


def _of_numbers(function: Any, *args: Any) -> Any:
    return each_number(function, args)


def _widen(x: Any) -> Any:
    a = np.asarray(x)
    return a.astype("complex128" if a.dtype.kind == "c" else "float64") if a.dtype.kind in "fc" else a


def _gap(x: Any) -> Any:
    """The distance to the next number of the dtype away from zero, by its exponent; it has the number's sign."""
    info = np.finfo(x.dtype)
    exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, info.minexp)
    gap = np.where(x == 0, info.smallest_subnormal, np.ldexp(np.copysign(1.0, x), exponent - info.nmant))
    return np.where(np.isfinite(x), gap, np.nan)


def _step(x: Any, y: Any) -> Any:
    """The next number by counting: the bits of floats, read as whole numbers, are in their order."""
    x, y = np.broadcast_arrays(x, y)
    whole = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.array(x).view(whole)
    away = (np.abs(y) > np.abs(x)) & (np.signbit(x) == np.signbit(y)) | (x == 0)
    tiny = np.copysign(np.finfo(x.dtype).smallest_subnormal, y)
    stepped = np.where(x == 0, tiny, (bits + np.where(away, 1, -1).astype(whole)).view(x.dtype))
    return np.where(x == y, y, np.where(np.isnan(x) | np.isnan(y), np.nan, stepped))


#: Ops whose result is about the digits of the dtype itself.
_OF_DTYPE: dict[str, Callable[..., Any]] = {"nextafter": _step, "spacing": _gap}
