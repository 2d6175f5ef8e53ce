"""Python's operators, methods and NumPy's ufuncs on values, each given to the op that means it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays.namespace import VERSIONS
from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..arrays.views import as_view, is_view, refuse_write
from ..errors import ArgumentError, ArgumentTypeError, DtypeError, GraphError, ShapeError
from . import arranging, contracting, functions, indexing, reducing, scanning, shaping
from . import elementwise as pointwise
from .dispatch import as_value
from .eager import is_operand, operator_of
from .late import late, package

__all__ = ["install"]

_BINARY = {
    "add": pointwise.add, "sub": pointwise.subtract, "mul": pointwise.multiply, "truediv": pointwise.divide,
    "matmul": contracting.matmul, "and": pointwise.bitwise_and, "or": pointwise.bitwise_or,
    "xor": pointwise.bitwise_xor,
    "floordiv": late("arithmetic", "floor_divide"), "mod": late("arithmetic", "remainder"),
    "lshift": late("arithmetic", "bitwise_left_shift"), "rshift": late("arithmetic", "bitwise_right_shift"),
}  # fmt: skip
_COMPARE = {
    "eq": pointwise.equal, "ne": pointwise.not_equal, "lt": pointwise.less, "le": pointwise.less_equal,
    "gt": pointwise.greater, "ge": pointwise.greater_equal,
}  # fmt: skip


def _compress(self: Value, condition: Any, axis: Any = None) -> Any:
    """The elements along an axis where the condition holds."""
    return late("selecting", "compress")(condition, self, axis)


_METHODS: dict[str, Any] = {
    "sum": reducing.sum, "mean": reducing.mean, "prod": reducing.prod, "max": reducing.max, "min": reducing.min,
    "any": reducing.any, "all": reducing.all, "argmax": reducing.argmax,
    "argmin": reducing.argmin, "astype": functions.astype, "squeeze": shaping.squeeze, "repeat": arranging.repeat,
    "take": indexing.take, "conj": pointwise.conj, "conjugate": pointwise.conj, "clip": functions.clip,
    "dot": late("multiplying", "dot"), "round": late("rounding", "round"), "trace": late("diagonals", "trace"),
    "swapaxes": late("layouts", "swapaxes"), "nonzero": late("selecting", "nonzero"), "var": reducing.var,
    "argsort": late("sorting", "argsort"), "cumprod": scanning.cumulative_prod, "std": reducing.std,
    "searchsorted": late("sorting", "searchsorted"), "compress": _compress, "choose": late("selecting", "choose"),
    "exp": pointwise.exp, "log": pointwise.log, "sqrt": pointwise.sqrt, "tanh": pointwise.tanh, "sin": pointwise.sin,
    "cos": pointwise.cos, "abs": pointwise.abs, "square": pointwise.square, "cumsum": scanning.cumulative_sum,
    "diagonal": arranging.diagonal,
}  # fmt: skip


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Value, other: Any) -> Any:
        return function(self, other) if is_operand(other) else NotImplemented

    return operator


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    @signed
    def operator(self: Value, other: Any) -> Any:
        return function(other, self) if is_operand(other) else NotImplemented

    return operator


def _in_place(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`x += y`: a tensor is pointed at the result, of a value of a transform the name alone."""

    @signed
    def changed(self: Value, other: Any) -> Any:
        found = function(self, other)
        return self.rebind(found, f"in-place {name}") if isinstance(self, Tensor) else found

    return _on_no_view(changed, name)


def _on_no_view(changed: Callable[[Value, Any], Any], name: str) -> Callable[[Value, Any], Any]:
    """The operator, where what it writes to is no view of a value that a variable still holds."""

    def operator(self: Value, other: Any) -> Any:
        # In `x[i] += v` the slice is held by no variable, and what comes is written to x at once. A slice without
        # axes is a number in NumPy, whose name alone changes.
        if (
            self.ndim
            and sys.getrefcount(self) > _IN_AN_UPDATE > 0
            and is_view(self)
            and sys.getrefcount(self) > _IN_AN_UPDATE + self.kept_references()
        ):
            raise refuse_write(f"in-place {name}")
        return changed(self, other)

    return operator


def _in_place_of_wrapper(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """On a value of a transform: it stands for the result from then on, wherever it is known, as a NumPy array would.
    Values that cannot do that (of a graph that is being built, say) hand out the result.
    """

    @signed
    def changed(self: Value, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        new = function(self, other)
        return _pointed(self, new, f"in-place {name}") if self.is_variable else new

    return _on_no_view(changed, name)


def _pointed(self: Value, new: Any, what: str) -> Value:
    found = spec_of(new)
    if found.shape != self.shape:
        raise ShapeError(f"{what}: the result has shape {found.shape}, the value has {self.shape} and keeps it.")
    if found.dtype != self.dtype or found.weak:
        if not np.can_cast(found.dtype, self.dtype, casting="same_kind"):
            raise DtypeError(f"{what}: a {found.dtype} result does not fit into a {self.dtype} value.")
        new = shaping.astype(new, self.dtype)
    self.point_at(new, what)
    return self


def _set_item_of_wrapper(self: Value, index: Any, value: Any) -> None:
    _refuse_lost(self)
    if is_view(self):
        raise refuse_write("x[index] = value")
    if not self.is_variable:
        raise self.unmovable("x[index] = value")
    _pointed(self, indexing.set_at(self, index, value), "x[index] = value")


@signed
def power(x: Any, y: Any) -> Any:
    """x ** y, with the square, the root and the reciprocal by their own ops."""
    if type(y) is int and y == 2:
        return pointwise.square(x)
    if type(y) is float and y == 0.5:
        return pointwise.sqrt(x)
    return pointwise.power(x, y)


def _reshape(self: Any, *shape: Any) -> Any:
    """The same elements in another shape: x.reshape(2, 3) or x.reshape((2, 3))."""
    return as_view(shaping.reshape(self, shape[0] if len(shape) == 1 else shape), self)


def _flattened(self: Any) -> Any:
    """The elements along one axis."""
    return shaping.reshape(self, (-1,))


def _viewing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ours whose result is a view in NumPy."""

    def viewed(self: Value, *args: Any, **kwargs: Any) -> Any:
        return as_view(function(self, *args, **kwargs), self)

    viewed.__name__, viewed.__doc__ = function.__name__, function.__doc__
    return viewed


def _iterate(self: Value) -> Iterator[Any]:
    if not self.ndim:
        raise ArgumentTypeError("a 0-d tensor cannot be iterated.\n  It is one number: use it as it is, or x.item().")
    return (self[i] for i in range(self.shape[0]))


def _set_item(self: Tensor, index: Any, value: Any) -> None:
    _refuse_lost(self)
    self.rebind(indexing.set_at(self, index, value), "x[index] = value")


def _refuse_lost(x: Value) -> None:
    if sys.getrefcount(x) <= _HELD_BY_NOBODY + 1:  # one more for this call
        raise GraphError(
            "this assignment would be lost: `x[i]` is a new value, not a window into x.\n"
            "  Write x[i, j] = v instead of x[i][j] = v."
        )


def _references_to_a_temporary() -> int:
    """How many references a tensor has inside `__setitem__` when no variable holds it, as in x[0][1] = v; 0 where
    this interpreter counts a variable's no differently, so that nothing is ever refused by mistake.
    """

    class Probe:
        count = 0

        def __setitem__(self, index: Any, value: Any) -> None:
            Probe.count = sys.getrefcount(self)

    [Probe()].pop()[0] = None
    alone = Probe.count
    variable = Probe()
    variable[0] = None
    return alone if Probe.count > alone else 0


_HELD_BY_NOBODY = _references_to_a_temporary()


def _references_in_an_update() -> int:
    """The same inside `__iadd__`, for the slice in `x[i] += v`."""

    class Probe:
        count = 0

        def __iadd__(self, other: Any) -> Probe:
            Probe.count = sys.getrefcount(self)
            return self

    class Box:
        def __getitem__(self, index: Any) -> Probe:
            return Probe()

        def __setitem__(self, index: Any, value: Any) -> None:
            pass

    Box()[0] += None
    alone = Probe.count
    variable = Probe()
    variable += None
    return alone if Probe.count > alone else 0


_IN_AN_UPDATE = _references_in_an_update()


def _fill(self: Tensor, value: Any) -> Tensor:
    """Point the tensor at a constant value of its own shape."""
    whole = shaping.broadcast_to(shaping.astype(as_value(value), self.dtype), self.shape)
    return self.rebind(whole, "fill_")


def _namespace(self: Value, *, api_version: str | None = None) -> Any:
    """The array API's namespace of this value: the package."""
    if api_version is not None and api_version not in VERSIONS:
        raise ArgumentError(f"__array_namespace__: version {api_version!r} is not one of {', '.join(VERSIONS)}.")
    return package()


_array_ufunc = signed(late("protocol", "array_ufunc"))
_array_function = signed(late("protocol", "array_function"))


def install() -> None:
    """Give `Value` and `Tensor` their operators and methods. Called once by the package."""
    for name, function in _BINARY.items():
        setattr(Value, f"__{name}__", operator_of(function.op) if hasattr(function, "op") else _forward(function))
        setattr(Value, f"__r{name}__", _reflected(function))
        setattr(Value, f"__i{name}__", _in_place_of_wrapper(function, name))
        setattr(Tensor, f"__i{name}__", _in_place(function, name))
    for name, function in _COMPARE.items():
        setattr(Value, f"__{name}__", _forward(function))
    for name, function in _METHODS.items():
        setattr(Value, name, function if hasattr(function, "op") else _method(function))
    given: dict[str, Any] = {
        "__pow__": _forward(power), "__rpow__": _reflected(power), "__neg__": pointwise.negative,
        "__pos__": functions.copied, "__abs__": pointwise.abs, "__invert__": pointwise.bitwise_invert,
        "__getitem__": indexing.getitem, "__iter__": _iterate,
        "__divmod__": _forward(late("arithmetic", "divmod")), "__rdivmod__": _reflected(late("arithmetic", "divmod")),
        "reshape": _reshape,
        "T": property(_viewing(shaping.permute_dims)), "mT": property(_viewing(shaping.matrix_transpose)),
        "real": property(_viewing(pointwise.real)), "imag": property(_viewing(pointwise.imag)),
        "flatten": _flattened, "ravel": _viewing(_flattened), "transpose": _transpose,
        "detach": pointwise.stop_gradient, "copy": shaping.variable, "__array_namespace__": _namespace,
        "__array_ufunc__": _array_ufunc, "__array_function__": _array_function,
        "__setitem__": _set_item_of_wrapper, "__ipow__": _in_place_of_wrapper(power, "pow"),
    }  # fmt: skip
    for name, function in given.items():
        setattr(Value, name, function)
    own = {
        "__setitem__": _set_item,
        "__ipow__": _in_place(power, "pow"),
        "fill_": _fill,
        "copy": functions.copied,
        "__copy__": functions.copied,
    }
    for name, function in own.items():
        setattr(Tensor, name, function)


def _method(function: Any) -> Any:
    @signed
    def method(self: Value, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _transpose(self: Value, *axes: Any) -> Any:
    """The axes in another order; without any, reversed."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return as_view(shaping.permute_dims(self, order or None), self)
