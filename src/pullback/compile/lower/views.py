"""Op and layout in, the layout of the result out, if the op is a view of the same memory.

There is no list of view ops: the op's own value function runs on an array of bytes with the same shape and strides,
and if the result shares its memory, its pointer and strides are the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...ops.forms import Gather, Name, View
from ...ops.op import Op
from ...program.ir import Equation
from ..loop_ir import Layout, row_major_strides


def view_layouts(op: Op, source: Layout, static: dict[str, Any]) -> tuple[Layout, ...] | None:
    """The layouts of the results as views of the source; None if NumPy would have to copy."""
    form = op.form
    value = functools.partial(form.function if isinstance(form, View) else functools.partial(op.value, np), **static)
    return _layouts_by(value, source)


def region_layout(source: Layout, index: Any) -> Layout:
    """The part of a layout that an index of slices and numbers takes."""
    found = _layouts_by(lambda x: x[(*index, ...)], source)
    assert found is not None
    return found[0]


def _layouts_by(value: Callable[[Any], Any], source: Layout) -> tuple[Layout, ...] | None:
    before = sum(min(0, (n - 1) * s) for n, s in zip(source.shape, source.strides, strict=True) if n)
    after = sum(max(0, (n - 1) * s) for n, s in zip(source.shape, source.strides, strict=True) if n)
    # one byte an element: strides in bytes are then strides in elements
    memory = np.empty(after - before + 1, np.int8)
    probe = np.lib.stride_tricks.as_strided(memory[-before:], source.shape, source.strides)
    found = value(probe)
    results = found if type(found) is tuple else (found,)
    start = probe.__array_interface__["data"][0]
    layouts = []
    for result in results:
        if not isinstance(result, np.ndarray):
            return None
        # NumPy had to copy, so it is no view
        if result.size and not np.may_share_memory(result, memory):
            return None
        at = result.__array_interface__["data"][0] - start if result.size else 0
        strides = tuple(0 if n == 1 else s for n, s in zip(result.shape, result.strides, strict=True))
        layouts.append(Layout(source.buffer, result.shape, strides, source.offset + at))
    return tuple(layouts)


def is_view(e: Equation) -> bool:
    """Whether the results are views of the only argument, taken as contiguous, and have its dtype."""
    if len(e.args) != 1 or any(s.spec.dtype != spec_of(e.args[0]).dtype for s in e.results):
        return False
    op = e.op
    if isinstance(op.form, View | Name):
        return True
    if op.family not in ("linear", "general") or not isinstance(op.form, Gather | None) or not op.effects.repeat:
        return False
    try:
        return view_layouts(op, _contiguous_probe(spec_of(e.args[0]).shape), e.static) is not None
    except (TypeError, ValueError):  # an op that does not take bytes is no view
        return False


def is_matrix_transpose(e: Equation) -> bool:
    """Whether the result is the argument with its last two axes exchanged."""
    if len(e.results) != 1 or not is_view(e):
        return False
    source = _contiguous_probe(spec_of(e.args[0]).shape)
    if 0 in source.shape or len(source.shape) < 2:
        return False
    found = view_layouts(e.op, source, e.static)
    axes = [*range(len(source.shape) - 2), len(source.shape) - 1, len(source.shape) - 2]
    strides = tuple(0 if source.shape[a] == 1 else source.strides[a] for a in axes)
    wanted = tuple(source.shape[a] for a in axes), strides, 0
    return found is not None and (found[0].shape, found[0].strides, found[0].offset) == wanted


def _contiguous_probe(shape: tuple[int, ...]) -> Layout:
    return Layout(None, shape, row_major_strides(shape))  # type: ignore[arg-type]


def axes_of_view(op: Op, shape: tuple[int, ...], static: dict[str, Any]) -> tuple[int | None, ...] | None:
    """For a view that only repeats and adds axes, which axis of the result each axis of the argument became.

    None for an axis of size one; None instead of the tuple for any other view, such as a transpose or a slice.
    """
    layouts = view_layouts(op, _contiguous_probe(shape), static)
    if layouts is None or layouts[0].offset:
        return None
    result = layouts[0]
    # strides tell which axis of the argument each axis of the result came from
    wide = [(i, n, s) for i, (n, s) in enumerate(zip(result.shape, result.strides, strict=True)) if s]
    sources = [(j, n, s) for j, (n, s) in enumerate(zip(shape, row_major_strides(shape), strict=True)) if n != 1]
    if [(n, s) for _, n, s in wide] != [(n, s) for _, n, s in sources]:
        return None
    found: list[int | None] = [None] * len(shape)
    for (i, _, _), (j, _, _) in zip(wide, sources, strict=True):
        found[j] = i
    return tuple(found)
