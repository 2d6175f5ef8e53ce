"""Peak memory of a training step: predicted and measured."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import pullback as pb
from pullback.arrays.trees import flatten

from .network import loss
from .training import CompiledTrainer, TapeTrainer


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes at the peak of a step: predicted (None if unknown) and measured."""

    predicted: int | None
    measured: int


def measure_tape_memory(params: Any, images: Any, labels: Any) -> tuple[MemoryUse, Any]:
    """A forward and a backward pass on the tape, and the profile of it. Parameters and batch count; the optimizer's
    state, which neither pass touches, does not.
    """
    predicted = pb.memory.predict(loss, params, images, labels, argnums=0).peak
    leaves = TapeTrainer(params).layers
    with pb.memory.profile() as seen:
        loss(leaves, images, labels).backward()
    return MemoryUse(predicted, seen.peak), seen


def measure_compiled_memory(way: CompiledTrainer, images: Any, labels: Any) -> MemoryUse:
    """A whole compiled step: its arguments, its arena and constants, and what it allocates while it runs."""
    entry = way.call.last
    assert entry is not None, "it has run"
    arguments = sum(x.nbytes for x in flatten((way.params_and_state, images, labels))[0])
    begun = not tracemalloc.is_tracing()
    if begun:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        way.step(images, labels)
        allocated = tracemalloc.get_traced_memory()[1] - before
    finally:
        if begun:
            tracemalloc.stop()
    if not way.is_native:
        return MemoryUse(None, arguments + allocated)
    held = sum(a.nbytes for a in entry.code.workspace)
    return MemoryUse(entry.memory().peak, arguments + held + allocated)
