"""Lowers pooling to kernels: the places of a window are loads at fixed distances, or stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.spec import make_spec, spec_of
from ...ops.forms import Window
from ...ops.window.patches import are_windows_disjoint, first_unpadded_place, window_slices
from ...ops.window.pooling import lowest_of
from ...program.ir import Equation, Symbol
from ..loop_ir import KernelLine, Store, phase_after
from ..vocabulary import value_dtype
from .axes import Axes, strides_on_domain
from .fuse import Fuser
from .padding import fill_kernel, interior_layout, padded_layout, window_place_layout


def can_lower_pooling(f: Fuser, e: Equation) -> bool:
    """Whether the pooling has a native form."""
    # each place of a window is unrolled in the kernel
    many = math.prod(e.static["window"]) <= f.limits.max_window_places and bool(e.results[0].spec.size)
    if isinstance(e.op.form, Window) and e.op.form.kind == "take":
        return many and (_find_own_argmax(f, e) is not None or not any(map(any, e.static["padding"])))
    return many


def _find_own_argmax(f: Fuser, e: Equation) -> Equation | None:
    """The equation that found the places, if it has the same windows of the same grid."""
    maker = f.producer.get(id(e.args[1]))
    same = (
        maker is not None
        and isinstance(maker.op.form, Window)
        and maker.op.form.kind == "index"
        and maker.args[0] is e.args[0]
    )
    return maker if same and maker is not None and maker.static == e.static else None


def lower_pooling(f: Fuser, e: Equation) -> None:
    {"index": _lower_index, "take": _lower_take, "sum": _lower_sum}.get(e.op.form.kind, _lower_put)(f, e)


def _window_parameters(e: Equation) -> dict[str, Any]:
    return {name: e.static[name] for name in ("window", "stride", "padding", "dilation")}


def _load_places(f: Fuser, e: Equation, number: Any) -> tuple[int, Axes, list[KernelLine]]:
    """A kernel with a point for each window, and the loads at each of the windows' places."""
    how, many = _window_parameters(e), e.results[0].spec.shape[2:]
    source = padded_layout(f, e.args[0], how["padding"], number)
    shape = e.results[0].spec.shape
    order = f.order(spec_of(e.args[0]).shape, [(e.args[0], ())])
    step = f.new_kernel(tuple(shape[i] for i in order))
    axes: Axes = tuple(None if n == 1 else order.index(i) for i, n in enumerate(shape))
    seen = [
        f.load(window_place_layout(source, place, many, how), step, axes)
        for place, _ in window_slices(how["window"], how["stride"], how["dilation"], many)
    ]
    return step, axes, seen


def _append_line(
    f: Fuser, step: int, dtype: Any, kernel: Callable[..., Any], computed: Any, *args: KernelLine, label: str = ""
) -> KernelLine:
    used = frozenset().union(*(a.axes for a in args))
    dtype, computed = np.dtype(dtype), np.dtype(computed)
    line = KernelLine("apply", dtype, used, phase_after(args), args, kernel, computed, label=label)
    f.kernel(step).lines.append(line)
    return line


def _number_line(value: Any, dtype: Any) -> KernelLine:
    return KernelLine("number", np.dtype(dtype), frozenset(), number=value, weight=0)


def _select_line(
    f: Fuser, step: int, dtype: Any, chosen: KernelLine, x: KernelLine, y: KernelLine, label: str = ""
) -> KernelLine:
    return _append_line(f, step, dtype, lambda k, c, a, b: k.select(c, a, b), dtype, chosen, x, y, label=label)


def _is_place(f: Fuser, step: int, index: KernelLine, number: int) -> KernelLine:
    """Whether an index is that of a place of the window."""
    return _append_line(f, step, bool, lambda k, i, j: k.equal(i, j), "int32", index, _number_line(number, "int32"))


def _exceeds(k: Any, x: Any, best: Any) -> Any:
    """A greater element, or the first NaN."""
    return k.logical_or(k.greater(x, best), k.logical_and(k.isnan(x), k.logical_not(k.isnan(best))))


def _lower_index(f: Fuser, e: Equation) -> None:
    dtype, how = spec_of(e.args[0]).dtype, _window_parameters(e)
    step, axes, seen = _load_places(f, e, lowest_of(dtype))
    best, index = seen[0], _number_line(0, "int32")
    many = e.results[0].spec.shape[2:]
    if any(map(any, how["padding"])):  # where all is lowest, a place that is no padding
        first = np.asarray(
            first_unpadded_place(np, how["window"], how["stride"], how["padding"], how["dilation"], many)
        )
        index = f.load(f.constant(first), step, axes[2:])
    for number, x in enumerate(seen[1:], 1):
        better = _append_line(f, step, bool, _exceeds, dtype, x, best)
        index = _select_line(f, step, "int32", better, _number_line(number, "int32"), index)
        best = _select_line(f, step, dtype, better, x, best, label="max")
    f.windows[id(e.results[0])] = best
    f.record_line(e.results[0], step, f.kernel(step), index, axes)


def _lower_take(f: Fuser, e: Equation) -> None:
    index, result = e.args[1], e.results[0]
    if _find_own_argmax(f, e) is not None:
        made = f.kernel_values[id(index)]
        f.record_line(result, made.step, f.kernel(made.step), f.windows[id(index)], made.axes)
        return
    if isinstance(index, Symbol):
        f.layout_of(index)
    step, axes, seen = _load_places(f, e, 0)
    at = f.line(index, step, axes)
    value = seen[0]
    for number, x in enumerate(seen[1:], 1):
        value = _select_line(f, step, result.spec.dtype, _is_place(f, step, at, number), x, value)
    f.record_line(result, step, f.kernel(step), value, axes)


def _lower_sum(f: Fuser, e: Equation) -> None:
    step, axes, seen = _load_places(f, e, 0)
    dtype, total = e.results[0].spec.dtype, seen[0]
    for x in seen[1:]:
        total = _append_line(f, step, dtype, lambda k, a, b: k.add(a, b), dtype, total, x, label="sum")
    f.record_line(e.results[0], step, f.kernel(step), total, axes)


def _lower_put(f: Fuser, e: Equation) -> None:
    """Each window's value stored at one place of the window, or at all: added to what is there if windows overlap."""
    how, result, y = _window_parameters(e), e.results[0].spec, e.args[0]
    shape = spec_of(y).shape
    order = f.order(shape, [(a, ()) for a in e.args])
    args: Sequence[tuple[Any, tuple[int, ...]]] = [(a, tuple(range(len(shape)))) for a in e.args]
    disjoint = are_windows_disjoint(how["window"], how["stride"], how["dilation"])
    # windows that overlap add their values, each at one point of the domain, so the domain must be theirs
    step, axes = f.choose_kernel(shape, args, whole=not disjoint)
    lines = [f.line(a, step, axes) for a in e.args]
    padded = (*shape[:2], *(n + low + high for n, (low, high) in zip(result.shape[2:], how["padding"], strict=True)))
    out = f.new_layout(make_spec(padded, result.dtype if disjoint else value_dtype(result.dtype)), order)
    sides = zip(padded[2:], shape[2:], how["stride"], how["window"], strict=True)
    if not disjoint or any(m * s != n or s != k for n, m, s, k in sides):
        f.first.append(fill_kernel(out, 0))
    kernel = f.kernel(step)
    for number, (place, _) in enumerate(window_slices(how["window"], how["stride"], how["dilation"], shape[2:])):
        value = lines[0]
        if len(lines) > 1:
            chosen = _is_place(f, step, lines[1], number)
            value = _select_line(f, step, result.dtype, chosen, value, _number_line(0, result.dtype))
        target = window_place_layout(out, place, shape[2:], how)
        strides, points = strides_on_domain(kernel, axes, target), math.prod(shape)
        adds = Store(value, out.buffer, strides, target.offset, "add", accumulates=True, points=points)
        kernel.stores.append(Store(value, out.buffer, strides, target.offset) if disjoint else adds)
    f.note(step, out.buffer)
    f.set_place(e.results[0], interior_layout(out, result.shape, how["padding"]))
