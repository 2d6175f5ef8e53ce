"""Results of the program: where they are stored, and which of them overwrite donated inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...arrays.spec import spec_of
from ...program.ir import Symbol
from ..loop_ir import (
    Buffer,
    Host,
    Kernel,
    Layout,
    Product,
    Step,
    Store,
    contiguous_layout,
    load_line,
    row_major_strides,
    visits_once,
)
from .axes import Axes, strides_on_domain
from .contraction import lower_contraction
from .fuse import Fuser, KernelValue


def place_output(f: Fuser, number: int, x: Any) -> Buffer:
    """The buffer of a result: the one it is in if it is alone there, else a copy."""
    spec = spec_of(x)
    if number in f.donated:
        return place_donated_output(f, x, contiguous_layout(f.inputs[f.donated[number]], spec.shape))
    made = f.kernel_values.get(id(x))
    # results are row-major: the kernel of a permuted value stores it in that order
    if made is not None and id(x) not in f.places and f.order(spec.shape, [(x, ())]) != tuple(range(spec.ndim)):
        buffer = Buffer("output", spec.size, spec.dtype, number)
        f.add_store(made.step, made.line, made.axes, contiguous_layout(buffer, spec.shape))
        return buffer
    layout = f.layout_of(x) if isinstance(x, Symbol) else None
    # a whole buffer of the arena becomes the result itself, so nothing is copied
    if layout is not None and layout.buffer.kind == "arena" and layout.is_whole:
        layout.buffer.kind, layout.buffer.number = "output", number
        return layout.buffer
    buffer = Buffer("output", spec.size, spec.dtype, number)
    if not f.target.computes_in(spec.dtype):
        f.steps.append(copy_on_host(x if layout is None else layout, contiguous_layout(buffer, spec.shape)))
    elif made is not None and layout is not None and layout.buffer.kind == "output":
        f.add_store(made.step, made.line, made.axes, contiguous_layout(buffer, spec.shape))
    elif spec.size:
        step = f.new_kernel(spec.shape)
        axes: Axes = tuple(range(spec.ndim))
        f.add_store(step, f.line(x, step, axes), axes, contiguous_layout(buffer, spec.shape))
    return buffer


def place_donated_output(f: Fuser, x: Any, target: Layout) -> Buffer:
    """A result written over the input it replaces, after the last read of that input."""
    equation = f.producer.get(id(x))
    if f.places.get(id(x)) == target:  # it was written there directly
        return target.buffer
    if equation is not None and id(equation) in f.updates:
        product, alpha = f.updates[id(equation)]
        lower_contraction(f, product, target, alpha)
    elif target.size:
        made = f.kernel_values.get(id(x))
        if made is not None and id(x) not in f.places:
            f.donated_stores.append((x, target))
        else:
            source = f.layout_of(x)
            # another donated result may overwrite the input it comes from, so that is copied first
            source = copy_any_dtype(f, source) if source.buffer.kind == "input" else source
            f.final_copies.append((source, target))
    return target.buffer


def write_donated_outputs(f: Fuser) -> None:
    """Results over donated inputs: by the kernel that computes them if it uses the input last, else by a copy."""
    for x, target in f.donated_stores:
        made = f.kernel_values[id(x)]
        if is_last_use(f, target.buffer, made):
            f.add_store(made.step, made.line, made.axes, target)
        else:
            f.final_copies.append((f.layout_of(x), target))
    for source, target in f.final_copies:
        if _multiply_into(f, source, target):
            continue
        if not f.target.computes_in(target.buffer.dtype):
            f.last.append(copy_on_host(source, target))
            continue
        f.last.append(_copy_kernel(source, target))


def _multiply_into(f: Fuser, source: Layout, target: Layout) -> bool:
    """Whether a product that was to be copied now writes to the target at once: nothing else uses its result, and from
    then on nothing reads the target.
    """
    buffer = source.buffer
    users = [i for i, s in enumerate(f.steps) if buffer in s.writes() or _may_read(s, buffer)]
    if len(users) != 1 or buffer.kind != "arena" or not source.is_whole or any(buffer in s.writes() for s in f.first):
        return False
    (number,) = users
    product = f.steps[number]
    if not isinstance(product, Product) or product.out.buffer.dtype != target.buffer.dtype:
        return False
    later = [*f.steps[number:], *f.first, *f.last]
    waits = any(b is target.buffer for x, _ in f.final_copies for b in (x.buffer,))
    if waits or sum(x.buffer is buffer for x, _ in f.final_copies) != 1:
        return False
    if any(_may_read(s, target.buffer) or target.buffer in s.writes() for s in later):
        return False
    f.steps[number] = replace(product, out=replace(product.out, buffer=target.buffer))
    f.places |= {key: replace(x, buffer=target.buffer) for key, x in f.places.items() if x.buffer is buffer}
    return True


def _copy_kernel(source: Layout, target: Layout) -> Kernel:
    """A kernel that copies; it is not among the Fuser's steps, whose numbers identify lines."""
    kernel = Kernel(target.shape, 0)
    axes: Axes = tuple(range(len(target.shape)))
    line = load_line(source.buffer, strides_on_domain(kernel, axes, source), source.offset)
    kernel.lines.append(line)
    kernel.stores.append(Store(line, target.buffer, strides_on_domain(kernel, axes, target)))
    return kernel


def copy_any_dtype(f: Fuser, source: Layout) -> Layout:
    """A copy of a layout, whatever its dtype."""
    if f.target.computes_in(source.buffer.dtype):
        return f.copy_layout(source)
    target = contiguous_layout(Buffer("arena", source.size, source.buffer.dtype), source.shape)
    f.steps.append(copy_on_host(source, target))
    f.note(len(f.steps) - 1, target.buffer)
    return target


def copy_on_host(source: Any, target: Layout) -> Host:
    """A copy by NumPy, for dtypes that compiled code does not support."""
    return Host("copy", lambda x: x, (source,), (target,))


def is_last_use(f: Fuser, buffer: Buffer, made: KernelValue) -> bool:
    """Whether the kernel that makes a value may write it over an input: no later step, and no other place of the
    kernel itself, reads that input.
    """
    # kernels of other donated results have no store yet, and will have one
    waiting = {id(f.steps[f.kernel_values[id(x)].step]) for x, _ in f.donated_stores}
    # a kernel without stores is dropped
    after = f.steps[made.step + 1 :]
    runs = [s for s in after if s.writes() or id(s) in waiting or not isinstance(s, Kernel)]
    later = [*runs, *f.last]
    if any(_may_read(step, buffer) for step in later) or any(buffer is s.buffer for s, _ in f.final_copies):
        return False
    kernel = f.kernel(made.step)
    strides = strides_on_domain(kernel, made.axes, Layout(buffer, *input_shape_and_strides(f, buffer)))
    # each point reads its own element before it writes it, and nothing else of the input
    loads = [line for line in kernel.lines if line.buffer is buffer]
    same = all(line.kind == "load" and line.strides == strides and not line.offset for line in loads)
    return not kernel.inner and same and (not loads or visits_once(kernel, strides))


def _may_read(step: Step, buffer: Buffer) -> bool:
    """Whether a step reads a buffer, or may once stores that are still to come use all its lines."""
    lines = step.lines if isinstance(step, Kernel) else []
    return buffer in step.reads() or any(line.buffer is buffer for line in lines)


def input_shape_and_strides(f: Fuser, buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = f.input_specs[buffer.number].shape
    return shape, row_major_strides(shape)
