"""What a budget is and did in, sentences out; and sizes as people write them, both ways."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..arrays.ledger import Block
from ..arrays.node import show_line
from ..errors import ArgumentError

__all__ = ["BudgetReport", "Pinned", "bytes_of", "mebibytes"]


def mebibytes(nbytes: float) -> str:
    """Bytes as people read them.

    >>> mebibytes(3 << 20), mebibytes(1500)
    ('3.0 MiB', '1.5 KiB')
    """
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):.1f} MiB"
    return f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes:.0f} B"


def bytes_of(limit: int | str) -> int:
    """A limit as people write it, in bytes.

    >>> bytes_of("2 KiB"), bytes_of("1.5 GB")
    (2048, 1500000000)
    """
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(limit))
    if isinstance(limit, bool) or found is None or found[2].upper() not in units or float(found[1]) <= 0:
        raise ArgumentError(f'memory_budget: wants a number of bytes or a text like "512 MiB", got {limit!r}.')
    return int(float(found[1]) * units[found[2].upper()])


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
