"""One matrix product of bare arrays: by NumPy on the CPU, by the vendor's library on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..lazy import lazy_function

_multiply_on_gpu = lazy_function("cuda.products.eager", "multiply_matrices", "compile")


def multiply_matrices(xp: Any, x: Any, y: Any) -> Any:
    """x @ y. Many matrices times one matrix are a single product over all rows, which is faster."""
    found = None if xp is np else multiply_on_gpu(x, y)
    if found is not None:
        return found
    if y.ndim == 2 < x.ndim and x.flags.c_contiguous and x.size:
        return xp.matmul(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[-1])
    return xp.matmul(x, y)


def multiply_on_gpu(x: Any, y: Any) -> Any:
    """The same for arrays on a GPU, of any dtype that its library multiplies; None for others."""
    if y.ndim == 2 < x.ndim and x.flags.c_contiguous and x.size:
        found = _multiply_on_gpu(x.reshape(-1, x.shape[-1]), y)
        return None if found is None else found.reshape(*x.shape[:-1], y.shape[-1])
    return _multiply_on_gpu(x, y)
