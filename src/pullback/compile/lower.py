"""Graph in, steps out: each equation by the form of its op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import spec_of
from ..checkpoint.registry import may_run_again
from ..ops.dispatch import compute
from ..ops.forms import Again, Cast, Contract, Convolve, Flow, Fold, Gather, Join, Place, Window, Write
from ..ops.specialise import Equation, Symbol
from .contract import contract, contracts, updates
from .convolve import convolve, convolves
from .flow import flow
from .fuse import Fuser, Steps, phase
from .indices import gather, scatter
from .legality import check_legality
from .loops import Host, Kernel, Layout, Line, Store
from .order import in_order
from .results import output, write_donated
from .split import split
from .views import axes_of_view, is_view
from .window import windowed, windows_of
from .words import computed_in, is_native, speaks

__all__ = ["lowered"]


def lowered(
    inputs: Sequence[Symbol], equations: Sequence[Equation], outputs: Sequence[Any], donated: dict[int, int]
) -> Steps:
    """The steps of a program. `donated` says which outputs (by number) go into the memory of which inputs."""
    f = Fuser(inputs, equations, outputs, donated)
    f.updates = updates(f, inputs)
    for equation in equations:
        lower(f, equation)
    results = [output(f, i, x) for i, x in enumerate(outputs)]
    write_donated(f)
    written = [s for s in f.steps if s.writes()]  # what others computed again stores nothing
    steps = in_order(f.first, written, f.last)
    pieces = [piece for s in steps for piece in (split(s) if isinstance(s, Kernel) else (s,))]
    check_legality(pieces)
    places = [(s, f.places[id(s)]) for e in equations for s in e.results if id(s) in f.places]
    return Steps(pieces, f.inputs, results, places)


def lower(f: Fuser, e: Equation) -> None:
    if id(e) in f.updates:
        return
    form = e.op.form
    given, made = tuple([spec_of(a) for a in e.args]), [s.spec for s in e.results]
    if not all(map(is_native, {s.dtype for s in (*given, *made)})) or exceeds_dtype(e):
        host(f, e)
    elif isinstance(form, Flow):
        flow(f, e, lowered)
    elif isinstance(form, Cast) or (e.op.family == "elementwise" and speaks(e.op, given, made[0])):
        pointwise(f, e)
    elif isinstance(form, Fold) and e.results[0].spec.size and spec_of(e.args[0]).size:
        fold(f, e)
    elif isinstance(form, Contract) and contracts(f, e):
        contract(f, e)
    elif isinstance(form, Convolve) and convolves(e):
        convolve(f, e)
    elif isinstance(form, Window) and windows_of(f, e):
        windowed(f, e)
    elif isinstance(form, Join):
        join(f, e)
    elif isinstance(form, Again):
        again(f, e)
    elif isinstance(form, Gather) and len(e.args) > 1 and e.results[0].spec.size:
        gather(f, e)
    elif isinstance(form, Place):
        place(f, e)
    elif isinstance(form, Write):
        write(f, e)
    elif is_view(e) and isinstance(e.args[0], Symbol):
        view(f, e)
    else:
        host(f, e)


def exceeds_dtype(e: Equation) -> bool:
    """Whether a Python integer does not fit the dtype it is computed in. NumPy executes that: comparisons are still
    right, and arithmetic raises.
    """
    numbers = [a for a in e.args if type(a) is int]
    if not numbers or e.op.family != "elementwise":
        return False
    dtype = computed_in([spec_of(a) for a in e.args], e.results[0].spec)
    return dtype.kind in "iu" and not all(np.iinfo(dtype).min <= n <= np.iinfo(dtype).max for n in numbers)


def pointwise(f: Fuser, e: Equation) -> None:
    shape = e.results[0].spec.shape
    aligned = [(a, tuple(range(len(shape) - spec_of(a).ndim, len(shape)))) for a in e.args]
    f.elementwise(e.results[0], shape, aligned, f.apply(e))


def fold(f: Fuser, e: Equation) -> None:
    x, result = e.args[0], e.results[0]
    spec = spec_of(x)
    reduced, keepdims, word = e.static["axis"], e.static["keepdims"], e.op.form.word
    step, axes = f.where(spec.shape, [(x, tuple(range(spec.ndim)))], whole=True)
    kernel = f.kernel(step)
    line = f.line(x, step, axes)
    gone = {axes[i] for i in reduced if axes[i] is not None}
    kept = tuple(None if i in reduced else a for i, a in enumerate(axes) if keepdims or i not in reduced)
    if not gone:  # axes of size one: there is nothing to add up
        same = Line("cast", result.spec.dtype, line.axes, phase((line,)), (line,), weight=0)
        f.keep(result, step, kernel, same, kept)
        return
    suffix = len(gone)
    rank = len(kernel.extents)
    whole_rows = gone == set(range(rank - suffix, rank)) and (suffix < rank or rank == 1)
    if whole_rows and suffix and kernel.inner in (0, suffix):
        kernel.inner = suffix
        fold = Line("fold", result.spec.dtype, frozenset(range(rank - suffix)), phase((line,)), (line,), word=word)
        f.keep(result, step, kernel, fold, kept)
        return
    layout = f.new(result.spec)
    f.add_store(step, line, kept, layout, word, spec.size)
    f.places[id(result)] = layout


def view(f: Fuser, e: Equation) -> None:
    source = e.args[0]
    if id(source) not in f.places:
        axes = axes_of_view(e.op, source.spec.shape, e.static) if len(e.results) == 1 else None
        if axes is not None:
            f.views[id(e.results[0])] = source, axes, e
            return
    for result, layout in zip(e.results, f.view_of(e, f.stored(source)), strict=True):
        f.places[id(result)] = layout


def again(f: Fuser, e: Equation) -> None:
    """The memory of the argument. No kernel there is so far takes what comes: it would compute too early what is
    computed again in order not to live since then.
    """
    f.places[id(e.results[0])] = f.stored(e.args[0])
    f.floor = len(f.steps)


def join(f: Fuser, e: Equation) -> None:
    axis, at = e.static["axis"], 0
    layout = f.new(e.results[0].spec)
    for x in e.args:
        n = spec_of(x).shape[axis]
        part = Layout(layout.buffer, spec_of(x).shape, layout.strides, layout.offset + at * layout.strides[axis])
        at += n
        if spec_of(x).size:
            f.put(x, part)
    f.places[id(e.results[0])] = layout


def place(f: Fuser, e: Equation) -> None:
    layout = f.new(e.results[0].spec)
    if layout.size:
        fill = Kernel(layout.shape, 0)
        zero = Line("number", layout.buffer.dtype, frozenset(), number=0)
        fill.stores.append(Store(zero, layout.buffer, layout.strides))
        f.first.append(fill)
    f.places[id(e.results[0])] = layout
    if len(e.args) > 1:
        scatter(f, layout, e.args[0], e.static["index"], e.args[1:], "add")
    elif spec_of(e.args[0]).size:
        f.put(e.args[0], f.region(layout, e.static["index"]))


def write(f: Fuser, e: Equation) -> None:
    over = written_over(f, e)
    layout = f.new(e.results[0].spec) if over is None else over
    if layout.size and over is None:
        again_put(f, e.args[0], layout)
    f.places[id(e.results[0])] = layout
    if len(e.args) > 2:
        scatter(f, layout, e.args[1], e.static["index"], e.args[2:], "")
    elif spec_of(e.args[1]).size:
        again_put(f, e.args[1], f.region(layout, e.static["index"]))


def written_over(f: Fuser, e: Equation) -> Layout | None:
    """The memory of an input that was given away for just this result, if nothing reads the input later: entries are
    written into it, and the rest need not be copied. What else reads it must have picked entries before, by index
    arrays: then they were copied, while a slice is a view of the memory that is overwritten.
    """
    x, result = e.args[0], e.results[0]
    number = next((f.donated[i] for i, o in enumerate(f.outputs) if o is result and i in f.donated), None)
    if number is None or f.symbols[number] is not x or sum(o is x for o in f.outputs):
        return None
    at = next(i for i, other in enumerate(f.equations) if other is e)
    for i, other in enumerate(f.equations):
        picks = isinstance(other.op.form, Gather) and len(other.args) > 1
        if other is not e and any(a is x for a in other.args) and (i > at or not picks):
            return None
    return None if any(a is x for a in e.args[1:]) else f.places[id(x)]


def again_put(f: Fuser, x: Any, target: Layout) -> None:
    """`_put` by a step of its own, after all there are: a later write must not be overtaken."""
    made = f.made.pop(id(x), None)
    if made is not None and id(x) not in f.places:
        f.made[id(x)] = made
        f.stored(x)
        f.made.pop(id(x))
    f.put(x, target)
    if made is not None:
        f.made[id(x)] = made


def host(f: Fuser, e: Equation) -> None:
    args = tuple(f.stored(a) if isinstance(a, Symbol) or (is_array(a) and a.ndim) else a for a in e.args)
    outs = tuple(f.new(s.spec) for s in e.results)
    op, static = e.op, e.static
    call = lambda *arrays: compute(op, arrays, static)  # noqa: E731
    f.steps.append(Host(op.name, call, args, outs, may_run_again(op, static)))
    for s, layout in zip(e.results, outs, strict=True):
        f.places[id(s)] = layout
        f.note(len(f.steps) - 1, layout.buffer)
