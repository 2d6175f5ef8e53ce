"""NumPy's functions that query or create arrays with NumPy's signatures; results without derivative are bare."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import make_spec, spec_of
from ...arrays.tensor import Tensor, tensor, wrap
from ...arrays.tensor import asarray as as_tensor
from ...arrays.value import Value
from .. import creation
from ..concrete import as_bare_array
from ..dispatch import as_value
from ..dispatch import ndim as rank_of
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


def shares_memory(a: Any, b: Any, /, max_work: Any = -1) -> bool:
    return np.shares_memory(as_bare_array(a, "shares_memory"), as_bare_array(b, "shares_memory"), max_work)


def may_share_memory(a: Any, b: Any, /, max_work: Any = 0) -> bool:
    return np.may_share_memory(as_bare_array(a, "may_share_memory"), as_bare_array(b, "may_share_memory"), max_work)


def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    return np.array2string(as_bare_array(a, "array2string"), *args, **kwargs)


def array_repr(arr: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    return np.array_repr(as_bare_array(arr, "array_repr"), max_line_width, precision, suppress_small)


def array_str(a: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None) -> str:
    return np.array_str(as_bare_array(a, "array_str"), max_line_width, precision, suppress_small)


def _memoryless_array(sizes: tuple[int, ...]) -> Any:
    """An array of a shape that takes no memory."""
    return np.broadcast_to(np.int8(0), sizes)


def diag_indices_from(arr: Any) -> Any:
    return np.diag_indices_from(_memoryless_array(shape(arr)))


def tril_indices_from(arr: Any, k: int = 0) -> Any:
    return np.tril_indices_from(_memoryless_array(shape(arr)), k)


def triu_indices_from(arr: Any, k: int = 0) -> Any:
    return np.triu_indices_from(_memoryless_array(shape(arr)), k)


def ix_(*args: Any) -> Any:
    return np.ix_(*(as_bare_array(x, "ix_") for x in args))


def _full_of_spec(name: str, a: Any, fill: Any, dtype: Any, order: Any, sizes: Any, device: Any) -> Any:
    refuse(name, order=order, device=None if device == "cpu" else device)
    spec = spec_of(as_value(a))
    wanted = spec.shape if sizes is None else (sizes,) if isinstance(sizes, int) else tuple(sizes)
    fill = reshaping.astype(as_value(fill), spec.dtype if dtype is None else dtype)
    if not isinstance(fill, Value):
        fill = tensor(fill)
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


def _refuse_options(name: str, **options: Any) -> None:
    refuse(name, **{k: None if v == "cpu" else v for k, v in options.items()})


def zeros(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    _refuse_options("zeros", order=order, device=device)
    return creation.zeros(shape, dtype=dtype or float)


def ones(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    _refuse_options("ones", order=order, device=device)
    return creation.ones(shape, dtype=dtype or float)


def empty(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    return zeros(shape, dtype, order, device=device)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None) -> Any:
    _refuse_options("full", order=order, device=device)
    fill = as_value(fill_value)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return _full_of_spec("full", fill, fill, dtype, "K", sizes, None)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: Any = "C", *, device: Any = None) -> Any:
    _refuse_options("eye", order=order, device=device)
    return creation.eye(N, M, k=k, dtype=dtype)


def identity(n: int, dtype: Any = None) -> Any:
    return creation.eye(n, dtype=dtype or float)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Any:
    made = np.tri(N, M, k, dtype)
    return wrap(made, make_spec(made.shape, made.dtype))


def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    _refuse_options("arange", device=device)
    return creation.arange(start_or_stop, stop, step, dtype=dtype)


def array(object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0,
          ndmax: int = 0) -> Any:  # fmt: skip
    refuse("array", order=order, ndmax=ndmax or None)
    made = asarray(object, dtype)
    made = reshaping.pass_through(made) if copy else made
    return reshaping.reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made


def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None) -> Any:
    refuse("asarray", order=order, device=None if device == "cpu" else device)
    made = a if isinstance(a, Value) else as_tensor(a)
    made = made if dtype is None else reshaping.astype(made, dtype)
    return reshaping.pass_through(made) if copy else made


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    made = asarray(a, dtype)
    return made if made.ndim else reshaping.reshape(made, (1,))


asfortranarray = ascontiguousarray
