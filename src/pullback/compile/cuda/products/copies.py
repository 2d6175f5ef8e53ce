"""Steps in, steps out: what is only copied elsewhere is written there in the first place, and what is copied or scaled
only for products is read by them where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...loop_ir import Buffer, Kernel, KernelLine, Layout, Product, Step, Store
from ...vocabulary import is_float8, value_dtype
from .composed import read_composed
from .order import conflict
from .tile import dense_size

#: A step that fills what is copied is looked for among so many before the copy.
MAX_DISTANCE = 256


def forward_copies(steps: Sequence[Step]) -> list[Step]:
    """The steps without copies of buffers that one step writes and the copy alone reads: that step writes the copy."""
    found: list[Step] = []
    uses: dict[Buffer, int] = {}
    for step in steps:
        for buffer in {*step.reads(), *step.writes()}:
            uses[buffer] = uses.get(buffer, 0) + 1
    for step in steps:
        found.append(step)
        copy = _find_copy(step)
        if copy is not None and copy[0].buffer is not None and uses[copy[0].buffer] == 2:
            _forward(found, *copy)
    return found


def _find_copy(step: Step) -> tuple[KernelLine, Store] | None:
    """The load and the store of a kernel that does nothing else."""
    if not isinstance(step, Kernel) or step.inner or len(step.stores) != 1 or 0 in step.extents:
        return None
    (store,) = step.stores
    load = store.line
    if load.kind != "load" or store.word or store.args or not _is_alike(load, store):
        return None
    source = load.buffer
    is_whole = source is not None and source.kind == "arena" and dense_size(load.strides, step.extents) == source.size
    return (load, store) if is_whole else None


def _forward(steps: list[Step], load: KernelLine, store: Store) -> None:
    """Let the step that fills what the last step copies write to the copy's place, if that can wait until here or the
    place is free there already.
    """
    copy = steps[-1]
    source = load.buffer
    near = range(len(steps) - 2, max(-1, len(steps) - 2 - MAX_DISTANCE), -1)
    at = next((i for i in near if source in steps[i].writes()), None)
    assert isinstance(copy, Kernel)
    if at is None or source is None:
        return
    writer = steps[at]
    changed = _write_elsewhere(writer, source, copy, load, store)
    if changed is None or store.buffer in (*writer.reads(), *writer.writes()):
        return
    between = steps[at + 1 : -1]
    if not conflict((writer,), between):
        steps[at:] = [*between, changed]
    elif not conflict(between, (copy,)):
        steps[at:] = [changed, *between]


def _write_elsewhere(writer: Step, source: Buffer, copy: Kernel, load: KernelLine, store: Store) -> Step | None:
    if isinstance(writer, Product):
        out = writer.out
        strides = _compose(out.strides, out.shape, copy, load, store)
        if out.offset or out.size != source.size or writer.beta or strides is None:
            return None
        return replace(writer, out=Layout(store.buffer, out.shape, strides, store.offset))
    if not isinstance(writer, Kernel) or sum(b is source for b in writer.writes()) != 1:
        return None
    (old,) = (s for s in writer.stores if s.buffer is source)
    strides = _compose(old.strides, writer.extents, copy, load, store)
    if old.word or old.args or old.offset or strides is None or dense_size(old.strides, writer.extents) != source.size:
        return None
    new = replace(old, buffer=store.buffer, strides=strides, offset=store.offset)
    return replace(writer, stores=[new if s is old else s for s in writer.stores])


def _compose(
    strides: Sequence[int], shape: Sequence[int], copy: Kernel, load: KernelLine, store: Store
) -> tuple[int, ...] | None:
    """The strides in the copy along axes that have some strides in its source; None unless each of them lies within
    one axis of the copy.
    """
    return compose_strides(strides, shape, zip(copy.extents, load.strides, store.strides, strict=True))


def compose_strides(
    strides: Sequence[int], shape: Sequence[int], way: Iterable[tuple[int, int, int]]
) -> tuple[int, ...] | None:
    """Strides in one memory from those in another that is its copy without gaps: `way` has the sizes of axes, their
    strides there and here.
    """
    axes = list(way)
    found = []
    for n, stride in zip(shape, strides, strict=True):
        inside = [
            (by, to) for m, by, to in axes if m > 1 and by <= stride and stride % by == 0 and stride * n <= by * m
        ]
        if n > 1 and not inside:
            return None
        found.append(stride // inside[0][0] * inside[0][1] if n > 1 else 0)
    return tuple(found)


class _Factors:
    """A vocabulary that multiplies: a scalar is a number, or a pair of a factor and a line."""

    def constant(self, number: Any) -> float:
        return float(number)

    def multiply(self, x: Any, y: Any) -> Any:
        if isinstance(x, tuple) and isinstance(y, tuple):
            raise NotImplementedError
        if isinstance(y, tuple):
            x, y = y, x
        return (x[0] * y, x[1]) if isinstance(x, tuple) else x * y


def _find_scaling(step: Step) -> tuple[float, KernelLine, Store] | None:
    """The factor, the load and the store of a kernel that copies or scales an array and does nothing else. A factor
    above one could overflow, and the product of that with zero is NaN, which a factor of the result would hide.
    """
    if not isinstance(step, Kernel) or step.inner or len(step.stores) != 1 or 0 in step.extents:
        return None
    (store,) = step.stores
    line, dtype = store.line, value_dtype(store.buffer.dtype)
    if store.word or store.args or store.offset or store.buffer.kind != "arena" or line.dtype != dtype:
        return None
    if line.kind == "load":
        return (1.0, line, store) if _is_alike(line, store) else None
    loads = [x for x in line.args if x.kind == "load"]
    numbers = [x for x in line.args if x.kind == "number"]
    if line.kernel is None or len(loads) != 1 or len(loads) + len(numbers) != len(line.args):
        return None
    try:
        factor, load = line.kernel(_Factors(), *((1.0, x) if x.kind == "load" else x.number for x in line.args))
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    rounded = float(dtype.type(factor)) if dtype.kind == "f" and _is_alike(load, store) else math.nan
    return (rounded, load, store) if abs(rounded) <= 1 else None


def _is_alike(load: KernelLine, store: Store) -> bool:
    """Whether what is read has the dtype of what is written, and is not the same memory."""
    source = load.buffer
    return source is not None and source is not store.buffer and source.dtype == store.buffer.dtype


def read_sources(steps: Sequence[Step]) -> list[Step]:
    """The steps without copies and scaled arrays that products alone read: they read what was there before."""
    found: list[Step | None] = list(steps)
    uses: dict[Buffer, list[int]] = {}
    for i, step in enumerate(steps):
        for buffer in {*step.reads(), *step.writes()}:
            uses.setdefault(buffer, []).append(i)
    for at, step in enumerate(steps):
        scaling = _find_scaling(step)
        if scaling is not None and isinstance(step, Kernel):
            factor, load, store = scaling
            users = uses[store.buffer]
            changed = _read_source(found, users, step, factor, load, store) if users[0] == at else None
            if changed and load.buffer is not None:
                found[at] = None
                for i in users[1:]:
                    found[i] = changed[i]
                uses[load.buffer] = sorted({*uses[load.buffer], *users[1:]})
    return [step for step in found if step is not None]


def _read_source(
    steps: Sequence[Step | None], users: Sequence[int], kernel: Kernel, factor: float, load: KernelLine, store: Store
) -> dict[int, Step]:
    """The products that read a copy, reading its source instead, by their numbers; none if another step reads the copy
    or the source changes before.
    """
    at, source, copy = users[0], load.buffer, store.buffer
    if source is None or dense_size(store.strides, kernel.extents) != copy.size:
        return {}
    if any(step is not None and source in step.writes() for step in steps[at : users[-1] + 1]):
        return {}
    found: dict[int, Step] = {}
    way = list(zip(kernel.extents, store.strides, load.strides, strict=True))
    for i in users[1:]:
        step = steps[i]
        # of eight bits, elements along K must lie side by side
        if not isinstance(step, Product) or step.out.buffer is copy or is_float8(copy.dtype):
            return {}
        changed = _read_matrices(step, copy, way, load) or read_composed(step, copy, way, load)
        if changed is None:
            return {}
        times = factor ** sum(m.buffer is copy for m in (step.left, step.right))
        found[i] = replace(changed, alpha=step.alpha * times)
    return found


def _read_matrices(
    step: Product, copy: Buffer, way: Sequence[tuple[int, int, int]], load: KernelLine
) -> Product | None:
    """A product whose matrices of a copy are matrices of its source."""
    left, right = (_read_through(m, way, load) if m.buffer is copy else m for m in (step.left, step.right))
    return None if left is None or right is None or step.axes else replace(step, left=left, right=right)


def _read_through(matrix: Layout, way: Sequence[tuple[int, int, int]], load: KernelLine) -> Layout | None:
    """A matrix of a copy as one of its source, if neighbours along an axis stay neighbours."""
    strides = compose_strides(matrix.strides, matrix.shape, way)
    if strides is None or matrix.offset or 1 not in strides[-2:] or load.buffer is None:
        return None
    return Layout(load.buffer, matrix.shape, strides, load.offset)
