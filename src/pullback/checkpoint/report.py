"""What a budget did in, sentences out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arrays.ledger import Block
from ..arrays.node import show_line

__all__ = ["BudgetReport", "Pinned", "mebibytes"]


def mebibytes(nbytes: float) -> str:
    """Bytes as people read them.

    >>> mebibytes(3 << 20), mebibytes(1500)
    ('3.0 MiB', '1.5 KiB')
    """
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):.1f} MiB"
    return f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes:.0f} B"


@dataclass(frozen=True, slots=True)
class Pinned:
    """Memory that cannot be taken away: its bytes, its shape, the line that made or first used it."""

    nbytes: int
    what: str
    line: str

    @staticmethod
    def of(block: Block) -> Pinned:
        array: Any = None if block.reference is None else block.reference()
        what = "freed" if array is None else f"{array.dtype}{list(array.shape)}"
        return Pinned(block.nbytes, what, "on the way back" if block.about is None else show_line(*block.about))

    def __str__(self) -> str:
        return f"{mebibytes(self.nbytes):>10}  {self.what}  {self.line}"


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """What a budget did. Bytes count arrays that were seen in ops, each piece of memory once; `seconds` were spent
    on computing again.
    """

    limit: int
    live: int
    peak: int
    evictions: int
    evicted: int
    recomputations: int
    seconds: float
    pinned: tuple[Pinned, ...]

    def __str__(self) -> str:
        return (
            f"budget {mebibytes(self.limit)}: peak {mebibytes(self.peak)}, now {mebibytes(self.live)}; "
            f"took away {self.evictions} values ({mebibytes(self.evicted)}), "
            f"computed {self.recomputations} again in {self.seconds:.3f} s"
        )
