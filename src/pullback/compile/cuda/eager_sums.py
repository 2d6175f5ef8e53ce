"""Sums over neighbouring axes on a GPU, one kernel each, for the eager path: CuPy's take several times as long to call.

The order of additions follows from the shape alone, so a sum has the same bits whenever it is made; half types are
added up in float32. Sizes are parameters, so that two kernels a dtype serve all shapes; large arrays are left to CuPy,
which is as fast there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array
from ...arrays.spec import Spec, make_spec
from ...ops.plans import new_table
from ..target import UnlinkableCodeError
from ..vocabulary import HALF_DTYPES, is_half, value_dtype
from .preamble import HALVES
from .runtime import link
from .runtime.copies import copy_contiguous
from .runtime.eager_launch import make_launch
from .words import c_type

_DTYPES = frozenset(("float32", "float64", *HALF_DTYPES))
#: The most elements of an array that is summed here, and of what one block sums.
_MAX_SIZE, _MAX_ROWS, _MAX_ROW = 1 << 22, 1 << 13, 1 << 16
#: Columns, and rows beside each other, of a block that sums columns; threads of one that sums a row.
_COLUMNS, _LANES, _THREADS = 32, 32, 256
_MAX_SUMS = 1 << 12
_LOG = logging.getLogger("pullback")
#: Sums that were made before, by specs and axes.
_sums: Any = new_table()

_COLUMN_SUMS = """
extern "C" __global__ void __launch_bounds__(1024) sums(const T* x, T* out, unsigned rows, unsigned columns) {
  __shared__ A parts[32][32];
  const unsigned lane = threadIdx.x / 32, lanes = blockDim.x / 32, place = threadIdx.x % 32;
  const unsigned column = blockIdx.x * 32 + place;
  const T* from = x + (unsigned long long)blockIdx.y * rows * columns;
  A total = 0;
  if (column < columns) {
    for (unsigned row = lane; row < rows; row += lanes) total += from[(unsigned long long)row * columns + column];
  }
  parts[lane][place] = total;
  __syncthreads();
  for (unsigned half = lanes / 2; half; half /= 2) {
    if (lane < half) parts[lane][place] += parts[lane + half][place];
    __syncthreads();
  }
  if (lane == 0 && column < columns) out[(unsigned long long)blockIdx.y * columns + column] = parts[0][place];
}
"""
_ROW_SUMS = """
extern "C" __global__ void __launch_bounds__(256) sums(const T* x, T* out, unsigned size) {
  __shared__ A parts[256];
  const T* from = x + (unsigned long long)blockIdx.x * size;
  A total = 0;
  for (unsigned i = threadIdx.x; i < size; i += 256) total += from[i];
  parts[threadIdx.x] = total;
  __syncthreads();
  for (unsigned half = 128; half; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}
"""


def bind_sum(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Callable[[Any], Any] | None:
    """The sum of arrays of a spec over some axes; None if it is left to CuPy."""
    key = x, axis, keepdims
    if key not in _sums:
        if len(_sums) >= _MAX_SUMS:
            _sums.clear()
        _sums[key] = _make_launch(x, axis, keepdims)
    return _sums[key]  # type: ignore[no-any-return]


def sum_array(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The same for one array; None where it is left to CuPy."""
    if not is_device_array(x):
        return None
    add_up = bind_sum(make_spec(x.shape, x.dtype, f"cuda:{x.data.device_id}"), axis, keepdims)
    return None if add_up is None else add_up(x)


def _make_launch(x: Spec, axis: tuple[int, ...], keepdims: bool) -> Callable[[Any], Any] | None:
    if x.dtype.name not in _DTYPES or not x.size or x.size > _MAX_SIZE or not axis or link.why_unavailable():
        return None
    first, last = min(axis), max(axis) + 1
    if last - first != len(axis):
        return None
    outer, rows, columns = (math.prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:]))
    if rows > (_MAX_ROW if columns == 1 else _MAX_ROWS) or outer > np.iinfo(np.uint16).max:
        return None
    middle = (1,) * len(axis) if keepdims else ()
    result = (*x.shape[:first], *middle, *x.shape[last:]), x.dtype
    sizes: tuple[int, ...] = (rows,) if columns == 1 else (rows, columns)
    if columns == 1:
        text, grid = _ROW_SUMS, (outer, 1, 1, _THREADS, 1, 1, 0)
    else:
        lanes = min(_LANES, 1 << (rows - 1).bit_length())
        text, grid = _COLUMN_SUMS, (-(-columns // _COLUMNS), outer, 1, _COLUMNS * lanes, 1, 1, 0)
    device = int(x.device.partition(":")[2])
    try:
        launch = make_launch(_types_text(x.dtype) + text, "sums", device, sizes, 1, [result], grid, copy_contiguous)
    except UnlinkableCodeError as error:
        _LOG.warning("sums of eager ops cannot be compiled, CuPy runs them: %s", error)
        return None
    return launch.compute


def _types_text(dtype: np.dtype[Any]) -> str:
    """The type of elements, and that of sums, which are rounded to it once."""
    head = HALVES if is_half(dtype) else ""
    return f"{head}typedef {c_type(dtype)} T;\ntypedef {c_type(value_dtype(dtype))} A;"
