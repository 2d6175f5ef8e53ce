"""The loop IR between a graph and a machine: buffers, layouts, and kernels that iterate over them.

A kernel iterates over a domain (`extents`), the last `inner` axes innermost. Its lines are values, each known at every
point of the domain or, where it does not depend on the inner axes, once a row. A fold over the inner axes is known only
when the row's loop has ended, so what uses it belongs to a later *phase*: another loop over the same row. Everything
here is static: sizes, strides, dtypes. Nothing here knows which machine will run it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.backends import namespace_of
from ..program.ir import Symbol
from .vocabulary import is_narrow, value_dtype


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory: of an argument, a result, a constant of the program, or of its arena."""

    kind: str
    size: int
    dtype: np.dtype[Any]
    number: int = -1
    offset: int = -1
    constant: Any = None
    #: Of a constant: whether its elements are their own numbers, 0, 1, 2, ..., so that none need be read.
    counts: bool = False

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.kind}{self.number if self.number >= 0 else ''}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of an array are: offset and strides count elements of the buffer's dtype."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole buffer, row by row."""
        in_order = zip(self.shape, self.strides, row_major_strides(self.shape), strict=True)
        return self.size == self.buffer.size and all(n == 1 or s == t for n, s, t in in_order)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def contiguous_layout(buffer: Buffer, shape: tuple[int, ...]) -> Layout:
    return Layout(buffer, shape, row_major_strides(shape))


@dataclass(eq=False, slots=True)
class KernelLine:
    """One value of a kernel. `kind` is "load", "number", "apply", "cast", "fold" or "gather".

    `axes` are those of the domain on which it depends; `strides` (for a load) go with the axes of the domain. A gather
    is a load whose arguments are indices, each along an axis of memory given in `places` as (stride, size).

    Values of a half dtype are float32: a load widens them, a store rounds, and a line made with such a dtype has its
    name in `narrow`. Only a cast to it rounds there and then.
    """

    kind: str
    dtype: np.dtype[Any]
    axes: frozenset[int]
    phase: int = 0
    args: tuple[KernelLine, ...] = ()
    kernel: Callable[..., Any] | None = None
    compute_dtype: np.dtype[Any] | None = None
    number: Any = None
    word: str = ""
    buffer: Buffer | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    weight: int = 1
    places: tuple[tuple[int, int], ...] = ()
    label: str = ""
    #: Of a gather: the user's line.
    site: Any = None
    narrow: str = ""

    def __post_init__(self) -> None:
        if self.dtype.itemsize <= 2 and is_narrow(self.dtype):
            self.narrow, self.dtype = self.dtype.name, value_dtype(self.dtype)
        if self.compute_dtype is not None:
            self.compute_dtype = value_dtype(self.compute_dtype)

    @property
    def name(self) -> str:
        return self.label or self.word or self.kind


def load_line(buffer: Buffer, strides: tuple[int, ...], offset: int = 0) -> KernelLine:
    """A load at `offset + strides . point`."""
    axes = frozenset(i for i, stride in enumerate(strides) if stride)
    return KernelLine("load", buffer.dtype, axes, buffer=buffer, strides=strides, offset=offset)


def phase_after(lines: Sequence[KernelLine]) -> int:
    """The phase in which all lines are known: folds are one phase after their own."""
    return max((line.phase + (line.kind == "fold") for line in lines), default=0)


@dataclass(eq=False, slots=True)
class Store:
    """A line written to memory, in the memory's dtype; with a `word`, folded into what is there, starting from the
    word's identity unless the place depends on indices (`args`, with `places` as in a line) or the store `accumulates`:
    then an earlier step has filled the memory.
    """

    line: KernelLine
    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    word: str = ""
    args: tuple[KernelLine, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    accumulates: bool = False
    #: With a word: how many elements are folded in. Each point of the domain folds one, so it is their number.
    points: int = 0
    #: With indices: the user's line; and whether a sum may be taken in any order, which may change from run to run.
    site: Any = None
    any_order: bool = False
    #: With a word: the buffer has all places so many times, one after the other, and what is folded is in one of them,
    #: whichever a target likes. 0: once, and a target may still go through parts of its own; 1: once, in one go.
    parts: int = 0

    @property
    def phase(self) -> int:
        """The loop over the row in which the store can happen: a fold is known one phase after its own."""
        return phase_after((self.line, *self.args))


@dataclass(frozen=True, slots=True)
class Division:
    """A kernel's domain in `blocks`, each a range along `axis`, that may run in any order and in parallel.

    `piece_strides` has the buffers of which every block has a piece of its own, with the elements between two pieces.
    """

    axis: int
    blocks: int
    piece_strides: dict[Buffer, int]


@dataclass(eq=False, slots=True)
class Kernel:
    """A loop nest over a domain: lines in the order they were added, and stores."""

    extents: tuple[int, ...]
    inner: int = 1
    lines: list[KernelLine] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    division: Division | None = None
    known: tuple[list[Store], list[KernelLine]] = field(default_factory=lambda: ([], []))

    def live_lines(self) -> list[KernelLine]:
        """Lines that a store depends on, arguments first. Lines never change, so the result is cached until a store is
        added.
        """
        if self.known[0] != self.stores:
            self.known = list(self.stores), self._find_live_lines()
        return self.known[1]

    def _find_live_lines(self) -> list[KernelLine]:
        found: dict[int, KernelLine] = {}
        stack: list[tuple[KernelLine, bool]] = [(line, False) for s in self.stores for line in (s.line, *s.args)]
        while stack:
            line, ready = stack.pop()
            if ready:
                found.setdefault(id(line), line)
            # a stack instead of recursion: chains of lines can be longer than Python's
            elif id(line) not in found:
                stack.append((line, True))
                stack.extend((a, False) for a in line.args)
        return list(found.values())

    def reads(self) -> list[Buffer]:
        return [line.buffer for line in self.live_lines() if line.buffer is not None]

    def writes(self) -> list[Buffer]:
        return [store.buffer for store in self.stores]


def map_lines(kernel: Kernel, change: Callable[[KernelLine], KernelLine]) -> Kernel:
    """A kernel with its lines changed. Those that stay are the same objects: kernels share them."""
    known: dict[int, KernelLine] = {}

    def mapped(line: KernelLine) -> KernelLine:
        if id(line) not in known:
            args, found = tuple(map(mapped, line.args)), change(line)
            same = all(a is b for a, b in zip(args, line.args, strict=True))
            known[id(line)] = found if same else replace(found, args=args)
        return known[id(line)]

    lines = [mapped(line) for line in kernel.lines]
    stores = [replace(s, line=mapped(s.line), args=tuple(map(mapped, s.args))) for s in kernel.stores]
    return replace(kernel, lines=lines, stores=stores)


def visits_once(kernel: Kernel, strides: tuple[int, ...]) -> bool:
    """Whether each place is visited at one point of the domain alone, so that a value may overwrite its argument in
    place: a second point would read what the first has written.
    """
    return all(stride or n == 1 for stride, n in zip(strides, kernel.extents, strict=True))


@dataclass(eq=False, slots=True)
class Product:
    """out = alpha * left @ right + beta * out, a matrix product for each element of the batch.

    Layouts are (*batch, rows, columns), with one axis for the batch or a few, as many as the target takes; a stride of
    zero along one repeats a matrix. The columns of `out` are contiguous. The first axis of the batch may be cut into
    `blocks` that run at the same time. With `axes`, the sizes that rows, the depth and columns are made of, `left` is
    (*batch, *rows, *depth) and `right` (*batch, *depth, *columns): matrices such as the patches of a grid, which have
    no single stride along an axis.
    """

    out: Layout
    left: Layout
    right: Layout
    alpha: float = 1.0
    beta: float = 0.0
    blocks: int = 1
    axes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def count(self) -> int:
        """The number of matrix products."""
        return math.prod(self.out.shape[:-2])

    @property
    def depth(self) -> int:
        """The length of each sum."""
        return self.left.shape[-1] if self.axes is None else math.prod(self.axes[1])

    def reads(self) -> list[Buffer]:
        return [self.left.buffer, self.right.buffer, *([self.out.buffer] if self.beta else [])]

    def writes(self) -> list[Buffer]:
        return [self.out.buffer]


def product_operands(step: Product) -> tuple[Layout, Layout]:
    """The left and right matrices of a product, sized by its result and depth: inside of blocks a layout may be that of
    the whole, of which each block takes the first rows after its offset.
    """
    *batch, rows, columns = step.out.shape
    own_rows, depth, own_columns = step.axes or ((rows,), (step.depth,), (columns,))
    left, right = (*batch, *own_rows, *depth), (*batch, *depth, *own_columns)
    return replace(step.left, shape=left), replace(step.right, shape=right)


@dataclass(eq=False, slots=True)
class Loop:
    """Nested programs: a body for a number of rounds ("iterate"), a condition and a body ("repeat"), or several of
    which one runs ("branch").

    `inputs` are the arrays that each program takes, `moves` the elements by which they advance with each round;
    `outputs` and `shifts` are the same for the new results of the last program (of a branch, every one). The first
    `carried` inputs are overwritten in each round. `number` holds the number of the branch to run, or receives the
    number of rounds.
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
    #: Of a branch: the user's line.
    site: Any = None

    def reads(self) -> list[Buffer]:
        found = [layout.buffer for layout in self.inputs]
        return [*found, self.number.buffer] if self.kind == "branch" and self.number is not None else found

    def writes(self) -> list[Buffer]:
        found = [layout.buffer for layout in (*self.inputs[: self.carried], *self.outputs)]
        return [*found, self.number.buffer] if self.kind == "repeat" and self.number is not None else found


@dataclass(frozen=True, slots=True)
class Routine:
    """What a target may do in place of an op of NumPy: its name, the op's static parameters, and its multiplications
    for each element of the first argument and column of the result.
    """

    name: str
    static: dict[str, Any]
    weight: float


@dataclass(eq=False, slots=True)
class Host:
    """An op that NumPy executes: `call(*arrays)` returns what is copied into `outs`, or `into(outs, *arrays)` computes
    it there; `is_repeatable`: equal results however often it is called. A `routine` computes the same without Python;
    where it cannot finish, as for a singular matrix, NumPy executes the op after all, which raises its own error.
    """

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    outs: tuple[Layout, ...]
    is_repeatable: bool = False
    routine: Routine | None = None
    into: Callable[..., None] | None = None

    def reads(self) -> list[Buffer]:
        return [a.buffer for a in self.args if isinstance(a, Layout)]

    def writes(self) -> list[Buffer]:
        return [out.buffer for out in self.outs]

    def run(self, flat_array: Callable[[Buffer], Any]) -> None:
        """Run the op, on flat arrays of its buffers."""
        self.bind(flat_array)()

    def bind(self, flat_array: Callable[[Buffer], Any]) -> Callable[[], None]:
        """What runs the op on these flat arrays: where they stay the same from call to call, it is made once."""

        def as_array(layout: Layout) -> Any:
            flat = flat_array(layout.buffer)
            if layout.is_whole or not layout.size:
                # a row of a stack has the other rows behind it
                return flat[: layout.size].reshape(layout.shape)
            # a layout may be any strided part of its buffer
            strides = tuple(s * flat.itemsize for s in layout.strides)
            tricks = namespace_of([flat]).lib.stride_tricks
            return tricks.as_strided(flat[layout.offset :], layout.shape, strides)

        arrays = [as_array(a) if isinstance(a, Layout) else a for a in self.args]
        targets = [as_array(layout) for layout in self.outs]
        if self.into is not None and all(layout.is_whole for layout in self.outs):
            return functools.partial(self.into, targets, *arrays)
        return functools.partial(self._copy_results, targets, arrays)

    def _copy_results(self, targets: Sequence[Any], arrays: Sequence[Any]) -> None:
        found = self.call(*arrays)
        for value, target in zip(found if type(found) is tuple else (found,), targets, strict=True):
            # what an op returns on the host, such as that ranks agreed, has memory of the device in a program there
            target[...] = value if type(value) is type(target) else namespace_of([target]).asarray(value)


@dataclass(eq=False, slots=True)
class Blocks:
    """Steps that run `count` times, advancing in some buffers by `moves` elements each time. What one of them writes
    for the next then stays in a near cache, or in registers: what is `unread` after them need not be written.
    """

    count: int
    steps: list[Kernel | Product]
    moves: dict[Buffer, int]
    unread: frozenset[Buffer] = frozenset()

    def reads(self) -> list[Buffer]:
        return [b for step in self.steps for b in step.reads()]

    def writes(self) -> list[Buffer]:
        return [b for step in self.steps for b in step.writes()]


Step = Kernel | Product | Loop | Host | Blocks


@dataclass(slots=True)
class Steps:
    """The steps of a program, its buffers, and the layouts of values in memory."""

    steps: list[Step]
    inputs: list[Buffer]
    outputs: list[Buffer]
    places: list[tuple[Symbol, Layout]] = field(default_factory=list)
    #: Until they are ordered: steps that fill memory before others use it, and those that overwrite arguments.
    fills: list[Step] = field(default_factory=list)
    updates: list[Step] = field(default_factory=list)
    #: Once memory is planned: the bytes of the buffers in the arena (None: each has separate memory), where the memory
    #: of nested programs starts after them and the kernels' scratch memory, and the bytes of all that.
    arena: int | None = None
    nested: int = 0
    workspace: int = 0
    #: Whether numbers that are others for other sizes are marked (see `varying`).
    varies: bool = False

    @property
    def new_outputs(self) -> list[Buffer]:
        """The buffers of results that overwrite no input."""
        return [b for b in self.outputs if b.kind == "output"]


def map_programs(steps: Steps, change: Callable[[Steps], Steps]) -> Steps:
    """Steps changed, after the programs nested in them."""
    return change(map_inner(steps, lambda program: map_programs(program, change)))


def map_inner(steps: Steps, change: Callable[[Steps], Steps]) -> Steps:
    """Steps whose nested programs are changed, but not those nested in them."""
    inner = [replace(s, programs=tuple(map(change, s.programs))) if isinstance(s, Loop) else s for s in steps.steps]
    return replace(steps, steps=inner)
