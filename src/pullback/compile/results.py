"""Results of the program: where they lie, and which of them are written over inputs that were given away."""

from __future__ import annotations

from typing import Any

from ..arrays.spec import spec_of
from ..ops.specialise import Symbol
from .contract import contract
from .fuse import Axes, Fuser, Made, Step, on
from .loops import Buffer, Host, Kernel, Layout, Line, Store, contiguous, row_major, visits_once
from .words import NATIVE

__all__ = ["output", "write_donated"]


def output(f: Fuser, number: int, x: Any) -> Buffer:
    """The buffer of a result: where it lies already if nothing else does, else a copy."""
    spec = spec_of(x)
    if number in f.donated:
        return donated_output(f, x, contiguous(f.inputs[f.donated[number]], spec.shape))
    made = f.made.get(id(x))
    if made is not None and id(x) not in f.places and f.order(spec.shape, [(x, ())]) != tuple(range(spec.ndim)):
        buffer = Buffer("output", spec.size, spec.dtype, number)
        f.add_store(made.step, made.line, made.axes, contiguous(buffer, spec.shape))
        return buffer
    layout = f.stored(x) if isinstance(x, Symbol) else None
    if layout is not None and layout.buffer.kind == "arena" and layout.is_whole:
        layout.buffer.kind, layout.buffer.number = "output", number
        return layout.buffer
    buffer = Buffer("output", spec.size, spec.dtype, number)
    if spec.dtype.name not in NATIVE:
        f.steps.append(moved(x if layout is None else layout, contiguous(buffer, spec.shape)))
    elif spec.size:
        step = f.new_kernel(spec.shape)
        axes: Axes = tuple(range(spec.ndim))
        f.add_store(step, f.line(x, step, axes), axes, contiguous(buffer, spec.shape))
    return buffer


def donated_output(f: Fuser, x: Any, target: Layout) -> Buffer:
    """A result written over the input it replaces, after everybody has read that input."""
    equation = f.producer.get(id(x))
    if f.places.get(id(x)) == target:  # it was written there
        return target.buffer
    if equation is not None and id(equation) in f.updates:
        product, alpha = f.updates[id(equation)]
        contract(f, product, target, alpha)
    elif target.size:
        made = f.made.get(id(x))
        if made is not None and id(x) not in f.places:
            f.in_place.append((x, target))
        else:
            source = f.stored(x)
            source = copied(f, source) if source.buffer.kind == "input" else source
            f.ends.append((source, target))
    return target.buffer


def write_donated(f: Fuser) -> None:
    """Results over inputs: by the kernel that makes them where nobody reads the input later, else by a last copy."""
    for x, target in f.in_place:
        made = f.made[id(x)]
        if nobody_reads(f, target.buffer, made) and id(x) not in f.places:
            f.add_store(made.step, made.line, made.axes, target)
        else:
            f.ends.append((f.stored(x), target))
    for source, target in f.ends:
        if target.buffer.dtype.name not in NATIVE:
            f.last.append(moved(source, target))
            continue
        f.last.append(_copying(source, target))


def _copying(source: Layout, target: Layout) -> Kernel:
    """A kernel of its own that copies; it is none of the Fuser's steps, whose numbers tell lines apart."""
    kernel = Kernel(target.shape, 0)
    axes: Axes = tuple(range(len(target.shape)))
    strides = on(kernel, axes, source)
    moving = frozenset(i for i, stride in enumerate(strides) if stride)
    line = Line(
        "load", source.buffer.dtype, moving, buffer=source.buffer, strides=strides, offset=source.offset
    )  # fmt: skip
    kernel.lines.append(line)
    kernel.stores.append(Store(line, target.buffer, on(kernel, axes, target)))
    return kernel


def copied(f: Fuser, source: Layout) -> Layout:
    """A layout in memory of its own, whatever its dtype."""
    if source.buffer.dtype.name in NATIVE:
        return f.copied(source)
    target = contiguous(Buffer("arena", source.size, source.buffer.dtype), source.shape)
    f.steps.append(moved(source, target))
    f.note(len(f.steps) - 1, target.buffer)
    return target


def moved(source: Any, target: Layout) -> Host:
    """A copy by the array library, of what compiled code has no dtype for."""
    return Host("copy", lambda x: x, (source,), (target,))


def nobody_reads(f: Fuser, buffer: Buffer, made: Made) -> bool:
    """Whether the kernel that makes a value may write it over an input: no later step, and no other place of the
    kernel itself, reads that input.
    """
    waiting = {id(f.steps[f.made[id(x)].step]) for x, _ in f.in_place}
    runs = [s for s in f.steps[made.step + 1 :] if s.writes() or id(s) in waiting]  # what stores nothing is left out
    later = [*runs, *f.last]
    if any(_mentions(step, buffer) for step in later) or any(buffer is s.buffer for s, _ in f.ends):
        return False
    kernel = f.kernel(made.step)
    strides = on(kernel, made.axes, Layout(buffer, *shape_of(f, buffer)))
    loads = [line for line in kernel.lines if line.buffer is buffer]
    same = all(line.kind == "load" and line.strides == strides and not line.offset for line in loads)
    return not kernel.inner and same and (not loads or visits_once(kernel, strides))


def _mentions(step: Step, buffer: Buffer) -> bool:
    """Whether a step reads a buffer, or will once the stores that are still to come make use of all its lines."""
    lines = step.lines if isinstance(step, Kernel) else []
    return buffer in step.reads() or any(line.buffer is buffer for line in lines)


def shape_of(f: Fuser, buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = f.input_specs[buffer.number].shape
    return shape, row_major(shape)
