"""Scatter-add of the eager path: values are sorted by their places and added in that order, so bits never change.

The sorted values are cut into parts, each with a thread for each column. What a place has in one part is added there;
what goes on beyond a part is left to a second launch, by the thread of the part in which it began.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from .runtime import link
from .runtime.driver import find_driver
from .words import c_type

#: Sorted values of a thread.
_PART = 32
_THREADS = 256

#: A key is a place, and the number of a value that is added there: all differ, so that there is one order.
_TEXT = """
#define PART 32
typedef INDEX I;
typedef NUMBER T;
extern "C" __global__ void make_keys(const I* index, long long* keys, long long n, long long size) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long place = (long long)index[i] % size;
  keys[i] = (place < 0 ? place + size : place) * n + i;
}
#define OPEN \\
  const long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x, parts = (n + PART - 1) / PART; \\
  if (t >= parts * before * after) return; \\
  const long long a = t % after, part = t / after % parts, b = t / after / parts; \\
  const long long begin = part * PART, end = begin + PART < n ? begin + PART : n;
extern "C" __global__ void add_parts(const long long* keys, const T* x, T* out, T* heads, T* tails, long long n,
                                     long long size, long long before, long long after) {
  OPEN
  long long key = keys[begin], place = key / n;
  bool is_rest = begin && keys[begin - 1] / n == place;
  T total = 0;
  for (long long s = begin; s < end; ++s) {
    total += x[(b * n + key % n) * after + a];
    const long long next = s + 1 < n ? keys[s + 1] : -1, place_of_next = next < 0 ? -1 : next / n;
    if (place_of_next != place || s + 1 == end) {
      if (is_rest) heads[t] = total;
      else if (place_of_next == place) tails[t] = total;
      else out[(b * size + place) * after + a] = total;
      is_rest = false, total = 0;
    }
    key = next, place = place_of_next;
  }
}
extern "C" __global__ void add_rest(const long long* keys, const T* heads, const T* tails, T* out, long long n,
                                    long long size, long long before, long long after) {
  OPEN
  const long long place = keys[end - 1] / n;
  if (end == n || keys[end] / n != place || (begin && keys[begin - 1] / n == place)) return;
  T total = tails[t];
  for (long long at = end, u = t + after; at < n && keys[at] / n == place; at += PART, u += after) total += heads[u];
  out[(b * size + place) * after + a] = total;
}
"""


class _Places(NamedTuple):
    """Where values go: to which of `size` places along axes that are indexed, before and after which others lie."""

    index: Any
    size: int
    before: int
    after: int


def add_into_zeros(xp: Any, wanted: tuple[int, ...], values: Any, index: tuple[Any, ...]) -> Any:
    """Zeros of a shape with float values added at an index of integers, slices, Nones and integer arrays; None where
    that is left to CuPy.
    """
    if link.why_unavailable() or values.dtype.name not in ("float32", "float64"):
        return None
    with sys.modules["cupy"].cuda.Device(values.data.device_id):
        return _add_in_order(xp, wanted, values, index)


def _add_in_order(xp: Any, wanted: tuple[int, ...], values: Any, index: tuple[Any, ...]) -> Any:
    out = xp.zeros(wanted, values.dtype)
    if not out.size or not values.size:
        return out
    values, at = values.ravel(), _find_places(xp, wanted, index)
    count, columns = at.index.size, at.before * at.after
    driver: Any = find_driver(values.data.device_id)
    functions = _load(driver, at.index.dtype.name, values.dtype.name)
    stream = xp.cuda.get_current_stream().ptr
    keys, work = xp.empty(count, "int64"), -(-count // _PART) * columns
    heads, tails = xp.empty(work, values.dtype), xp.empty(work, values.dtype)

    def launch(name: str, threads: int, *given: Any) -> None:
        parameters = [x if type(x) is int else x.data.ptr for x in given]
        driver.launch(functions[name], (-(-threads // _THREADS), 1, 1), (_THREADS, 1, 1), 0, parameters, stream)

    launch("make_keys", count, at.index, keys, count, at.size)
    keys = xp.sort(keys)
    sizes = count, at.size, at.before, at.after
    launch("add_parts", work, keys, values, out, heads, tails, *sizes)
    launch("add_rest", work, keys, heads, tails, out, *sizes)
    return out


def _find_places(xp: Any, wanted: tuple[int, ...], index: tuple[Any, ...]) -> _Places:
    given = [*index, *[slice(None)] * (len(wanted) - sum(e is not None for e in index))]
    axes = [i for i, entry in enumerate(given) if not isinstance(entry, slice) and entry is not None]
    are_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    if not are_adjacent or any(entry != slice(None) for i, entry in enumerate(given) if i not in axes):
        # the number of the element that each value goes to
        numbers = xp.arange(math.prod(wanted)).reshape(wanted)[tuple(index)]
        return _Places(numbers.ravel(), math.prod(wanted), 1, 1)
    sizes = [wanted[i] for i in axes]
    around = math.prod(wanted[: axes[0]]), math.prod(wanted[axes[-1] + 1 :])
    if len(axes) == 1:
        return _Places(xp.asarray(given[axes[0]]).ravel(), sizes[0], *around)
    total: Any = 0
    for axis, size in zip(axes, sizes, strict=True):
        total = total * size + xp.remainder(xp.asarray(given[axis], "int64"), size)
    return _Places(total.ravel(), math.prod(sizes), *around)


@functools.cache
def _load(driver: Any, index: str, number: str) -> dict[str, Any]:
    """The kernels for a dtype of indices and one of values."""
    types = {"INDEX": c_type(np.dtype(index)), "NUMBER": c_type(np.dtype(number))}
    text = functools.reduce(lambda text, each: text.replace(*each), types.items(), _TEXT)
    module, _ = driver.load_module(text, False)
    return {name: driver.find_function(module, name, 0) for name in ("make_keys", "add_parts", "add_rest")}
