"""NumPy's dispatch protocols: what `__array_function__` and `__array_ufunc__` do with our values.

Imported at the first such call. `table` maps NumPy's functions to ours; there is no fallback to bare arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_array_type
from ...arrays.buffers import Buffer
from ...arrays.imported import imported_module
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...arrays.views import as_view
from ...errors import ArgumentError, UnsupportedFunction
from ..shape.reshaping import broadcast_to
from . import table, ufuncs
from .nested import is_variable, rebind

__all__ = ["array_function", "array_ufunc", "register_numpy"]

_functions: dict[Any, Callable[..., Any]] = {}
#: Functions whose results are views in NumPy, so that writing to them is refused while their source lives.
_VIEWS = frozenset((
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.flip,
    np.fliplr, np.flipud, np.rot90, np.diagonal, np.real, np.imag, np.split, np.array_split, np.hsplit, np.vsplit,
    np.dsplit, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.broadcast_to, np.matrix_transpose, np.trim_zeros,
    np.linalg.matrix_transpose, np.linalg.diagonal, np.unstack, np.lib.stride_tricks.sliding_window_view,
))  # fmt: skip
#: Types known to be ours or NumPy's; a set lookup is faster than testing each class.
_accepted_types: set[type] = {Tensor, np.ndarray}


def register_numpy(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what a NumPy function (or a ufunc) does with our values, in place of the package's own rule.

    >>> import numpy as np, pullback as pb
    >>> cube = np.frompyfunc(lambda t: t**3, 1, 1)
    >>> @pb.register_numpy(cube)
    ... def differentiable_cube(x):
    ...     return x**3
    >>> pb.grad(cube)(2.0)
    array(12.)
    """
    if not callable(function):
        raise ArgumentError(f"register_numpy: wants a NumPy function, got {function!r}.")

    def register(ours: Callable[..., Any]) -> Callable[..., Any]:
        (ufuncs.FUNCTIONS if isinstance(function, np.ufunc) else _functions)[function] = ours
        return ours

    return register


def array_function(self: Value, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """`np.<function>(*args, **kwargs)` where some argument is one of our values."""
    if not _accepted_types.issuperset(types):
        if not all(issubclass(kind, (Value, np.ndarray)) or is_array_type(kind) for kind in types):
            return NotImplemented
        _accepted_types.update(types)
    ours = _functions.get(function)
    if ours is None:
        ours = _functions[function] = _handle_out(table.function_for(function), function)
    found = ours(*args, **kwargs)
    if function in _VIEWS and args:
        source, *rest = args
        mark_as_views(
            found,
            source,
            lambda x: (ours if isinstance(x, Value) else function)(x, *rest, **kwargs),
            function is np.reshape or function is np.ravel,
        )
    return found


def mark_as_views(found: Any, source: Any, cut: Callable[[Any], Any], may_copy: bool) -> Any:
    """Mark a result that is a view in NumPy, or a list of such; `cut(source)` returns it again."""
    if not isinstance(found, (list, tuple)):
        return as_view(found, source, cut, may_copy)
    for place, part in enumerate(found):
        as_view(part, source, lambda x, place=place: cut(x)[place])  # type: ignore[misc]
    return found


def _handle_out(ours: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """`out=` for all functions: a tensor is rebound to the result; anything else would lose the derivative."""
    place = table.out_position(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if place is not None and len(args) > place:
            out, args = args[place], (*args[:place], None, *args[place + 1 :])
        found = ours(*args, **kwargs)
        return found if out is None else write_into(out, found, table.name_of(function))

    return call if place is not None else ours


def write_into(out: Any, found: Any, name: str) -> Any:
    """Rebind a tensor to a result, as NumPy writes into an array."""
    if type(out) is tuple and len(out) == 1:
        (out,) = out
    if isinstance(out, Buffer):
        return out.assign(found)
    if not is_variable(out):
        raise UnsupportedFunction(
            f"np.{name}: out= has no rule here for a {type(out).__name__}, which cannot hold a derivative.\n"
            "  Leave it out and use the result, or pass a tensor: out = pb.tensor(out).\n"
            "  In place of `array += x` write `array = array + x`."
        )
    return rebind(out, broadcast_to(found, out.shape), f"np.{name} with out=")


def array_ufunc(self: Value, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """A ufunc of NumPy, or one of its methods, where some input or `out` is one of our values."""
    out = options.pop("out", None)
    if method == "__call__" and not options and out is None:
        return ufuncs.function_of(ufunc)(*inputs)
    return ufuncs.call_with_options(ufunc, method, inputs, options, out, write_into)


#: What CuPy puts before the names of its kernels, and where NumPy's and SciPy's functions of the rest are found.
_KERNEL_PREFIXES = {"cupy_": "numpy", "cupyx_scipy_special_": "scipy.special", "cupyx_scipy_": "scipy.special"}


def cupy_ufunc(self: Value, kernel: Any, *inputs: Any, **options: Any) -> Any:
    """A ufunc of CuPy where an argument is one of our values, by the name that it shares with NumPy's or SciPy's."""
    name = str(getattr(kernel, "name", None) or getattr(kernel, "__name__", ""))
    for prefix, module in _KERNEL_PREFIXES.items():
        ufunc = getattr(imported_module(module), name.removeprefix(prefix), None) if name.startswith(prefix) else None
        if isinstance(ufunc, np.ufunc):
            return array_ufunc(self, ufunc, "__call__", *inputs, **{k: v for k, v in options.items() if v is not None})
    raise UnsupportedFunction(f"cupy.{name}: has no rule here.\n  Use functions of pullback on tensors.")
