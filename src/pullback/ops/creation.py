"""Shapes and numbers in, new tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..errors import ArgumentError
from .axes import shape_tuple

__all__ = ["arange", "empty", "eye", "full", "full_like", "linspace", "ones", "ones_like", "zeros", "zeros_like"]


def _made(array: Any, requires_grad: bool = False) -> Tensor:
    made = wrap(array, spec_of(array))
    return made.requires_grad_() if requires_grad else made


def _sizes(shape: Any, what: str) -> tuple[int, ...]:
    sizes = shape_tuple(shape, what)
    if any(n < 0 for n in sizes):
        raise ArgumentError(f"{what}: shape {sizes} must not hold a negative number.")
    return sizes


def zeros(shape: Any, *, dtype: Any = np.float64, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros.

    >>> import pullback as pb
    >>> pb.zeros(2)
    tensor([0., 0.], dtype=float64)
    """
    return _made(np.zeros(_sizes(shape, "zeros"), dtype), requires_grad)


def ones(shape: Any, *, dtype: Any = np.float64, requires_grad: bool = False) -> Tensor:
    """A tensor of ones.

    >>> import pullback as pb
    >>> pb.ones(2)
    tensor([1., 1.], dtype=float64)
    """
    return _made(np.ones(_sizes(shape, "ones"), dtype), requires_grad)


def empty(shape: Any, *, dtype: Any = np.float64) -> Tensor:
    """A tensor to be written to. It holds zeros: values on a tape are never undefined.

    >>> import pullback as pb
    >>> pb.empty((2, 0)).shape
    (2, 0)
    """
    return zeros(shape, dtype=dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of one number.

    >>> import pullback as pb
    >>> pb.full(2, 7)
    tensor([7, 7], dtype=int64)
    """
    return _made(np.full(_sizes(shape, "full"), fill_value, dtype))


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """Numbers from start (0) up to, not including, stop.

    >>> import pullback as pb
    >>> pb.arange(3)
    tensor([0, 1, 2], dtype=int64)
    """
    start, stop = (0, start) if stop is None else (start, stop)
    return _made(np.arange(start, stop, step, dtype=dtype))


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, endpoint: bool = True) -> Tensor:
    """Evenly spaced numbers from start to stop.

    >>> import pullback as pb
    >>> pb.linspace(0, 1, 3)
    tensor([0. , 0.5, 1. ], dtype=float64)
    """
    return _made(np.linspace(start, stop, num, dtype=dtype, endpoint=endpoint))


def eye(rows: int, columns: int | None = None, /, *, k: int = 0, dtype: Any = np.float64) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import pullback as pb
    >>> pb.eye(2)
    tensor([[1., 0.],
            [0., 1.]], dtype=float64)
    """
    return _made(np.eye(rows, columns, k=k, dtype=dtype))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A constant tensor of one number in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.full_like(pb.ones(2), 3)
    tensor([3., 3.], dtype=float64)
    """
    spec = spec_of(x)
    return full(spec.shape, fill_value, dtype=dtype or spec.dtype)


def zeros_like(x: Any, /, *, dtype: Any = None) -> Tensor:
    """Zeros in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.zeros_like(pb.ones(2))
    tensor([0., 0.], dtype=float64)
    """
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Any, /, *, dtype: Any = None) -> Tensor:
    """Ones in the shape and dtype of x.

    >>> import pullback as pb
    >>> pb.ones_like(pb.zeros(2))
    tensor([1., 1.], dtype=float64)
    """
    return full_like(x, 1, dtype=dtype)
