"""Looking into programs while they run: `pb.debug.print`."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ..arrays.backends import is_array, to_host
from ..arrays.call_site import attributed_to_caller
from ..arrays.spec import Spec
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentTypeError
from ..ops.elementwise.pointwise import stop_gradient
from ..public_names import explain_missing_names
from .custom.custom_op import custom_op

__all__ = ["print"]
explain_missing_names(__name__, "debug")


class _Message:
    """What is to be printed: a text, and arguments with places for arrays. Equal only to itself, as a call is."""

    def __init__(self, text: str, structure: Any, leaves: list[Any]) -> None:
        self.text, self.structure, self.leaves = text, structure, leaves

    def format(self, arrays: list[Any]) -> str:
        given = iter(arrays)
        filled = [next(given) if leaf is _PLACE else leaf for leaf in self.leaves]
        args, named = unflatten(self.structure, filled)
        return self.text.format(*args, **named)


_PLACE = object()


@custom_op(pure=False)
def _print(*arrays: Any, message: Any) -> Any:
    builtins.print(message.format([to_host(x) for x in arrays]))
    return np.zeros(())


@_print.def_spec
def _(*specs: Any, message: Any) -> Any:
    return Spec((), np.dtype(np.float64))


@_print.def_batch
def _(size: Any, axes: Any, *arrays: Any, message: Any) -> Any:
    return _print(*arrays, message=message), None


@attributed_to_caller
def print(text: str, *args: Any, **named: Any) -> None:
    """Print `text.format(*args, **named)` when the values are computed: in eager code at once, in a compiled function
    at each call, in the order of the program. Under `vmap` a whole batch is printed once. Derivatives are not affected.

    >>> import numpy as np, pullback as pb
    >>> @pb.jit
    ... def f(x):
    ...     pb.debug.print("x is {}, its sum {total:.1f}", x, total=x.sum())
    ...     return x * 2
    >>> f(np.array([1.0, 2.0]))
    x is [1. 2.], its sum 3.0
    array([2., 4.])
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"debug.print: wants a text with places such as {{}}, got a {type(text).__name__}.")
    leaves, structure = flatten((args, named))
    is_printed = [isinstance(x, Value) or is_array(x) for x in leaves]
    message = _Message(text, structure, [_PLACE if p else x for x, p in zip(leaves, is_printed, strict=True)])
    arrays = [stop_gradient(x) for x, p in zip(leaves, is_printed, strict=True) if p]
    if arrays:
        _print(*arrays, message=message)
    else:
        builtins.print(message.format([]))
