"""Shapes and numbers in, new tensors out. A device is "cpu" or "cuda:0"; `*_like` takes that of its argument."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import namespace_on
from ..arrays.namespace import checked_device
from ..arrays.size import recorder_of
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..errors import ArgumentError, GraphError
from .axes import shape_tuple

__all__ = [
    "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip


def _made(array: Any, requires_grad: bool = False) -> Tensor:
    made = wrap(array, spec_of(array))
    return made.requires_grad_() if requires_grad else made


def _library(device: Any, what: str) -> Any:
    """The library that makes arrays where they are wanted."""
    return namespace_on(checked_device(device, what))


def _sizes(shape: Any, what: str) -> tuple[int, ...]:
    sizes = shape_tuple(shape, what)
    if any(n < 0 for n in sizes):
        raise ArgumentError(f"{what}: shape {sizes} must not hold a negative number.")
    return sizes


def zeros(shape: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros.

    >>> import pullback as pb
    >>> pb.zeros(2)
    tensor([0., 0.], dtype=float64)
    """
    return _made(_library(device, "zeros").zeros(_sizes(shape, "zeros"), dtype or np.float64), requires_grad)


def ones(shape: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones.

    >>> import pullback as pb
    >>> pb.ones(2)
    tensor([1., 1.], dtype=float64)
    """
    return _made(_library(device, "ones").ones(_sizes(shape, "ones"), dtype or np.float64), requires_grad)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor to be written to. It holds zeros: values on a tape are never undefined.

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
    xp, sizes = _library(device, "full"), _sizes(shape, "full")
    try:
        return _made(xp.full(sizes, fill_value, dtype))
    except GraphError:  # like a value of a graph whose sizes are not known yet
        made: Tensor = recorder_of(sizes).filled(xp.asarray(fill_value, dtype), sizes)
        return made


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from start (0) up to, not including, stop.

    >>> import pullback as pb
    >>> pb.arange(3)
    tensor([0, 1, 2], dtype=int64)
    """
    start, stop = (0, start) if stop is None else (start, stop)
    return _made(_library(device, "arange").arange(start, stop, step, dtype=dtype))


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """Evenly spaced numbers from start to stop.

    >>> import pullback as pb
    >>> pb.linspace(0, 1, 3)
    tensor([0. , 0.5, 1. ], dtype=float64)
    """
    return _made(_library(device, "linspace").linspace(start, stop, num, dtype=dtype, endpoint=endpoint))


def eye(rows: int, columns: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import pullback as pb
    >>> pb.eye(2)
    tensor([[1., 0.],
            [0., 1.]], dtype=float64)
    """
    return _made(_library(device, "eye").eye(rows, columns, k=k, dtype=dtype or np.float64))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A constant tensor of one number in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.full_like(pb.ones(2), 3)
    tensor([3., 3.], dtype=float64)
    """
    spec = spec_of(x)
    return full(spec.shape, fill_value, dtype=dtype or spec.dtype, device=device or spec.device)


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
    """A tensor to be written to, in the shape and dtype of x. It holds zeros.

    >>> import pullback as pb
    >>> pb.empty_like(pb.ones(2)).shape
    (2,)
    """
    return full_like(x, 0, dtype=dtype, device=device)
