"""NumPy's functions that query or create arrays with NumPy's signatures; results without derivative are bare."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.exchange import asarray as as_tensor
from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, tensor, wrap_new
from ...arrays.value import Value
from .. import creation
from ..concrete import as_bare_array
from ..dispatch import as_value
from ..dispatch import ndim as rank_of
from ..elementwise import pointwise
from ..elementwise.pointwise import add, divide, multiply, subtract
from ..index.normalize import namespace_for
from ..shape import reshaping
from .unsupported import refuse


def shape(a: Any) -> Any:
    return spec_of(as_value(a)).shape


def ndim(a: Any) -> int:
    return rank_of(as_value(a))


def size(a: Any, axis: Any = None) -> int:
    sizes = spec_of(as_value(a)).shape
    axes = range(len(sizes)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([sizes[n] for n in axes], dtype=np.intp))


def iscomplexobj(x: Any) -> bool:
    return bool(spec_of(as_value(x)).dtype.kind == "c")


def isrealobj(x: Any) -> bool:
    return not iscomplexobj(x)


def _dtype_argument(x: Any) -> Any:
    return x.dtype if isinstance(x, Value) else x


def result_type(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*map(_dtype_argument, arrays_and_dtypes))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(_dtype_argument(from_), _dtype_argument(to), casting)


def common_type(*arrays: Any) -> Any:
    return np.common_type(*(np.empty(0, spec_of(as_value(x)).dtype) for x in arrays))


def min_scalar_type(a: Any, /) -> Any:
    return _dtype_argument(a) if rank_of(as_value(a)) else np.min_scalar_type(as_bare_array(a, "min_scalar_type"))


def _memoryless_array(sizes: tuple[int, ...]) -> Any:
    """An array of a shape that takes no memory."""
    return np.broadcast_to(np.int8(0), sizes)


def diag_indices_from(arr: Any) -> Any:
    return np.diag_indices_from(_memoryless_array(shape(arr)))


def tril_indices_from(arr: Any, k: int = 0) -> Any:
    return np.tril_indices_from(_memoryless_array(shape(arr)), k)


def triu_indices_from(arr: Any, k: int = 0) -> Any:
    return np.triu_indices_from(_memoryless_array(shape(arr)), k)


def _full_of_spec(name: str, a: Any, fill: Any, dtype: Any, order: Any, sizes: Any, device: Any) -> Any:
    refuse(name, order=order, device=device)
    spec = spec_of(as_value(a))
    wanted = spec.shape if sizes is None else (sizes,) if isinstance(sizes, int) else tuple(sizes)
    fill = reshaping.astype(as_value(fill), spec.dtype if dtype is None else dtype)
    if not isinstance(fill, Value):
        fill = tensor(fill, device=spec.device)
    whole = reshaping.broadcast_to(fill, wanted) if wanted else reshaping.pass_through(fill)
    higher = isinstance(a, Value) and isinstance(whole, Value) and a.level > whole.level
    return (
        tensor(whole) if higher and type(whole) is not Tensor else whole
    )  # what is like `a` may be assigned tracked values


def zeros_like(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:  # fmt: skip
    return _full_of_spec("zeros_like", a, 0, dtype, order, shape, device)


def ones_like(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:  # fmt: skip
    return _full_of_spec("ones_like", a, 1, dtype, order, shape, device)


def empty_like(prototype: Any, /, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
               device: Any = None) -> Any:  # fmt: skip
    return _full_of_spec("empty_like", prototype, 0, dtype, order, shape, device)


def full_like(a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:  # fmt: skip
    return _full_of_spec("full_like", a, fill_value, dtype, order, shape, device)


def zeros(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    refuse("zeros", order=order, device=device)
    return creation.zeros(shape, dtype=dtype or float)


def ones(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    refuse("ones", order=order, device=device)
    return creation.ones(shape, dtype=dtype or float)


def empty(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    return zeros(shape, dtype, order, device=device)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    refuse("full", order=order, device=device)
    fill = as_value(fill_value)
    sizes = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    return _full_of_spec("full", fill, fill, dtype, "K", sizes, None)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Any:
    return wrap_new(np.tri(N, M, k, dtype))


def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    refuse("arange", device=device)
    return creation.arange(start_or_stop, stop, step, dtype=dtype)


def array(object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0,
          ndmax: int = 0) -> Any:  # fmt: skip
    refuse("array", order=order, ndmax=ndmax or None)
    made = asarray(object, dtype)
    made = reshaping.pass_through(made) if copy else made
    return reshaping.reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made


def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None) -> Any:
    refuse("asarray", order=order, device=device)
    made = a if isinstance(a, Value) else as_tensor(a)
    made = made if dtype is None else reshaping.astype(made, dtype)
    return reshaping.pass_through(made) if copy else made


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    made = asarray(a, dtype)
    return made if made.ndim else reshaping.reshape(made, (1,))


asfortranarray = ascontiguousarray


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:  # fmt: skip
    refuse("linspace", device=device)
    start, stop = (x if spec_of(x).inexact else reshaping.astype(x, "float64") for x in map(as_value, (start, stop)))
    gaps = num - 1 if endpoint else num
    step = divide(subtract(stop, start), max(gaps, 1)) if num else subtract(stop, start)
    rank = max(rank_of(start), rank_of(stop))
    places = namespace_for(step).arange(num, dtype=spec_of(step).dtype).reshape((-1,) + (1,) * rank)
    found = add(start, multiply(places, step))
    if endpoint and num > 1:  # the last one exact
        found = pointwise.where(places == num - 1, stop, found)
    found = reshaping.moveaxis(found, 0, axis)
    found = found if dtype is None else reshaping.astype(found, dtype)
    return (found, step) if retstep else found


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:  # fmt: skip
    places = linspace(start, stop, num, endpoint)
    found = reshaping.moveaxis(pointwise.power(as_value(base), places), 0, axis)
    return found if dtype is None else reshaping.astype(found, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = (x if isinstance(x, Value) else np.asarray(x) for x in map(as_value, (start, stop)))
    start, stop = (x if spec_of(x).inexact else reshaping.astype(x, "float64") for x in (start, stop))
    ratio = divide(stop, start)
    powers = linspace(multiply(ratio, 0.0), pointwise.log(ratio), num, endpoint)
    found = multiply(start, pointwise.exp(powers))
    if num > 0 and endpoint and num > 1:
        last = np.arange(num).reshape((-1,) + (1,) * (rank_of(found) - 1)) == num - 1
        found = pointwise.where(last, stop, found)
    found = reshaping.moveaxis(found, 0, axis)
    return found if dtype is None else reshaping.astype(found, dtype)
