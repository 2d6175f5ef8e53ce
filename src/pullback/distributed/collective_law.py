"""`Law`: the seconds of a collective as a function of the number of ranks and of bytes, fitted to measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ..arrays.argument_checks import check_count, check_number
from ..arrays.text import format_bytes, format_seconds, text_table


@final
@dataclass(frozen=True, slots=True)
class Measurement:
    """The time of a collective on some ranks: the least of its repeats, and their median. `bytes` are those of the
    result: of `all_gather`, what all ranks bring.

    >>> import pullback as pb
    >>> pb.distributed.Measurement(ranks=2, bytes=1 << 20, seconds=29e-6).operation
    'total'
    """

    ranks: int
    bytes: int
    seconds: float
    median: float = 0.0
    operation: str = "total"
    level: str = "node"

    def __post_init__(self) -> None:
        check_count(self.ranks, "Measurement: ranks", 1)
        check_count(self.bytes, "Measurement: bytes", 0)
        check_number("Measurement: seconds", self.seconds, above=0.0)
        check_number("Measurement: median", self.median, least=0.0)


@final
@dataclass(frozen=True, slots=True)
class Law:
    """The seconds of a collective on n ranks, as a function of its bytes, for one level and operation:

        a + b (n - 1) + bytes (c (n - 1) / n + d log2 n)

    Each rank waits for n - 1 others, and gets (n - 1) / n of an array from them; log2 n stands for the depth of a tree,
    and for memory and links that more ranks crowd. Caches make the first bytes cheaper than the last: c and d have a
    value for each range of sizes, which begins at one of `edges`, and bytes count with those of the range they lie in.
    """

    level: str
    operation: str
    a: float
    b: float
    c: tuple[float, ...]
    d: tuple[float, ...]
    edges: tuple[int, ...]
    ranks: tuple[int, ...]
    largest: int
    #: How far the law is from what it was fitted to: |law / measured - 1|.
    median_error: float = 0.0
    worst_error: float = 0.0

    @property
    def accuracy(self) -> str:
        """How well the law fits, in words. Two numbers of ranks determine as many constants as it has."""
        if len(self.ranks) < 3:
            return "fewer than three numbers of ranks do not test the law"
        return f"the law is off by {self.median_error:.0%} there (median), {self.worst_error:.0%} (worst)"

    def latency(self, ranks: int) -> float:
        """The seconds of a collective without bytes."""
        return self.a + self.b * (ranks - 1) if ranks > 1 else 0.0

    def seconds_per_byte(self, ranks: int, size: float = math.inf) -> float:
        """What one more byte costs at some size; that of the largest by default."""
        at = sum(edge < size for edge in self.edges) - 1
        return self.c[at] * (ranks - 1) / ranks + self.d[at] * math.log2(ranks)

    def seconds(self, ranks: int, size: float) -> float:
        """The seconds of a collective of some bytes; none on one rank."""
        if ranks == 1:
            return 0.0
        row = _terms(ranks, size, self.edges)
        return float(np.dot(row, (self.a, self.b, *self.c, *self.d)))


def fit_law(measurements: Sequence[Measurement]) -> Law:
    """The law of one level and operation whose relative errors have the least squares, with constants of zero or more.
    From a single number of ranks nothing is known of others: then all waiting counts as b, and all bytes as c.
    """
    from scipy.optimize import nnls

    edges = _edges(measurements)
    seconds = np.array([m.seconds for m in measurements])
    rows = np.array([_terms(m.ranks, m.bytes, edges) for m in measurements]) / seconds[:, None]
    ranks = tuple(sorted({m.ranks for m in measurements}))
    if len(ranks) == 1:
        rows[:, 0] = 0.0
        rows[:, 2 + len(edges) :] = 0.0
    scales = np.maximum(np.abs(rows).max(axis=0), 1e-300)  # seconds and seconds per byte are far apart
    found = nnls(rows / scales, np.ones(len(rows)), maxiter=1000 * rows.shape[1])[0] / scales
    errors = np.abs(rows @ found - 1.0)
    a, b, *slopes = map(float, found)
    return Law(
        measurements[0].level,
        measurements[0].operation,
        a,
        b,
        tuple(slopes[: len(edges)]),
        tuple(slopes[len(edges) :]),
        edges,
        ranks,
        max(m.bytes for m in measurements),
        float(np.median(errors)),
        float(errors.max()),
    )


def _edges(measurements: Sequence[Measurement]) -> tuple[int, ...]:
    """Where ranges of sizes begin: at each power of two that all numbers of ranks were measured near, but the first
    and the last. So there are as many constants as two numbers of ranks determine.
    """
    powers: dict[int, set[int]] = {}
    for m in measurements:
        powers.setdefault(m.ranks, set()).add(round(math.log2(max(m.bytes, 1))))
    common = sorted(set.intersection(*powers.values()))
    return (0, *(2**k for k in common[1:-1]))


def _terms(ranks: int, size: float, edges: Sequence[int]) -> list[float]:
    """What the constants of a law are multiplied by: a, b, each c, each d."""
    ends = [*edges[1:], math.inf]
    within = [max(min(size, end) - start, 0.0) for start, end in zip(edges, ends, strict=True)]
    return [
        1.0,
        ranks - 1.0,
        *(x * (ranks - 1) / ranks for x in within),
        *(x * math.log2(ranks) for x in within),
    ]


def describe_law(law: Law) -> str:
    """The constants of a law, and what it makes of the ranks that were measured."""
    counts = ", ".join(map(str, law.ranks))
    head = (
        f"{law.level}, {law.operation}: measured on {counts} ranks up to {format_bytes(law.largest)}; {law.accuracy}\n"
        f"  a {_time(law.a)}, b {_time(law.b)} a rank"
    )
    rows = [("range from", "c per MiB", "d per MiB", *(f"{n} ranks" for n in law.ranks))]
    for edge, c, d in zip(law.edges, law.c, law.d, strict=True):
        speeds = [law.seconds_per_byte(n, edge + 1) for n in law.ranks]
        rates = [f"{1e-9 / s:.3g} GB/s" if s else "free" for s in speeds]
        rows.append((format_bytes(edge), _time(c * 2**20), _time(d * 2**20), *rates))
    rows.append(("0 bytes", "", "", *(_time(law.latency(n)) for n in law.ranks)))
    return head + "\n  " + text_table(rows, right=range(1, len(rows[0]))).replace("\n", "\n  ")


def _time(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "0"
