"""The report of a budget; byte sizes parsed and printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...arrays.memory_ledger import Block
from ...arrays.node import format_line
from ...errors import ArgumentError


def format_bytes(nbytes: float) -> str:
    """Bytes as people read them.

    >>> format_bytes(3 << 20), format_bytes(1500)
    ('3.0 MiB', '1.5 KiB')
    """
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):.1f} MiB"
    return f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes:.0f} B"


def parse_bytes(limit: int | str) -> int:
    """A limit as people write it, in bytes.

    >>> parse_bytes("2 KiB"), parse_bytes("1.5 GB")
    (2048, 1500000000)
    """
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(limit))
    if isinstance(limit, bool) or found is None or found[2].upper() not in units or float(found[1]) <= 0:
        raise ArgumentError(f'memory_budget: wants a number of bytes or a text like "512 MiB", got {limit!r}.')
    return int(float(found[1]) * units[found[2].upper()])


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
