"""The array API's functions on dtypes and shapes: finfo, iinfo, isdtype, result_type, broadcast_shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype
from ..arrays.spec import make_spec, spec_of
from ..arrays.value import Value
from ..errors import ArgumentError
from .families import broadcast_shape, result_dtype


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


def _dtype_of(given: Any) -> Any:
    """The dtype of an array, or of anything that names one."""
    return spec_of(given).dtype if isinstance(given, (Value, np.ndarray)) else as_dtype(given)


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating-point dtype, or of an array's.

    >>> import pullback as pb
    >>> pb.finfo(pb.float32).bits
    32
    """
    dtype = _dtype_of(type)
    if dtype.kind not in "fc" and dtype.name != "bfloat16":
        raise ArgumentError(f"finfo: {dtype} is no floating-point dtype.")
    if dtype.name == "bfloat16":
        import ml_dtypes

        found: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    else:
        found = np.finfo(dtype)
    eps, most, least, smallest = (float(getattr(found, name)) for name in ("eps", "max", "min", "smallest_normal"))
    return FloatInfo(int(found.bits), eps, most, least, smallest, np.dtype(found.dtype))


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's.

    >>> import pullback as pb
    >>> pb.iinfo(pb.int8).max
    127
    """
    dtype = _dtype_of(type)
    if dtype.kind not in "iu":
        raise ArgumentError(f"iinfo: {dtype} is no integer dtype.")
    found = np.iinfo(dtype)
    return IntegerInfo(int(found.bits), int(found.max), int(found.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as "real floating", or one of several.

    >>> import pullback as pb
    >>> pb.isdtype(pb.float32, ("real floating", "bool"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    dtype = as_dtype(dtype)
    if dtype.name == "bfloat16":
        return kind in ("real floating", "numeric") or (not isinstance(kind, str) and as_dtype(kind) == dtype)
    try:
        return bool(np.isdtype(dtype, kind))
    except (TypeError, ValueError):
        raise ArgumentError(f"isdtype: there is no kind {kind!r}.") from None


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether every value of one dtype, or of an array's, is a value of another.

    >>> import pullback as pb
    >>> pb.can_cast(pb.float32, pb.float64), pb.can_cast(pb.float64, pb.float32)
    (True, False)
    """
    return bool(np.can_cast(_dtype_of(from_), _dtype_of(to)))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that arithmetic between these arrays, numbers and dtypes has.

    >>> import pullback as pb
    >>> pb.result_type(pb.float32, 2.0)
    dtype('float32')
    """
    known = (Value, np.ndarray, bool, int, float, complex)
    return result_dtype(
        [
            spec_of(x) if isinstance(x, known) and not isinstance(x, np.generic) else make_spec((), as_dtype(x))
            for x in arrays_and_dtypes
        ]
    )


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    >>> import pullback as pb
    >>> pb.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return broadcast_shape("broadcast_shapes", *shapes)
