"""Where the patches of a grid lie: tables of offsets for windows and taps, and the frame of zeros around a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ops.window.patches import Pairs, Sizes
from ...loop_ir import row_major_strides

Table = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Frame:
    """A block of `images` (channels, *sizes) with room around it: negative widths crop. If nothing is added the block
    is read where it is, unless a copy is wanted. With a `step`, every so many elements of a row lie side by side.
    """

    images: int
    channels: int
    sizes: Sizes
    around: Pairs
    step: int = 1
    wants_copy: bool = False

    @property
    def is_copied(self) -> bool:
        return self.wants_copy or self.step > 1 or any(width > 0 for pair in self.around for width in pair)

    @property
    def outer_sizes(self) -> Sizes:
        if not self.is_copied:
            return self.sizes
        total = [n + low + high for n, (low, high) in zip(self.sizes, self.around, strict=True)]
        return (*total[:-1], self._part * self.step)

    @property
    def _part(self) -> int:
        """Elements of a row that lie side by side, where a row has a step."""
        return -(-(self.sizes[-1] + sum(self.around[-1])) // self.step)

    def split(self, coordinates: Table) -> Table:
        """Coordinates along a row, in the order of a row with a step."""
        return coordinates % self.step * self._part + coordinates // self.step

    @property
    def plane(self) -> int:
        """Elements from one channel to the next."""
        return math.prod(self.outer_sizes)

    @property
    def size(self) -> int:
        """Elements of a copy."""
        return self.images * self.channels * self.plane if self.is_copied else 0

    def distances(self, leading: Sequence[tuple[int, int]], along: Sequence[Table]) -> Table:
        """A table of distances: (count, step) for leading axes, then coordinates along each axis of the frame."""
        axes = [np.arange(n) * step for n, step in leading]
        axes += [table * s for table, s in zip(along, row_major_strides(self.outer_sizes), strict=True)]
        total = np.zeros(1, np.int64)
        for axis in axes:
            total = (total[:, None] + axis).ravel()
        return total

    def places(self, leading: Sequence[tuple[int, int]], along: Sequence[Table]) -> Table:
        """The same from where a block is read: without a copy, the frame's first element may lie inside the grid."""
        strides = row_major_strides(self.outer_sizes)
        inside = 0 if self.is_copied else -sum(low * s for (low, _), s in zip(self.around, strides, strict=True))
        return self.distances(leading, along) + inside

    def copy_fields(self) -> tuple[dict[str, int], Table]:
        """The fields of a job that say how a block is copied, and the table of the pieces of a row."""
        rank, inner, outer = len(self.sizes), row_major_strides(self.sizes), row_major_strides(self.outer_sizes)
        starts = [max(-low, 0) for low, _ in self.around]
        counts = [
            n - start - max(-high, 0) for n, start, (_, high) in zip(self.sizes, starts, self.around, strict=True)
        ]
        there = sum(max(low, 0) * s for (low, _), s in zip(self.around[:-1], outer, strict=False))
        here = sum(start * s for start, s in zip(starts[:-1], inner, strict=False))
        pieces = self._row_pieces(starts[-1], counts[-1])
        fields = {"is_framed": int(self.is_copied), "piece_count": len(pieces), "piece_step": self.step}
        fields |= {"n0": self.images * self.channels, "t0": self.plane, "f0": math.prod(self.sizes)}
        for i in range(2):
            axis = rank - 3 + i
            missing = axis < 0
            fields[f"n{i + 1}"] = 1 if missing else counts[axis]
            fields[f"t{i + 1}"] = 0 if missing else outer[axis]
            fields[f"f{i + 1}"] = 0 if missing else inner[axis]
        return fields, np.array([(there + to, here + begin, n) for to, begin, n in pieces], np.int64)

    def _row_pieces(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """For each part of a row: where it starts in the frame and in the grid, and its length."""
        low, pieces = self.around[-1][0], []
        for i in range(min(self.step, count)):
            at = start + i + low
            pieces.append((at % self.step * self._part + at // self.step, start + i, -(-(count - i) // self.step)))
        return pieces


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Windows over a grid (images, channels, *sizes) in groups of channels: `many` of them along each axis, `strides`
    apart, from the start of what lies `around`; each sees its `taps`, given by coordinates along each axis. Of each
    window and group come `columns` numbers.
    """

    dtype: np.dtype[Any]
    images: int
    channels: int
    groups: int
    sizes: Sizes
    around: Pairs
    many: Sizes
    strides: Sizes
    taps: tuple[Table, ...]
    columns: int

    @property
    def group_channels(self) -> int:
        return self.channels // self.groups

    @property
    def count(self) -> int:
        """Windows of an image."""
        return math.prod(self.many)

    @property
    def depth(self) -> int:
        """Numbers that a window sees in one group."""
        return self.group_channels * math.prod(map(len, self.taps))

    @property
    def multiplications(self) -> int:
        return self.images * self.count * self.depth * self.columns * self.groups

    @property
    def image_size(self) -> int:
        return self.channels * math.prod(self.sizes)

    def window_places(self, frame: Frame) -> Table:
        axes = [np.arange(n) * s for n, s in zip(self.many, self.strides, strict=True)]
        return frame.places([(frame.images, frame.channels * frame.plane)], axes)

    def tap_distances(self, frame: Frame) -> Table:
        return frame.distances([(self.group_channels, frame.plane)], self.taps)


def pad_table(table: Table, multiple: int, more: int = 0) -> Table:
    """A table with its last entry repeated up to a multiple of a length, and some times more."""
    length = -(-len(table) // multiple) * multiple + more
    return np.concatenate([table, np.full(length - len(table), table[-1])])
