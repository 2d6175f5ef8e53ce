"""NumPy's calls in, our functions out: what `__array_function__` and `__array_ufunc__` do with values of ours.

Loaded at the first such call. `table` says which NumPy function is which of ours; nothing falls back to a bare array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...arrays.views import as_view
from ...errors import ArgumentError, UnsupportedFunction
from ..shaping import broadcast_to
from . import table, ufuncs

__all__ = ["array_function", "array_ufunc", "register_numpy"]

_functions: dict[Any, Callable[..., Any]] = {}
#: Functions whose results are views in NumPy, so that writing to them is refused while their source lives.
_VIEWS = frozenset((
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.flip,
    np.fliplr, np.flipud, np.rot90, np.diagonal, np.real, np.imag, np.split, np.array_split, np.hsplit, np.vsplit,
    np.dsplit, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.broadcast_to,
))  # fmt: skip
#: Types that were found to be ours or NumPy's; asking a set is quicker than asking each class.
_friends: set[type] = {Tensor, np.ndarray}


def register_numpy(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what a NumPy function (or a ufunc) does with values of ours, in place of what the package says.

    >>> import numpy as np, pullback as pb
    >>> cube = np.frompyfunc(lambda t: t**3, 1, 1)
    >>> @pb.register_numpy(cube)
    ... def differentiable_cube(x):
    ...     return x**3
    >>> pb.grad(cube)(2.0)
    array(12.)
    """
    if not callable(function):
        raise ArgumentError(f"register_numpy: wants a function of NumPy, got {function!r}.")

    def register(ours: Callable[..., Any]) -> Callable[..., Any]:
        (ufuncs.FUNCTIONS if isinstance(function, np.ufunc) else _functions)[function] = ours
        return ours

    return register


def array_function(self: Value, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """`np.<function>(*args, **kwargs)` where some argument is a value of ours."""
    if not _friends.issuperset(types):
        if not all(issubclass(kind, (Value, np.ndarray)) for kind in types):
            return NotImplemented
        _friends.update(types)
    ours = _functions.get(function)
    if ours is None:
        ours = _functions[function] = _with_out(table.ours_for(function), function)
    found = ours(*args, **kwargs)
    return _noted_as_views(found, args[0]) if function in _VIEWS and args else found


def _noted_as_views(found: Any, source: Any) -> Any:
    for part in found if isinstance(found, (list, tuple)) else (found,):
        as_view(part, source)
    return found


def _with_out(ours: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """`out=` is the same for all: a tensor is pointed at the result; anything else would lose its derivative."""
    place = table.place_of_out(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if place is not None and len(args) > place:
            out, args = args[place], (*args[:place], None, *args[place + 1 :])
        found = ours(*args, **kwargs)
        return found if out is None else into(out, found, table.name_of(function))

    return call if place is not None else ours


def into(out: Any, found: Any, name: str) -> Any:
    """Point a tensor at a result, as NumPy writes into an array."""
    if type(out) is tuple and len(out) == 1:
        (out,) = out
    if not isinstance(out, Tensor):
        raise UnsupportedFunction(
            f"np.{name}: out= has no rule here for a {type(out).__name__}, which cannot hold a derivative.\n"
            "  Leave it out and use the result, or pass a tensor: out = pb.tensor(out).\n"
            "  In place of `array += x` write `array = array + x`."
        )
    return out.rebind(broadcast_to(found, out.shape), f"np.{name} with out=")


def array_ufunc(self: Value, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """A ufunc of NumPy, or one of its methods, where some input or `out` is a value of ours."""
    out = options.pop("out", None)
    if method == "__call__" and not options and out is None:
        return ufuncs.function_of(ufunc)(*inputs)
    return ufuncs.with_options(ufunc, method, inputs, options, out, into)
