"""Matrix products by cuBLASLt, called through ctypes so that a stream's capture may record them.

The library thinks in columns: of a result that lies by rows, the transposed product is asked for. A matrix must lie by
rows or by columns with neighbours adjacent (`matrix_order`); products of others are left to tiles.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...loop_ir import Layout, Product, product_operands
from ...vocabulary import FLOAT8_DTYPES, HALF_DTYPES

#: Bytes that an algorithm may work in; one piece of memory serves all products of a stream, one after the other.
WORKSPACE_BYTES = 32 << 20
#: How many algorithms the library proposes.
CANDIDATES = 8
_ALGORITHM_BYTES = 64
#: A batch of several axes is done by at most so many calls.
_MAX_CALLS = 32

_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29}
_COMPUTE_FLOAT32, _COMPUTE_FLOAT64, _COMPUTE_TF32 = 68, 70, 77
_TRANSPOSE_A, _TRANSPOSE_B = 3, 4
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE, _REDUCTIONS, _ALIGNMENT_OF_A = 1, 3, 5
#: Where K is split, parts go through the workspace and are added in a fixed order, in the computation's precision.
_REDUCE_IN_COMPUTE_TYPE = 2


class LibraryError(RuntimeError):
    """cuBLASLt refused a call."""


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, slots=True)
class MatrixOrder:
    """How a matrix lies in memory: by rows or by columns, and the elements from one to the next."""

    by_rows: bool
    leading: int


def matrix_order(matrix: Layout) -> MatrixOrder | None:
    """The order of a matrix (batch, rows, columns) if the library can take it; an axis of one element may have any
    stride.
    """
    (batch, rows, columns), (step, by_row, by_column) = matrix.shape, matrix.strides
    if batch > 1 and step < 0:
        return None
    if (columns == 1 or by_column == 1) and (rows == 1 or by_row >= columns):
        return MatrixOrder(True, by_row if rows > 1 else columns)
    if (rows == 1 or by_row == 1) and (columns == 1 or by_column >= rows):
        return MatrixOrder(False, by_column if columns > 1 else rows)
    return None


def _order_of(matrix: Layout) -> MatrixOrder:
    order = matrix_order(matrix)
    assert order is not None, "the library cannot take these strides"
    return order


def split_batch(product: Product) -> list[Product]:
    """Products that the library can do, one after the other: of several axes of the batch it takes the longest. None
    if it cannot, or it would take too many calls.
    """
    batch = product.out.shape[:-2]
    longest = max(range(len(batch)), key=lambda axis: batch[axis])
    others = [axis for axis in range(len(batch)) if axis != longest]
    if math.prod(batch[axis] for axis in others) > _MAX_CALLS:
        return []
    kept = [longest, len(batch), len(batch) + 1]
    found = []
    for point in itertools.product(*(range(batch[axis]) for axis in others)):
        out, left, right = (
            Layout(
                x.buffer,
                tuple(x.shape[i] for i in kept),
                tuple(x.strides[i] for i in kept),
                x.offset + sum(x.strides[axis] * i for axis, i in zip(others, point, strict=True)),
            )
            for x in (product.out, *product_operands(product))
        )
        found.append(replace(product, out=out, left=left, right=right))
    return found if all(map(_can_take, found)) else []


def _can_take(product: Product) -> bool:
    out, left, right = (m.buffer.dtype.name for m in (product.out, product.left, product.right))
    matrices = (product.out, product.left, product.right)
    if left in FLOAT8_DTYPES:
        return out == "float32" and all(m.size and matrix_order(m) is not None for m in matrices)
    return (
        left == right
        and left in _DATA_TYPES
        # sums of half types may be kept in the precision they have
        and (out == left or (out == "float32" and left in HALF_DTYPES))
        and all(m.size and matrix_order(m) is not None for m in matrices)
        and (product.out.shape[0] == 1 or product.out.strides[0] > 0)
    )


def can_take(product: Product) -> bool:
    """Whether the library can do a product."""
    return product.axes is None and bool(split_batch(product))


@functools.cache
def _library() -> tuple[Any, ctypes.c_void_p]:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    # a product is only put in a queue, which is over sooner than the GIL could be taken again
    library = ctypes.PyDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    handle = ctypes.c_void_p()
    _check(library.cublasLtCreate(ctypes.byref(handle)))
    return library, handle


def library_version() -> int:
    return int(_library()[0].cublasLtGetVersion())


def _check(status: int) -> None:
    if status:
        raise LibraryError(f"cuBLASLt returned status {status}")


def _set(setter: Any, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
    _check(setter(target, attribute, ctypes.byref(value), ctypes.sizeof(value)))


class LibraryPlan:
    """A product prepared for any addresses of its buffers that are aligned to `alignments` bytes (of the result, the
    left and the right matrix); `algorithm`: the number of the library's proposal to use, its best guess first. It does
    not change, so threads may share it.
    """

    def __init__(
        self, product: Product, tf32: bool = False, alignments: Sequence[int] = (16, 16, 16), algorithm: int = 0
    ) -> None:
        dtype = product.left.buffer.dtype.name
        scalar = ctypes.c_double if dtype == "float64" else ctypes.c_float
        self._alpha, self._beta = scalar(product.alpha), scalar(product.beta)
        # in columns, out = left right; in rows, what is by columns there is out^T = right^T left^T
        self._swaps = _order_of(product.out).by_rows
        left, right = product_operands(product)
        first, second = (right, left) if self._swaps else (left, right)
        transposes = [_order_of(m).by_rows != self._swaps for m in (first, second)]
        self._description = _describe(dtype, tf32, transposes)
        self._layouts = tuple(_make_layout(m) for m in (first, second, product.out))
        of_out, of_left, of_right = alignments
        sides = (of_right, of_left) if self._swaps else (of_left, of_right)
        found = self._propose((*sides, of_out, of_out))
        # another version of the library may propose fewer than were tried
        self._algorithm = (ctypes.c_char * _ALGORITHM_BYTES).from_buffer_copy(found[min(algorithm, len(found) - 1)])
        self._call = _library()[0].cublasLtMatmul
        self._of_thread = threading.local()

    def _propose(self, alignments: Sequence[int]) -> list[bytes]:
        """Algorithms, the library's best guess first. All of them return the same bits on every run."""
        library, handle = _library()
        preference, count = ctypes.c_void_p(), ctypes.c_int()
        _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        setter = library.cublasLtMatmulPreferenceSetAttribute
        _set(setter, preference, _MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        _set(setter, preference, _REDUCTIONS, ctypes.c_uint32(_REDUCE_IN_COMPUTE_TYPE))
        for i, alignment in enumerate(alignments):
            _set(setter, preference, _ALIGNMENT_OF_A + i, ctypes.c_uint32(alignment))
        found = (_Heuristic * CANDIDATES)()
        a, b, d = self._layouts
        status = library.cublasLtMatmulAlgoGetHeuristic(
            handle, self._description, a, b, d, d, preference, CANDIDATES, ctypes.byref(found), ctypes.byref(count)
        )
        library.cublasLtMatmulPreferenceDestroy(preference)
        usable = [bytes(found[i].algorithm) for i in range(count.value) if found[i].state == 0]
        if status or not usable:
            raise LibraryError(f"cuBLASLt has no algorithm for this product (status {status})")
        return usable

    def launch(self, out: int, left: int, right: int, workspace: int, stream: int) -> None:
        """Run on a stream: addresses of the matrices' first elements, and of `WORKSPACE_BYTES` that nothing else on
        other streams uses meanwhile.
        """
        try:
            arguments, places = self._of_thread.arguments
        except AttributeError:
            arguments, places = self._of_thread.arguments = self._make_arguments()
        at_first, at_second, at_out, at_workspace, on = places
        at_first.value, at_second.value = (right, left) if self._swaps else (left, right)
        at_out.value, at_workspace.value, on.value = out, workspace, stream
        if status := self._call(*arguments):
            _check(status)

    def _make_arguments(self) -> tuple[tuple[Any, ...], list[ctypes.c_void_p]]:
        """The arguments of a call, of which a thread changes some: ctypes converts objects of its own most quickly."""
        a, b, d = self._layouts
        first, second, out, workspace, stream = places = [ctypes.c_void_p() for _ in range(5)]
        arguments = (
            _library()[1], self._description, ctypes.byref(self._alpha), first, a, second, b, ctypes.byref(self._beta),
            out, d, out, d, ctypes.byref(self._algorithm), workspace, ctypes.c_size_t(WORKSPACE_BYTES), stream,
        )  # fmt: skip
        return arguments, places

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        library, _ = _library()
        for layout in getattr(self, "_layouts", ()):
            library.cublasLtMatrixLayoutDestroy(layout)
        if hasattr(self, "_description"):
            library.cublasLtMatmulDescDestroy(self._description)


def _describe(dtype: str, tf32: bool, transposes: Sequence[bool]) -> ctypes.c_void_p:
    library, _ = _library()
    compute = _COMPUTE_FLOAT64 if dtype == "float64" else _COMPUTE_FLOAT32
    if tf32 and dtype == "float32":
        compute = _COMPUTE_TF32
    scale = _DATA_TYPES["float64" if dtype == "float64" else "float32"]
    description = ctypes.c_void_p()
    _check(library.cublasLtMatmulDescCreate(ctypes.byref(description), compute, scale))
    for attribute, transpose in zip((_TRANSPOSE_A, _TRANSPOSE_B), transposes, strict=True):
        _set(library.cublasLtMatmulDescSetAttribute, description, attribute, ctypes.c_int32(transpose))
    return description


def _make_layout(matrix: Layout) -> ctypes.c_void_p:
    """A matrix as the library sees it: what lies by rows is a transposed matrix by columns."""
    library, _ = _library()
    order = _order_of(matrix)
    batch, rows, columns = matrix.shape
    sizes = (columns, rows) if order.by_rows else (rows, columns)
    layout = ctypes.c_void_p()
    _check(
        library.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout),
            _DATA_TYPES[matrix.buffer.dtype.name],
            *map(ctypes.c_uint64, sizes),
            ctypes.c_int64(order.leading),
        )
    )
    if batch > 1:
        setter = library.cublasLtMatrixLayoutSetAttribute
        _set(setter, layout, _BATCH_COUNT, ctypes.c_int32(batch))
        _set(setter, layout, _BATCH_STRIDE, ctypes.c_int64(matrix.strides[0]))
    return layout
