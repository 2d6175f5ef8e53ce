"""Loops on carries that the package makes itself, and writes to their buffers."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..arrays.backends import is_device_array
from ..arrays.spec import make_spec, spec_of, zeros
from ..arrays.trees import flatten
from ..ops import basis
from ..ops.index.indexing import set_at
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.staging import is_staging


def is_bare(x: Any) -> bool:
    """Whether x is an array that no transform has a part in, of NumPy or CuPy."""
    return type(x) is np.ndarray or isinstance(x, np.generic) or is_device_array(x)


#: Whether rows may be written in place: not where `while_loop` runs a batch, since a mask keeps what was there before.
_may_write: ContextVar[bool] = ContextVar("_may_write", default=True)


def run_loop(is_active: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
    """`while_loop` for carries that are made here. On bare arrays it is Python's own, and `store` writes in place."""
    if is_staging() or not all(map(is_bare, flatten(carry)[0])):
        token = _may_write.set(False)
        try:
            return while_loop(is_active, body, carry)
        finally:
            _may_write.reset(token)
    while is_active(carry):
        carry = body(carry)
    return carry


def store(buffer: Any, i: Any, value: Any) -> Any:
    """The buffer with one row replaced: in place where the buffer is a bare array, which `run_loop` made."""
    is_same = isinstance(value, (np.ndarray, np.generic)) if type(buffer) is np.ndarray else (
        is_device_array(buffer) and is_device_array(value)
    )  # fmt: skip
    if is_same and _may_write.get() and not is_staging():
        buffer[int(i)] = value
        return buffer
    return set_at(buffer, i, value)


def make_rows(count: int, first: Any) -> Any:
    """Room for so many rows like one: zeros on bare arrays, else that one again and again, which is no constant that a
    compiled program would hold besides.
    """
    spec = spec_of(first)
    if is_bare(first) and not is_staging():
        return zeros(make_spec((count, *spec.shape), spec.dtype, spec.device))
    return basis.broadcast_to(first, (count, *spec.shape))


def len_of(times: Any) -> int:
    """How many times there are."""
    return int(spec_of(times).shape[0])
