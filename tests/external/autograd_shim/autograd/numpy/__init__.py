"""NumPy itself, since tensors answer its functions by protocol; what has no protocol is made here."""

import builtins
from typing import Any

import numpy as _np

import pullback as pb
from pullback.arrays.value import Value

from . import fft, linalg, random
from .lists import holds_tensor, stacked, taking_lists

globals().update({name: getattr(_np, name) for name in _np.__all__ if name not in ("fft", "linalg", "random")})
append, mean, std, var = map(taking_lists, (_np.append, _np.mean, _np.std, _np.var))
__all__ = [*_np.__all__, "fft", "linalg", "make_diagonal", "random"]  # noqa: PLE0604


def array(object: Any, dtype: Any = None, *, ndmin: int = 0, **options: Any) -> Any:
    """`np.array`, which has no protocol: lists of tensors are stacked."""
    if not holds_tensor(object):
        return _np.array(object, dtype, ndmin=ndmin, **options)
    made = stacked(object)
    made = made.reshape((1,) * max(ndmin - made.ndim, 0) + tuple(made.shape))
    return made if dtype is None else made.astype(dtype)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """`np.where`; autograd answers a condition that is one bool by the alternative itself."""
    if x is None and y is None:
        return _np.where(condition)
    if isinstance(condition, builtins.bool) and not isinstance(x, _np.ndarray) and not holds_tensor([x, y]):
        return x if condition else y
    return _np.where(condition, x, y)


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The last axis as the diagonal of matrices."""
    return pb.diag_embed(pb.asarray(D) if isinstance(D, Value) else D, offset, axis1, axis2)


class int64(_np.int64):
    """NumPy's type, whose call rounds a tensor to integers."""

    def __new__(cls, x: Any) -> Any:
        return x.astype(_np.int64) if isinstance(x, Value) else _np.int64(x)


class _Joined:
    """`np.r_` and `np.c_` of arrays and slices."""

    def __init__(self, plain: Any, lift: Any, axis: int) -> None:
        self.plain, self.lift, self.axis = plain, lift, axis

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, builtins.tuple) else (key,)
        if not holds_tensor(list(parts)):
            return self.plain[key]
        arrays = [self.lift(_np.r_[part] if isinstance(part, slice) else part) for part in parts]
        return _np.concatenate(arrays, axis=self.axis)


r_ = _Joined(_np.r_, _np.atleast_1d, 0)
c_ = _Joined(_np.c_, lambda x: x if x.ndim > 1 else x[:, None], -1)
