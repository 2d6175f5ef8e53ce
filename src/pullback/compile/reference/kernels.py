"""What a kernel means: its lines as values at every point of the domain, then its stores.

A kernel walks over the points of a box, `extents`, the last `inner` axes of it being the row.

- A *line* is a number at each point. A load reads memory at `offset + strides . point`; a gather further on by its
  indices, each times the stride of its axis; a number, an application of words and a cast are what they say. A *fold*
  is, at each point, the fold of its argument over all points of the same row.
- All loads see memory as it was before the kernel, except that folding stores have begun (below). What a kernel both
  reads and writes must be read and written at the same point, and by stores without a word: then the order in which
  points are taken does not matter.
- A *store without a word* writes each point's value to `offset + strides . point` (and further on by indices). If
  several points have one place they must have one value; with indices, points are taken row by row and the last stays.
- A *store with a word* folds the value of every point of the domain, each exactly once, into its place. Without indices
  and without `onto` all its places begin as the word's identity; otherwise with what is there.
- A *division* cuts the walk along an axis into blocks that may run in any order: each is the same kernel on a part of
  the box, with pieces of its own of the buffers `apart`. No block may touch what another one writes.

Along axes that a line does not depend on it is computed once: arrays here have one point there, and NumPy repeats it.
Beside each number goes its *noise*, how far rounding may have moved it (see `noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import IndexingError, MiscompiledError
from ..loops import Buffer, Kernel, Line, Store
from .memory import Region
from .noise import noise_of_call, noise_of_fold
from .words import FOLDS, Words, identity, to_dtype

__all__ = ["Regions", "moved", "run_kernel"]

Regions = Callable[[Buffer], Region]
Box = tuple[range, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """The values of a line at the points of a box, one point along axes it does not depend on; and their noise."""

    numbers: Any
    noise: Any


def moved(regions: Regions, moves: dict[Buffer, int]) -> Regions:
    """The same memory, further on in some buffers."""
    return lambda buffer: regions(buffer).moved(moves.get(buffer, 0))


def run_kernel(kernel: Kernel, regions: Regions) -> None:
    """Run a kernel on the memory that `regions` finds for its buffers."""
    box = tuple(range(n) for n in kernel.extents)
    if kernel.division is None:
        if math.prod(kernel.extents):
            _Walk(kernel, box, regions).run()
        return
    cut, touched = kernel.division, _Touched()
    size = kernel.extents[cut.axis]
    for block in range(cut.blocks):
        part = range(block * size // cut.blocks, (block + 1) * size // cut.blocks)
        own = moved(regions, {b: block * step for b, step in cut.apart.items()})
        walk = _Walk(kernel, (*box[: cut.axis], part, *box[cut.axis + 1 :]), own)
        walk.run()
        touched.add(block, walk)


class _Walk:
    """One walk over a box."""

    def __init__(self, kernel: Kernel, box: Box, regions: Regions) -> None:
        self.kernel, self.box, self.regions = kernel, box, regions
        self.values: dict[int, Number] = {}
        #: The bytes that loads read and stores write: (region, their places).
        self.read: list[tuple[Line, Any]] = []
        self.written: list[tuple[Store, Any]] = []

    def run(self) -> None:
        for store in self.kernel.stores:
            if store.word and not store.args and not store.onto:
                self._begin(store)
        for line in self.kernel.used():
            self.values[id(line)] = self._once(line, self._value(line))
        for store in self.kernel.stores:
            self._store(store)
        self._check_order()

    def _where(self, x: Line | Store) -> Any:
        """The element that a load or a store touches at each point, indices aside."""
        where = np.full((1,) * len(self.box), x.offset, np.int64)
        for axis, points in enumerate(self.box):
            if x.strides[axis]:
                shape = [1] * len(self.box)
                shape[axis] = len(points)
                where = where + np.array(points, np.int64).reshape(shape) * x.strides[axis]
        return where + self._further(x)

    def _further(self, x: Line | Store) -> Any:
        """How far indices point; a negative one counts from the end."""
        by: Any = 0
        if x.places:
            for (stride, size), a in zip(x.places, x.args, strict=True):
                index = self.values[id(a)].numbers.astype(np.int64)
                index = np.where(index < 0, index + size, index)
                if ((index < 0) | (index >= size)).any():
                    raise IndexingError("jit: an index was out of range for the array it points into.")
                by = by + index * stride
        return by

    def _value(self, line: Line) -> Number:
        if line.kind == "number":
            return self._alone(np.asarray(line.number).astype(line.dtype))
        if line.kind in ("load", "gather"):
            where = self._where(line)
            assert line.buffer is not None
            self.read.append((line, where))
            return Number(*self.regions(line.buffer).read(where))
        args = [self.values[id(a)] for a in line.args]
        if line.kind == "cast":
            return _cast(args[0], line.dtype)
        if line.kind == "fold":
            return self._folded(args[0], line)
        return _applied(line, args)

    def _once(self, line: Line, x: Number) -> Number:
        """The line without the axes that it does not name, along which its numbers must not change."""
        for axis, n in enumerate(x.numbers.shape):
            if n > 1 and axis not in line.axes:
                first = x.numbers.take([0], axis)
                if not np.array_equal(_bits(np.broadcast_to(first, x.numbers.shape)), _bits(x.numbers)):
                    name = line.label or line.word or line.kind
                    raise MiscompiledError(f"{name} changes along axis {axis}, and says that it does not.")
                x = Number(first, x.noise.max(axis=axis, keepdims=True))
        return x

    def _alone(self, number: Any) -> Number:
        one = (1,) * len(self.box)
        return Number(number.reshape(one), np.zeros(one))

    def _folded(self, x: Number, line: Line) -> Number:
        outer = len(self.box) - self.kernel.inner
        sizes = [len(points) for points in self.box]
        shape = (*x.numbers.shape[:outer], *sizes[outer:])
        numbers, noise = (np.broadcast_to(a, shape) for a in (to_dtype(x.numbers, line.dtype), x.noise))
        rows = (*shape[:outer], math.prod(sizes[outer:]))
        numbers, noise = numbers.reshape(rows), noise.reshape(rows)
        if not rows[-1]:  # a block without points
            numbers, noise = np.full((*rows[:-1], 1), identity(line.word, line.dtype)), np.zeros((*rows[:-1], 1))
        reduce = lambda function, x: function.reduce(x, axis=-1)  # noqa: E731
        found = _fold(line.word, reduce, numbers)
        noise = noise_of_fold(line.word, reduce, numbers, noise, rows[-1], found)
        one = (*shape[:outer], *[1] * self.kernel.inner)
        return Number(found.reshape(one), noise.reshape(one))

    # Stores

    def _begin(self, store: Store) -> None:
        self.regions(store.buffer).write(self._where(store), identity(store.word, store.buffer.dtype), 0.0)

    def _store(self, store: Store) -> None:
        x, where, region = self.values[id(store.line)], self._where(store), self.regions(store.buffer)
        x = _cast(x, store.buffer.dtype)
        self.written.append((store, where))
        if store.word:
            self._fold_into(store, x, where, region)
            return
        shape = np.broadcast_shapes(where.shape, x.numbers.shape)
        where, numbers, noise = (np.broadcast_to(a, shape) for a in (where, x.numbers, x.noise))
        if not store.args:
            self._one_value(store, where.reshape(-1), numbers.reshape(-1))
        region.write(where, numbers, noise)

    def _one_value(self, store: Store, where: Any, numbers: Any) -> None:
        """Places that several points share must be given one value."""
        _, first, back = np.unique(where, return_index=True, return_inverse=True)
        if len(first) < len(where) and not np.array_equal(_bits(numbers), _bits(numbers[first[back.reshape(-1)]])):
            raise MiscompiledError(f"a store to {store.buffer!r} gives one element two values.")

    def _fold_into(self, store: Store, x: Number, where: Any, region: Region) -> None:
        shape = tuple(len(points) for points in self.box)
        places, back = np.unique(np.broadcast_to(where, shape).reshape(-1), return_inverse=True)
        numbers, noise = (np.broadcast_to(a, shape).reshape(-1) for a in (x.numbers, x.noise))
        start, before = region.read(places)
        numbers, noise = np.concatenate([start, numbers]), np.concatenate([before, noise])
        first, back = len(places), back.reshape(-1)

        def at_places(function: Any, x: Any) -> Any:
            """The first numbers are what is there; the others are folded into them."""
            found = x[:first].copy()
            function.at(found, back, x[first:])
            return found

        found = _fold(store.word, at_places, numbers)
        count = 1 + np.bincount(back, minlength=first)
        region.write(places, found, noise_of_fold(store.word, at_places, numbers, noise, count, found))

    def _check_order(self) -> None:
        """What is read and written in one walk is so at the same point, by a store that only writes."""
        for store, where in self.written:
            for line, source in self.read:
                assert line.buffer is not None
                target, origin = self.regions(store.buffer), self.regions(line.buffer)
                if target.bytes is not origin.bytes or not _meet(target.places(where), origin.places(source)):
                    continue
                same = target.dtype.itemsize == origin.dtype.itemsize and line.kind == "load" and not store.args
                there, here = np.broadcast_arrays(target.places(where), origin.places(source))
                same = same and np.array_equal(there, here)
                if self.kernel.inner or store.word or not same:
                    raise MiscompiledError(f"{origin.name} is read at points other than those that write to it.")


class _Touched:
    """What the blocks of a division have touched."""

    def __init__(self) -> None:
        self.readers: list[tuple[int, Region, Any]] = []
        self.writers: list[tuple[int, Region, Any]] = []

    def add(self, block: int, walk: _Walk) -> None:
        for store, where in walk.written:
            region = walk.regions(store.buffer)
            self._check(block, region, region.places(where), [*self.readers, *self.writers])
            self.writers.append((block, region, region.places(where)))
        for line, where in walk.read:
            assert line.buffer is not None
            region = walk.regions(line.buffer)
            self._check(block, region, region.places(where), self.writers)
            self.readers.append((block, region, region.places(where)))

    def _check(self, block: int, region: Region, places: Any, others: Sequence[tuple[int, Region, Any]]) -> None:
        for other, there, theirs in others:
            if other != block and there.bytes is region.bytes and _meet(places, theirs):
                raise MiscompiledError(f"blocks {other} and {block} of a kernel both touch {region.name}.")


def _meet(a: Any, b: Any) -> bool:
    """Whether two sets of bytes have one in common."""
    if not a.size or not b.size or a.max() < b.min() or b.max() < a.min():
        return False
    return bool(np.intersect1d(a, b).size)


def _bits(numbers: Any) -> Any:
    """Numbers so that NaN is NaN."""
    return np.ascontiguousarray(numbers).view(np.uint8)


def _cast(x: Number, dtype: np.dtype[Any]) -> Number:
    """Another dtype; of a float out of the range of an integer nothing is known."""
    found = to_dtype(x.numbers, dtype)
    if x.numbers.dtype.kind != "f" or dtype.kind not in "iu":
        return Number(found, np.where(found.dtype.kind == "f", x.noise, np.where(np.isinf(x.noise), np.inf, 0.0)))
    with np.errstate(all="ignore"):
        undefined = ~(np.abs(np.trunc(x.numbers) - found.astype(np.float64)) <= 0) | np.isinf(x.noise)
    return Number(found, np.where(undefined, np.inf, 0.0))


def _applied(line: Line, args: Sequence[Number]) -> Number:
    assert line.kernel is not None
    assert line.computed is not None
    kernel, computed = line.kernel, line.computed
    given = [
        np.asarray(a.number).astype(computed).reshape(x.numbers.shape)
        if a.kind == "number" and computed.kind != "b"
        else x.numbers
        for a, x in zip(line.args, args, strict=True)
    ]

    def call(*numbers: Any) -> Any:
        found = to_dtype(np.asarray(kernel(Words(computed), *numbers)), line.dtype)
        return np.broadcast_to(found, np.broadcast_shapes(found.shape, *(x.shape for x in numbers)))

    with np.errstate(all="ignore"):
        found = call(*given)
        return Number(found, noise_of_call(call, given, [x.noise for x in args], found, computed))


def _fold(word: str, fold: Callable[..., Any], numbers: Any) -> Any:
    """A fold by a word; floats in float64, rounded once, which is what any order should come near to."""
    function, dtype = FOLDS[word][0], numbers.dtype
    if dtype.kind == "b":
        function = np.logical_or if word in ("add", "maximum", "logical_or") else np.logical_and
    with np.errstate(all="ignore"):
        return fold(function, numbers.astype(np.float64) if dtype.kind == "f" else numbers).astype(dtype)
