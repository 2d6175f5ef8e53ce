"""Stores at indices: points that may have one place are taken by one thread, in order, so results never change."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...loop_ir import Buffer, Kernel, Store
from .grid import Grid, count_blocks
from .points import choose_threads
from .sorted_scatters import render_sorted_scatter
from .writer import FunctionLaunch, FunctionWriter, Known, takes_any_order

APART, IN_ORDER = range(2)
#: So many points are taken one after the other.
MAX_ROUNDS = 32


def render_scatter(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """A kernel with one store at indices: points that may share a place are in order, or sorted by their places, unless
    any order will do.
    """
    (store,) = kernel.stores
    apart = find_separating_axes(kernel, store)
    rounds = math.prod(n for axis, n in enumerate(kernel.extents) if axis not in apart)
    if takes_any_order(store):
        apart = frozenset(range(len(kernel.extents)))
    elif rounds > MAX_ROUNDS:
        found = render_sorted_scatter(kernel, apart, alignments)
        if found is not None:
            return found
    return [_render_in_order(kernel, apart, alignments)]


def _render_in_order(kernel: Kernel, apart: frozenset[int], alignments: Mapping[Buffer, int]) -> FunctionLaunch:
    """A thread for each point along axes that keep places apart, which takes the others in order."""
    (store,) = kernel.stores
    grid = Grid(kernel, [APART if i in apart else IN_ORDER for i in range(len(kernel.extents))], alignments)
    writer = FunctionWriter(grid)
    count, rounds = (grid.size_of(grid.groups_on(side)) for side in (APART, IN_ORDER))
    threads = choose_threads(count)
    split, at = writer.split_counter(grid.groups_on(APART), "i")
    inner, further = writer.split_counter(grid.groups_on(IN_ORDER), "j")
    known: Known = {}
    here = {**at, **further}
    text = [*inner, *writer.compute((store.line, *store.args), known, here), *writer.store(store, known, here)]
    body = [
        f"const I i = (I)blockIdx.x * {threads} + threadIdx.x;",
        f"if (i >= {count}) return;",
        *split,
        f"for (I j = 0; j < {rounds}; ++j) {{",
        *("  " + x for x in text),
        "}",
    ]
    return writer.finish(body, (count_blocks(count, threads), 1), (threads, 1))


def find_separating_axes(kernel: Kernel, store: Store) -> frozenset[int]:
    """The axes along which two points never have one place, whatever the indices are: their strides reach beyond all
    that the others cover together, or stay below.
    """
    steps = [(abs(s), n, axis) for axis, (s, n) in enumerate(zip(store.strides, kernel.extents, strict=True)) if s]
    steps += [(abs(s), n, -1) for s, n in store.places]
    alone: list[int] = []
    cluster: list[int] = []
    span = 0
    for stride, n, axis in sorted(step for step in steps if step[1] != 1):
        if stride > span:
            alone += cluster if len(cluster) == 1 else []
            cluster = []
        cluster.append(axis)
        span += stride * (n - 1)
    alone += cluster if len(cluster) == 1 else []
    return frozenset(alone) - {-1}
