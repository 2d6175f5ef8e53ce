"""How rows are shared by threads: parts of a warp, warps or blocks."""

from __future__ import annotations

from dataclasses import dataclass

from .grid import Grid, count_blocks

ROWS, ALONG = range(2)
#: So many threads keep a GPU busy: only with more work, a thread takes several vectors of a row, at most so many.
BUSY_THREADS = 1 << 16
MAX_ITEMS = 8
#: The threads of a block of warps.
WARPS_BLOCK = 128
MAX_THREADS = 1024
#: Multiprocessors, about: so many blocks should have work.
PROCESSORS = 132


@dataclass(frozen=True, slots=True)
class RowShape:
    """`threads` have a row, so many `beside` each other in a block; each takes `items` vectors of `width` elements.
    With `slots`, rows are loaded ahead, so many vectors of each thread (see `rows_ahead`).
    """

    threads: int
    beside: int
    width: int
    items: int
    count: int
    length: int
    slots: int = 0

    def element(self, item: int | str) -> str:
        """The first element of a thread's vector."""
        if not item:
            return f"(I)threadIdx.x * {self.width}"
        return f"((I){item} * {self.threads} + threadIdx.x) * {self.width}"

    def guard(self, element: str, item: int | str) -> str:
        """What is true where a vector belongs to the row; empty if all do. Only the last ones of threads may not."""
        whole = self.length // (self.threads * self.width)
        if self.items * self.threads * self.width == self.length:
            return ""
        inside = f"{element} < {self.length}"
        return f"({item} < {whole} || {inside})" if whole and isinstance(item, str) else inside


def choose_shape(grid: Grid, summing: bool) -> RowShape:
    """How rows are shared by threads: they take several vectors of a row only where there are enough of them.

    Where rows are also summed, blocks are larger, for they have fewer parts of sums.
    """
    along = grid.groups_on(ALONG)
    count, length = grid.size_of(grid.groups_on(ROWS)), grid.size_of(along)
    width = grid.vector_width(along[-1]) if along else 1
    vectors = count_blocks(length, width)
    items = max(1, min(MAX_ITEMS, count * vectors // BUSY_THREADS))
    wanted = max(min(32, vectors), count_blocks(vectors, items))
    if wanted <= 32:
        threads = 1 << (wanted - 1).bit_length()
        beside = (2 * WARPS_BLOCK if summing else WARPS_BLOCK) // threads
        # few rows are spread over the machine, in whole warps
        while beside > 32 // threads and count < beside * (1 if summing else PROCESSORS):
            beside //= 2
    else:
        # of two blocks, one computes while the other loads
        most = MAX_THREADS // 2 if count >= 2 * PROCESSORS else MAX_THREADS
        threads, beside = min(most, count_blocks(wanted, 32) * 32), 1
    return RowShape(threads, beside, width, count_blocks(vectors, threads), count, length)
