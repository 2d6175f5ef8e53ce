"""Kernel in, kernels out: sums that blocks share are stored in parts, which a kernel of its own folds, wherever it fits
best; and sums that one walk over the domain can make at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, Store, load_line, row_major_strides
from .rewrites import prepare_lines
from .rows import count_row_parts
from .sums import combine_parts, count_sum_parts
from .writer import fold_dtype

#: So many points for each place, and it does not matter that places are stored and folded once more.
FEW_PLACES = 64


def divide_folds(kernel: Kernel) -> list[Kernel]:
    """A kernel that leaves its sums in parts, and the kernels that fold those; it alone if no blocks share a sum."""
    sums = [s for s in kernel.stores if s.word]
    if not sums or 0 in kernel.extents or any(s.args or s.accumulates or s.parts for s in kernel.stores):
        return [kernel]
    later: list[Kernel] = []
    if not kernel.inner:
        groups, later = nest_sums(kernel, group_sums(kernel), "arena")
        if len(groups) > 1:
            return [kernel]
        (sums,) = groups
        kernel = replace(kernel, stores=[*(s for s in kernel.stores if not s.word), *sums])
    parts, kept = _count_parts(kernel)
    if parts < 2:
        return [kernel, *later]
    extents = [kernel.extents[i] for i in kept]
    strides = dict(zip(kept, row_major_strides(tuple(extents)), strict=True))
    places = tuple(strides.get(i, 0) for i in range(len(kernel.extents)))
    partial = {id(s): Buffer("arena", parts * math.prod(extents), fold_dtype(s)) for s in sums}
    stores = [
        replace(s, buffer=partial[id(s)], strides=places, offset=0, parts=parts) if s.word else s for s in kernel.stores
    ]
    return [replace(kernel, stores=stores), combine_parts(kernel, kept, sums, list(partial.values())), *later]


def _count_parts(kernel: Kernel) -> tuple[int, list[int]]:
    """In how many parts a kernel folds, and the axes along which its sums have places."""
    prepared = prepare_lines(kernel)
    if any(line.kind == "fold" for line in prepared.live_lines()):
        return count_row_parts(prepared)
    sums = [s for s in prepared.stores if s.word]
    is_fold = len(moving_axes(kernel, sums[0])) < sum(n != 1 for n in kernel.extents)
    return count_sum_parts(prepared) if is_fold else (1, [])


def group_sums(kernel: Kernel) -> list[list[Store]]:
    """Stores that fold along axes, by the axes that they keep."""
    groups: dict[frozenset[int], list[Store]] = {}
    for store in kernel.stores:
        if store.word and not store.args and not store.accumulates:
            kept = frozenset(moving_axes(kernel, store))
            groups.setdefault(kept, []).append(store)
    return list(groups.values())


def nest_sums(
    kernel: Kernel, groups: Sequence[list[Store]], kind: str = "scratch"
) -> tuple[list[list[Store]], list[Kernel]]:
    """The groups that need a walk over the domain, and kernels for the rest: what keeps fewer axes than another group
    is folded to that one's places in its walk, in memory of a kind, and from there on in a kernel of its own.
    """
    walks = sorted(groups, key=lambda stores: -len(moving_axes(kernel, stores[0])))
    found: list[list[Store]] = []
    later: list[Kernel] = []
    for stores in walks:
        kept = set(moving_axes(kernel, stores[0]))
        wider = next((w for w in found if kept < {*moving_axes(kernel, w[0])} and _has_few_places(kernel, w[0])), None)
        if wider is None:
            found.append(list(stores))
            continue
        for store in stores:
            part, rest = _fold_in_two(kernel, store, moving_axes(kernel, wider[0]), kind)
            wider.append(part)
            later.append(rest)
    return found, later


def _has_few_places(kernel: Kernel, store: Store) -> bool:
    return FEW_PLACES * math.prod(kernel.extents[i] for i in moving_axes(kernel, store)) <= math.prod(kernel.extents)


def _fold_in_two(kernel: Kernel, store: Store, kept: Sequence[int], kind: str) -> tuple[Store, Kernel]:
    """A store that folds to more places than its own, and the kernel that folds those."""
    extents = tuple(kernel.extents[i] for i in kept)
    strides, places = row_major_strides(extents), math.prod(extents)
    buffer = Buffer(kind, places, fold_dtype(store))
    of_axis = dict(zip(kept, strides, strict=True))
    part = replace(store, buffer=buffer, strides=tuple(of_axis.get(i, 0) for i in range(len(kernel.extents))), offset=0)
    own = replace(store, line=load_line(buffer, strides), strides=tuple(store.strides[i] for i in kept), points=places)
    return part, Kernel(extents, 0, [own.line], [own])


def moving_axes(kernel: Kernel, store: Store) -> list[int]:
    return [i for i, (n, s) in enumerate(zip(kernel.extents, store.strides, strict=True)) if n != 1 and s]
