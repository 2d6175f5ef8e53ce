"""Kernels without folds: each thread computes a few neighbouring points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...loop_ir import Buffer, Kernel, KernelLine, Store
from .grid import Grid, count_blocks
from .tiles import find_turned_loads, render_tiles
from .writer import Coordinates, FunctionLaunch, FunctionWriter, Known, fold_text, stored_type

#: The blocks from which on a GPU is busy.
BUSY_BLOCKS = 264


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A line that is folded into the total of a thread."""

    total: str
    fold: KernelLine | Store
    line: KernelLine


def render_points(kernel: Kernel, alignments: Mapping[Buffer, int]) -> FunctionLaunch:
    """One thread for each vector of points along the last axis."""
    grid = Grid(kernel, [0] * len(kernel.extents), alignments)
    writer = FunctionWriter(grid)
    targets = [x for s in kernel.stores for x in (s.line, *s.args)]
    if not grid.groups:
        known: Known = {}
        body = writer.compute(targets, known, {})
        body += [x for s in kernel.stores for x in writer.store(s, known, {})]
        return writer.finish(body, (1, 1), (1, 1))
    inner = find_inner_group(grid)
    turned = find_turned_loads(grid, inner)
    if turned is not None:
        return render_tiles(grid, inner, *turned)
    order, total = [*(g for g in range(len(grid.groups)) if g != inner), inner], grid.size_of(range(len(grid.groups)))
    width = grid.vector_width(inner)
    threads = choose_threads(total // width)
    split, at = writer.split_counter(order, "i")
    body = [f"const I i = ((I)blockIdx.x * {threads} + threadIdx.x) * {width};", f"if (i >= {total}) return;", *split]
    body += write_vector(writer, inner, width, at, targets, kernel.stores, {})
    return writer.finish(body, (count_blocks(total // width, threads), 1), (threads, 1))


def find_inner_group(grid: Grid) -> int:
    """The group along which neighbouring threads go: where a store has neighbours in memory, or the last."""
    stores, last = grid.kernel.stores, len(grid.groups) - 1
    return next((g for s in stores for g in range(last, -1, -1) if grid.stride(s, g) == 1), last)


def choose_threads(count: int) -> int:
    """Threads of a block: smaller ones where there would be too few."""
    return 256 if count >= 256 * BUSY_BLOCKS else 128 if count >= 64 * BUSY_BLOCKS else 64


def write_vector(
    writer: FunctionWriter,
    group: int,
    width: int,
    at: Coordinates,
    targets: Sequence[KernelLine],
    stores: Sequence[Store],
    known: Known,
    folds: Sequence[Accumulation] = (),
    held: Mapping[int, tuple[str, bool]] = MappingProxyType({}),
    kept: Mapping[int, str] = MappingProxyType({}),
) -> list[str]:
    """Statements for `width` points along a group: loads, values, stores, and folds. Loads that are `held` have a
    vector, and maybe were loaded before; lines that are `kept` have a place.
    """
    head, loaded = _load_vectors(writer, group, width, at, writer.needed_lines(targets, known), held)
    tail: list[str] = []
    inside = {**at, group: f"({at[group]} + u)"} if width > 1 else at
    body = writer.compute(targets, known, inside, loaded)
    for store in stores:
        if width > 1 and not store.args and not store.word and writer.grid.stride(store, group) == 1:
            name, value = writer.name("s"), known[id(store.line)]
            head.append(f"Vec<{stored_type(store)}, {width}> {name};")
            body += writer.assign_cast(f"{name}.v[u]", value, store.buffer.dtype)
            writer.written.append(store.buffer)
            tail.append(f"{writer.vector_at(store, at, width)} = {name};")
        else:
            body += writer.store(store, known, inside)
    body += [f"{place} = {known[key].name};" for key, place in kept.items()]
    body += [f"{x.total} = {fold_text(x.fold, x.total, known[id(x.line)].name)};" for x in folds]
    if width == 1:
        return [*head, *body, *tail]
    return [*head, "#pragma unroll", f"for (int u = 0; u < {width}; ++u) {{", *("  " + x for x in body), "}", *tail]


def _load_vectors(
    writer: FunctionWriter,
    group: int,
    width: int,
    at: Coordinates,
    lines: Sequence[KernelLine],
    held: Mapping[int, tuple[str, bool]],
) -> tuple[list[str], dict[int, str]]:
    """Statements that load vectors, and the text of each load's element."""
    head: list[str] = []
    loaded: dict[int, str] = {}
    for line in lines:
        if id(line) in held:
            vector, is_loaded = held[id(line)]
            loaded[id(line)] = f"{vector}.v[{'u' if width > 1 else 0}]"
            head += [] if is_loaded else [f"{vector} = {writer.vector_at(line, at, width)};"]
        elif line.kind == "load" and width > 1 and writer.grid.stride(line, group) == 1:
            name = writer.name("a")
            head.append(f"const Vec<{stored_type(line)}, {width}> {name} = {writer.vector_at(line, at, width)};")
            loaded[id(line)] = f"{name}.v[u]"
    return head, loaded
