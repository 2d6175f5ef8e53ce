"""Lowers ops that NumPy executes, and those for which a target has routines: on stacks of matrices, and checks.

Factors of a matrix that several systems share, its transposed ones included, are computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_of
from ...arrays.spec import Spec, make_spec, spec_of
from ...ops.dispatch import compute
from ...ops.op import Op
from ...program.ir import Equation, Symbol
from ..loop_ir import Host, Layout, Routine
from .fuse import Fuser
from .views import is_matrix_transpose

_DOUBLE = np.dtype(np.float64)
_FACTOR = Routine("factor", {}, 0.4)


def lower_on_host(f: Fuser, e: Equation) -> None:
    args = tuple(f.layout_of(a) if isinstance(a, Symbol) or (is_array(a) and a.ndim) else a for a in e.args)
    outs = _append_step(f, e, _value_of(e), args, [s.spec for s in e.results])
    f.places |= {id(s): layout for s, layout in zip(e.results, outs, strict=True)}


def _value_of(e: Equation) -> Callable[..., Any]:
    """The op of an equation as a function of arrays."""
    op, static = e.op, e.static
    return lambda *arrays: compute(op, arrays, static)


def _compute_into(op: Op, static: dict[str, Any], outs: Sequence[Any], *arrays: Any) -> None:
    assert op.into is not None
    op.into(namespace_of(arrays), outs, *arrays, **static)


def _append_step(
    f: Fuser, e: Equation, call: Callable[..., Any], args: tuple[Any, ...], made: Sequence[Spec],
    routine: Routine | None = None, order: Sequence[int] | None = None,
) -> list[Layout]:  # fmt: skip
    """Add a step for an equation; the memory of its results, whose axes may have an order."""
    outs = [f.new_layout(spec, order if order is not None and len(order) == spec.ndim else None) for spec in made]
    into = None if e.op.into is None else functools.partial(_compute_into, e.op, e.static)
    f.steps.append(Host(e.op.name, call, args, tuple(outs), e.op.is_repeatable(e.static), routine, into))
    for layout in outs:
        f.note(len(f.steps) - 1, layout.buffer)
    return outs


def has_routine(f: Fuser, e: Equation) -> bool:
    """Whether the target has the routine of an equation."""
    specs = [spec_of(x) for x in (*e.args, *e.results)]
    return _are_arrays(e) and f.target.has_routine(_routine_of(e), specs)


def _are_arrays(e: Equation) -> bool:
    """Whether all arguments are arrays with elements."""
    arrays = all(isinstance(a, Symbol) or is_array(a) for a in e.args)
    return arrays and all(spec_of(a).weak is None and spec_of(a).size for a in e.args)


def _routine_of(e: Equation, **more: Any) -> Routine:
    static = {**e.static, "fits": e.op.form.fits, "dtype": e.results[0].spec.dtype, **more}
    return Routine(e.op.form.routine, static, e.op.form.weight)


def lower_matrix(f: Fuser, e: Equation) -> None:
    """A routine, in double precision as NumPy computes."""
    made = [_widened(s.spec) for s in e.results]
    by_factors = Routine(f"{e.op.form.routine}_by_factors", e.static, e.op.form.weight / 2)
    if f.target.has_routine(by_factors, [spec_of(x) for x in (*e.args, *e.results)]):
        outs = _lower_by_factors(f, e, by_factors, made)
    else:
        args = tuple(_as_double(f, a) for a in e.args)
        order = _order_of(args[-1]) if e.op.form.overwrites else None
        used = tuple(id(s) in f.uses for s in e.results)
        outs = _append_step(f, e, _value_of(e), args, made, _routine_of(e, used=used), order)
    for s, layout in zip(e.results, outs, strict=True):
        same = layout.buffer.dtype == s.spec.dtype
        f.places[id(s)] = layout if same else f.copy_layout(layout, s.spec.dtype)


def _order_of(x: Layout) -> list[int] | None:
    """The order of axes of matrices that lie column by column; None for others."""
    rank = len(x.shape)
    in_columns = x.strides[-2] == 1 and x.shape[-2] > 1 and x.strides[-1] >= x.shape[-2]
    return [*range(rank - 2), rank - 1, rank - 2] if in_columns else None


def _widened(spec: Spec) -> Spec:
    return make_spec(spec.shape, _DOUBLE) if spec.dtype.kind == "f" else spec


def _as_double(f: Fuser, x: Any) -> Layout:
    layout = f.layout_of(x)
    return layout if layout.buffer.dtype == _DOUBLE else f.copy_layout(layout, _DOUBLE)


def _lower_by_factors(f: Fuser, e: Equation, routine: Routine, made: Sequence[Spec]) -> list[Layout]:
    """A step that takes the factors of its first argument, or of the transpose; where it fails, NumPy takes the
    arguments themselves.
    """
    base, is_transposed = _strip_transposes(f, e.args[0])
    args = tuple(_as_double(f, a) for a in e.args)
    factors = _factors_of(f, e, base)
    value, count = _value_of(e), len(args)
    routine = Routine(routine.name, {**routine.static, "transposed": is_transposed}, routine.weight)
    return _append_step(f, e, lambda *arrays: value(*arrays[:count]), (*args, *factors), made, routine)


def _strip_transposes(f: Fuser, x: Any) -> tuple[Any, bool]:
    """The matrix of which x is the transpose, once or several times, and whether that is an odd number of times."""
    is_odd = False
    while (e := f.producer.get(id(x))) is not None and is_matrix_transpose(e):
        x, is_odd = e.args[0], not is_odd
    return x, is_odd


def _factors_of(f: Fuser, e: Equation, x: Any) -> list[Layout]:
    """The triangles of a matrix in one, the order of its rows, and the sign of that order, computed once."""
    known = f.shared_factors.get(id(x))
    if known is None:
        spec = spec_of(x)
        stack, n = spec.shape[:-2], spec.shape[-1]
        made = (
            make_spec(spec.shape, _DOUBLE), make_spec((*stack, n), np.dtype(np.int64)), make_spec((*stack, 1), _DOUBLE),
        )  # fmt: skip
        args = (_as_double(f, x),)
        known = f.shared_factors[id(x)] = _append_step(f, e, _factor, args, made, _FACTOR)
    return known


def _factor(x: Any) -> tuple[Any, Any, Any]:
    """By SciPy: the transposed triangles of x[order] in one matrix, the order, and its sign."""
    import scipy.linalg

    n = x.shape[-1]
    p, lower, upper = scipy.linalg.lu(x, p_indices=True)
    order = np.argsort(p, axis=-1).astype(np.int64)
    sign = np.linalg.det(np.eye(n)[order])
    return np.swapaxes(np.tril(lower, -1) + upper, -1, -2), order, np.rint(sign)[..., None]


def has_running(f: Fuser, e: Equation) -> bool:
    """Whether the target can run along an axis."""
    specs = [spec_of(x) for x in (*e.args, *e.results)]
    return _are_arrays(e) and f.target.has_routine(_running_of(e), specs)


def _running_of(e: Equation) -> Routine:
    return Routine("running", {**e.static, "word": e.op.form.word}, 1.0)


def lower_running(f: Fuser, e: Equation) -> None:
    args = tuple(f.layout_of(a) for a in e.args)
    (f.places[id(e.results[0])],) = _append_step(f, e, _value_of(e), args, [e.results[0].spec], _running_of(e))


def lower_check(f: Fuser, e: Equation) -> None:
    """The memory of the argument, and a step that looks at both and writes nothing that is used."""
    args, value = tuple(f.layout_of(a) for a in e.args), _value_of(e)
    outcome = make_spec((), np.dtype(bool))
    _append_step(f, e, lambda *arrays: (value(*arrays), False)[1], args, [outcome], Routine("check", e.static, 0.0))
    f.places[id(e.results[0])] = args[0]


def has_check(f: Fuser, e: Equation) -> bool:
    specs = [spec_of(a) for a in e.args]
    same = isinstance(e.args[0], Symbol) and specs[0] == e.results[0].spec
    return same and _are_arrays(e) and f.target.has_routine(Routine("check", e.static, 0.0), specs)
