"""What NumPy's functions do with sparse arrays: arithmetic, and functions of each element that map zero to zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedFunction
from ..ops.protocol import ufuncs

#: Ufuncs of two arguments that are operators, and the operators' names.
_OPERATORS: dict[Any, str] = {
    np.matmul: "matmul", np.multiply: "mul", np.add: "add", np.subtract: "sub", np.divide: "truediv",
}  # fmt: skip


def call_ufunc(A: Any, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """A ufunc where some input is a sparse array."""
    if method != "__call__" or options:
        raise _unsupported_error(f"np.{ufunc.__name__} with options" if options else f"np.{ufunc.__name__}.{method}")
    if ufunc.nin == 1:
        return A.map(ufuncs.function_of(ufunc))
    name = _OPERATORS.get(ufunc)
    if name is None:
        raise _unsupported_error(f"np.{ufunc.__name__}")
    left, right = inputs
    if type(left) is type(A):
        return getattr(left, f"__{name}__")(right)
    reflected = getattr(A, f"__r{name}__", None)
    if reflected is None:
        raise _unsupported_error(f"np.{ufunc.__name__} by a sparse matrix")
    return reflected(left)


def refuse_function(function: Any) -> Any:
    """A function of NumPy's that is no ufunc."""
    raise _unsupported_error(f"np.{getattr(function, '__name__', function)}")


def _unsupported_error(name: str) -> UnsupportedFunction:
    return UnsupportedFunction(f"{name} has no rule for sparse arrays.\n  Use the methods of A, or A.todense().")
