"""Rows of a long loop in windows: a graph has fixed addresses, so each chunk of rounds has its rows in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...loop_ir import Buffer, Layout, Loop, Steps
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
    def nbytes(self) -> int:
        return self.by * self.buffer.dtype.itemsize


def find_rows(loop: Loop, program: Steps) -> list[Row]:
    """The arrays that advance, inputs first."""
    taken = [Row(*x, False) for x in zip(program.inputs, loop.inputs, loop.moves, strict=True)]
    made = [Row(*x, True) for x in zip(program.new_outputs, loop.outputs, loop.shifts, strict=True)]
    return [row for row in (*taken, *made) if row.by]


@dataclass(frozen=True, slots=True)
class RowCopy:
    """So many bytes, from and to addresses that advance from chunk to chunk."""

    source: int
    source_step: int
    target: int
    target_step: int
    nbytes: int

    def turned(self) -> RowCopy:
        return replace(
            self, source=self.target, source_step=self.target_step, target=self.source, target_step=self.source_step
        )


def copy_rows(row: Row, window: int, loop: Loop, rounds: int, at: Addresses) -> RowCopy:
    """The rows of a chunk of so many rounds to its window; the last ones first, if the loop goes backwards."""
    step = rounds * row.nbytes
    if not loop.reverse:
        return RowCopy(at.start_of(row.layout), step, window, 0, step)
    return RowCopy(at.start_of(row.layout, (loop.rounds - rounds) * row.by), -step, window, 0, step)


def add_copy(driver: Driver, copy: RowCopy, counter: int, stream: int) -> None:
    """A copy of the rows of the chunk whose number is at an address."""
    blocks = max(1, min(_MAX_BLOCKS, -(-copy.nbytes // (_THREADS * _BYTES))))
    given = (copy.source, copy.source_step, copy.target, copy.target_step, copy.nbytes, counter)
    pointers = [x % (1 << 64) for x in given]
    driver.launch(driver.find_setter("copy_rows"), (blocks, 1, 1), (_THREADS, 1, 1), 0, pointers, stream)
