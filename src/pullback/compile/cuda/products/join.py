"""Steps in, steps out: those that can share one launch become a group (`Blocks` that run once).

A kernel that reads a product element by element is put behind it, so that a tile can take it in (`find_tail`); its sums
over other axes become a kernel of their own. Short steps that do not wait for each other are put side by side. A group
means what its steps mean one after the other, and its buffers are all in use at once, so whatever a target makes of it,
one launch or several, nothing is overwritten that is still read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...loop_ir import Blocks, Buffer, Kernel, KernelLine, Product, Step, Store, load_line, row_major_strides
from ...vocabulary import is_float8, value_dtype
from ..kernel.fold_parts import divide_folds
from ..kernel.followers import join_follower
from ..kernel.rewrites import change_lines
from .choose import LARGE_PRODUCT, SHARED_PRODUCT, count_multiplications, row_shape
from .copies import forward_copies, read_sources
from .order import Accesses, accesses_of, conflict
from .split import count_parts, split_product
from .sums import join_sums
from .tile import Tail, is_dense_load, scale_line, store_product

#: A kernel of more points is worth a launch of its own, and so many steps at most share one.
MAX_SHARED_POINTS = 1 << 20
MAX_SHARED_STEPS = 24
#: What follows a product is looked for among so many steps.
MAX_DISTANCE = 64


def group_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps in groups, each of which may be one launch."""
    units = join_sums(_join_tails(forward_copies(read_sources(steps))))
    units = join_sums([part for unit in units for part in _divide_unit(unit)])
    groups: list[_Group] = []
    for unit in units:
        _add_unit(groups, unit)
    found: list[Step] = []
    later: set[Buffer] = set()
    for group in reversed(groups):
        flat = [step for unit in group.units for step in unit]
        inner = [s for s in flat if isinstance(s, (Kernel, Product))]
        unread = frozenset(b for b in group.accesses.writes if b.kind == "arena" and b not in later)
        found.append(flat[0] if len(flat) == 1 else Blocks(1, inner, {}, unread))
        later |= group.accesses.reads
    return found[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one launch can do: a product with a tail, or with a kernel over its rows, or a step alone."""

    steps: tuple[Kernel | Product, ...]
    tail: Tail | None = None
    #: Of sums and what follows them: the kernel that does both.
    joined: Kernel | None = None


def split_stages(group: Blocks) -> list[list[Unit]]:
    """The units of a group, in stages: those of a stage do not wait for each other."""
    stages: list[list[Unit]] = []
    for unit in _split_units(group):
        steps = [step for other in stages[-1] for step in other.steps] if stages else []
        if not stages or conflict(steps, unit.steps):
            stages.append([])
        stages[-1].append(unit)
    return stages


def _split_units(group: Blocks) -> Iterator[Unit]:
    steps = group.steps
    i = 0
    while i < len(steps):
        step = steps[i]
        if isinstance(step, Product) and i + 1 < len(steps):
            tail = find_tail(step, steps[i + 1], step.out.buffer in group.unread)
            if tail is not None or takes_rows(step, steps[i + 1]):
                yield Unit((step, steps[i + 1]), tail)
                i += 2
                continue
        if i + 1 < len(steps) and isinstance(step, Kernel) and isinstance(follower := steps[i + 1], Kernel):
            joined = join_follower(step, follower, group.unread)
            if joined is not None:
                yield Unit((step, follower), joined=joined)
                i += 2
                continue
        yield Unit((step,))
        i += 1


# A product and what follows it


def find_tail(product: Product, kernel: Step, unread: bool) -> Tail | None:
    """The kernel as the tail of a tile: it reads the product once, point by point, folds nothing, and writes nothing
    that the product reads. Unless it is `unread` afterwards, the product is stored too.
    """
    out = product.out
    if not isinstance(kernel, Kernel) or kernel.inner or kernel.division is not None or 0 in kernel.extents:
        return None
    loads = [line for line in kernel.live_lines() if line.buffer is out.buffer]
    plain = all(not s.word and not s.args for s in kernel.stores)
    if len(loads) != 1 or not plain or not is_dense_load(loads[0], kernel.extents, out):
        return None
    if any(b in product.reads() or b is out.buffer for b in kernel.writes()) or out.buffer in product.reads():
        return None
    (load,) = loads
    # in the kernel's place of the load is alpha times what the tile has summed
    value = scale_line(replace(load), product.alpha)
    source = value.args[0] if value.args else value
    changed = change_lines(kernel, lambda line: value if line is load else line)
    if not unread:
        changed.stores.append(Store(value, out.buffer, load.strides, load.offset))
    return Tail(Kernel(kernel.extents, 0, changed.lines, changed.stores), source, out.strides)


def takes_rows(product: Product, kernel: Step) -> bool:
    """Whether a kernel goes through the rows of a product in their order, so that the threads that made a row may go on
    with it. What it writes, neither reads.
    """
    out = product.out
    if not isinstance(kernel, Kernel) or not kernel.inner or kernel.division is not None or product.beta:
        return False
    loads = [line for line in kernel.live_lines() if line.buffer is out.buffer]
    row = math.prod(kernel.extents[len(kernel.extents) - kernel.inner :])
    in_order = all(
        line.kind == "load"
        and line.offset == out.offset
        and is_dense_load(line, kernel.extents, out)
        and _is_row_major(line.strides, kernel.extents)
        for line in loads
    )
    plain = all(not s.word and not s.args for s in kernel.stores)
    written = {*kernel.writes()}
    apart = written.isdisjoint((*kernel.reads(), *product.reads(), out.buffer))
    fits = row == out.shape[-1] and row_shape(product) is not None and count_parts(product) == 1
    return bool(loads) and in_order and plain and apart and fits and _is_row_major(out.strides, out.shape)


def _is_row_major(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(n == 1 or s == t for n, s, t in zip(shape, strides, row_major_strides(shape), strict=True))


def _join_tails(steps: list[Step]) -> list[list[Step]]:
    """Units of steps: a product with its tail, or a step alone. A tail comes as early as its product, or the product
    as late as its tail, if nothing between them forbids it.
    """
    units: list[list[Step]] = []
    moved: set[int] = set()
    i = 0
    while i < len(steps):
        step = steps[i]
        i += 1
        if not isinstance(step, Product) or not _is_worth_joining(step):
            units.append([step])
            continue
        at = _next_use(steps, i, step.out.buffer)
        first, sums = _part_sums(step, steps[at]) if at is not None else (None, [])
        # each sum reads again what is stored
        if at is None or first is None or (sums and _is_large(step)):
            units += _split_unit(step, None, ())
            continue
        between = steps[i:at]
        if not conflict(between, (first, *sums)):
            steps[i : at + 1] = [*sums, *between]
            units += _split_unit(step, first, steps[i:])
        elif id(step) not in moved and not conflict((step,), between):
            moved.add(id(step))
            steps[i - 1 : at + 1] = [*between, step, first, *sums]
            i -= 1
        else:
            units += _split_unit(step, None, ())
    return units


def _split_unit(product: Product, kernel: Kernel | None, later: Sequence[Step]) -> list[list[Step]]:
    """A product with its tail in one unit, or if K is cut, the parts and their sum in one each."""
    parts, buffer = count_parts(product), product.out.buffer
    whole: list[Step] = [product] if kernel is None else [product, kernel]
    if parts == 1 or (kernel is not None and kernel.inner):
        return [whole]
    unread = buffer.kind == "arena" and not any(buffer in step.reads() for step in later)
    tail = store_product(product) if kernel is None else find_tail(product, kernel, unread)
    return [whole] if tail is None else [[step] for step in split_product(product, tail, parts)]


def _divide_unit(unit: list[Step]) -> list[list[Step]]:
    """A kernel alone whose sums several blocks share, with what folds their parts in units of its own."""
    (step, *rest) = unit
    return [[part] for part in divide_folds(step)] if isinstance(step, Kernel) and not rest else [unit]


def _next_use(steps: Sequence[Step], start: int, buffer: Buffer) -> int | None:
    """The next step that uses a buffer, if it is near: programs may have thousands."""
    near = range(start, min(start + MAX_DISTANCE, len(steps)))
    return next((j for j in near if buffer in steps[j].reads() or buffer in steps[j].writes()), None)


def _is_large(product: Product) -> bool:
    return count_multiplications(product) > LARGE_PRODUCT


def _is_worth_joining(product: Product) -> bool:
    has_tiles = not is_float8(product.left.buffer.dtype)
    return has_tiles and (not _is_large(product) or product.axes is not None)


def _part_sums(product: Product, kernel: Step) -> tuple[Kernel | None, list[Kernel]]:
    """The part of a kernel that follows a product in its launch: all of it if it goes through rows, else its plain
    stores; each other store becomes a kernel that loads what those have stored.
    """
    if not isinstance(kernel, Kernel) or takes_rows(product, kernel):
        return (kernel, []) if isinstance(kernel, Kernel) else (None, [])
    plain = [s for s in kernel.stores if not s.word and not s.args]
    if not plain or kernel.inner:
        return None, []
    first = replace(kernel, stores=plain)
    rest = [_load_stored(replace(kernel, stores=[s]), plain) for s in kernel.stores if s not in plain]
    # what is read after the first part must be what was read before
    lost = set(first.writes())
    lines = [line for part in rest for line in part.live_lines() if line.buffer in lost]
    kept = all(_is_stored_value(line, plain) for line in lines)
    return (first, rest) if kept and find_tail(product, first, unread=True) is not None else (None, [])


def _load_stored(kernel: Kernel, stored: Sequence[Store]) -> Kernel:
    """A kernel that loads lines which are in memory instead of computing them again."""
    kept = {id(s.line): s for s in stored if value_dtype(s.buffer.dtype) == s.line.dtype and s.line.kind == "apply"}

    def change(line: KernelLine) -> KernelLine:
        store = kept.get(id(line))
        return line if store is None else load_line(store.buffer, store.strides, store.offset)

    stores = [replace(s, line=change(s.line), args=tuple(map(change, s.args))) for s in kernel.stores]
    direct = replace(kernel, stores=stores)
    return change_lines(direct, change)


def _is_stored_value(line: KernelLine, stored: Sequence[Store]) -> bool:
    return any((line.buffer, line.strides, line.offset) == (s.buffer, s.strides, s.offset) for s in stored)


# Steps side by side


@dataclass(slots=True)
class _Group:
    units: list[list[Step]] = field(default_factory=list)
    accesses: Accesses = field(default_factory=Accesses)
    is_open: bool = True

    def add(self, unit: list[Step]) -> None:
        self.units.append(unit)
        self.accesses.add(unit)


def _add_unit(groups: list[_Group], unit: list[Step]) -> None:
    """Add steps to the first group that comes after all they wait for, or as a new one."""
    accesses, shares = accesses_of(unit), _may_share(unit)
    reversed_waits = (i for i in reversed(range(len(groups))) if groups[i].accesses.must_precede(accesses))
    # what waits for nothing comes as late as it stands: its memory would be in use from the beginning
    waits = next(reversed_waits, len(groups) - 2)
    if shares:
        for group in groups[max(waits + 1, 0) :]:
            if group.is_open and len(group.units) < MAX_SHARED_STEPS:
                group.add(unit)
                return
    groups.append(_Group(is_open=shares))
    groups[-1].add(unit)


def _may_share(unit: Sequence[Step]) -> bool:
    first, *rest = unit
    if isinstance(first, Product):
        # its tail has the product's points
        return count_multiplications(first) <= SHARED_PRODUCT and all(_is_undivided(step) for step in rest)
    return all(_is_undivided(s) and isinstance(s, Kernel) and math.prod(s.extents) <= MAX_SHARED_POINTS for s in unit)


def _is_undivided(step: Step) -> bool:
    return isinstance(step, Kernel) and step.division is None and 0 not in step.extents
