"""Steps in, checks of index arguments out, to be made before any donated argument is overwritten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loop_ir import Kernel, KernelLine, Step


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Elements of an input (its number, and their layout in it; all of it if `shape` is None) that index an axis of a
    size.
    """

    number: int
    size: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...]
    offset: int

    def is_satisfied(self, array: Any) -> bool:
        """Whether all of them are in range, in a contiguous array of the input's spec."""
        if self.shape is not None:
            steps = tuple(s * array.itemsize for s in self.strides)
            array = np.lib.stride_tricks.as_strided(array.reshape(-1)[self.offset :], self.shape, steps)
        return bool(array.min() >= -self.size and array.max() < self.size)


def find_index_checks(steps: Sequence[Step]) -> list[IndexCheck]:
    """The checks that can be made on the inputs alone; none for nested programs, whose arguments may be computed."""
    found: dict[IndexCheck, None] = {}
    for kernel in steps:
        if not isinstance(kernel, Kernel):
            continue
        pointers: list[Any] = [*(line for line in kernel.live_lines() if line.kind == "gather"), *kernel.stores]
        for pointer in pointers:
            for index, (_, size) in zip(pointer.args, pointer.places, strict=True):
                check = _check_on_input(index, kernel, size)
                if check is not None:
                    found[check] = None
    return list(found)


def _check_on_input(index: KernelLine, kernel: Kernel, size: int) -> IndexCheck | None:
    # a cast to a wider integer keeps the index
    while index.kind == "cast" and index.dtype.kind in "iu" and index.args[0].dtype.itemsize <= index.dtype.itemsize:
        index = index.args[0]
    buffer = index.buffer
    if index.kind != "load" or buffer is None or buffer.kind != "input" or buffer.dtype.kind not in "iu":
        return None
    # axes along which the index does not move would only repeat it
    walked = [(n, s) for n, s in zip(kernel.extents, index.strides, strict=True) if s]
    shape, strides = tuple(n for n, _ in walked), tuple(s for _, s in walked)
    if math.prod(shape) == buffer.size and not index.offset:
        return IndexCheck(buffer.number, size, None, (), 0)
    return IndexCheck(buffer.number, size, shape, strides, index.offset)
