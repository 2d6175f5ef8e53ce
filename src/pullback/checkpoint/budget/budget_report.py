"""The report of a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arrays.call_site import format_line
from ...arrays.html_text import html_block, html_table
from ...arrays.memory_ledger import Block
from ...arrays.text import format_bytes


@dataclass(frozen=True, slots=True)
class PinnedMemory:
    """Memory that cannot be evicted: its bytes, its shape, the line that made or first used it."""

    nbytes: int
    what: str
    line: str

    @staticmethod
    def from_block(block: Block) -> PinnedMemory:
        array: Any = None if block.reference is None else block.reference()
        what = "freed" if array is None else f"{array.dtype}{list(array.shape)}"
        line = "in the backward pass" if block.about is None else format_line(*block.about)
        return PinnedMemory(block.nbytes, what, line)

    def __str__(self) -> str:
        return f"{format_bytes(self.nbytes):>10}  {self.what}  {self.line}"


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """What a budget did. Bytes count arrays seen in ops, each piece of memory once; `seconds` were spent on
    recomputation.
    """

    limit: int
    live: int
    peak: int
    evictions: int
    evicted: int
    recomputations: int
    seconds: float
    pinned: tuple[PinnedMemory, ...]

    def __str__(self) -> str:
        return (
            f"budget {format_bytes(self.limit)}: peak {format_bytes(self.peak)}, now {format_bytes(self.live)}; "
            f"evicted {self.evictions} values ({format_bytes(self.evicted)}), "
            f"recomputed {self.recomputations} in {self.seconds:.3f} s"
        )

    def _repr_html_(self) -> str:
        rows = [(format_bytes(p.nbytes), p.what, p.line) for p in self.pinned]
        table = html_table(("not evictable", "value", "line"), rows, numbers=(0,)) if rows else ""
        return html_block(str(self), table)
