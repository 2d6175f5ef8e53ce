"""Ways to train in, their bytes out: what is predicted before a step runs, and what is measured while it does."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import pullback as pb

from .network import loss
from .training import ByTape, Compiled

__all__ = ["Weight", "weigh_compiled", "weigh_tape"]


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes at the peak of a step: predicted (None if nobody can say) and measured."""

    predicted: int | None
    measured: int


def weigh_tape(params: Any, images: Any, labels: Any) -> tuple[Weight, Any]:
    """A forward and a backward pass on the tape, and the profile of it. Parameters and batch count; the optimiser's
    state, which no pass touches, does not.
    """
    predicted = pb.memory.predict(loss, params, images, labels, argnums=0).peak
    leaves = ByTape(params).layers
    with pb.memory.profile() as seen:
        loss(leaves, images, labels).backward()
    return Weight(predicted, seen.peak), seen


def weigh_compiled(way: Compiled, images: Any, labels: Any) -> Weight:
    """A whole compiled step: its arguments, its arena and constants, and what it allocates while it runs."""
    entry = way.call.last
    assert entry is not None, "it has run"
    arguments = sum(x.nbytes for x in _arrays((way.at, images, labels)))
    begun = not tracemalloc.is_tracing()
    if begun:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        way.step(images, labels)
        made = tracemalloc.get_traced_memory()[1] - before
    finally:
        if begun:
            tracemalloc.stop()
    if not way.is_native:
        return Weight(None, arguments + made)
    held = entry.code.arena.nbytes + sum(c.nbytes for c in entry.code.native.constants)
    return Weight(entry.memory().peak, arguments + held + made)


def _arrays(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return [x for part in tree for x in _arrays(part)] if isinstance(tree, tuple) else [tree]
