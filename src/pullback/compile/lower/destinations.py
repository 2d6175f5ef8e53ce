"""Where a value is stored so that its only use finds it in place: as a part of a larger array, or transposed."""

from __future__ import annotations

from typing import Any

from ...arrays.spec import spec_of
from ...ops.forms import Join
from ...ops.shape.reshaping import permute_op, reshape_op
from ...program.ir import Equation, Symbol
from ..loop_ir import Layout
from .fuse import Fuser
from .views import view_layouts


def layout_for_use(f: Fuser, x: Symbol) -> Layout | None:
    """Memory for a value whose only use, by way of transposes and reshapes, is to be a part of another array or to be
    read in another order of axes: that use then needs no copy. None where it would make no difference.
    """
    chain: list[Equation] = []
    use = _only_use(f, x)
    while use is not None and use.op in (permute_op, reshape_op):
        chain.append(use)
        use = _only_use(f, use.results[0])
    last = chain[-1].results[0] if chain else x
    layout: Layout | None = None
    if use is not None and isinstance(use.op.form, Join) and {spec_of(a).dtype for a in use.args} == {x.spec.dtype}:
        layout = next(part for a, part in zip(use.args, join_parts(f, use), strict=True) if a is last)
    elif any(view.op is permute_op for view in chain):
        layout = f.new_layout(last.spec)
    for view in reversed(chain):
        layout = None if layout is None else _layout_of_source(view, layout)
    return layout


def join_parts(f: Fuser, e: Equation) -> list[Layout]:
    """The parts of the arguments of a join in the memory of its result."""
    whole = f.joined.setdefault(id(e), f.new_layout(e.results[0].spec))
    axis, at, parts = e.static["axis"], 0, []
    for x in e.args:
        shape = spec_of(x).shape
        parts.append(Layout(whole.buffer, shape, whole.strides, whole.offset + at * whole.strides[axis]))
        at += shape[axis]
    return parts


def _only_use(f: Fuser, x: Any) -> Equation | None:
    """The equation that uses a value, if it is used once and is no result."""
    uses = f.uses.get(id(x), ())
    return uses[0] if len(uses) == 1 else None


def _layout_of_source(view: Equation, layout: Layout) -> Layout | None:
    """Where the argument of a transpose or a reshape lies if its result has a layout; None if not by strides."""
    shape = spec_of(view.args[0]).shape
    if view.op is reshape_op:
        found = view_layouts(reshape_op, layout, {"shape": shape})
        return None if found is None else found[0]
    strides = dict(zip(view.static["axes"], layout.strides, strict=True))
    return Layout(layout.buffer, shape, tuple(strides[i] for i in range(len(shape))), layout.offset)
