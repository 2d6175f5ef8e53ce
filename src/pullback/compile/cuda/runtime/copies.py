"""Copies on a GPU, one kernel each: an array with gaps or in another order made contiguous, and arrays joined along an
axis. CuPy's take several times as long to call.

Elements are moved as words of their size, whatever their dtype. Sizes are parameters: a kernel serves all shapes of as
many axes, or of as many parts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from ....arrays.backends import is_device_array
from ....arrays.spec import Spec
from ....ops.plans import new_table
from ...target import UnlinkableCodeError
from .eager_launch import KernelLaunch, make_launch

#: A word of each size that kernels move.
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
#: The most axes of a copy, parts that are joined, and elements: kernels count in 32 bits.
_MAX_AXES, _MAX_PARTS, _MAX_SIZE = 6, 8, 1 << 31
_MAX_COPIES = 1 << 12
_LOG = logging.getLogger("pullback")
#: Copies that were made before, by what determines them.
_copies: Any = new_table()

_WALK = """
  const unsigned step = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {"""


def copy_contiguous(x: Any) -> Any:
    """A contiguous copy of an array of a GPU, on its device."""
    key = x.shape, x.strides, x.dtype, x.data.device_id
    try:
        launch = _copies[key]
    except KeyError:
        if len(_copies) >= _MAX_COPIES:
            _copies.clear()
        launch = _copies[key] = _make_copy(x) if is_device_array(x) else None
    return x.copy(order="C") if launch is None else launch.compute(x)


def bind_concat(specs: Sequence[Spec], axis: int) -> Callable[..., Any] | None:
    """Arrays of these specs joined along an axis; None if it is left to CuPy."""
    first, size = specs[0], sum(s.size for s in specs)
    if not 1 < len(specs) <= _MAX_PARTS or any((s.dtype, s.device) != (first.dtype, first.device) for s in specs):
        return None
    if not all(s.size for s in specs) or not _can_move(first.dtype, size):
        return None
    inner = math.prod(first.shape[axis + 1 :])
    ends = [sum(s.shape[axis] for s in specs[: i + 1]) * inner for i in range(len(specs))]
    shape = (*first.shape[:axis], sum(s.shape[axis] for s in specs), *first.shape[axis + 1 :])
    device = int(first.device.partition(":")[2])
    text = _render_concat(len(specs), first.dtype.itemsize)
    launch = _link(text, device, (size, *ends), len(specs), shape, first, copy_contiguous)
    return None if launch is None else launch.compute


def _can_move(dtype: Any, size: int) -> bool:
    return dtype.itemsize in _WORDS and 0 < size < _MAX_SIZE


def _make_copy(x: Any) -> KernelLaunch | None:
    if not _can_move(x.dtype, x.size):
        return None
    axes = _merge_axes(x.shape, [s // x.dtype.itemsize for s in x.strides])
    if len(axes) > _MAX_AXES or any(s % x.dtype.itemsize for s in x.strides):
        return None
    numbers = (x.size, *(n for n, _ in axes), *(s for _, s in axes))
    return _link(_render_copy(len(axes), x.dtype.itemsize), x.data.device_id, numbers, 1, x.shape, x)


def _merge_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Sizes and strides, where axes that one walk over memory passes are one; the last axis first."""
    found: list[tuple[int, int]] = []
    for n, stride in reversed([*zip(shape, strides, strict=True)]):
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0] * n, found[-1][1])
        elif n > 1:
            found.append((n, stride))
    return found or [(1, 1)]


def _link(
    text: str,
    device: int,
    numbers: Sequence[int],
    inputs: int,
    shape: tuple[int, ...],
    like: Any,
    lay_out: Callable[[Any], Any] | None = None,
) -> KernelLaunch | None:
    try:
        return make_launch(text, "move", device, numbers, inputs, [(shape, like.dtype)], lay_out=lay_out)
    except UnlinkableCodeError as error:
        _LOG.warning("copies cannot be compiled, CuPy makes them: %s", error)
        return None


def _render_copy(rank: int, itemsize: int) -> str:
    """Each thread finds where its elements lie, from the last axis on."""
    sizes = ", ".join([*(f"unsigned n{i}" for i in range(rank)), *(f"long long s{i}" for i in range(rank))])
    lines = [f"at += (long long)(rest % n{i}) * s{i}, rest /= n{i};" for i in range(rank - 1)]
    body = "\n    ".join(
        ["unsigned rest = i;", "long long at = 0;", *lines, f"out[i] = x[at + (long long)rest * s{rank - 1}];"]
    )
    return _render_kernel(itemsize, f"const T* x, T* out, unsigned n, {sizes}", body)


def _render_concat(parts: int, itemsize: int) -> str:
    """Each row of the result is a row of each part, one after the other; `end` is where a part ends."""
    given = ", ".join([*(f"const T* a{i}" for i in range(parts)), "T* out", "unsigned n"])
    ends = ", ".join(f"unsigned end{i}" for i in range(parts))
    found = f"a{parts - 1}[row * (end{parts - 1} - end{parts - 2}) + at - end{parts - 2}]"
    for i in reversed(range(1, parts - 1)):
        found = f"at < end{i} ? a{i}[row * (end{i} - end{i - 1}) + at - end{i - 1}] : {found}"
    found = f"at < end0 ? a0[row * end0 + at] : {found}"
    body = f"const unsigned row = i / end{parts - 1}, at = i % end{parts - 1};\n    out[i] = {found};"
    return _render_kernel(itemsize, f"{given}, {ends}", body)


def _render_kernel(itemsize: int, parameters: str, body: str) -> str:
    return (
        f'typedef {_WORDS[itemsize]} T;\nextern "C" __global__ void __launch_bounds__(256) move({parameters}) {{'
        f"{_WALK}\n    {body}\n  }}\n}}\n"
    )
