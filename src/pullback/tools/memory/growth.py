"""`assert_no_growth`: an error if memory grows each time a function or block runs."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ...arrays import process_memory
from ...arrays.memory_ledger import owner_of
from ...arrays.node import Node
from ...arrays.tensor import Tensor
from ...arrays.text import format_bytes
from ...errors import ArgumentError
from ...tape.cotangents import arrays_in

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Census:
    """What is alive: nodes of graphs, tensors, arrays that are referenced, their bytes; and the resident set."""

    nodes: int
    tensors: int
    arrays: int
    nbytes: int
    resident: int
    lines: Counter[str]


def take_census() -> Census:
    """Count what is alive now, after the collector has run. Arrays are found in tensors, nodes and containers."""
    gc.collect()
    nodes, tensors = 0, 0
    lines: Counter[str] = Counter()
    owners: dict[int, int] = {}
    for x in gc.get_objects():
        if type(x) is Node:
            nodes += 1
            lines[f"node {x.name} made at {x.where()}"] += 1
        elif type(x) is Tensor:
            tensors += 1
        for held in gc.get_referents(x):
            if issubclass(type(held), np.ndarray):
                owner = owner_of(held)
                owners[id(owner)] = int(owner.nbytes)
            elif type(x) is Tensor:
                owners |= {id(owner_of(a)): int(owner_of(a).nbytes) for a in arrays_in(held)}
    return Census(nodes, tensors, len(owners), sum(owners.values()), process_memory.resident(), lines)


def assert_no_growth(f: Callable[[], Any] | None = None, *, times: int = 3, slack: int = 0) -> NoGrowth | None:
    """Raise AssertionError if nodes, tensors or bytes of arrays are more after than before: for a function, which runs
    once to warm up and then `times` times; without one, around a `with` block or for the function it decorates.
    `slack` bytes are tolerated, and a node and a tensor for each KiB of them.

    >>> import numpy as np, pullback as pb
    >>> kept = []
    >>> pb.memory.assert_no_growth(lambda: pb.sum(pb.tensor(np.ones(9))))
    >>> pb.memory.assert_no_growth(lambda: kept.append(pb.tensor(np.ones(9))))
    Traceback (most recent call last):
    AssertionError: memory grows: 3 tensors and 216 B of arrays more after 3 runs.
    ...
    """
    if times < 1 or slack < 0:
        raise ArgumentError(f"assert_no_growth: wants times >= 1 and slack >= 0, got {times} and {slack}.")
    if f is None:
        return NoGrowth(times, slack)
    f()
    before = take_census()
    for _ in range(times):
        f()
    _raise_if_grown(before, take_census(), slack, f"{times} runs")
    return None


class NoGrowth:
    """What `assert_no_growth()` returns: a context manager and decorator."""

    __slots__ = ("_before", "_slack", "_times")

    def __init__(self, times: int, slack: int) -> None:
        self._times = times
        self._slack = slack
        self._before: list[Census] = []

    def __enter__(self) -> None:
        self._before.append(take_census())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = self._before.pop()
        if kind is None:
            _raise_if_grown(before, take_census(), self._slack, "the block")

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            last: list[R] = []

            def run_once() -> None:
                last[:] = [function(*args, **kwargs)]

            assert_no_growth(run_once, times=self._times, slack=self._slack)
            return last[0]

        return wrapper


def _raise_if_grown(before: Census, after: Census, slack: int, when: str) -> None:
    allowed = slack // 1024
    grown = [
        f"{after.nodes - before.nodes} nodes" if after.nodes > before.nodes + allowed else "",
        f"{after.tensors - before.tensors} tensors" if after.tensors > before.tensors + allowed else "",
        f"{format_bytes(after.nbytes - before.nbytes)} of arrays" if after.nbytes > before.nbytes + slack else "",
    ]
    if any(grown):
        found = after.lines - before.lines
        lines = "".join(f"\n  {count} x {line}" for line, count in found.most_common(5))
        change = after.resident - before.resident
        raise AssertionError(
            f"memory grows: {' and '.join(filter(None, grown))} more after {when}.{lines}\n"
            f"  The resident set changed by {'-' if change < 0 else ''}{format_bytes(abs(change))}."
        )
