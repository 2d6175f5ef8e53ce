"""Creation functions. A device is "cpu" or "cuda:0"; `*_like` takes that of its argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..arrays.backends import device_context, namespace_on
from ..arrays.devices import normalize_device
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.size import recorder_of
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap_new
from ..errors import ArgumentError, ArgumentTypeError, DtypeError, GraphError, PullbackError
from .axes import as_integer, as_shape
from .dispatch import as_value

P = ParamSpec("P")
R = TypeVar("R")


def _make_tensor(what: str, device: Any, make: Callable[[Any], Any], requires_grad: bool = False) -> Tensor:
    """A tensor of what `make` returns, given NumPy or CuPy, on a device."""
    place = normalize_device(device, what)
    with device_context(place):
        try:
            array = make(namespace_on(place))
        except PullbackError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentTypeError(f"{what}: {error}.") from None
    if array.dtype.name not in NAMES:
        raise DtypeError(f"{what}: tensors hold numbers and booleans, got dtype {array.dtype}.")
    made = wrap_new(array)
    return made.requires_grad_() if requires_grad else made


def _dtype_or_default(dtype: Any, otherwise: Any = None) -> Any:
    return otherwise if dtype is None else as_dtype(dtype)


def _check_sizes(shape: Any, what: str) -> tuple[int, ...]:
    sizes = as_shape(shape, what)
    if any(n < 0 for n in sizes):
        raise ArgumentError(f"{what}: shape {sizes} must not hold a negative number.")
    return sizes


def _with_one_shape(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse sizes that are passed one by one, with how to pass them."""

    @functools.wraps(function)
    def create(*args: P.args, **options: P.kwargs) -> R:
        if len(args) > 1:
            name = function.__name__
            shown = ", ".join(map(str, args))
            raise ArgumentTypeError(f"{name}: a shape is one tuple.\n  Write pb.{name}(({shown})).")
        return function(*args, **options)

    return create


@_with_one_shape
def zeros(shape: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros.

    >>> import pullback as pb
    >>> pb.zeros(2)
    tensor([0., 0.], dtype=float64)
    """
    sizes, wanted = _check_sizes(shape, "zeros"), _dtype_or_default(dtype, np.float64)
    return _make_tensor("zeros", device, lambda xp: xp.zeros(sizes, wanted), requires_grad)


@_with_one_shape
def ones(shape: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones.

    >>> import pullback as pb
    >>> pb.ones(2)
    tensor([1., 1.], dtype=float64)
    """
    sizes, wanted = _check_sizes(shape, "ones"), _dtype_or_default(dtype, np.float64)
    return _make_tensor("ones", device, lambda xp: xp.ones(sizes, wanted), requires_grad)


@_with_one_shape
def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor to be overwritten. It holds zeros: values on a tape are never undefined.

    >>> import pullback as pb
    >>> pb.empty((2, 0)).shape
    (2, 0)
    """
    return zeros(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one number.

    >>> import pullback as pb
    >>> pb.full(2, 7)
    tensor([7, 7], dtype=int64)
    """
    sizes, wanted = _check_sizes(shape, "full"), _dtype_or_default(dtype)
    try:
        return _make_tensor("full", device, lambda xp: xp.full(sizes, fill_value, wanted))
    except GraphError:  # a graph's value with unknown sizes
        number = namespace_on(normalize_device(device, "full")).asarray(fill_value, wanted)
        made: Tensor = recorder_of(sizes).full_array(number, sizes)
        return made


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from start (0) up to, not including, stop.

    >>> import pullback as pb
    >>> pb.arange(3)
    tensor([0, 1, 2], dtype=int64)
    """
    start, stop = (0, start) if stop is None else (start, stop)
    if isinstance(step, (int, float)) and not step:
        raise ArgumentError("arange: step must not be zero.")
    return _make_tensor("arange", device, lambda xp: xp.arange(start, stop, step, dtype=_dtype_or_default(dtype)))


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """Evenly spaced numbers from start to stop.

    >>> import pullback as pb
    >>> pb.linspace(0, 1, 3)
    tensor([0. , 0.5, 1. ], dtype=float64)
    """
    count, wanted = as_integer(num, "linspace: num"), _dtype_or_default(dtype)
    return _make_tensor("linspace", device, lambda xp: xp.linspace(start, stop, count, dtype=wanted, endpoint=endpoint))


def eye(rows: int, columns: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import pullback as pb
    >>> pb.eye(2)
    tensor([[1., 0.],
            [0., 1.]], dtype=float64)
    """
    sizes, wanted = (
        _check_sizes((rows, rows if columns is None else columns), "eye"),
        _dtype_or_default(dtype, np.float64),
    )
    return _make_tensor("eye", device, lambda xp: xp.eye(*sizes, k=as_integer(k, "eye: k"), dtype=wanted))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A constant tensor of one number in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.full_like(pb.ones(2), 3)
    tensor([3., 3.], dtype=float64)
    """
    spec = spec_of(as_value(x))
    wanted = spec.dtype if dtype is None else dtype
    return full(spec.shape, fill_value, dtype=wanted, device=spec.device if device is None else device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.zeros_like(pb.ones(2))
    tensor([0., 0.], dtype=float64)
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.ones_like(pb.zeros(2))
    tensor([1., 1.], dtype=float64)
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor to be overwritten, in the shape and dtype of x. It holds zeros.

    >>> import pullback as pb
    >>> pb.empty_like(pb.ones(2)).shape
    (2,)
    """
    return full_like(x, 0, dtype=dtype, device=device)
