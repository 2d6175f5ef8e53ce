"""Python's operators, methods and NumPy's ufuncs on values, each mapped to its op."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays.call_site import attributed_to_caller
from ..arrays.namespace import VERSIONS
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..arrays.views import as_view, is_linked, is_view, living_views, unlink, view_write_error, write_through
from ..errors import ArgumentError, ArgumentTypeError, DtypeError, GraphError, ShapeError
from ..settings import UNRECORDED, modes
from . import functions, placement
from .contract import matrix_products
from .dispatch import as_value
from .eager import is_operand, operator_function, refuse_operand
from .elementwise import pointwise
from .index import indexing
from .lazy import lazy_function, load_module, load_package
from .reduce import reductions, scans
from .shape import arrange, reshaping

_BINARY: dict[str, Any] = {
    "add": pointwise.add, "sub": pointwise.subtract, "mul": pointwise.multiply, "truediv": pointwise.divide,
    "matmul": matrix_products.matmul, "and": pointwise.bitwise_and, "or": pointwise.bitwise_or,
    "xor": pointwise.bitwise_xor, "pow": pointwise.power_operator,
    "floordiv": lazy_function("elementwise.arithmetic", "floor_divide"),
    "mod": lazy_function("elementwise.arithmetic", "remainder"),
    "lshift": lazy_function("elementwise.arithmetic", "bitwise_left_shift"),
    "rshift": lazy_function("elementwise.arithmetic", "bitwise_right_shift"),
}  # fmt: skip
#: Products, sums and the like with sparse matrices of SciPy and CuPy.
_operate_on_library_matrix = lazy_function("library_products", "operate_on_library_matrix", "sparse")


def _with_sparse(name: str) -> Callable[[Any, Any], Any]:
    """An operator one side of which may be a sparse matrix of SciPy or CuPy."""

    def operator(left: Any, right: Any) -> Any:
        is_sparse = hasattr(left if isinstance(right, Value) else right, "tocsr")
        return _operate_on_library_matrix(name, left, right) if is_sparse else NotImplemented

    return operator


_COMPARE: dict[str, Any] = {
    "eq": pointwise.equal, "ne": pointwise.not_equal, "lt": pointwise.less, "le": pointwise.less_equal,
    "gt": pointwise.greater, "ge": pointwise.greater_equal,
}  # fmt: skip


def _compress(self: Value, condition: Any, axis: Any = None) -> Any:
    """The elements along an axis where the condition holds."""
    return lazy_function("index.selection", "compress")(condition, self, axis)


def _conj(self: Value) -> Any:
    """The complex conjugate; real numbers as they are."""
    return pointwise.conj(self) if self.dtype.kind == "c" else self


_METHODS: dict[str, Any] = {
    "sum": reductions.sum, "mean": reductions.mean, "prod": reductions.prod, "max": reductions.max,
    "min": reductions.min,
    "any": reductions.any, "all": reductions.all, "argmax": reductions.argmax,
    "argmin": reductions.argmin, "astype": functions.astype, "repeat": arrange.repeat,
    "take": indexing.take, "conj": _conj, "conjugate": _conj, "clip": functions.clip,
    "dot": lazy_function("contract.dot_products", "dot"), "round": lazy_function("elementwise.rounding", "round"),
    "trace": lazy_function("shape.diagonals", "trace"),
    "nonzero": lazy_function("index.selection", "nonzero"), "var": reductions.var,
    "argsort": lazy_function("order.sorting", "argsort"), "cumprod": scans.cumulative_prod, "std": reductions.std,
    "searchsorted": lazy_function("order.sorting", "searchsorted"), "compress": _compress,
    "choose": lazy_function("index.selection", "choose"),
    "exp": pointwise.exp, "log": pointwise.log, "sqrt": pointwise.sqrt, "tanh": pointwise.tanh, "sin": pointwise.sin,
    "cos": pointwise.cos, "abs": pointwise.abs, "square": pointwise.square, "cumsum": scans.cumulative_sum,
}  # fmt: skip


#: What operators do with operands that are no arrays.
_OTHERWISE: dict[Any, Callable[[Any, Any], Any]] = {
    _BINARY[name]: _with_sparse(name) for name in ("matmul", "mul", "add", "sub", "truediv")
}


def _left_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    otherwise = _OTHERWISE.get(function, refuse_operand)

    def operator(self: Value, other: Any) -> Any:
        return function(self, other) if type(other) is Tensor or is_operand(other) else otherwise(self, other)

    return operator


def _right_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    otherwise = _OTHERWISE.get(function, refuse_operand)

    @attributed_to_caller
    def operator(self: Value, other: Any) -> Any:
        return function(other, self) if is_operand(other) else otherwise(other, self)

    if not hasattr(function, "op"):
        return operator
    of_numbers = operator_function(function.op, depth=2)

    def number_operator(self: Value, other: Any) -> Any:
        return of_numbers(other, self) if type(other) is float or type(other) is int else operator(self, other)

    return number_operator


def _in_place_operator(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`x += y`: rebinds a tensor to the result; for a value of a transform only the name."""

    what = f"in-place {name}"

    @attributed_to_caller
    def update(self: Value, other: Any) -> Any:
        found = function(self, other)
        return self.rebind(found, what) if isinstance(self, Tensor) else found

    return _refuse_on_view(update, name, lambda self, other: self.rebind(function(self, other), what))


def _refuse_on_view(
    update: Callable[[Value, Any], Any], name: str, unrecorded: Callable[[Any, Any], Any] | None = None
) -> Callable[[Value, Any], Any]:
    """The operator, refused on a view of a value that a variable still holds. `unrecorded` is a shorter form of it for
    `no_grad`, where no node is to be attributed to a line.
    """

    def operator(self: Value, other: Any) -> Any:
        if unrecorded is not None and modes() is UNRECORDED and not hasattr(self, "_sources"):
            return unrecorded(self, other)
        # In `x[i] += v` no variable holds the slice, and the result is written to x at once. A slice without
        # axes is a number in NumPy, which only rebinds its name.
        if self.ndim and _REFERENCES_IN_UPDATE > 0:
            references = sys.getrefcount(self)
            if references <= _REFERENCES_IN_UPDATE or references <= _REFERENCES_IN_UPDATE + self.kept_references():
                unlink(self)
            elif is_view(self) and not is_linked(self):
                raise view_write_error(f"in-place {name}")
        return update(self, other)

    return operator


def _in_place_wrapper_operator(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """On a value of a transform: rebinds it to the result wherever it is held, as a NumPy array would change.
    Values that cannot be rebound (of a graph being built, say) return the result.
    """

    @attributed_to_caller
    def update(self: Value, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        new = function(self, other)
        if not self.is_variable:
            return new
        # In `x[i] += v` the slice is about to be written to x: if v belongs to a transform inside that of the slice,
        # which cannot hold the result, the result itself is written.
        if isinstance(new, Value) and new.level > self.level and is_view(self) and not is_linked(self):
            return _cast_to_variable(self, new, f"in-place {name}")
        return _rebind_wrapper(self, new, f"in-place {name}")

    return _refuse_on_view(update, name)


def _cast_to_variable(self: Value, new: Any, what: str) -> Any:
    """A new value for a variable, which keeps its shape and dtype."""
    found = spec_of(new)
    if found.shape != self.shape:
        raise ShapeError(f"{what}: the result has shape {found.shape}, the value has {self.shape} and keeps it.")
    if found.dtype != self.dtype or found.weak:
        if not np.can_cast(found.dtype, self.dtype, casting="same_kind"):
            raise DtypeError(f"{what}: a {found.dtype} result does not fit into a {self.dtype} value.")
        return reshaping.astype(new, self.dtype)
    return new


def _rebind_wrapper(self: Value, new: Any, what: str) -> Value:
    new = _cast_to_variable(self, new, what)
    # with a variable made inside of the transform (a copy, an array to fill) the result is one too, and not on a tape
    while type(new) is Tensor and new.node is None and new.level > self.level:
        new = new.value
    if is_view(self):
        if write_through(self, new):
            return self
        if is_linked(self) or not what.startswith("in-place"):
            raise view_write_error(what)
    self.point_at(new, what)
    for view, cut in living_views(self):
        view.follow(cut(self))
    return self


def _set_wrapper_item(self: Value, index: Any, value: Any) -> None:
    _refuse_lost_write(self)
    if not self.is_variable:
        raise self.rebind_error("x[index] = value")
    _rebind_wrapper(self, indexing.set_at(self, index, value), "x[index] = value")


def _reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """The same elements in another shape: x.reshape(2, 3) or x.reshape((2, 3))."""
    sizes = shape[0] if len(shape) == 1 else shape
    found = reshaping.reshape(self, sizes, order)
    return found if copy else as_view(found, self, lambda x: reshaping.reshape(x, sizes, order), may_copy=True)


def _flatten(self: Any, start_dim: Any = 0, end_dim: int = -1, *, order: str = "C") -> Any:
    """The elements as a vector, in an order as in NumPy, x.flatten("F"); or a range of axes merged into one."""
    if isinstance(start_dim, str):
        start_dim, order = 0, start_dim
    if order != "C":
        return lazy_function("shape.stack_split", "ravel")(self, order)
    if start_dim == 0 and end_dim == -1:
        return reshaping.reshape(self, (-1,))
    return lazy_function("shape.stack_split", "flatten")(self, start_dim, end_dim)


@attributed_to_caller
def _copy(self: Any) -> Any:
    """The value itself under a new variable, as NumPy's copy lies in memory."""
    return functions.copy_value(reshaping.in_row_order(self))


def _diagonal(self: Any, *args: Any, **kwargs: Any) -> Any:
    return as_view(arrange.diagonal(self, *args, **kwargs), self, lambda x: x.diagonal(*args, **kwargs))


def _ravel(self: Any, start_dim: Any = 0, end_dim: int = -1, *, order: str = "C") -> Any:
    """The elements as a vector, which is a view if they lie one after the other; or a range of axes merged."""
    if isinstance(start_dim, str):
        start_dim, order = 0, start_dim

    def cut(x: Any) -> Any:
        whole = start_dim == 0 and end_dim == -1 and isinstance(x, np.ndarray)
        return x.ravel(order) if whole else _flatten(x, start_dim, end_dim, order=order)

    return as_view(_flatten(self, start_dim, end_dim, order=order), self, cut, may_copy=True)


def _view_of(function: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    return as_view(function(x, *args, **kwargs), x, lambda x: function(x, *args, **kwargs))


def _as_view_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result is a view in NumPy."""

    def call(self: Value, *args: Any, **kwargs: Any) -> Any:
        return _view_of(function, self, *args, **kwargs)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _iterate(self: Value) -> Iterator[Any]:
    if not self.ndim:
        raise ArgumentTypeError("a 0-d tensor cannot be iterated.\n  It is one number: use it as it is, or x.item().")
    return (self[i] for i in range(self.shape[0]))


_join = lazy_function("protocol.nested", "join")


def _set_item(self: Tensor, index: Any, value: Any) -> None:
    _refuse_lost_write(self)
    if type(value) is list or type(value) is tuple:  # perhaps of tensors
        value = _join(value)
    self.rebind(indexing.set_at(self, index, value), "x[index] = value")


def _refuse_lost_write(x: Value) -> None:
    if sys.getrefcount(x) <= _REFERENCES_TO_TEMPORARY + 1 and not is_linked(x):  # one more for this call
        raise GraphError(
            "this assignment would be lost: `x[i]` is a new value, not a view of x.\n"
            "  Write x[i, j] = v instead of x[i][j] = v."
        )


class _Probe:
    """Counts the references to itself where it is written to, and where it is updated in place."""

    written = updated = 0

    def __getitem__(self, index: Any) -> _Probe:
        return _Probe()

    def __setitem__(self, index: Any, value: Any) -> None:
        _Probe.written = sys.getrefcount(self)

    def __iadd__(self, other: Any) -> _Probe:
        _Probe.updated = sys.getrefcount(self)
        return self


def _count_references() -> tuple[int, int]:
    """How many references a tensor has inside `__setitem__` when no variable holds it, as in x[0][1] = v, and the slice
    in `x[i] += v` inside `__iadd__`; 0 where this interpreter does not count a variable's reference, so that nothing is
    refused by mistake.
    """
    _Probe()[0] += None
    [_Probe()].pop()[0] = None
    written, updated = _Probe.written, _Probe.updated
    variable = _Probe()
    variable[0] = None
    variable += None
    return written if _Probe.written > written else 0, updated if _Probe.updated > updated else 0


_REFERENCES_TO_TEMPORARY, _REFERENCES_IN_UPDATE = _count_references()


def _fill(self: Tensor, value: Any) -> Tensor:
    """Rebind the tensor to a constant value of its own shape."""
    number = placement.move(reshaping.astype(as_value(value), self.dtype), self.device)
    whole = reshaping.broadcast_to(number, self.shape)
    return self.rebind(whole, "fill_")


def _array_namespace(self: Value, *, api_version: str | None = None) -> Any:
    """The array API's namespace of this value: the package."""
    if api_version is not None and api_version not in VERSIONS:
        raise ArgumentError(f"__array_namespace__: version {api_version!r} is not one of {', '.join(VERSIONS)}.")
    return load_package()


_array_ufunc = attributed_to_caller(lazy_function("protocol", "array_ufunc"))
_array_function = attributed_to_caller(lazy_function("protocol", "array_function"))
_cupy_ufunc = attributed_to_caller(lazy_function("protocol", "cupy_ufunc"))


#: Methods under PyTorch's names, which `method_aliases` adds at the first use of one.
_ALIASES = """
    to cpu cuda view permute t unsqueeze expand expand_as clamp softmax log_softmax index_select unbind topk pow matmul
    mm bmm sigmoid relu isnan isfinite eq ne lt le gt ge masked_fill gather float double half bfloat16 long int bool
    numel dim contiguous clone
"""


class _LazyMethod:
    """A method of `method_aliases`, before that module is loaded."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        load_module("method_aliases").install()
        return getattr(owner if instance is None else instance, self.name)


def install() -> None:
    """Add operators and methods to `Value` and `Tensor`. Called once by the package."""
    for name, function in _BINARY.items():
        setattr(
            Value,
            f"__{name}__",
            operator_function(function.op, otherwise=_OTHERWISE.get(function, refuse_operand))
            if hasattr(function, "op")
            else _left_operator(function),
        )
        setattr(Value, f"__r{name}__", _right_operator(function))
        setattr(Value, f"__i{name}__", _in_place_wrapper_operator(function, name))
        setattr(Tensor, f"__i{name}__", _in_place_operator(function, name))
    Tensor._repr_html_ = lazy_function("html_text", "tensor_html", "arrays")  # type: ignore[attr-defined]
    Value.__pow__ = pointwise.power_operator  # type: ignore[method-assign]
    for name, function in _COMPARE.items():
        setattr(Value, f"__{name}__", _left_operator(function))
    for name, function in _METHODS.items():
        # those with plans or an op of their own find the user's line themselves
        finds_line = hasattr(function, "op") or hasattr(function, "outcomes") or function is reductions.mean
        setattr(Value, name, function if finds_line else _make_method(function))
    given: dict[str, Any] = {
        "__neg__": pointwise.negative, "__pos__": functions.copy_value, "__abs__": pointwise.abs,
        "__round__": lazy_function("elementwise.rounding", "round"),
        "__trunc__": lazy_function("elementwise.rounding", "trunc"),
        "__floor__": lazy_function("elementwise.rounding", "floor"),
        "__ceil__": lazy_function("elementwise.rounding", "ceil"),
        "__invert__": pointwise.bitwise_invert, "__getitem__": indexing.getitem, "__iter__": _iterate,
        "__divmod__": _left_operator(lazy_function("elementwise.arithmetic", "divmod")),
        "__rdivmod__": _right_operator(lazy_function("elementwise.arithmetic", "divmod")),
        "reshape": _reshape, "to_device": placement.to_device,
        "T": property(_as_view_function(reshaping.permute_dims)),
        "mT": property(_as_view_function(reshaping.matrix_transpose)),
        "real": property(_as_view_function(pointwise.real)), "imag": property(_as_view_function(pointwise.imag)),
        "flatten": _flatten, "ravel": _ravel, "transpose": _transpose,
        "squeeze": _as_view_function(reshaping.squeeze), "diagonal": _diagonal,
        "swapaxes": _as_view_function(lazy_function("shape.stack_split", "swapaxes")),
        "detach": pointwise.stop_gradient, "copy": reshaping.writable_copy, "__array_namespace__": _array_namespace,
        "__array_ufunc__": _array_ufunc, "__array_function__": _array_function,
        "__cupy_override_elementwise_kernel__": _cupy_ufunc,
        "__setitem__": _set_wrapper_item,
    }  # fmt: skip
    for name, function in given.items():
        setattr(Value, name, function)
    own = {"__setitem__": _set_item, "fill_": _fill, "copy": _copy, "__copy__": functions.copy_value}
    for name, function in own.items():
        setattr(Tensor, name, function)
    for name in _ALIASES.split():
        setattr(Value, name, _LazyMethod(name))


def _make_method(function: Any) -> Any:
    @attributed_to_caller
    def method(self: Value, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = function.__doc__
    return method


def _transpose(self: Value, *axes: Any) -> Any:
    """The axes in another order; without any, reversed."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return _view_of(reshaping.permute_dims, self, order or None)
