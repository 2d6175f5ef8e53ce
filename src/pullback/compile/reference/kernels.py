"""The semantics of a kernel, run by NumPy: its lines as values at every point of the domain, then its stores.

A kernel iterates over the points of a box, `extents`, the last `inner` axes of it being the row.

- A *line* is a value at each point. A load reads memory at `offset + strides . point`; a gather adds its indices, each
  times the stride of its axis; a number, an application and a cast are what their names say. A *fold* is, at each
  point, the fold of its argument over all points of the same row.
- All loads see memory as it was before the kernel, except that folding stores are initialized (below). What one both
  reads and writes must be read and written at the same point, and by stores without a word: then the order in which
  points are taken does not matter.
- A *store without a word* writes each point's value to `offset + strides . point` (plus its indices). If
  several points have one place they must have one value; with indices, points are taken row by row and the last stays.
- A *store with a word* folds the value of every point of the domain, each exactly once, into its place. Without indices
  and unless it `accumulates`, all its places start as the word's identity; otherwise with what is there.
- A *division* cuts the domain along an axis into blocks that may run in any order: each is the same kernel on a part of
  the box, with its own pieces of the buffers in `piece_strides`. No block may touch what another one writes.

Along axes that a line does not depend on it is computed once: arrays here have one point there, and NumPy repeats it.
Each value has its *noise*, how far rounding may have moved it (see `noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import IndexingError, MiscompiledError
from ..loop_ir import Buffer, Kernel, KernelLine, Store
from ..vocabulary import half_dtype, is_narrow
from .noise import TOLERANCE, noise_of_call, noise_of_fold, noise_of_rounding
from .numpy_scalars import FOLDS, NumpyScalars, identity, to_dtype
from .poisoned_memory import MemoryRegion

Regions = Callable[[Buffer], MemoryRegion]
Box = tuple[range, ...]


@dataclass(frozen=True, slots=True)
class LineValue:
    """The values of a line at the points of a box, one point along axes it does not depend on; and their noise."""

    numbers: Any
    noise: Any


def offset_regions(regions: Regions, moves: dict[Buffer, int]) -> Regions:
    """The same memory, some buffers offset by `moves`."""
    return lambda buffer: regions(buffer).offset_by(moves.get(buffer, 0))


def run_kernel(kernel: Kernel, regions: Regions) -> None:
    """Run a kernel on the memory that `regions` has for its buffers."""
    box = tuple(range(n) for n in kernel.extents)
    if kernel.division is None:
        if math.prod(kernel.extents):
            _KernelWalk(kernel, box, regions).run()
        return
    cut, touched = kernel.division, _BlockAccesses()
    size = kernel.extents[cut.axis]
    for block in range(cut.blocks):
        # any cut is as good: blocks must not depend on where they begin
        part = range(block * size // cut.blocks, (block + 1) * size // cut.blocks)
        own = offset_regions(regions, {b: block * step for b, step in cut.piece_strides.items()})
        walk = _KernelWalk(kernel, (*box[: cut.axis], part, *box[cut.axis + 1 :]), own)
        walk.run()
        touched.add(block, walk)


class _KernelWalk:
    """One run of a kernel over a box of its domain."""

    def __init__(self, kernel: Kernel, box: Box, regions: Regions) -> None:
        self.kernel, self.box, self.regions = kernel, box, regions
        self.values: dict[int, LineValue] = {}
        #: The bytes that loads read and stores write: (region, their places).
        self.read: list[tuple[KernelLine, Any]] = []
        self.written: list[tuple[Store, Any]] = []

    def run(self) -> None:
        for store in self.kernel.stores:
            if store.word and not store.args and not store.accumulates:
                self._initialize_fold(store)
        for line in self.kernel.live_lines():
            self.values[id(line)] = self._drop_constant_axes(line, self._evaluate(line))
        for store in self.kernel.stores:
            self._store(store)
        self._check_order()

    def _element_indices(self, x: KernelLine | Store) -> Any:
        """The element that a load or a store touches at each point, without the offset by indices."""
        where = np.full((1,) * len(self.box), x.offset, np.int64)
        for axis, points in enumerate(self.box):
            if x.strides[axis]:
                shape = [1] * len(self.box)
                shape[axis] = len(points)
                where = where + np.array(points, np.int64).reshape(shape) * x.strides[axis]
        return where + self._index_offset(x)

    def _index_offset(self, x: KernelLine | Store) -> Any:
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

    def _evaluate(self, line: KernelLine) -> LineValue:
        if line.kind == "number":
            return self._as_one_point(np.asarray(line.number).astype(line.dtype))
        if line.kind in ("load", "gather"):
            where = self._element_indices(line)
            assert line.buffer is not None
            self.read.append((line, where))
            numbers, noise = self.regions(line.buffer).read(where)
            numbers = numbers.astype(line.dtype)
            return LineValue(
                numbers, noise if is_narrow(line.buffer.dtype) else noise + _noise_of_narrow(line, numbers)
            )
        args = [self.values[id(a)] for a in line.args]
        if line.kind == "cast" and line.narrow:
            return _cast_value(_cast_value(args[0], half_dtype(line.narrow)), line.dtype)
        if line.kind == "cast":
            return _cast_value(args[0], line.dtype)
        if line.kind == "fold":
            return self._fold_row(args[0], line)
        return _apply_line(line, args)

    def _drop_constant_axes(self, line: KernelLine, x: LineValue) -> LineValue:
        """The line without the axes that it does not name, along which its values must not change."""
        for axis, n in enumerate(x.numbers.shape):
            if n > 1 and axis not in line.axes:
                first = x.numbers.take([0], axis)
                if not np.array_equal(_as_bytes(np.broadcast_to(first, x.numbers.shape)), _as_bytes(x.numbers)):
                    raise MiscompiledError(f"{line.name} changes along axis {axis}, which it does not name.")
                x = LineValue(first, x.noise.max(axis=axis, keepdims=True))
        return x

    def _as_one_point(self, number: Any) -> LineValue:
        one = (1,) * len(self.box)
        return LineValue(number.reshape(one), np.zeros(one))

    def _fold_row(self, x: LineValue, line: KernelLine) -> LineValue:
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
        noise = noise_of_fold(line.word, reduce, numbers, noise, rows[-1], found) + _noise_of_narrow(line, found)
        one = (*shape[:outer], *[1] * self.kernel.inner)
        return LineValue(found.reshape(one), noise.reshape(one))

    # Stores

    def _initialize_fold(self, store: Store) -> None:
        where = np.arange(store.buffer.size) if store.parts > 1 else self._element_indices(store)
        self.regions(store.buffer).write(where, identity(store.word, store.buffer.dtype), 0.0)

    def _store(self, store: Store) -> None:
        x, where, region = self.values[id(store.line)], self._element_indices(store), self.regions(store.buffer)
        x = _cast_value(x, store.buffer.dtype)
        self.written.append((store, where))
        if store.word:
            self._fold_into(store, x, where, region)
            return
        shape = np.broadcast_shapes(where.shape, x.numbers.shape)
        where, numbers, noise = (np.broadcast_to(a, shape) for a in (where, x.numbers, x.noise))
        if not store.args:
            self._check_one_value(store, where.reshape(-1), numbers.reshape(-1))
        region.write(where, numbers, noise)

    def _check_one_value(self, store: Store, where: Any, numbers: Any) -> None:
        """Raise if points that share a place store different values there."""
        _, first, back = np.unique(where, return_index=True, return_inverse=True)
        if len(first) < len(where) and not np.array_equal(
            _as_bytes(numbers), _as_bytes(numbers[first[back.reshape(-1)]])
        ):
            raise MiscompiledError(f"a store to {store.buffer!r} gives one element two values.")

    def _fold_into(self, store: Store, x: LineValue, where: Any, region: MemoryRegion) -> None:
        shape = tuple(len(points) for points in self.box)
        places, back = np.unique(np.broadcast_to(where, shape).reshape(-1), return_inverse=True)
        numbers, noise = (np.broadcast_to(a, shape).reshape(-1) for a in (x.numbers, x.noise))
        start, before = region.read(places)
        numbers, noise = np.concatenate([start, numbers]), np.concatenate([before, noise])
        first, back = len(places), back.reshape(-1)

        def fold_at_places(function: Any, x: Any) -> Any:
            """The first values are what is there; the others are folded into them."""
            found = x[:first].copy()
            function.at(found, back, x[first:])
            return found

        found = _fold(store.word, fold_at_places, numbers)
        count = 1 + np.bincount(back, minlength=first)
        region.write(places, found, noise_of_fold(store.word, fold_at_places, numbers, noise, count, found))

    def _check_order(self) -> None:
        """Check that what one run both reads and writes is accessed at the same point, by a store that only writes."""
        for store, where in self.written:
            for line, source in self.read:
                assert line.buffer is not None
                target, origin = self.regions(store.buffer), self.regions(line.buffer)
                if target.bytes is not origin.bytes or not _have_common_byte(
                    target.places(where), origin.places(source)
                ):
                    continue
                same = target.dtype.itemsize == origin.dtype.itemsize and line.kind == "load" and not store.args
                there, here = np.broadcast_arrays(target.places(where), origin.places(source))
                same = same and np.array_equal(there, here)
                if self.kernel.inner or store.word or not same:
                    raise MiscompiledError(f"{origin.name} is read at points other than those that write to it.")


class _BlockAccesses:
    """What the blocks of a division have touched."""

    def __init__(self) -> None:
        self.readers: list[tuple[int, MemoryRegion, Any]] = []
        self.writers: list[tuple[int, MemoryRegion, Any]] = []

    def add(self, block: int, walk: _KernelWalk) -> None:
        for store, where in walk.written:
            region = walk.regions(store.buffer)
            self._check(block, region, region.places(where), [*self.readers, *self.writers])
            self.writers.append((block, region, region.places(where)))
        for line, where in walk.read:
            assert line.buffer is not None
            region = walk.regions(line.buffer)
            self._check(block, region, region.places(where), self.writers)
            self.readers.append((block, region, region.places(where)))

    def _check(
        self, block: int, region: MemoryRegion, places: Any, others: Sequence[tuple[int, MemoryRegion, Any]]
    ) -> None:
        for other, there, theirs in others:
            if other != block and there.bytes is region.bytes and _have_common_byte(places, theirs):
                raise MiscompiledError(f"blocks {other} and {block} of a kernel both touch {region.name}.")


def _have_common_byte(a: Any, b: Any) -> bool:
    """Whether two sets of bytes have one in common."""
    if not a.size or not b.size or a.max() < b.min() or b.max() < a.min():
        return False
    return bool(np.intersect1d(a, b).size)


def _as_bytes(numbers: Any) -> Any:
    """Values as bytes, by which NaN equals NaN."""
    return np.ascontiguousarray(numbers).view(np.uint8)


def _cast_value(x: LineValue, dtype: np.dtype[Any]) -> LineValue:
    """A cast; a float out of an integer's range has an unknown (infinitely noisy) result."""
    found = to_dtype(x.numbers, dtype)
    if is_narrow(dtype):
        rounding = np.where(x.noise > 0, noise_of_rounding(found, dtype), 0.0)
        return LineValue(found, x.noise + rounding)
    if x.numbers.dtype.kind != "f" or dtype.kind not in "iu":
        return LineValue(found, np.where(found.dtype.kind == "f", x.noise, np.where(np.isinf(x.noise), np.inf, 0.0)))
    with np.errstate(all="ignore"):
        undefined = ~(np.abs(np.trunc(x.numbers) - found.astype(np.float64)) <= 0) | np.isinf(x.noise)
    return LineValue(found, np.where(undefined, np.inf, 0.0))


def _apply_line(line: KernelLine, args: Sequence[LineValue]) -> LineValue:
    assert line.kernel is not None
    assert line.compute_dtype is not None
    kernel, computed = line.kernel, line.compute_dtype
    given = [
        np.asarray(a.number).astype(computed).reshape(x.numbers.shape)
        if a.kind == "number" and computed.kind != "b"
        else x.numbers
        for a, x in zip(line.args, args, strict=True)
    ]

    def call(*numbers: Any) -> Any:
        found = to_dtype(np.asarray(kernel(NumpyScalars(computed), *numbers)), line.dtype)
        return np.broadcast_to(found, np.broadcast_shapes(found.shape, *(x.shape for x in numbers)))

    with np.errstate(all="ignore"):
        found = call(*given)
        noise = noise_of_call(call, given, [x.noise for x in args], found, computed)
        if found.dtype.kind == "b" and any(a.narrow for a in line.args):
            noise = np.where(_may_flip(call, given, args, found), np.inf, noise)
        return LineValue(found, noise + _noise_of_narrow(line, found))


def _noise_of_narrow(line: KernelLine, found: Any) -> Any:
    """Op by op, a value of a half dtype is rounded where a kernel does not round it."""
    return noise_of_rounding(found, half_dtype(line.narrow)) if line.narrow else 0.0


def _may_flip(call: Callable[..., Any], given: Sequence[Any], args: Sequence[LineValue], found: Any) -> Any:
    """Where a comparison of values of a half dtype, of which not each is rounded alike, may be otherwise."""
    flips = np.zeros(found.shape, bool)
    for i, x in enumerate(args):
        if given[i].dtype.kind == "f" and x.noise.any():
            for by in (TOLERANCE, -TOLERANCE):
                moved = (given[i] + by * x.noise).astype(given[i].dtype)
                flips = flips | (call(*given[:i], moved, *given[i + 1 :]) != found)
    return flips


def _fold(word: str, fold: Callable[..., Any], numbers: Any) -> Any:
    """A fold by a word; floats in float64, rounded once: any order should come close to it."""
    function, dtype = FOLDS[word][0], numbers.dtype
    if dtype.kind == "b":
        function = np.logical_or if word in ("add", "maximum", "logical_or") else np.logical_and
    with np.errstate(all="ignore"):
        return fold(function, numbers.astype(np.float64) if dtype.kind == "f" else numbers).astype(dtype)
