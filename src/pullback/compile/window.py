"""Pooling in, kernels out: the places of a window are loads at fixed distances, or stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import make_spec, spec_of
from ..ops.forms import Window
from ..ops.patches import first_inside, is_apart, slices
from ..ops.specialise import Equation, Symbol
from .fuse import Axes, Fuser, on, phase
from .grids import filled, grid, inside, place_of
from .loops import Line, Store

__all__ = ["windowed", "windows_of"]

#: Windows of more places are left to the array library: each is written out in the kernel.
MOST = 64


def windows_of(f: Fuser, e: Equation) -> bool:
    """Whether the pooling has a native form."""
    many = math.prod(e.static["window"]) <= MOST and bool(e.results[0].spec.size)
    if isinstance(e.op.form, Window) and e.op.form.kind == "take":
        return many and (_own_maximum(f, e) is not None or not any(map(any, e.static["padding"])))
    return many


def _own_maximum(f: Fuser, e: Equation) -> Equation | None:
    """The equation that found the places, if it looked at the same windows of the same grid."""
    maker = f.producer.get(id(e.args[1]))
    same = maker is not None and maker.op.form == Window("index") and maker.args[0] is e.args[0]
    return maker if same and maker is not None and maker.static == e.static else None


def windowed(f: Fuser, e: Equation) -> None:
    kind = e.op.form.kind
    if kind == "index":
        _index(f, e)
    elif kind == "take":
        _take(f, e)
    elif kind == "sum":
        _sum(f, e)
    else:
        _put(f, e)


def _how(e: Equation) -> dict[str, Any]:
    return {name: e.static[name] for name in ("window", "stride", "padding", "dilation")}


def _loads(f: Fuser, e: Equation, number: Any) -> tuple[int, Axes, list[Line]]:
    """A kernel with a point for each window, and what the windows see at each of their places."""
    how, many = _how(e), e.results[0].spec.shape[2:]
    source = grid(f, e.args[0], how["padding"], number)
    shape = e.results[0].spec.shape
    order = f.order(spec_of(e.args[0]).shape, [(e.args[0], ())])
    step = f.new_kernel(tuple(shape[i] for i in order))
    axes: Axes = tuple(None if n == 1 else order.index(i) for i, n in enumerate(shape))
    seen = [
        f.load(place_of(source, place, many, how), step, axes)
        for place, _ in slices(how["window"], how["stride"], how["dilation"], many)
    ]
    return step, axes, seen


def _line(
    f: Fuser, step: int, dtype: Any, kernel: Callable[..., Any], computed: Any, *args: Line, label: str = ""
) -> Line:
    used = frozenset().union(*(a.axes for a in args))
    line = Line(
        "apply", np.dtype(dtype), used, phase(args), args, kernel, np.dtype(computed), label=label,
    )  # fmt: skip
    f.kernel(step).lines.append(line)
    return line


def _number(value: Any, dtype: Any) -> Line:
    return Line("number", np.dtype(dtype), frozenset(), number=value, weight=0)


def _better(k: Any, x: Any, best: Any) -> Any:
    """A greater element, or the first NaN."""
    return k.logical_or(k.greater(x, best), k.logical_and(k.isnan(x), k.logical_not(k.isnan(best))))


def _index(f: Fuser, e: Equation) -> None:
    dtype, how = spec_of(e.args[0]).dtype, _how(e)
    lowest = -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min
    step, axes, seen = _loads(f, e, lowest)
    best, index = seen[0], _number(0, "int32")
    many = e.results[0].spec.shape[2:]
    if any(map(any, how["padding"])):  # where all is lowest, a place that is no padding
        first = np.asarray(first_inside(np, how["window"], how["stride"], how["padding"], how["dilation"], many))
        index = f.load(f.constant(first), step, axes[2:])
    for number, x in enumerate(seen[1:], 1):
        better = _line(f, step, bool, _better, dtype, x, best)
        index = _line(
            f, step, "int32", lambda k, c, a, b: k.select(c, a, b), "int32", better, _number(number, "int32"), index
        )
        best = _line(f, step, dtype, lambda k, c, a, b: k.select(c, a, b), dtype, better, x, best, label="max")
    f.windows[id(e.results[0])] = best
    f.keep(e.results[0], step, f.kernel(step), index, axes)


def _take(f: Fuser, e: Equation) -> None:
    index, result = e.args[1], e.results[0]
    if _own_maximum(f, e) is not None:
        made = f.made[id(index)]
        f.keep(result, made.step, f.kernel(made.step), f.windows[id(index)], made.axes)
        return
    if isinstance(index, Symbol):
        f.stored(index)
    step, axes, seen = _loads(f, e, 0)
    at = f.line(index, step, axes)
    value = seen[0]
    for number, x in enumerate(seen[1:], 1):
        chosen = _line(f, step, bool, lambda k, i, j: k.equal(i, j), "int32", at, _number(number, "int32"))
        value = _line(
            f, step, result.spec.dtype, lambda k, c, a, b: k.select(c, a, b), result.spec.dtype, chosen, x, value
        )
    f.keep(result, step, f.kernel(step), value, axes)


def _sum(f: Fuser, e: Equation) -> None:
    step, axes, seen = _loads(f, e, 0)
    dtype, total = e.results[0].spec.dtype, seen[0]
    for x in seen[1:]:
        total = _line(f, step, dtype, lambda k, a, b: k.add(a, b), dtype, total, x, label="sum")
    f.keep(e.results[0], step, f.kernel(step), total, axes)


def _put(f: Fuser, e: Equation) -> None:
    """Each window's value stored at one place of the window, or at all: added to what is there if windows overlap."""
    how, result, y = _how(e), e.results[0].spec, e.args[0]
    shape = spec_of(y).shape
    order = f.order(shape, [(a, ()) for a in e.args])
    args: Sequence[tuple[Any, tuple[int, ...]]] = [(a, tuple(range(len(shape)))) for a in e.args]
    apart = is_apart(how["window"], how["stride"], how["dilation"])
    step, axes = f.where(shape, args, whole=not apart)  # each window adds its value once, at one point of the domain
    lines = [f.line(a, step, axes) for a in e.args]
    wide = (*shape[:2], *(n + low + high for n, (low, high) in zip(result.shape[2:], how["padding"], strict=True)))
    out = f.new(make_spec(wide, result.dtype), order)
    sides = zip(wide[2:], shape[2:], how["stride"], how["window"], strict=True)
    if not apart or any(m * s != n or s != k for n, m, s, k in sides):
        f.first.append(filled(out, 0))
    kernel = f.kernel(step)
    for number, (place, _) in enumerate(slices(how["window"], how["stride"], how["dilation"], shape[2:])):
        value = lines[0]
        if len(lines) > 1:
            chosen = _line(f, step, bool, lambda k, i, j: k.equal(i, j), "int32", lines[1], _number(number, "int32"))
            value = _line(
                f, step, result.dtype, lambda k, c, a, b: k.select(c, a, b), result.dtype, chosen, value,
                _number(0, result.dtype),
            )  # fmt: skip
        target = place_of(out, place, shape[2:], how)
        strides, points = on(kernel, axes, target), math.prod(shape)
        adds = Store(value, out.buffer, strides, target.offset, "add", onto=True, points=points)
        kernel.stores.append(Store(value, out.buffer, strides, target.offset) if apart else adds)
    f.note(step, out.buffer)
    f.places[id(e.results[0])] = inside(out, result.shape, how["padding"])
