"""Steps in, steps out: kernels that are worth several threads are cut into blocks, followed by kernels that combine the
blocks' partial folds.

The number of blocks depends on the kernel alone, never on the number of threads, and partial folds are combined in
order. So the result is the same to the last bit on any number of threads, one included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..loop_ir import Buffer, Division, Kernel, KernelLine, Product, Step, Store, load_line, phase_after
from ..target import Limits, Target
from ..varying import Operand, Varying
from .arena import round_up
from .cost import estimate_nanoseconds
from .domain import Domain


def divide_steps(steps: Sequence[Step], target: Target, varies: bool = False, leaves_open: bool = False) -> list[Step]:
    """The same steps, with long kernels in blocks. Where sizes vary, so do the numbers of blocks and parts; with
    `leaves_open`, also of kernels that are in one block.
    """
    steps = [_split_product(step, target, varies) if isinstance(step, Product) else step for step in steps]
    times = [estimate_nanoseconds(step, target.costs) if _is_divisible(step) else 0.0 for step in steps]
    # once threads are awake, a short kernel whose data another cache would have to fetch costs more than it saves
    is_long = sum(t for t in times if t >= target.limits.min_step_ns) >= target.limits.min_program_ns
    found: list[Step] = []
    opens = varies and leaves_open
    for step, time in zip(steps, times, strict=True):
        if isinstance(step, Kernel):
            blocks = _divide_kernel(step, time, target.limits, varies) if is_long else [step]
            found += [_leave_blocks_open(step, time, target.limits)] if opens and blocks == [step] else blocks
        elif isinstance(step, Product) and is_long:
            found.append(_divide_batch(step, time, target))
        else:
            found.append(step)
    return found


def _leave_blocks_open(kernel: Kernel, time: float, limits: Limits) -> Kernel:
    """A kernel in one block, where its size or its program's may be one that has several and results do not depend on
    how many: then the number of blocks is a number like others that vary.
    """
    domain = Domain(kernel, limits)
    folds = any(line.kind == "fold" for line in kernel.live_lines())
    is_fixed = time < limits.min_step_ns and not any(isinstance(n, Varying) for n in kernel.extents)
    if is_fixed or 0 in kernel.extents or any(s.args or s.accumulates for s in kernel.stores):
        return kernel
    for group in range(domain.rows if folds else len(domain.sizes)):
        can_be_cut = isinstance(domain.sizes[group], Varying) or _max_blocks(domain, group) > 1
        if can_be_cut and all(domain.strides(s.strides)[group] for s in kernel.stores):
            return replace(kernel, division=Division(domain.groups[group][-1], Varying(1, "blocks"), {}))
    return kernel


def _is_divisible(step: Step) -> bool:
    return isinstance(step, Kernel) or (isinstance(step, Product) and step.count > 1)


def _split_product(step: Product, target: Target, varies: bool) -> Product:
    """A long product as a batch of several, by columns (or else rows) of the result. Each element is summed in
    the same order as before.
    """
    rows, columns = step.out.shape[-2:]
    limits = target.limits
    time = estimate_nanoseconds(step, target.costs)
    most = (
        limits.max_product_parts
        if time <= limits.max_product_parts * limits.max_batch_product_ns
        else limits.max_blocks
    )
    count = min(_block_count(time, limits), most)
    if (count == 1 and not varies) or step.count > 1 or not target.can_cut_product(step):
        return step
    unit = limits.product_part_multiple
    while count > 1 and columns % (count * unit) and rows % (count * unit):
        count //= 2
    along = columns % (count * unit) == 0
    wide, tall = (columns // count, rows) if along else (columns, rows // count)
    out, left, right = step.out, step.left, step.right
    steps = (
        wide if along else tall * out.strides[1], 0 if along else tall * left.strides[1],
        wide * right.strides[2] if along else 0,
    )  # fmt: skip
    if varies:
        # a part's form is that of the whole, so that what is read when the code runs is right for all
        count, wide = Operand(count, "parts"), wide if isinstance(wide, Varying) else Operand(wide, "columns")
        tall = tall if isinstance(tall, Varying) else Operand(tall, "rows")
        steps = Operand(steps[0], "out"), Operand(steps[1], "left"), Operand(steps[2], "right")
    parts = (
        replace(out, shape=(count, tall, wide), strides=(steps[0], *out.strides[1:])),
        replace(left, shape=(count, tall, left.shape[2]), strides=(steps[1], *left.strides[1:])),
        replace(right, shape=(count, right.shape[1], wide), strides=(steps[2], *right.strides[1:])),
    )
    blocks = Operand(1, "blocks") if varies else 1
    return replace(step, out=parts[0], left=parts[1], right=parts[2], blocks=blocks)


def _divide_batch(step: Product, time: float, target: Target) -> Product:
    """A batch of products in blocks, where the target can run them side by side. Large matrices are left to the
    library's own threads, one after the other.
    """
    batch, limits = step.out.shape[0], target.limits
    # products that write one place, or what another reads, stay in order
    disjoint = all(step.out.buffer is not x.buffer for x in (step.left, step.right)) and step.out.strides[0] != 0
    if (
        batch == 1
        or time < limits.min_step_ns
        or (time / step.count > limits.max_batch_product_ns and not target.can_cut_product(step))
        or not disjoint
        or not target.can_divide_batches()
    ):
        return step
    blocks = int(min(_block_count(time, limits), batch))
    return replace(step, blocks=Operand(blocks, "blocks") if isinstance(batch, Operand) else blocks)


def _block_count(time: float, limits: Limits) -> int:
    """A power of two, so that a thread's share in one kernel is its share in the next: its caches hold it."""
    return min(limits.max_blocks, 1 << max(1, int(time / limits.min_block_ns)).bit_length() - 1)


def _divide_kernel(kernel: Kernel, time: float, limits: Limits, varies: bool) -> list[Step]:
    """The kernel in blocks along the outermost axes that allow it, and what must wait until all blocks have run."""
    if time < limits.min_step_ns or any(s.args or s.accumulates for s in kernel.stores):  # two blocks may share a place
        return [kernel]
    domain = Domain(kernel, limits)
    # where all is one row, the row itself is cut: stores that wait for its folds run after the blocks
    folds = [line for line in kernel.live_lines() if line.kind == "fold"]
    later = _find_postponed_stores(kernel) if folds and not domain.rows else []
    if later is None:
        return [kernel]
    stores = [s for s in kernel.stores if s not in later]
    # a row whose folds others wait for stays in one block, so only the axes outside of it are cut
    count = domain.rows if folds and domain.rows else len(domain.sizes)
    wanted = _block_count(time, limits)
    possible = [
        g for g in range(count) if _max_blocks(domain, g) > 1 and _are_blocks_independent(kernel, domain, stores, g)
    ]
    if not possible or wanted == 1:
        return [kernel]
    group = _choose_group(domain, possible, wanted)
    blocks = int(min(wanted, _max_blocks(domain, group)))
    blocks = Varying(blocks, "blocks") if varies else blocks
    return _build_blocks(kernel, domain, group, blocks, stores, later, limits.cache_line_bytes)


def _max_blocks(domain: Domain, group: int) -> int:
    """The most blocks a group can be cut into."""
    return domain.sizes[group] // domain.block_multiple(group)


def _choose_group(domain: Domain, possible: list[int], wanted: int) -> int:
    """The outermost group that can be cut into as many blocks as wanted, else the one that can be cut into most."""
    enough = [g for g in possible if _max_blocks(domain, g) >= wanted]
    return enough[0] if enough else max(possible, key=lambda g: _max_blocks(domain, g))


def _find_postponed_stores(kernel: Kernel) -> list[Store] | None:
    """The stores of a single row that wait for its folds or have one value for it; None if something along the row
    waits for a fold: then the row has several phases, and is not cut.
    """
    if any(line.phase and line.kind == "fold" for line in kernel.live_lines()):
        return None
    later = [s for s in kernel.stores if not s.word and not any(s.strides)]
    return None if any(s.phase for s in kernel.stores if s not in later) else later


def _are_blocks_independent(kernel: Kernel, domain: Domain, stores: list[Store], group: int) -> bool:
    """Whether blocks along a group are independent: stores differ along it, so that what is read of their buffers is
    read at the same point, or fold into pieces.
    """
    return all(_has_partial_results(kernel, s) for s in stores if not domain.strides(s.strides)[group])


def _has_partial_results(kernel: Kernel, store: Store) -> bool:
    """Whether each block can have a partial result of a store: it folds, and fills its whole buffer."""
    # elements that it does not fill would be garbage in a piece
    size = math.prod(n for n, stride in zip(kernel.extents, store.strides, strict=True) if stride)
    return bool(store.word) and size == store.buffer.size


def _build_blocks(
    kernel: Kernel, domain: Domain, group: int, blocks: int, stores: list[Store], later: list[Store], cache_line: int
) -> list[Step]:
    """The kernel in blocks along a group, and the kernels that combine the blocks' partial folds."""
    piece_strides: dict[Buffer, int] = {}

    def new_pieces(dtype: np.dtype[Any], size: int) -> Buffer:
        # pieces of different blocks are in different cache lines, against false sharing
        step = round_up(size * dtype.itemsize, cache_line) // dtype.itemsize
        buffer = Buffer("arena", int(blocks * step), dtype)
        piece_strides[buffer] = step
        return buffer

    # a fold that several blocks would write goes to a piece for each; if the row itself is cut, its folds are partial
    during: list[Store] = []
    after: list[Step] = []
    for store in stores:
        if store.word and not domain.strides(store.strides)[group]:
            there = store.buffer
            store = replace(store, buffer=new_pieces(there.dtype, there.size))
            after.append(_combining_kernel(store, there, blocks, piece_strides[store.buffer]))
        during.append(store)
    if group >= domain.rows:
        folds = [line for line in kernel.live_lines() if line.kind == "fold"]
        partial = {id(line): new_pieces(line.dtype, 1) for line in folds}
        during += [Store(line, partial[id(line)], (0,) * len(kernel.extents)) for line in folds]
        after += _finishing_kernels(later, domain, partial, piece_strides, blocks)
    return [replace(kernel, stores=during, division=Division(domain.groups[group][-1], blocks, piece_strides)), *after]


def _combining_kernel(store: Store, target: Buffer, blocks: int, step: int) -> Kernel:
    """The kernel that folds pieces into their buffer, in order."""
    size = target.size
    extents, strides, to = ((blocks, size), (step, 1), (0, 1)) if size > 1 else ((blocks,), (step,), (0,))
    line = load_line(store.buffer, strides)
    return Kernel(extents, 0, [line], [Store(line, target, to, 0, store.word, points=blocks * size)])


def _finishing_kernels(
    later: list[Store], domain: Domain, partial: dict[int, Buffer], piece_strides: dict[Buffer, int], blocks: int
) -> list[Step]:
    """Kernels whose row is the blocks' partial folds: they fold it, and compute what waits for the result."""
    kernel = Kernel((blocks,), 1)
    known: dict[int, KernelLine] = {}

    def recompute(line: KernelLine) -> KernelLine:
        if line.kind == "fold":
            buffer = partial[id(line)]
            return KernelLine(
                "fold", line.dtype, frozenset(), 0, (load_line(buffer, (piece_strides[buffer],)),), word=line.word
            )
        args = tuple(known[id(a)] for a in line.args)
        strides = (0,) if line.buffer is not None else ()
        return replace(line, args=args, axes=frozenset(), strides=strides, phase=phase_after(args))

    for line in Kernel((), 0, [], later).live_lines():
        if line.kind == "fold" or not domain.varies_along_row(line):
            known[id(line)] = recompute(line)
    kernel.lines += known.values()
    kernel.stores += [replace(s, line=known[id(s.line)], strides=(0,)) for s in later]
    return [kernel] if later else []
