"""What special functions written out in other ops share: they are for programs that run where SciPy is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ...arrays.spec import is_half, is_inexact, spec_of
from ...errors import UnsupportedFunction
from ..families import result_dtype
from ..functions import astype

Expansion = Callable[..., Any]


def in_working_precision(name: str, expand: Expansion) -> Expansion:
    """An expansion that computes halves in single precision and integers in the dtype of the result; a number that is
    known stays one.
    """

    @wraps(expand)
    def expand_real(*args: Any) -> Any:
        dtype = result_dtype([spec_of(x) for x in args])
        if dtype.kind == "c":
            raise UnsupportedFunction(f"{name}: what it is made of is known for real arguments alone.")
        dtype = dtype if is_inexact(dtype) else np.sin.resolve_dtypes((dtype, None))[-1]
        working = np.dtype(np.float32) if is_half(dtype) else dtype
        found = expand(*(x if isinstance(x, (int, float)) else astype(x, working) for x in args))
        return astype(found, dtype)

    return expand_real


def expand_polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """By Horner's rule, the lowest power first."""
    found = coefficients[-1] + 0 * x
    for number in coefficients[-2::-1]:
        found = found * x + number
    return found
