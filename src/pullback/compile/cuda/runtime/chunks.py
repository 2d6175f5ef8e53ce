"""Rows of a long loop in windows: a graph has fixed addresses, so each chunk of rounds has its rows in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...loop_ir import Buffer, Layout, Loop, Steps
from ..launch_plan import window_stride
from .addresses import Addresses
from .driver import Driver

_THREADS, _MAX_BLOCKS, _BYTES = 256, 1024, 16


@dataclass(frozen=True, slots=True)
class Row:
    """An array of a loop's program that is another row in each round, and whether the program makes it."""

    buffer: Buffer
    layout: Layout
    by: int
    is_made: bool

    @property
    def stride(self) -> int:
        """The bytes from the row of a round to that of the next."""
        return self.by * self.buffer.dtype.itemsize


def find_rows(loop: Loop, program: Steps) -> list[Row]:
    """The arrays that advance, inputs first."""
    taken = [Row(*x, False) for x in zip(program.inputs, loop.inputs, loop.moves, strict=True)]
    made = [Row(*x, True) for x in zip(program.new_outputs, loop.outputs, loop.shifts, strict=True)]
    return [row for row in (*taken, *made) if row.by]


class Rows(NamedTuple):
    """Where rows are: the address of the first, the bytes to the next, and to the first of the next chunk."""

    start: int
    stride: int
    step: int


class RowCopy(NamedTuple):
    """So many rows of some bytes."""

    source: Rows
    target: Rows
    rows: int
    nbytes: int


def copy_rows(row: Row, window: int, loop: Loop, rounds: int, at: Addresses) -> RowCopy:
    """The rows of a chunk of so many rounds, to its window or from it; the last ones first in a loop that goes back."""
    step = rounds * row.stride
    first = (loop.rounds - rounds) * row.by if loop.reverse else 0
    outside = Rows(at.start_of(row.layout, first), row.stride, -step if loop.reverse else step)
    inside = Rows(window, window_stride(row.buffer), 0)
    return RowCopy(*((inside, outside) if row.is_made else (outside, inside)), rounds, row.buffer.nbytes)


def add_copy(driver: Driver, copy: RowCopy, counter: int, stream: int) -> None:
    """A copy of the rows of the chunk whose number is at an address."""
    count, nbytes = copy.rows, copy.nbytes
    if copy.source.stride == copy.target.stride == nbytes:
        count, nbytes = 1, count * nbytes
    blocks = max(1, min(_MAX_BLOCKS, -(-count * nbytes // (_THREADS * _BYTES))))
    pointers = [x % (1 << 64) for x in (*copy.source, *copy.target, count, nbytes, counter)]
    driver.launch(driver.find_setter("copy_rows"), (blocks, 1, 1), (_THREADS, 1, 1), 0, pointers, stream)
