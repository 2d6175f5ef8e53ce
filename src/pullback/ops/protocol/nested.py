"""Arguments of NumPy's functions that may hold values which carry derivatives, perhaps in nested lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.buffers import Buffer, unwrap_tracked
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ..dispatch import as_value
from ..shape import arrange


def carries_derivative(x: Any) -> bool:
    """Whether a value must not be written into memory as numbers: it is, or holds, a value of a tape or a transform."""
    if isinstance(x, (list, tuple)):
        return any(map(carries_derivative, x))
    if type(x) is Tensor:
        return x.node is not None or not is_array(x.value) or x.is_traced
    return isinstance(x, Value) or (isinstance(x, Buffer) and hasattr(x, "whole"))


def any_derivative(args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an argument of a call carries a derivative."""
    return any(map(carries_derivative, args)) or (bool(kwargs) and any(map(carries_derivative, kwargs.values())))


def with_rule(original: Callable[..., Any], rule: Callable[..., Any], held: str) -> Callable[..., Any]:
    """A method of SciPy's that is ours where an argument carries a derivative, or the object holds what a rule made."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = rule if held in vars(self) or any_derivative(args, kwargs) else original
        return chosen(self, *args, **kwargs)

    return method


def unwrap_nested(x: Any) -> Any:
    """An argument of a NumPy function, with tensors in place of buffers that hold derivatives."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(unwrap_nested, x)) if any(isinstance(p, (Buffer, list, tuple)) for p in x) else x
    return unwrap_tracked(x)


def is_variable(x: Any) -> bool:
    """Whether a value can be written into: a tensor, or what stands for one in a transform."""
    return type(x) is Tensor or (isinstance(x, Value) and x.is_variable)


def rebind(target: Any, found: Any, what: str) -> Any:
    """Write a result into the whole of a variable."""
    if type(target) is Tensor:
        return target.rebind(found, what)
    target[...] = found
    return target


def join(nested: Any) -> Any:
    """Nested lists of numbers, arrays and values as one value, in the dtype that NumPy gives it."""
    if isinstance(nested, (list, tuple)):
        if not any(map(carries_derivative, nested)):
            return np.asarray(_bare(nested))
        return arrange.stack([as_array_or_value(join(part)) for part in nested])
    return as_array_or_value(nested)


def _bare(nested: Any) -> Any:
    """Constants among nested lists, tensors as arrays."""
    return [_bare(x) if isinstance(x, (list, tuple)) else as_value(x) for x in nested]


def as_array_or_value(x: Any) -> Any:
    value = as_value(x)
    return value if isinstance(value, Value) else np.asarray(value)
