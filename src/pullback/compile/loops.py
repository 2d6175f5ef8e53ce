"""The loop language between a graph and a machine: buffers, layouts, and kernels that walk over them.

A kernel walks over a domain (`extents`), the last `inner` axes innermost. Its lines are values, each known at every
point of the domain or, where it does not depend on the inner axes, once a row. A fold over the inner axes is known only
when the row's loop has ended, so what uses it belongs to a later *phase*: another loop over the same row. Everything
here is static: sizes, strides, dtypes. Nothing here knows which machine will run it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "Blocks", "Buffer", "Division", "Host", "Kernel", "Layout", "Line", "Loop", "Product", "Store", "contiguous",
    "row_major", "visits_once",
]  # fmt: skip


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory: of an argument, a result, a constant of the program, or of the arena it works in."""

    kind: str
    size: int
    dtype: np.dtype[Any]
    number: int = -1
    offset: int = -1
    constant: Any = None

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.kind}{self.number if self.number >= 0 else ''}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of an array lie: offset and strides count elements of the buffer's dtype."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole buffer, row by row."""
        in_order = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return self.size == self.buffer.size and all(n == 1 or s == t for n, s, t in in_order)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def contiguous(buffer: Buffer, shape: tuple[int, ...]) -> Layout:
    return Layout(buffer, shape, row_major(shape))


@dataclass(eq=False, slots=True)
class Line:
    """One value of a kernel. `kind` is "load", "number", "apply", "cast", "fold" or "gather".

    `axes` are those of the domain on which it depends; `strides` (for a load) go with the axes of the domain. A gather
    is a load whose arguments are indices, each along an axis of memory given in `places` as (stride, size).
    """

    kind: str
    dtype: np.dtype[Any]
    axes: frozenset[int]
    phase: int = 0
    args: tuple[Line, ...] = ()
    kernel: Callable[..., Any] | None = None
    computed: np.dtype[Any] | None = None
    number: Any = None
    word: str = ""
    buffer: Buffer | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    weight: int = 1
    places: tuple[tuple[int, int], ...] = ()
    label: str = ""


@dataclass(eq=False, slots=True)
class Store:
    """A line written to memory, in the memory's dtype; with a `word`, folded into what is there, starting from the
    word's identity unless the place depends on indices (`args`, with `places` as in a line) or the store says `onto`:
    there something else has filled the memory before.
    """

    line: Line
    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    word: str = ""
    args: tuple[Line, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    onto: bool = False
    #: With a word: how many elements are folded in. Each point of the domain folds one, so it is their number.
    points: int = 0

    @property
    def phase(self) -> int:
        """The loop over the row in which the store can happen: a fold is known one phase after its own."""
        return max(line.phase + (line.kind == "fold") for line in (self.line, *self.args))


@dataclass(frozen=True, slots=True)
class Division:
    """A walk in `blocks` pieces, each a range along `axis`, that may run in any order and at the same time.

    `apart` are the buffers of which every block has a piece of its own, with the elements from one piece to the next.
    """

    axis: int
    blocks: int
    apart: dict[Buffer, int]


@dataclass(eq=False, slots=True)
class Kernel:
    """A walk over a domain: lines in the order they were written, and stores."""

    extents: tuple[int, ...]
    inner: int = 1
    lines: list[Line] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    division: Division | None = None
    known: tuple[list[Store], list[Line]] = field(default_factory=lambda: ([], []))

    def used(self) -> list[Line]:
        """Lines that something stored depends on, arguments first. Lines never change, so the answer is the last one
        unless something else is stored since.
        """
        if self.known[0] != self.stores:
            self.known = list(self.stores), self._found()
        return self.known[1]

    def _found(self) -> list[Line]:
        found: dict[int, Line] = {}
        stack: list[tuple[Line, bool]] = [(line, False) for s in self.stores for line in (s.line, *s.args)]
        while stack:
            line, ready = stack.pop()
            if ready:
                found.setdefault(id(line), line)
            elif id(line) not in found:
                stack.append((line, True))
                stack.extend((a, False) for a in line.args)
        return list(found.values())

    def reads(self) -> list[Buffer]:
        return [line.buffer for line in self.used() if line.buffer is not None]

    def writes(self) -> list[Buffer]:
        return [store.buffer for store in self.stores]


def visits_once(kernel: Kernel, strides: tuple[int, ...]) -> bool:
    """Whether a place is visited at one point of the domain alone, so that a value may be written over what it is made
    of: a second point would read what the first has written.
    """
    return all(stride or n == 1 for stride, n in zip(strides, kernel.extents, strict=True))


@dataclass(eq=False, slots=True)
class Product:
    """out = alpha * left @ right + beta * out, a matrix product for each element of the batch.

    Layouts are (batch, rows, columns); a stride of zero along the batch repeats a matrix. The batch may be cut into
    `blocks` that run at the same time.
    """

    out: Layout
    left: Layout
    right: Layout
    alpha: float = 1.0
    beta: float = 0.0
    blocks: int = 1

    def reads(self) -> list[Buffer]:
        return [self.left.buffer, self.right.buffer, *([self.out.buffer] if self.beta else [])]

    def writes(self) -> list[Buffer]:
        return [self.out.buffer]


@dataclass(eq=False, slots=True)
class Loop:
    """Programs inside the program: a body for so many rounds ("iterate"), a condition and a body ("repeat"), or several
    of which one runs ("branch").

    `inputs` say where the arrays lie that each program takes, `moves` by how many elements they lie further with each
    round; `outputs` and `shifts` say the same of what the last program (of a branch, every one) makes anew. The first
    `carried` inputs are overwritten in each round. `number` is where the number of the branch stands, or where that of
    the rounds is written to.
    """

    kind: str
    programs: tuple[Any, ...]
    inputs: tuple[Layout, ...]
    moves: tuple[int, ...]
    outputs: tuple[Layout, ...]
    shifts: tuple[int, ...]
    carried: int = 0
    number: Layout | None = None
    rounds: int = 0
    reverse: bool = False

    def reads(self) -> list[Buffer]:
        found = [layout.buffer for layout in self.inputs]
        return [*found, self.number.buffer] if self.kind == "branch" and self.number is not None else found

    def writes(self) -> list[Buffer]:
        found = [layout.buffer for layout in (*self.inputs[: self.carried], *self.outputs)]
        return [*found, self.number.buffer] if self.kind == "repeat" and self.number is not None else found


@dataclass(eq=False, slots=True)
class Host:
    """An op that the array library runs: `call(*arrays)` answers what goes into the results; `steady`: the same ones
    however often it is called.
    """

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    outs: tuple[Layout, ...]
    steady: bool = False

    def reads(self) -> list[Buffer]:
        return [a.buffer for a in self.args if isinstance(a, Layout)]

    def writes(self) -> list[Buffer]:
        return [out.buffer for out in self.outs]


@dataclass(eq=False, slots=True)
class Blocks:
    """Steps that are run `count` times, each time further on in some buffers: `moves` says by how many elements. What
    one of them writes for the next then stays in a near cache.
    """

    count: int
    steps: list[Kernel | Product]
    moves: dict[Buffer, int]

    def reads(self) -> list[Buffer]:
        return [b for step in self.steps for b in step.reads()]

    def writes(self) -> list[Buffer]:
        return [b for step in self.steps for b in step.writes()]
