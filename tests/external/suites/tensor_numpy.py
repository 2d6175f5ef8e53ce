"""NumPy for code that fills arrays number by number: new arrays are tensors, so that numbers with derivatives fit."""

from typing import Any

import numpy

import pullback as pb
from pullback.arrays.value import Value


def zeros(shape: Any, dtype: Any = float) -> Any:
    """A variable of zeros; `x[i] = v` puts it at a new value."""
    return pb.tensor(numpy.zeros(shape, dtype))


def array(values: Any, *args: Any, **kwargs: Any) -> Any:
    """Lists with tensors in them are stacked."""
    if _holds_tensor(values) and not isinstance(values, Value):
        return numpy.stack([array(v) if isinstance(v, (list, tuple)) else pb.asarray(v) for v in values])
    return values if isinstance(values, Value) else numpy.array(values, *args, **kwargs)


def _holds_tensor(values: Any) -> bool:
    return isinstance(values, Value) or (isinstance(values, (list, tuple)) and any(map(_holds_tensor, values)))


def to_scalar(value: Any) -> Any:
    """The first number of an array, as a number or a tensor of one."""
    if isinstance(value, Value):
        return value.reshape((-1,))[0]
    return float(numpy.ravel(value)[0])


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)
