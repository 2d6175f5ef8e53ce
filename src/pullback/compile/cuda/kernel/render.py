"""Kernel in, functions and their launches out: stores are sorted by how threads have to walk for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, Store
from .fold_parts import group_sums, moving_axes, nest_sums
from .points import render_points
from .rewrites import UnfoldedRows, join_parts, prepare_lines, separate_windows, sum_after_rows, unfold_rows
from .rows import goes_by_rows, render_rows
from .scatters import render_scatter
from .sums import divide_sums, render_sums
from .windows import render_windows
from .writer import FunctionLaunch


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
    sums, later = nest_sums(kernel, group_sums(kernel))
    for number, stores in enumerate(sums):
        beside = plain if number == len(sums) - 1 else []
        found += _render_folds(kernel, [*beside, *stores], alignments)
    found += [x for rest in later for x in render_kernel(rest, alignments)]
    if plain and not sums:
        found.append(render_points(_with_stores(kernel, plain), alignments))
    return found


def _render_rows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    if not goes_by_rows(kernel):
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


def _render_folds(kernel: Kernel, stores: Sequence[Store], alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """Stores that fold along the same axes, or along none, and plain ones beside them."""
    folds = [s for s in stores if s.word]
    if len(moving_axes(kernel, folds[0])) < sum(n != 1 for n in kernel.extents):
        return render_sums(_with_stores(kernel, stores), alignments)
    # each place has one point: it is all there is to fold, or is folded into what is there
    plain = [s if s.accumulates else replace(s, word="") for s in stores]
    return [render_points(_with_stores(kernel, plain), alignments)]
