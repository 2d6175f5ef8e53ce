"""Matrix products of the eager path: the library's first proposal for the matrices as they lie, planned once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ....settings import get_matmul_precision
from ...loop_ir import Buffer, Layout, Product, contiguous_layout
from ..launch_plan import LibraryProduct
from ..runtime import driver, link
from .library import LibraryError, can_take

#: Plans by what determines them; None where the library cannot take the matrices.
_plans: dict[Any, tuple[Any, tuple[int, ...], Callable[..., None]] | None] = {}
_MAX_PLANS = 1 << 12


def multiply_matrices(x: Any, y: Any) -> Any:
    """x @ y for arrays on one GPU of one dtype; None where it is left to CuPy.

    The algorithm follows from the matrices alone, so a product has the same bits whenever it is made.
    """
    left, right = x.data, y.data
    at, beside = left.ptr, right.ptr
    key = (
        left.device_id, right.device_id, x.shape, x.strides, y.shape, y.strides, x.dtype, y.dtype, at & 15, beside & 15,
        get_matmul_precision(),
    )  # fmt: skip
    try:
        plan = _plans[key]
    except KeyError:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = _make_plan(x, y)
    cupy = sys.modules["cupy"]
    if plan is None or cupy.cuda.runtime.getDevice() != left.device_id:
        return None
    machine, shape, launch = plan
    out, stream = cupy.ndarray(shape, x.dtype), cupy.cuda.get_current_stream().ptr
    # calls that share a workspace stay together on their stream
    with machine.lock_of(stream):
        launch(out.data.ptr, at, beside, machine.workspace_of(stream), stream)
    return out


def _make_plan(x: Any, y: Any) -> tuple[Any, tuple[int, ...], Callable[..., None]] | None:
    if x.dtype != y.dtype or x.data.device_id != y.data.device_id or min(x.ndim, y.ndim) < 2 or link.why_unavailable():
        return None
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-1])
    left, right = _as_matrices(x, batch), _as_matrices(y, batch)
    if 0 in (*shape, x.shape[-1]) or left is None or right is None:
        return None
    count = int(np.prod(batch))
    out = contiguous_layout(Buffer("output", count * shape[-2] * shape[-1], x.dtype), (count, *shape[-2:]))
    product = Product(out, left, right)
    if not can_take(product):
        return None
    machine = driver.find_driver(x.data.device_id)
    alignments = (16, *(_alignment(a.data.ptr) for a in (x, y)))
    try:
        action = LibraryProduct(product, tf32=get_matmul_precision() == "tf32")
        return machine, shape, machine.make_product(action, alignments)
    except LibraryError:
        return None


def _as_matrices(x: Any, batch: tuple[int, ...]) -> Layout | None:
    """An array as (batch, rows, columns), if one stride walks over all axes of the batch."""
    item = x.dtype.itemsize
    own = (1,) * (len(batch) + 2 - x.ndim) + x.shape
    strides = (0,) * (len(batch) + 2 - x.ndim) + tuple(s // item for s in x.strides)
    count, step = 1, 0
    for n, given, s in zip(reversed(batch), reversed(own[:-2]), reversed(strides[:-2]), strict=True):
        if n == 1:
            continue
        stride = s if given == n else 0
        if count > 1 and stride != step * count:
            return None
        step, count = (stride, n) if count == 1 else (step, count * n)
    buffer = Buffer("input", x.size, x.dtype)
    return Layout(buffer, (count, *x.shape[-2:]), (step, *strides[-2:]))


def _alignment(address: int) -> int:
    return (address & -address & 15) or 16
