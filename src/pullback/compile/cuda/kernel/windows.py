"""Windows that overlap and are folded where they are: each thread has a place, and takes the points that reach it.

Along a pair of axes, windows and the places inside of them, a place y has the points a, b with y = a step + b step'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...loop_ir import Buffer, Kernel, Store
from .grid import Grid, count_blocks, is_injective
from .points import Accumulation, choose_threads, write_vector
from .writer import FunctionLaunch, FunctionWriter, accumulator_type, fold_text, start_text


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two axes whose points share places along one line: a thread loops over the second; steps are in units of it."""

    axes: tuple[int, int]
    steps: tuple[int, int]
    unit: int
    size: int


def render_windows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> FunctionLaunch | None:
    """A kernel with one store that is folded into what is there; None if more than two axes share places."""
    (store,) = kernel.stores
    clusters = _find_clusters(kernel, store)
    if any(len(c) > 2 for c in clusters):
        return None
    pairs = [_make_pair(kernel, store, c[0], c[1]) for c in clusters if len(c) == 2]
    single = [c[0] for c in clusters if len(c) == 1]
    sizes = [*(kernel.extents[i] for i in single), *(pair.size for pair in pairs)]
    if not is_injective(sizes, [*(store.strides[i] for i in single), *(pair.unit for pair in pairs)]):
        return None
    paired = [axis for pair in pairs for axis in pair.axes]
    # along other axes, points have places of their own, or are all folded
    repeated = [i for i, n in enumerate(kernel.extents) if n != 1 and not store.strides[i]]
    alone = [*paired, *repeated]
    sides = [1 + alone.index(i) if i in alone else 0 for i in range(len(kernel.extents))]
    return _WindowWriter(Grid(kernel, sides, alignments), store, pairs, repeated).render()


def _find_clusters(kernel: Kernel, store: Store) -> list[list[int]]:
    """Axes along which places move, those together that may meet in one place."""
    moving = [(abs(s), i) for i, (n, s) in enumerate(zip(kernel.extents, store.strides, strict=True)) if n != 1 and s]
    clusters: list[list[int]] = []
    span = 0
    for stride, axis in sorted(moving):
        if stride > span:
            clusters.append([])
        clusters[-1].append(axis)
        span += stride * (kernel.extents[axis] - 1)
    return clusters


def _make_pair(kernel: Kernel, store: Store, first: int, second: int) -> _Pair:
    # the loop is over the shorter axis
    axes = (first, second) if kernel.extents[first] > kernel.extents[second] else (second, first)
    strides = [store.strides[a] for a in axes]
    unit = math.gcd(*strides)
    steps = strides[0] // unit, strides[1] // unit
    size = 1 + sum(s * (kernel.extents[a] - 1) for s, a in zip(steps, axes, strict=True))
    return _Pair(axes, steps, unit, size)


class _WindowWriter:
    """The function of a kernel: a thread for each vector of places."""

    def __init__(self, grid: Grid, store: Store, pairs: Sequence[_Pair], repeated: Sequence[int]) -> None:
        self.grid, self.store, self.pairs, self.repeated = grid, store, pairs, repeated
        self.writer = FunctionWriter(grid)
        self.group_of = {axis: g for g, axes in enumerate(grid.groups) for axis in axes}
        last = len(grid.groups) - 1
        self.width = grid.vector_width(last) if grid.groups and grid.side_of[last] == 0 else 1

    def render(self) -> FunctionLaunch:
        writer, width, store = self.writer, self.width, self.store
        lines, at, places, total = self._coordinates()
        kind, start = accumulator_type(store), start_text(store)
        threads = choose_threads(total // width)
        body = [
            f"const I i = ((I)blockIdx.x * {threads} + threadIdx.x) * {width};",
            f"if (i >= {total}) return;",
            *lines,
        ]
        body.append(f"{kind} total[{width}] = {{{', '.join([start] * width)}}};")
        body += self._loops(at)
        writer.written.append(store.buffer)
        place = f"{writer.pointer(store.buffer)}[{places} + u]"
        body.append(f"for (int u = 0; u < {width}; ++u) {place} = {fold_text(store, place, 'total[u]')};")
        return writer.finish(body, (count_blocks(total // width, threads), 1), (threads, 1))

    def _coordinates(self) -> tuple[list[str], dict[int, str], str, int]:
        """The counter taken apart: statements, coordinates along groups of one place each, the place, and how many."""
        steps = [(self.grid.sizes[g], self.grid.stride(self.store, g), g) for g in self.grid.groups_on(0)]
        steps += [(pair.size, pair.unit, -1 - n) for n, pair in enumerate(self.pairs)]
        # the innermost places are neighbours of threads
        steps.sort(key=lambda step: (abs(step[1]), step[2]))
        lines: list[str] = []
        found: dict[int, str] = {}
        terms, rest, total = [str(self.store.offset)], "i", 1
        for size, stride, group in steps:
            name = self.writer.name("c")
            lines.append(f"const I {name} = {rest} % {size}, {name}q = {rest} / {size};")
            found[group], rest, total = name, f"{name}q", total * size
            terms.append(f"{name} * {stride}")
        return lines, found, " + ".join(terms), total

    def _loops(self, at: Mapping[int, str]) -> list[str]:
        """Loops over the points that reach a place, in order."""
        inside = {g: c for g, c in at.items() if g >= 0}
        head: list[str] = []
        for number, pair in enumerate(self.pairs):
            first, second = (self.group_of[a] for a in pair.axes)
            a, b, rest = (self.writer.name(x) for x in "cwr")
            inside |= {first: a, second: b}
            count, step = self.grid.sizes[first], pair.steps[0]
            fits = f"{rest} < 0 || {a} >= {count}" + (f" || {rest} % {step}" if step != 1 else "")
            head += [
                "#pragma unroll",
                f"for (int {b} = 0; {b} < {self.grid.sizes[second]}; ++{b}) {{",
                f"const I {rest} = {at[-1 - number]} - {b} * {pair.steps[1]}, {a} = {rest} / {step};",
                f"if ({fits}) continue;",
            ]
        for axis in self.repeated:
            name = inside[self.group_of[axis]] = self.writer.name("c")
            head.append(f"for (I {name} = 0; {name} < {self.grid.kernel.extents[axis]}; ++{name}) {{")
        fold = Accumulation("total[u]" if self.width > 1 else "total[0]", self.store, self.store.line)
        last = len(self.grid.groups) - 1
        text = write_vector(self.writer, last, self.width, inside, [self.store.line], [], {}, [fold])
        return [*head, *text, "}" * (len(self.pairs) + len(self.repeated))]
