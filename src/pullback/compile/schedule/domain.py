"""Kernel in, its loop nest out: axes merged under one counter, which of them are the row, and the number of lanes."""

from __future__ import annotations

import math

from ..loop_ir import Kernel, KernelLine, Store
from ..target import Limits
from ..varying import Varying


class Domain:
    """The axes of a kernel in groups, with a size each; the groups from `rows` on are the row."""

    def __init__(self, kernel: Kernel, limits: Limits) -> None:
        self.kernel = kernel
        self.groups, self.in_row = _collapse_axes(kernel)
        self.sizes = [math.prod(kernel.extents[a] for a in g) for g in self.groups]
        self.group_of = {a: i for i, g in enumerate(self.groups) for a in g}
        self.rows = len(self.groups) - self.in_row
        #: Whether the first half of the lanes are even places of the row and the other half odd ones.
        self.is_paired = self._can_pair_lanes(limits)
        self.max_unroll = limits.max_unroll // (2 if self.is_paired else 1)
        self.lanes = self._choose_lanes(limits.vector_bytes)
        #: The group along which the domain is divided into blocks; -1 for none.
        self.divided_group = self.group_of[kernel.division.axis] if kernel.division is not None else -1

    def varies_along_row(self, line: KernelLine) -> bool:
        """Whether a line differs along a row. A fold's value does not."""
        return any(self.group_of.get(a, -1) >= self.rows for a in line.axes)

    def strides(self, strides: tuple[int, ...]) -> list[int]:
        """Strides along the groups."""
        return [strides[g[-1]] for g in self.groups]

    @property
    def length(self) -> int:
        """The number of elements along which vectors run."""
        return self.sizes[-1] if self.in_row else 1

    def block_multiple(self, group: int) -> int:
        """Blocks along a group start at multiples of this: along vectors, an unrolled iteration is not cut."""
        return self.max_unroll * self.lanes if self.in_row and group == len(self.sizes) - 1 else 1

    @property
    def row(self) -> int:
        """The elements of a row."""
        return math.prod(self.sizes[self.rows :]) if self.in_row else 1

    def _choose_lanes(self, vector_bytes: int) -> int:
        """The cheapest number of lanes, but no more than a row can use."""
        if any(map(self._may_repeat_places, self.kernel.stores)):
            return 1  # the elements of a row are stored one by one
        weights = self._weights_by_itemsize()
        sizes = {2} if self.is_paired else {n for n in weights if n >= 4} or {max(weights, default=8)}
        lanes = min((vector_bytes // n for n in sizes), key=lambda m: (_cost_per_element(weights, m, vector_bytes), m))
        # where the length varies, a mask covers short rows; lanes that are never used leave folds as they are
        while lanes > 1 and lanes // 2 >= self.length and not isinstance(self.length, Varying):
            lanes //= 2
        return lanes

    def _can_pair_lanes(self, limits: Limits) -> bool:
        """Whether all that is accessed along the row is contiguous bfloat16: two neighbors are one word of memory, the
        one its upper half and the other a shift away, and no instruction has to move lanes. A costly function has the
        lanes that it wants.
        """
        lines = [line for line in self.kernel.live_lines() if self.varies_along_row(line) or line.kind == "fold"]
        moving: list[KernelLine | Store] = [line for line in lines if line.buffer is not None]
        moving += [s for s in self.kernel.stores if self.in_row and (s.args or self.strides(s.strides)[-1])]
        return (
            bool(moving)
            and limits.vector_bytes >= 32
            and all(self._is_row_of_bfloat16(x) for x in moving)
            and all(line.weight < limits.costly_weight and _is_single(line) for line in lines)
        )

    def _is_row_of_bfloat16(self, x: KernelLine | Store) -> bool:
        word = x.word if isinstance(x, Store) else ""
        in_order = not x.args and not word and self.strides(x.strides)[-1] == 1
        return in_order and x.buffer is not None and x.buffer.dtype.name == "bfloat16"

    def _may_repeat_places(self, store: Store) -> bool:
        """Whether elements along a row may be stored at one place: their indices differ, or nothing of their places."""
        moves = self.in_row and bool(self.strides(store.strides)[-1])
        return bool(store.args) and (not moves or any(map(self.varies_along_row, store.args)))

    def _weights_by_itemsize(self) -> dict[int, int]:
        """The weight of what is computed along the row, by the bytes of its dtype."""
        weights: dict[int, int] = {}
        for line in self.kernel.live_lines():
            # scalars of the row are computed once, and cost no lanes
            along = self.varies_along_row(line) or line.kind == "fold"
            for dtype in {line.dtype, line.compute_dtype or line.dtype}:
                if along and dtype.kind != "b":
                    weights[dtype.itemsize] = weights.get(dtype.itemsize, 0) + line.weight
        for store in self.kernel.stores:
            weights[store.buffer.dtype.itemsize] = weights.get(store.buffer.dtype.itemsize, 0) + 1
        return weights


def _is_single(line: KernelLine) -> bool:
    """Whether a line has and computes numbers of four bytes, or booleans."""
    return all(d.itemsize in (1, 4) for d in (line.dtype, line.compute_dtype or line.dtype))


def _cost_per_element(weights: dict[int, int], lanes: int, vector_bytes: int) -> float:
    """The cost of one element: a value wider than a vector takes several."""
    return sum(w * max(1, lanes * n // vector_bytes) for n, w in weights.items()) / lanes


def _collapse_axes(kernel: Kernel) -> tuple[list[list[int]], int]:
    """The axes of the domain in groups that one counter can cover, and how many groups belong to the row."""
    rank, inner = len(kernel.extents), kernel.inner
    accesses = [line.strides for line in kernel.live_lines() if line.buffer is not None] + [
        s.strides for s in kernel.stores
    ]
    groups: list[list[int]] = []
    in_row = 0
    for axis in range(rank):
        if kernel.extents[axis] == 1:
            continue
        inside = axis >= rank - inner
        previous = groups[-1][-1] if groups else -1
        # one counter covers two axes of the row, or two outside of it, if every access has one stride over both
        joins = bool(groups) and inside == (previous >= rank - inner)
        n = kernel.extents[axis]
        if joins and all(strides[previous] == strides[axis] * n for strides in accesses):
            groups[-1].append(axis)
        else:
            groups.append([axis])
            in_row += inside
    if not inner:
        in_row = min(1, len(groups))
    return groups, in_row
