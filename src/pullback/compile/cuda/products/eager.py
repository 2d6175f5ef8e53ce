"""Matrix products of the eager path: the library's first proposal for the matrices as they lie, planned once."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....arrays.spec import Spec
from ....settings import get_matmul_precision
from ...loop_ir import Buffer, Layout, Product, contiguous_layout
from ..launch_plan import LibraryProduct
from ..runtime import driver, link
from ..runtime.recycling import ResultArrays
from .library import LibraryError, can_take

#: A product at addresses that came so often becomes a graph, of which one product has so many.
_REPEATS_BEFORE_GRAPH, _MAX_GRAPHS, _MAX_REPEATS = 2, 64, 256


class EagerProduct:
    """A product of matrices that lie as others did."""

    def __init__(self, machine: driver.Driver, shape: tuple[int, ...], dtype: Any, launch: Callable[..., None]) -> None:
        cupy = sys.modules["cupy"]
        self._machine, self._launch, self._dtype = machine, launch, dtype
        self._take = ResultArrays(cupy, shape, dtype, math.prod(shape) * dtype.itemsize).take
        self._current_stream = cupy.cuda.get_current_stream
        self._graphs: dict[tuple[int, ...], int] = {}
        self._repeats: dict[tuple[int, ...], int] = {}
        weakref.finalize(self, _destroy, machine, self._graphs).atexit = False

    def with_shape(self, shape: tuple[int, ...]) -> EagerProduct:
        """The same product with a result of another shape."""
        return EagerProduct(self._machine, shape, self._dtype, self._launch)

    def run(self, left: int, right: int) -> Any:
        """The product of matrices at these addresses."""
        machine, stream = self._machine, self._current_stream().ptr
        out, address = self._take(stream)
        # calls that share a workspace stay together on their stream
        with machine.lock_of(stream):
            key = address, left, right, stream
            graph = self._graphs.get(key)
            if graph is None:
                places = address, left, right, machine.workspace_of(stream)
                self._launch(*places, stream)
                self._record_if_steady(key, places)
            else:
                machine.launch_graph(graph, stream)
        return out

    def _record_if_steady(self, key: tuple[int, ...], places: tuple[int, ...]) -> None:
        """A graph is launched in a fraction of the time that the library takes: it pays where addresses come again."""
        count = self._repeats[key] = self._repeats.get(key, 0) + 1
        if count > _REPEATS_BEFORE_GRAPH and len(self._graphs) < _MAX_GRAPHS:
            self._graphs[key] = self._machine.capture(lambda stream: self._launch(*places, stream))
        elif len(self._repeats) > _MAX_REPEATS:
            self._repeats.clear()


def _destroy(machine: driver.Driver, graphs: dict[tuple[int, ...], int]) -> None:
    for graph in graphs.values():
        machine.destroy_graph(graph)


#: Plans by what determines them; None where the library cannot take the matrices.
_plans: dict[Any, EagerProduct | None] = {}
_MAX_PLANS = 1 << 12


def multiply_matrices(x: Any, y: Any) -> Any:
    """x @ y for arrays on one GPU of one dtype; None where it is left to CuPy.

    The algorithm follows from the matrices alone, so a product has the same bits whenever it is made.
    """
    plan = _find_plan(x, y)
    if plan is None or sys.modules["cupy"].cuda.runtime.getDevice() != x.data.device_id:
        return None
    return plan.run(x.data.ptr, y.data.ptr)


def bind_product(
    specs: Sequence[Spec], views: Sequence[Callable[[Any], Any] | None] = (None, None)
) -> Callable[[Any, Any], Any] | None:
    """`multiply_matrices` for arrays of these specs on the current device, which looks at them as little as possible;
    it returns None where that does. Many matrices times one are a single product over all rows. With a view, which
    begins where its array does, the array is given instead, which has to be contiguous.
    """
    a, b = specs
    if a.dtype != b.dtype or min(a.ndim, b.ndim) < 2 or not a.size:
        return None
    is_flat = b.ndim == 2 < a.ndim
    rows, shape = (math.prod(a.shape[:-1]), a.shape[-1]), (*a.shape[:-1], b.shape[-1])
    known: dict[Any, EagerProduct | None] = {}
    view_x, view_y = views

    def make(x: Any, y: Any) -> EagerProduct | None:
        if (view_x and not x._c_contiguous) or (view_y and not y._c_contiguous):
            return None
        x, y = view_x(x) if view_x else x, view_y(y) if view_y else y
        flattened = is_flat and x._c_contiguous
        plan = _find_plan(x.reshape(rows) if flattened else x, y)
        return plan.with_shape(shape) if flattened and plan is not None else plan

    def multiply(x: Any, y: Any) -> Any:
        at, beside, lies = x.data.ptr, y.data.ptr, x._c_contiguous
        # contiguous memory has one choice of strides
        if (lies or x._f_contiguous) and (y._c_contiguous or y._f_contiguous):
            key: Any = lies, y._c_contiguous, (at & 15, beside & 15), get_matmul_precision()
        else:
            key = x.strides, y.strides, (at & 15, beside & 15), get_matmul_precision()
        try:
            plan = known[key]
        except KeyError:
            plan = known[key] = make(x, y)
        return None if plan is None else plan.run(at, beside)

    return multiply


def _find_plan(x: Any, y: Any) -> EagerProduct | None:
    left, right = x.data, y.data
    key = (
        left.device_id, right.device_id, x.shape, x.strides, y.shape, y.strides, x.dtype, y.dtype, left.ptr & 15,
        right.ptr & 15, get_matmul_precision(),
    )  # fmt: skip
    try:
        return _plans[key]
    except KeyError:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = _make_plan(x, y)
        return plan


def _make_plan(x: Any, y: Any) -> EagerProduct | None:
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
        return EagerProduct(machine, shape, x.dtype, machine.make_product(action, alignments))
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
