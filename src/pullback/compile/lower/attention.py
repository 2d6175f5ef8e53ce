"""Lowers attention to routines of a target that keeps its scores on the chip, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import namespace_of
from ...arrays.spec import make_spec, spec_of
from ...ops.dispatch import compute
from ...program.ir import Equation
from ..loop_ir import Host, Layout, Routine
from .fuse import Fuser

#: Rows start at multiples of so many elements.
_VECTOR = 4


def can_lower_attention(f: Fuser, e: Equation) -> bool:
    """Whether the target has the routine."""
    specs = [spec_of(a) for a in e.args]
    return all(s.size and s.weak is None for s in specs) and f.target.has_routine(_routine_of(e), specs)


def _routine_of(e: Equation) -> Routine:
    q, k = (spec_of(a) for a in e.args[-3:-1])
    return Routine(e.op.form.routine, e.static, float(k.shape[-2] * q.shape[-1]))


def lower_attention(f: Fuser, e: Equation) -> None:
    if e.op.form.routine == "attend":
        f.places[id(e.results[0])] = _lower_forward(f, e)[0]
        return
    bar, *qkv = e.args
    # what the forward pass has computed, or once more if it is in another program
    known = [f.prepared_layouts.get(_key_of(e, what)) for what in ("out", "logs")]
    out, logs = _lower_forward(f, e) if None in known else known
    args = (_in_rows(f, bar), *(_in_rows(f, x) for x in qkv), out, logs)
    op, static = e.op, e.static
    outs = tuple(f.new_layout(s.spec) for s in e.results)
    call = lambda *arrays: compute(op, arrays[:4], static)  # noqa: E731
    _append_step(f, Host(op.name, call, args, outs, True, _routine_of(e)))
    for result, layout in zip(e.results, outs, strict=True):
        f.places[id(result)] = layout


def _lower_forward(f: Fuser, e: Equation) -> tuple[Layout, Layout]:
    """The outputs, and the logarithms of the sums of the exponentials of each row of scores."""
    q, k, v = e.args[-3:]
    spec, static = spec_of(q), e.static
    args = tuple(_in_rows(f, x) for x in (q, k, v))
    outs = f.new_layout(make_spec(spec.shape, spec.dtype)), f.new_layout(make_spec(spec.shape[:-1], spec.dtype))
    routine = Routine("attend", static, _routine_of(e).weight)
    _append_step(f, Host("attention_on_chip", lambda *xs: attend(*xs, **static), args, outs, True, routine))
    for what, layout in zip(("out", "logs"), outs, strict=True):
        f.prepared_layouts[_key_of(e, what)] = layout
    return outs


def _key_of(e: Equation, what: str) -> Any:
    return (*map(id, e.args[-3:]), what, *e.static.items())


def _append_step(f: Fuser, step: Host) -> None:
    f.steps.append(step)
    for layout in step.outs:
        f.note(len(f.steps) - 1, layout.buffer)


def _in_rows(f: Fuser, x: Any) -> Layout:
    """An argument whose rows are contiguous and start where four elements are loaded at once."""
    layout = f.layout_of(x)
    *outer, last = layout.strides
    fits = last == 1 and not any(s % _VECTOR for s in (*outer, layout.offset))
    return layout if fits else f.copy_layout(layout)


def attend(q: Any, k: Any, v: Any, scale: float, is_causal: bool) -> tuple[Any, Any]:
    """What the routine computes, on arrays of NumPy or CuPy."""
    xp = namespace_of([q])
    scores = xp.matmul(q * scale, xp.swapaxes(k, -1, -2))
    if is_causal:
        ahead = xp.arange(k.shape[-2]) > xp.arange(q.shape[-2])[:, None]
        scores = xp.where(ahead, scores.dtype.type(-np.inf), scores)
    highest = scores.max(axis=-1, keepdims=True)
    shares = xp.exp(scores - highest)
    total = shares.sum(axis=-1, keepdims=True)
    return xp.matmul(shares / total, v), (highest + xp.log(total))[..., 0]
