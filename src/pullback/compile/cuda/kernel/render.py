"""Kernel in, functions and their launches out: stores are sorted by how threads have to walk for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, Store, load_line, row_major_strides
from .points import render_points
from .rewrites import UnfoldedRows, join_parts, prepare_lines, separate_windows, sum_after_rows, unfold_rows
from .rows import render_rows
from .scatters import render_scatter
from .sums import divide_sums, render_sums
from .windows import render_windows
from .writer import FunctionLaunch, fold_dtype

#: Rows so few and long, or with so many lines in all, are divided among blocks, each phase a launch.
MANY_ROWS = 64
LONG_ROW = 1 << 15
LONG_WORK = 1 << 17
#: So many points for each place, and it does not matter that places are stored and folded once more.
FEW_PLACES = 64


def render_kernel(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """The launches of a kernel, in order."""
    if 0 in kernel.extents:
        return []
    kernel = prepare_lines(kernel)
    if any(line.kind == "fold" for line in kernel.live_lines()):
        return _render_rows(kernel, alignments)
    plain = [s for s in kernel.stores if not s.word and not s.args]
    # what is read may be overwritten by plain stores alone, so they come last
    found = [x for s in kernel.stores if s.args for x in render_scatter(_with_stores(kernel, [s]), alignments)]
    for store in (s for s in kernel.stores if s.word and s.accumulates and not s.args):
        found += _render_windows(_with_stores(kernel, [store]), alignments)
    sums, later = _nest_sums(kernel, _group_sums(kernel))
    for number, stores in enumerate(sums):
        beside = plain if number == len(sums) - 1 else []
        found += _render_folds(kernel, [*beside, *stores], alignments)
    found += [x for rest in later for x in render_kernel(rest, alignments)]
    if plain and not sums:
        found.append(render_points(_with_stores(kernel, plain), alignments))
    return found


def _render_rows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    outer = len(kernel.extents) - kernel.inner
    count, length = math.prod(kernel.extents[:outer]), math.prod(kernel.extents[outer:])
    is_long = length >= LONG_ROW or (length >= 256 and length * len(kernel.live_lines()) >= LONG_WORK)
    if any(s.args or s.accumulates for s in kernel.stores) or (count < MANY_ROWS and is_long):
        return _render_unfolded(unfold_rows(kernel), alignments)
    found = render_rows(kernel, alignments)
    if found is None:
        return [x for part in sum_after_rows(kernel) for x in render_kernel(part, alignments)]
    return found


def _render_unfolded(rows: UnfoldedRows, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """Phases one after the other; what is stored once a row joins the launch that folds parts of the last phase."""
    *first, last = rows.phases
    found = [x for phase in first for x in render_kernel(phase, alignments)]
    rest = [] if rows.rest is None else [rows.rest]
    sums = divide_sums(last, alignments)
    if rows.by_row is None or not sums.partial:
        found += render_kernel(last, alignments)
        rest = [*([rows.by_row] if rows.by_row is not None else []), *rest]
    else:
        used = {b for kernel in rest for b in kernel.reads()}
        found += [sums.launch, *render_kernel(join_parts(sums.folds, sums.partial, rows.by_row, used), alignments)]
    return [*found, *(x for kernel in rest for x in render_kernel(kernel, alignments))]


def _render_windows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    found = render_windows(kernel, alignments)
    if found is not None:
        return [found]
    return [x for part in separate_windows(kernel) for x in _render_folds(part, part.stores, alignments)]


def _with_stores(kernel: Kernel, stores: Sequence[Store]) -> Kernel:
    return Kernel(kernel.extents, 0, kernel.lines, list(stores))


def _group_sums(kernel: Kernel) -> list[list[Store]]:
    """Stores that fold along axes, by the axes that they keep."""
    groups: dict[frozenset[int], list[Store]] = {}
    for store in kernel.stores:
        if store.word and not store.args and not store.accumulates:
            kept = frozenset(_moving(kernel, store))
            groups.setdefault(kept, []).append(store)
    return list(groups.values())


def _nest_sums(kernel: Kernel, groups: Sequence[list[Store]]) -> tuple[list[list[Store]], list[Kernel]]:
    """The groups that need a walk over the domain, and kernels for the rest: what keeps fewer axes than another group
    is folded to that one's places in its walk, and from there on in a kernel of its own.
    """
    walks = sorted(groups, key=lambda stores: -len(_moving(kernel, stores[0])))
    found: list[list[Store]] = []
    later: list[Kernel] = []
    for stores in walks:
        kept = set(_moving(kernel, stores[0]))
        wider = next((w for w in found if kept < {*_moving(kernel, w[0])} and _has_few_places(kernel, w[0])), None)
        if wider is None:
            found.append(list(stores))
            continue
        for store in stores:
            part, rest = _fold_in_two(kernel, store, _moving(kernel, wider[0]))
            wider.append(part)
            later.append(rest)
    return found, later


def _has_few_places(kernel: Kernel, store: Store) -> bool:
    return FEW_PLACES * math.prod(kernel.extents[i] for i in _moving(kernel, store)) <= math.prod(kernel.extents)


def _fold_in_two(kernel: Kernel, store: Store, kept: Sequence[int]) -> tuple[Store, Kernel]:
    """A store that folds to more places than its own, and the kernel that folds those."""
    extents = tuple(kernel.extents[i] for i in kept)
    strides, places = row_major_strides(extents), math.prod(extents)
    buffer = Buffer("scratch", places, fold_dtype(store))
    of_axis = dict(zip(kept, strides, strict=True))
    part = replace(store, buffer=buffer, strides=tuple(of_axis.get(i, 0) for i in range(len(kernel.extents))), offset=0)
    own = replace(store, line=load_line(buffer, strides), strides=tuple(store.strides[i] for i in kept), points=places)
    return part, Kernel(extents, 0, [own.line], [own])


def _moving(kernel: Kernel, store: Store) -> list[int]:
    return [i for i, (n, s) in enumerate(zip(kernel.extents, store.strides, strict=True)) if n != 1 and s]


def _render_folds(kernel: Kernel, stores: Sequence[Store], alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """Stores that fold along the same axes, or along none, and plain ones beside them."""
    folds = [s for s in stores if s.word]
    if len(_moving(kernel, folds[0])) < sum(n != 1 for n in kernel.extents):
        return render_sums(_with_stores(kernel, stores), alignments)
    # each place has one point: it is all there is to fold, or is folded into what is there
    plain = [s if s.accumulates else replace(s, word="") for s in stores]
    return [render_points(_with_stores(kernel, plain), alignments)]
