"""Steps in, steps out: what is only copied elsewhere is written there in the first place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, KernelLine, Layout, Product, Step, Store
from .order import conflict
from .tile import dense_size


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
    plain = load.kind == "load" and not store.word and not store.args and load.dtype == store.buffer.dtype
    moves = plain and load.buffer is not None and load.buffer.kind == "arena" and load.buffer is not store.buffer
    return (load, store) if moves and dense_size(load.strides, step.extents) == load.buffer.size else None  # type: ignore[union-attr]


def _forward(steps: list[Step], load: KernelLine, store: Store) -> None:
    """Let the step that fills what the last step copies write to the copy's place, if that can wait until here or the
    place is free there already.
    """
    copy = steps[-1]
    source = load.buffer
    at = next((i for i, step in enumerate(steps[:-1]) if source in step.writes()), None)
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
    axes = list(zip(copy.extents, load.strides, store.strides, strict=True))
    found = []
    for n, stride in zip(shape, strides, strict=True):
        inside = [
            (by, to) for m, by, to in axes if m > 1 and by <= stride and stride % by == 0 and stride * n <= by * m
        ]
        if n > 1 and not inside:
            return None
        found.append(stride // inside[0][0] * inside[0][1] if n > 1 else 0)
    return tuple(found)
