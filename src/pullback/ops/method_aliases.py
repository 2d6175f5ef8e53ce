"""Methods of tensors under PyTorch's names, where these mean the same: `x.to`, `x.view`, `x.unsqueeze`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.call_site import attributed_to_caller
from ..arrays.devices import is_device, normalize_device
from ..arrays.dtypes import ALIASES, NAMES, as_dtype
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..arrays.views import as_view
from ..errors import ArgumentTypeError, ShapeError
from . import functions, placement
from .contract import matrix_products
from .elementwise import pointwise
from .index import indexing
from .lazy import lazy_function
from .shape import reshaping


def to(self: Any, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, **_: Any) -> Any:
    """The tensor with another dtype, on another device, or as another tensor has them; itself if that changes nothing.

    >>> import pullback as pb
    >>> pb.tensor([1, 2]).to(pb.float32)
    tensor([1., 2.], dtype=float32)
    """
    for given in args:
        if isinstance(given, Value) or is_array(given):
            dtype, device = spec_of(given).dtype, spec_of(given).device
        elif is_device(given) and given not in NAMES and given not in ALIASES:
            device = given
        else:
            dtype = given
    out = self
    if dtype is not None and as_dtype(dtype) != self.dtype:
        out = functions.astype(out, dtype)
    if device is not None and (wanted := normalize_device(device, "to")) != self.device:
        out = placement.move(out, wanted)
    return out.copy() if copy and out is self else out


def _cpu(self: Any) -> Any:
    """The tensor on the CPU."""
    return to(self, device="cpu")


def _cuda(self: Any, device: Any = None) -> Any:
    """The tensor on a GPU: the current one, or that of a number or a name."""
    return to(self, device="cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def _as_dtype_method(name: str, dtype: str) -> Callable[[Any], Any]:
    def convert(self: Any) -> Any:
        return to(self, dtype=np.dtype(dtype))

    convert.__name__ = name
    convert.__doc__ = f"The tensor as {dtype}; itself if it is."
    return convert


def _view(self: Any, *shape: Any) -> Any:
    """The same elements in another shape: x.view(2, 3), x.view(-1); in the same one: x.view()."""
    wanted = shape[0] if len(shape) == 1 else shape or self.shape
    if isinstance(wanted, (str, np.dtype, type)):
        raise ArgumentTypeError(f"view: wants a shape, got {wanted!r}.\n  To convert elements use x.astype(dtype).")
    return self.reshape(wanted)


def _permute(self: Any, *dims: Any) -> Any:
    """The axes in another order."""
    return self.transpose(*dims)


def _t(self: Any) -> Any:
    """A matrix transposed; a vector or a number as it is."""
    if self.ndim > 2:
        raise ShapeError(f"t: wants at most two axes, got shape {self.shape}.\n  Use x.mT for stacks of matrices.")
    return self.T


def _unsqueeze(self: Any, dim: int) -> Any:
    """The tensor with an axis of size 1 more."""
    return as_view(reshaping.expand_dims(self, dim), self, lambda x: reshaping.expand_dims(x, dim))


def _expand(self: Any, *sizes: Any) -> Any:
    """Axes of size 1 repeated to these sizes; -1 keeps a size."""
    wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    more = len(wanted) - self.ndim
    shape = tuple(self.shape[i - more] if size == -1 and i >= more else size for i, size in enumerate(wanted))
    return as_view(reshaping.broadcast_to(self, shape), self, lambda x: reshaping.broadcast_to(x, shape))


def _expand_as(self: Any, other: Any) -> Any:
    """Axes of size 1 repeated to the shape of another tensor."""
    return _expand(self, *other.shape)


def _clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    """Elements below min set to it, those above max to that."""
    return functions.clip(self, min, max)


def _softmax(self: Any, dim: int = -1) -> Any:
    """exp(x) over its sum along an axis."""
    return functions.softmax(self, axis=dim)


def _log_softmax(self: Any, dim: int = -1) -> Any:
    """The logarithm of the softmax along an axis."""
    return functions.log_softmax(self, axis=dim)


def _index_select(self: Any, dim: int, index: Any) -> Any:
    """The entries at these indices along an axis."""
    return indexing.take(self, index, axis=dim)


def _gather(self: Any, dim: int, index: Any) -> Any:
    """For each entry of `index` the element at that index along an axis, at the same position along the others."""
    return lazy_function("index.scatter_gather", "gather")(self, dim, index)


def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    """One value where the mask is true."""
    return lazy_function("index.selection", "masked_fill")(self, mask, value)


def _unbind(self: Any, dim: int = 0) -> Any:
    """The tensor's slices along an axis, as a tuple."""
    return lazy_function("shape.stack_split", "unstack")(self, axis=dim)


def _topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest elements along an axis and their indices."""
    return lazy_function("order.sorting", "topk")(self, k, axis=dim, largest=largest, sorted=sorted)


def _numel(self: Any) -> Any:
    """The number of elements."""
    return self.size


def _dim(self: Any) -> int:
    """The number of axes."""
    return len(self.spec.shape)


def _same(self: Any) -> Any:
    """The tensor itself: how its elements lie in memory makes no difference to users."""
    return self


_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "bool": "bool",
}  # fmt: skip
#: Methods that call no op, and so make no node.
_PLAIN: dict[str, Any] = {"numel": _numel, "dim": _dim, "contiguous": _same}
_ALIASES: dict[str, Any] = {
    "to": to, "cpu": _cpu, "cuda": _cuda, "view": _view, "permute": _permute, "t": _t, "unsqueeze": _unsqueeze,
    "expand": _expand, "expand_as": _expand_as, "clamp": _clamp, "softmax": _softmax, "log_softmax": _log_softmax,
    "index_select": _index_select, "unbind": _unbind, "topk": _topk,
    "pow": pointwise.power, "matmul": matrix_products.matmul, "mm": matrix_products.matmul,
    "bmm": matrix_products.matmul, "sigmoid": pointwise.sigmoid, "relu": pointwise.relu, "isnan": pointwise.isnan,
    "isfinite": pointwise.isfinite, "eq": pointwise.equal, "ne": pointwise.not_equal, "lt": pointwise.less,
    "le": pointwise.less_equal, "gt": pointwise.greater, "ge": pointwise.greater_equal,
    "masked_fill": _masked_fill, "gather": _gather,
    **{name: _as_dtype_method(name, dtype) for name, dtype in _DTYPES.items()},
}  # fmt: skip


def install() -> None:
    """Add the methods to `Value`. Called at the first use of one."""
    for name, function in _ALIASES.items():
        finds_line = hasattr(function, "op") or hasattr(function, "outcomes")
        setattr(Value, name, function if finds_line else attributed_to_caller(function))
    for name, function in _PLAIN.items():
        setattr(Value, name, function)
    kinds: tuple[Any, ...] = (Value, Tensor)
    for kind in kinds:
        kind.clone = vars(kind)["copy"]
