"""What the GPU's target renders: the text of a module, and what is to be launched in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..loop_ir import Buffer, Host, Loop, Product

STATUS_DTYPE = np.dtype(np.int32)


def new_status(*sites: Any) -> Buffer:
    """Words in which a launch notes that an index was out of range, one for each line of the user's that may have one:
    zero until then. The runtime has its memory. Lines are added while the launch is rendered.
    """
    return Buffer("status", len(sites), STATUS_DTYPE, constant=list(sites))


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a function of the module. Its parameters are pointers to `buffers`, each moved by so many elements
    (`shifts`, in the buffer's dtype). Memory of arguments, results, constants and the arena starts at multiples of 16
    bytes: a thread may load as many at once.
    """

    function: str
    buffers: tuple[Buffer, ...]
    shifts: tuple[int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """A matrix product by the vendor's library; buffers in `shifts` are moved by so many elements. `algorithm` is the
    number of the library's proposal.
    """

    product: Product
    shifts: dict[Buffer, int] = field(default_factory=dict)
    tf32: bool = False
    algorithm: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Ways to do the same, of which the fastest is found by trying: each is a tuple of launches and library calls."""

    ways: tuple[tuple[Launch | LibraryProduct, ...], ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """An op that CuPy executes between launches."""

    step: Host


@dataclass(frozen=True, slots=True)
class NestedPlans:
    """A loop or branch: one plan for each of its programs."""

    loop: Loop
    plans: tuple[LaunchPlan, ...]
    #: Where a branch notes that there is none of its number.
    status: Buffer
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True)
class Chunks:
    """A loop of many rounds in a graph: a node repeats `rounds` of them `count` times, and what is left follows. In
    the node, rows are taken from and made in windows: scratch memory for the arrays that advance, inputs first.
    """

    rounds: int
    count: int
    windows: tuple[Buffer, ...]
    #: The number of the chunk that runs.
    counter: Buffer


Action = Launch | LibraryProduct | Choice | HostCall | NestedPlans


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What is to be done for the steps of a program, in order. Buffers of the kind "scratch" lie in one area for all
    plans of a module, each at its offset: `scratch_bytes` in all, those of nested plans included. They are free again
    after the actions of one step, which follow each other.
    """

    actions: tuple[Action, ...]
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CudaCode:
    """The module's text, for all programs nested in each other, and the plan of the outermost."""

    text: str
    plan: LaunchPlan
    #: The user's line for each word of the status.
    sites: tuple[Any, ...] = ()


def window_stride(row: Buffer) -> int:
    """The bytes from one row of a window to the next: each starts where a thread may load as many as it can."""
    return -(-row.nbytes // 16) * 16


def count_launches(actions: Sequence[Action]) -> int:
    """The launches that actions come to in a graph; of choices, the longest way."""
    total = 0
    for action in actions:
        if isinstance(action, Choice):
            total += max(map(len, action.ways))
        elif isinstance(action, NestedPlans):
            chunks, rounds = action.chunks, max(action.loop.rounds, 1)
            if chunks is not None:
                rounds -= chunks.rounds * (chunks.count - 1)
                total += 1 + len(chunks.windows)
            total += rounds * sum(count_launches(plan.actions) for plan in action.plans)
        else:
            total += 1
    return total
