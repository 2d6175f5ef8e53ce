"""Program in, steps out: each equation is lowered by the form of its op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import spec_of
from ...ops.forms import (
    Attend,
    Cast,
    Check,
    Contract,
    Convolve,
    Flow,
    Gather,
    Join,
    Matrix,
    Recompute,
    Reduce,
    Running,
    ScatterAdd,
    Window,
    Write,
)
from ...program.ir import Equation, Program, Symbol
from ..loop_ir import Kernel, KernelLine, Layout, Steps, phase_after
from ..target import Target
from ..vocabulary import computation_dtype
from .attention import can_lower_attention, lower_attention
from .contraction import can_lower_contraction, find_in_place_updates, lower_contraction
from .control_flow import lower_control_flow
from .convolution import can_lower_convolution, lower_convolution
from .destinations import join_parts
from .fuse import SUMS, Fuser
from .half_values import cast_as_stored, wide_spec
from .host_constants import drop_moves, move_constants_to_host
from .indexing import lower_gather, lower_scatter
from .matrix import has_check, has_routine, has_running, lower_check, lower_matrix, lower_on_host, lower_running
from .outputs import place_output, write_donated_outputs
from .padding import fill_kernel
from .pooling import can_lower_pooling, lower_pooling
from .views import axes_of_view, is_view, region_layout


def lower_program(program: Program, target: Target, donated: dict[int, int]) -> Steps:
    """The steps of a program. `donated` maps outputs (by number) to the inputs whose memory they overwrite."""
    program = drop_moves(move_constants_to_host(program))
    f = Fuser(program, target, donated)
    f.updates = find_in_place_updates(f, program.inputs)
    for equation in program.equations:
        lower_equation(f, equation)
    # results last: only now it is known what else reads a donated input
    results = [place_output(f, i, x) for i, x in enumerate(program.outputs)]
    write_donated_outputs(f)
    # kernels that others recompute store nothing; other steps without results are there for their effects
    written = [s for s in f.steps if s.writes() or not isinstance(s, Kernel)]
    places = [(s, f.places[id(s)]) for e in program.equations for s in e.results if id(s) in f.places]
    return Steps(written, f.inputs, results, places, f.first, f.last)


def lower_equation(f: Fuser, e: Equation) -> None:
    """Add an equation to the steps. One whose form has no rule, or does not meet its condition, may still be a view;
    else NumPy executes it.
    """
    if id(e) in f.updates:
        return
    given, made = tuple([spec_of(a) for a in e.args]), [s.spec for s in e.results]
    if not all(map(f.target.computes_in, {s.dtype for s in (*given, *made)})) or exceeds_dtype(e):
        lower_on_host(f, e)
    elif e.op.kernel is not None and f.target.supports(e.op, given, made[0]):
        lower_elementwise(f, e)
    elif (rule := RULES.get(type(e.op.form))) is not None and rule[0](f, e):
        rule[1](f, e)
    elif is_view(e) and (isinstance(e.args[0], Symbol) or _is_zero_dimensional(e.args[0])):
        lower_view(f, e)
    else:
        lower_on_host(f, e)


def _is_zero_dimensional(x: Any) -> bool:
    return is_array(x) and not x.ndim


def exceeds_dtype(e: Equation) -> bool:
    """Whether a Python integer does not fit the dtype it is computed in. NumPy executes that: comparisons are still
    right, and arithmetic raises.
    """
    numbers = [a for a in e.args if type(a) is int]
    if not numbers or e.op.family != "elementwise":
        return False
    dtype = computation_dtype([spec_of(a) for a in e.args], e.results[0].spec)
    return dtype.kind in "iu" and not all(np.iinfo(dtype).min <= n <= np.iinfo(dtype).max for n in numbers)


def lower_elementwise(f: Fuser, e: Equation) -> None:
    shape = e.results[0].spec.shape
    aligned = [(a, tuple(range(len(shape) - spec_of(a).ndim, len(shape)))) for a in e.args]
    f.add_elementwise(e.results[0], shape, aligned, f.line_maker(e))


def lower_fold(f: Fuser, e: Equation) -> None:
    x, result = e.args[0], e.results[0]
    spec = spec_of(x)
    reduced, keepdims, word = e.static["axis"], e.static["keepdims"], e.op.form.word
    step, axes = f.choose_kernel(spec.shape, [(x, tuple(range(spec.ndim)))], whole=True)
    kernel = f.kernel(step)
    line = f.line(x, step, axes)
    folded = {axes[i] for i in reduced if axes[i] is not None}
    result_axes = tuple(None if i in reduced else a for i, a in enumerate(axes) if keepdims or i not in reduced)
    if not folded:  # axes of size one: nothing to fold
        same = KernelLine("cast", result.spec.dtype, line.axes, phase_after((line,)), (line,), weight=0)
        f.record_line(result, step, kernel, same, result_axes)
        return
    # a fold of the last axes is a line of a row kernel; of others, it accumulates in memory
    # the row is the last axes of the domain, and all kernels that fold agree on how many they are
    suffix = len(folded)
    rank = len(kernel.extents)
    whole_rows = folded == set(range(rank - suffix, rank)) and (suffix < rank or rank == 1)
    if whole_rows and suffix and kernel.inner in (0, suffix):
        kernel.inner = suffix
        line = line if word in SUMS else cast_as_stored(line)
        fold = KernelLine(
            "fold", result.spec.dtype, frozenset(range(rank - suffix)), phase_after((line,)), (line,), word=word
        )
        f.record_line(result, step, kernel, fold, result_axes)
        return
    layout = f.new_layout(wide_spec(result.spec))
    f.add_store(step, line, result_axes, layout, word, spec.size)
    f.set_place(result, layout)


def lower_view(f: Fuser, e: Equation) -> None:
    source = e.args[0]
    if id(source) not in f.places:
        # a view that only repeats axes needs no memory: its readers see the source
        axes = axes_of_view(e.op, spec_of(source).shape, e.static) if len(e.results) == 1 else None
        if axes is not None:
            f.views[id(e.results[0])] = source, axes, e
            return
    for result, layout in zip(e.results, f.view_of(e, f.layout_of(source)), strict=True):
        f.places[id(result)] = layout


def lower_recompute_fence(f: Fuser, e: Equation) -> None:
    """The memory of the argument. Kernels so far are closed: one of them would compute too early what is recomputed
    in order not to stay alive until now.
    """
    f.places[id(e.results[0])] = f.layout_of(e.args[0])
    f.first_open_step = len(f.steps)


def lower_join(f: Fuser, e: Equation) -> None:
    for x, part in zip(e.args, join_parts(f, e), strict=True):
        is_there = id(x) in f.places and f.places[id(x)].buffer is part.buffer
        # each argument is written into its part of the result, by its own kernel if that is open
        if spec_of(x).size and not is_there:
            f.put(x, part)
    f.places[id(e.results[0])] = f.joined[id(e)]


def lower_place(f: Fuser, e: Equation) -> None:
    spec = e.results[0].spec
    # what several indices add up is rounded once
    layout = f.new_layout(wide_spec(spec) if len(e.args) > 1 else spec)
    if layout.size:
        f.first.append(fill_kernel(layout, 0))
    if len(e.args) > 1:
        lower_scatter(f, e, layout, e.args[0], e.args[1:], "add")
    elif spec_of(e.args[0]).size:
        f.put(e.args[0], region_layout(layout, e.static["index"]))
    f.set_place(e.results[0], layout)


def lower_write(f: Fuser, e: Equation) -> None:
    donated = find_donated_target(f, e)
    layout = f.new_layout(e.results[0].spec) if donated is None else donated
    if layout.size and donated is None:
        store_separately(f, e.args[0], layout)
    f.places[id(e.results[0])] = layout
    if len(e.args) > 2:
        lower_scatter(f, e, layout, e.args[1], e.args[2:], "")
    elif spec_of(e.args[1]).size:
        store_separately(f, e.args[1], region_layout(layout, e.static["index"]))


def find_donated_target(f: Fuser, e: Equation) -> Layout | None:
    """The memory of an input donated for just this result, if nothing reads the input later: entries are written into
    it, and the rest need not be copied. Other reads must be earlier gathers by index arrays, which copy; a slice is a
    view of the memory that is overwritten.
    """
    x, result = e.args[0], e.results[0]
    number = next((f.donated[i] for i, o in enumerate(f.outputs) if o is result and i in f.donated), None)
    used_besides = any(a is x for a in (*e.args[1:], *f.outputs))
    if number is None or f.symbols[number] is not x or used_besides:
        return None
    readers = [(i, other) for i, other in enumerate(f.equations) if any(a is x for a in other.args)]
    at = next(i for i, other in readers if other is e)
    copies = [i < at and isinstance(other.op.form, Gather) and len(other.args) > 1 for i, other in readers if i != at]
    return f.places[id(x)] if all(copies) else None


def store_separately(f: Fuser, x: Any, target: Layout) -> None:
    """`Fuser.put` in a new last step, so that writes keep their order."""
    # `put` would store in the kernel that computes x, earlier than the writes before: hide it meanwhile
    base = f.base_value(x)
    made = f.kernel_values.pop(id(base), None)
    if made is not None and id(base) not in f.places:
        f.kernel_values[id(base)] = made
        f.layout_of(base)
        f.kernel_values.pop(id(base))
    f.put(x, target)
    if made is not None:
        f.kernel_values[id(base)] = made


def lower_flow(f: Fuser, e: Equation) -> None:
    lower_control_flow(f, e, lambda body, donated: lower_program(body, f.target, donated))


def always(f: Fuser, e: Equation) -> bool:
    return True


def has_elements(f: Fuser, e: Equation) -> bool:
    return bool(e.results[0].spec.size and spec_of(e.args[0]).size)


def indexes_by_arrays(f: Fuser, e: Equation) -> bool:
    return len(e.args) > 1 and bool(e.results[0].spec.size)


#: How an equation is lowered, by the form of its op: under a condition, by a rule. Elementwise ops need no form.
RULES: dict[type, tuple[Callable[[Fuser, Equation], bool], Callable[[Fuser, Equation], None]]] = {
    Flow: (always, lower_flow),
    Cast: (always, lower_elementwise),
    Reduce: (has_elements, lower_fold),
    Contract: (can_lower_contraction, lower_contraction),
    Convolve: (can_lower_convolution, lower_convolution),
    Attend: (can_lower_attention, lower_attention),
    Window: (can_lower_pooling, lower_pooling),
    Join: (always, lower_join),
    Recompute: (always, lower_recompute_fence),
    Gather: (indexes_by_arrays, lower_gather),
    ScatterAdd: (always, lower_place),
    Write: (always, lower_write),
    Matrix: (has_routine, lower_matrix),
    Running: (has_running, lower_running),
    Check: (has_check, lower_check),
}
