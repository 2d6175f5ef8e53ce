"""What NumPy's creation functions return to a user's function that a transform runs: buffers, which derivatives may be
written into, and tensors for arguments that carry derivatives, as in `np.array([x[0], 1.0])`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.buffers import Buffer
from ...arrays.value import Value
from ...arrays.views import array_laid_out_as
from ...errors import UnsupportedFunction
from ..shape import reshaping
from . import metadata
from .buffers import ConstantBuffer, as_buffer_views
from .nested import any_derivative, as_array_or_value, carries_derivative, join, unwrap_nested

#: NumPy's own: while a user's function runs, these names stand for others.
_ARANGE, _ARRAY = np.arange, np.array
#: Functions of an argument that NumPy does not dispatch on.
_FILLED: dict[Any, Any] = {np.full: metadata.full, np.full_like: metadata.full_like}
#: The order that elements are brought to, by function.
_ORDERS: dict[Any, str] = {np.ascontiguousarray: "C", np.asfortranarray: "F"}
#: Those whose results take nothing but shape and dtype from their argument.
_LIKE = frozenset((np.zeros_like, np.ones_like, np.empty_like, np.full_like))


def as_buffer(made: Any) -> Any:
    """A new array of NumPy as one that derivatives may be written into; of integers as it is, they have none."""
    if type(made) is np.ndarray and made.dtype.kind in "fc":
        return made.view(ConstantBuffer)
    return made


def create(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`np.zeros` and the like: a new array of numbers; or, as `np.full(n, x)`, of values that carry derivatives."""
    if not any_derivative(args, kwargs):
        return as_buffer(original(*args, **kwargs))
    if original in _LIKE and args and not any_derivative(args[1:], kwargs):
        made = _make_like(original, *args, **kwargs)
        if made is not None:
            return made
    args, kwargs = tuple(map(unwrap_nested, args)), {name: unwrap_nested(x) for name, x in kwargs.items()}
    if original is _ARANGE:
        raise UnsupportedFunction(
            "np.arange: a bound carries a derivative, and the number of elements that follows from it has none.\n"
            "  Count with numbers and scale: x0 + step * np.arange(n), or np.linspace(x0, x1, n)."
        )
    return _FILLED.get(original, original)(*args, **kwargs)  # NumPy dispatches the others itself


def _make_like(original: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.zeros_like` and the like of a value, whose shape and dtype alone count: a buffer, if the value lies on the
    host and is of floating-point numbers.
    """
    x = unwrap_nested(x)
    if not isinstance(x, Value) or x.device != "cpu" or x.dtype.kind not in "fc" or not _is_known(x.shape):
        return None
    made = original(np.empty(x.shape, x.dtype), *args, **kwargs)
    return as_buffer(made) if made.dtype.kind in "fc" else None


def _is_known(shape: tuple[Any, ...]) -> bool:
    return all(type(n) is int for n in shape)


def convert(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`np.array` and `np.asarray`: nested lists of values are joined."""
    if not any_derivative(args, kwargs) or object in (*args[1:], kwargs.get("dtype")):
        return _convert_constant(original, *args, **kwargs)
    given, (first, *rest) = kwargs, args or (kwargs.pop("object", kwargs.pop("a", None)),)
    if isinstance(first, (Buffer, Value)) and _returns_itself(original, first, *rest, **given):
        sizes = (1,) * (given.get("ndmin", 0) - first.ndim) + first.shape
        return first if len(sizes) == first.ndim else first.reshape(sizes)
    whole = join(first)
    kwargs.pop("like", None)
    made = getattr(metadata, original.__name__)(whole, *rest, **kwargs)
    if made is not whole or not isinstance(first, (Buffer, Value)):
        return made
    by_columns = _ORDERS.get(original) == "F"
    return np.transpose(np.transpose(made).copy()) if by_columns else reshaping.writable_copy(made)


def _returns_itself(
    original: Callable[..., Any], x: Any, dtype: Any = None, order: Any = None, *_: Any, **kwargs: Any
) -> bool:
    """Whether NumPy returns an array itself, which a program may rely on when it writes to the result."""
    if not x.ndim or (dtype is not None and np.dtype(dtype) != x.dtype):
        return False
    return not kwargs.get("copy", original is _ARRAY) and _has_order(x, _ORDERS.get(original, order))


def _has_order(x: Any, order: Any) -> bool:
    """Whether NumPy would not copy an array for the order that its elements are to lie in."""
    if order not in ("C", "F"):
        return True
    flags = (np.ndarray.view(x, np.ndarray) if isinstance(x, Buffer) else array_laid_out_as(x)).flags
    return bool(flags.c_contiguous if order == "C" else flags.f_contiguous)


def _convert_constant(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], Buffer) and original is not _ARRAY and _has_order(args[0], _ORDERS.get(original)):
        return np.asanyarray(*args, **kwargs)  # the buffer itself, as NumPy returns the array itself
    made = original(*args, **kwargs)
    return as_buffer(made) if made.base is None and not any(made is x for x in args) else as_buffer_views(made, *args)


def show_memory(original: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.lib.stride_tricks.as_strided`."""
    if carries_derivative(x):
        raise UnsupportedFunction(
            "np.lib.stride_tricks.as_strided: x carries a derivative, and has no memory to be shown.\n"
            "  Use np.lib.stride_tricks.sliding_window_view(x, n), slices, or x[indices]."
        )
    return as_buffer_views(original(x, *args, **kwargs), x)


def convert_iterable(original: Callable[..., Any], iterable: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.fromiter`."""
    items = list(iterable)
    if not carries_derivative(items):
        return as_buffer(original(items, *args, **kwargs))
    dtype, count = (*args, *(kwargs.get(n) for n in ("dtype", "count")[len(args) :]))[:2]
    return reshaping.astype(join(items[: None if count in (None, -1) else count]), dtype)


def call_elementwise(function: Callable[..., Any], args: tuple[Any, ...], what: str) -> Any:
    """A function of numbers at each element of arrays that are broadcast: one result, or a tuple of several."""
    values = [as_array_or_value(x) for x in args]
    shape = np.broadcast_shapes(*(x.shape for x in values))
    flat = [reshaping.reshape(reshaping.broadcast_to(x, shape), (-1,)) for x in values]
    if not flat or not flat[0].shape[0]:
        raise UnsupportedFunction(f"{what}: of no elements, the result has no known dtype.")
    rows = [function(*(x[i] for x in flat)) for i in range(flat[0].shape[0])]
    if isinstance(rows[0], tuple):
        return tuple(reshaping.reshape(join(list(column)), shape) for column in zip(*rows, strict=True))
    return reshaping.reshape(as_array_or_value(join(rows)), shape)


def call_vectorized(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """The call of a function of `np.vectorize`."""
    if not any_derivative(args, kwargs):
        return original(self, *args, **kwargs)
    if self.signature is not None or not hasattr(self, "pyfunc"):
        raise UnsupportedFunction("np.vectorize: with a signature it has no rule here.\n  Use pb.vmap(f).")
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}  # by place or by name
    places = [place for place in given if place not in self.excluded]

    def at_element(*elements: Any) -> Any:
        row = {**given, **dict(zip(places, elements, strict=True))}
        in_places = [row.pop(i) for i in range(len(args))]
        return self.pyfunc(*in_places, **row)

    return call_elementwise(at_element, tuple(given[place] for place in places), "np.vectorize")


def call_python_ufunc(ufunc: Any, *args: Any) -> Any:
    """A ufunc that `np.frompyfunc` made of a Python function: that function of each element."""
    return call_elementwise(lambda *elements: ufunc(*map(_box, elements)), args, f"np.{ufunc.__name__}")


def _box(x: Any) -> Any:
    """A value as an object, so that NumPy hands it to a Python function as it is."""
    box = np.empty((), object)
    box[()] = x
    return box


class _Rows:
    """`np.r_` and `np.c_`: those of NumPy, but for values that carry derivatives."""

    def __init__(self, original: Any, join_columns: bool) -> None:
        self._original, self._join_columns = original, join_columns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if not carries_derivative(parts):
            return self._original[key]
        if any(isinstance(part, str) for part in parts):
            raise UnsupportedFunction("np.r_: directions in a string have no rule here.\n  Use np.concatenate.")
        # a slice stands for a range of numbers, as in np.r_[0:1:5j]
        arrays = [self._original[part] if isinstance(part, slice) else join(part) for part in map(unwrap_nested, parts)]
        return np.column_stack(arrays) if self._join_columns else np.concatenate([np.atleast_1d(x) for x in arrays])


def _bind_names(names: str, how: Callable[..., Any]) -> dict[str, Any]:
    return {name: functools.partial(how, getattr(np, name)) for name in names.split()}


#: What stands for NumPy's functions where a user's function calls them, by name.
CREATION: dict[str, Any] = {
    **_bind_names(
        "zeros ones empty full eye identity tri arange linspace logspace geomspace zeros_like ones_like empty_like "
        "full_like copy",
        create,
    ),
    **_bind_names("array asarray asanyarray ascontiguousarray asfortranarray", convert),
    **_bind_names("fromiter", convert_iterable),
}
SHOW_MEMORY = functools.partial(show_memory, np.lib.stride_tricks.as_strided)
#: Objects of NumPy's that others stand for.
JOINERS = {"r_": _Rows(np.r_, False), "c_": _Rows(np.c_, True)}
