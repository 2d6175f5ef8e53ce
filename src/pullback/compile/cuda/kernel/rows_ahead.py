"""Rows that are loaded ahead: a block has one row in registers, while the next are on their way to shared memory.

A long row fills the registers or the shared memory of a processor, so that no other block could load while this one
computes. Each thread copies the vectors that it will take itself, so that no thread waits for copies of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...loop_ir import KernelLine
from .grid import Grid, count_blocks
from .row_shape import ALONG, PROCESSORS, ROWS, RowShape
from .writer import FunctionWriter, stored_type

#: The threads of a block, and the bytes of registers in which one keeps its part of a row.
THREADS = 1024
KEPT_BYTES = 128
#: Shorter rows are left to several blocks of a processor; and a block should have so many of them.
MIN_ROW_BYTES = 64 << 10
MIN_ROWS = 4
#: Bytes of shared memory for rows under way.
SHARED_BYTES = 220 << 10
#: The bytes of one copy.
COPIED_BYTES = 16


def plan_rows_ahead(shape: RowShape, find_loads: Callable[[], Sequence[KernelLine]]) -> RowShape | None:
    """The shape of blocks that load rows ahead, if that pays: several phases need one load (of `find_loads`)."""
    if shape.threads <= 32 or shape.count < MIN_ROWS * PROCESSORS:
        return None
    load, *others = [*find_loads(), None]
    if load is None or others != [None]:
        return None
    items, row_bytes = count_blocks(shape.length, THREADS * shape.width), shape.length * load.dtype.itemsize
    if shape.width * load.dtype.itemsize != COPIED_BYTES or row_bytes <= MIN_ROW_BYTES:
        return None
    slots = min(2 * items, SHARED_BYTES // (THREADS * COPIED_BYTES))
    fits = items * COPIED_BYTES <= KEPT_BYTES and slots > items
    return RowShape(THREADS, 1, shape.width, items, shape.count, shape.length, slots) if fits else None


class RowsAhead:
    """The text of what loads rows ahead. `name` has the registers of the present row."""

    def __init__(self, writer: FunctionWriter, grid: Grid, shape: RowShape, load: KernelLine, name: str) -> None:
        self.writer, self.grid, self.shape, self.load, self.name = writer, grid, shape, load, name
        self.vector = f"Vec<{stored_type(load)}, {shape.width}>"

    @property
    def shared_bytes(self) -> int:
        return self.shape.slots * self.shape.threads * COPIED_BYTES

    def declare(self, blocks: int) -> list[str]:
        """What copies a vector, and the first copies: as many as there are slots."""
        shape, writer = self.shape, self.writer
        of_row, rows = writer.split_counter(self.grid.groups_on(ROWS), "from")
        along, further = writer.split_counter(self.grid.groups_on(ALONG), "j")
        place = writer.address(self.load, {**rows, **further})
        return [
            "extern __shared__ Vec<double, 2> kept[];",
            f"{self.vector}* const slots = reinterpret_cast<{self.vector}*>(kept) + threadIdx.x;",
            "const auto fetch = [&](const I from, const int item, const int slot) {",
            f"  const I j = {shape.element('item')};",
            f"  if (from < {shape.count} && {shape.guard('j', 'item') or 'true'}) {{",
            *("    " + x for x in (*of_row, *along)),
            f"    copy_async_<{shape.width}, true>(slots[slot * {shape.threads}].v, &{place}, true);",
            "  }",
            "  end_copies_();",
            "};",
            "#pragma unroll",
            f"for (int n = 0; n < {shape.slots}; ++n)",
            f"  fetch((I)blockIdx.x + n / {shape.items} * {blocks}, n % {shape.items}, n);",
            "int taken = 0;",
        ]

    def take(self) -> list[str]:
        """The row whose copies are the oldest goes to registers."""
        shape = self.shape
        return [
            f"{self.vector} {self.name}[{shape.items}];",
            f"await_copies_<{shape.slots - shape.items}>();",
            "#pragma unroll",
            f"for (int item = 0; item < {shape.items}; ++item) {{",
            f"  const I j = {shape.element('item')};",
            f"  const int slot = {self._slot('item')};",
            f"  if ({shape.guard('j', 'item') or 'true'}) {self.name}[item] = slots[slot * {shape.threads}];",
            "}",
        ]

    def refill(self, blocks: int) -> list[str]:
        """Copies to the slots that were taken, of rows after those that are under way; threads are past a barrier."""
        shape, number = self.shape, f"(n + {self.shape.slots})"
        return [
            "#pragma unroll",
            f"for (int n = 0; n < {shape.items}; ++n)",
            f"  fetch(row + {number} / {shape.items} * {blocks}, {number} % {shape.items}, {self._slot('n')});",
            f"taken = {self._slot(str(shape.items))};",
        ]

    def _slot(self, number: str) -> str:
        return f"taken + {number} < {self.shape.slots} ? taken + {number} : taken + {number} - {self.shape.slots}"
