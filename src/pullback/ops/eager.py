"""The public function of an elementwise op, with a fast path for plain tensors.

Plain means real NumPy floats of one spec, in the default modes or under `no_grad`. The fast path skips the general scan
of arguments, specs and statics; tensors of several specs, and ops that NumPy has no ufunc for, go by their plans
(`ops/plans.py`). `record` is the general path, and a test holds them equal.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..arrays.backends import move_array
from ..arrays.node import Node
from ..arrays.size import Size
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.timing import clock
from ..arrays.value import Value
from ..settings import PLAIN, UNRECORDED, modes, modes_below_timer
from .dispatch import apply, as_value
from .op import BOTH, OUT, SECOND, Op
from .plans import Plans, choose_kept, learn, make_plan, new_table
from .timed_calls import end_timed, time_raw

_getframe = sys._getframe
_ndarray = np.ndarray
_asarray = np.asarray
#: NumPy's number of float16; those of dtypes of other packages are larger, those of common ones smaller.
_FLOAT16 = np.dtype(np.float16).num


def public_function(op: Op, doc: str = "") -> Any:
    """The public function of an elementwise op."""
    public = function_at_depth(op, 1)
    public.__name__ = public.__qualname__ = op.name
    public.__doc__ = doc
    public.__module__ = "pullback"
    public.op = op
    return public


def function_at_depth(op: Op, depth: int) -> Any:
    """A function that applies an elementwise op; the user's line is so many calls away."""
    if len(op.args) > 2:
        return _n_ary_function(op)
    return _unary_function(op, depth) if len(op.args) == 1 else _binary_function(op, depth)


def _n_ary_function(op: Op) -> Any:
    def function(*args: Any) -> Any:
        return apply(op, *map(as_value, args))

    return function


def _planned_unary(op: Op, plans: Plans) -> Any:
    def function(x: Any, /) -> Any:
        if type(x) is not Tensor:
            return apply(op, as_value(x))
        number = x.spec.number
        plan = plans.get(number)
        if plan and (run := plan.in_mode(modes())) is not None:  # type: ignore[union-attr]
            return run(x)
        out = apply(op, x)
        if plan is None and number:
            learn(plans, number, lambda: make_plan(op, (x,), {}))
        return out

    return function


def _planned_binary(op: Op, plans: Plans) -> Any:
    def function(x: Any, y: Any, /) -> Any:
        if type(x) is not Tensor or type(y) is not Tensor:
            pair = _with_gpu_constant(x, y)
            if pair is None:
                return apply(op, as_value(x), as_value(y))
            x, y = pair
        key = (x.spec.number, y.spec.number)
        plan = plans.get(key)
        if plan and (run := plan.in_mode(modes())) is not None:  # type: ignore[union-attr]
            return run(x, y)
        out = apply(op, x, y)
        if plan is None and x.spec.number and y.spec.number:
            learn(plans, key, lambda: make_plan(op, (x, y), {}))
        return out

    return function


def _unary_function(op: Op, depth: int) -> Any:
    plans = new_table()
    planned = _planned_unary(op, plans)
    if not op.ufunc or not op.differentiable:
        return planned
    ufunc = getattr(np, op.ufunc)
    rule = op.rule((0,), 1)
    keeps_out, keeps_nothing, keeps_both = rule.keeps == (OUT,), not rule.keeps, rule.keeps == (0, OUT)

    def function(x: Any, /) -> Any:
        mode = modes()
        timer, start = None, 0
        if type(x) is not Tensor or x.spec.plain is None:
            if type(x) is _ndarray:
                return _compute_raw(op, ufunc, x)
            # on a GPU; looked up here, a call away from the user's line
            if mode is PLAIN and type(x) is Tensor and (plan := plans.get(x.spec.number)):
                run = plan.record  # type: ignore[union-attr]
                if run is not None:
                    return run(x)
            return planned(x)
        parent = x.node
        if mode is not PLAIN:
            if mode is UNRECORDED:
                parent = None
            else:
                instruments = mode.instruments
                timer = None if instruments is None else instruments.timer
                if timer is None or (mode is not timer.plain and mode is not timer.unrecorded):
                    return planned(x)
                if mode is timer.unrecorded:
                    parent = None
                start = clock()
        a = x.value
        value = ufunc(a)
        if type(value) is not _ndarray:
            value = _asarray(value)
        out = Tensor()
        out.value = value
        out.spec = spec = x.spec
        if parent is None:
            out.node = None
            return out if timer is None else end_timed(timer, op, start, out, depth)
        out.node = node = Node()
        node.order = parent.order + 1
        node.rule = rule
        node.parents = (parent,)
        node.kept = (value,) if keeps_out else () if keeps_nothing else (a, value) if keeps_both else (a,)
        node.spec = spec
        node.bar = node.call = None
        frame = _getframe(depth)
        node.code = frame.f_code
        node.lasti = frame.f_lasti
        return out if timer is None else end_timed(timer, op, start, out, depth)

    return function


def refuse_operand(left: Any, right: Any) -> Any:
    """What an operator does with an unknown class."""
    return NotImplemented


def operator_function(op: Op, depth: int = 1, otherwise: Any = refuse_operand) -> Any:
    """The same function as a Python operator, which calls `otherwise` for unknown classes. The user's line is so many
    calls away.
    """
    return _binary_function(op, depth, otherwise)


def is_operand(x: Any) -> bool:
    """Whether our operators accept this as the other operand."""
    known = (Value, _ndarray, np.generic, bool, int, float, complex, list, tuple, Size)
    return isinstance(x, known) or hasattr(x, "__cuda_array_interface__")


def _binary_function(op: Op, depth: int, otherwise: Any = None) -> Any:
    plans = new_table()
    planned = _planned_binary(op, plans)
    if not op.ufunc or not op.differentiable:
        return planned
    ufunc = getattr(np, op.ufunc)
    both, left, right = op.rule((0, 1), 2), op.rule((0,), 2), op.rule((1,), 2)

    def function(x: Any, y: Any, /) -> Any:
        a: Any
        b: Any
        n: Any
        m: Any
        if type(x) is Tensor:
            spec = x.spec
            a, n = x.value, x.node
            if type(y) is Tensor:
                plain = spec is y.spec and spec.plain is not None
                if not plain and (plan := plans.get((spec.number, y.spec.number))):
                    run = plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
                    if run is not None:
                        return run(x, y)
                b, m = y.value, y.node
            else:
                m = None
                plain = (b := _weak_constant(spec, y)) is not None
        elif type(y) is Tensor:
            spec, b, m = y.spec, y.value, y.node
            n = None
            plain = (a := _weak_constant(spec, x)) is not None
        elif type(x) is _ndarray and type(y) is _ndarray:
            return _compute_raw(op, ufunc, x, y)
        else:
            plain = False
        mode = modes()
        timer, start = None, 0
        if not plain or mode is not PLAIN:
            if plain and mode is UNRECORDED:
                n = m = None
            else:
                instruments = mode.instruments
                timer = instruments.timer if plain and instruments is not None else None
                if timer is None or (mode is not timer.plain and mode is not timer.unrecorded):
                    if otherwise is not None and not is_operand(y):
                        return otherwise(x, y)
                    return planned(x, y)
                if mode is timer.unrecorded:
                    n = m = None
                start = clock()
        value = ufunc(a, b)
        if type(value) is not _ndarray:
            value = _asarray(value)
        out = Tensor()
        out.value = value
        out.spec = spec
        if n is None and m is None:
            out.node = None
            return out if timer is None else end_timed(timer, op, start, out, depth)
        out.node = node = Node()
        if n is None:
            rule = right
            node.parents = (m,)
            node.order = m.order + 1
        elif m is None:
            rule = left
            node.parents = (n,)
            node.order = n.order + 1
        else:
            rule = both
            node.parents = (n, m)
            i, j = n.order, m.order
            node.order = i + 1 if i > j else j + 1
        node.rule = rule
        keeps = rule.keeps
        if not keeps:
            node.kept = ()
        elif keeps is BOTH:
            node.kept = (a, b)
        elif keeps is SECOND:
            node.kept = (b,)
        else:
            node.kept = choose_kept(keeps, value, a, b)
        node.spec = spec
        node.bar = node.call = None
        frame = _getframe(depth)
        node.code = frame.f_code
        node.lasti = frame.f_lasti
        return out if timer is None else end_timed(timer, op, start, out, depth)

    return function


def _compute_raw(op: Op, ufunc: Any, *arrays: Any) -> Any:
    """The value on bare arrays, most often in a rule; if NumPy raises, the general path raises the proper error."""
    if (mode := modes()) is not PLAIN and (mode.instruments is not None or mode.autocast is not None):
        below = modes_below_timer(mode)
        return apply(op, *arrays) if below is None else time_raw(mode, below, op, _compute_raw, ufunc, *arrays)
    if (arrays[0].itemsize < 4 or arrays[-1].itemsize < 4) and any(x.dtype.num >= _FLOAT16 for x in arrays):
        return apply(op, *arrays)
    try:
        value = ufunc(*arrays)
    except (TypeError, ValueError):
        return apply(op, *arrays)
    return value if type(value) is _ndarray else _asarray(value)


def _with_gpu_constant(x: Any, y: Any) -> tuple[Tensor, Tensor] | None:
    """A tensor on a GPU and a Python scalar as two tensors; None for any other arguments."""
    spec = x.spec if type(x) is Tensor else y.spec if type(y) is Tensor else None
    if spec is None or spec.device == "cpu" or not spec.number or not spec.inexact:
        return None
    number = y if type(x) is Tensor else x
    if not (type(number) is float or type(number) is int):
        return None
    found = spec.scalars.get(number)
    if found is None:
        if not number or not math.isfinite(number) or abs(number) > np.finfo(spec.dtype).max:
            return None  # as in `_weak_constant`
        if len(spec.scalars) > 256:
            spec.scalars.clear()
        array = move_array(_asarray(number, spec.dtype), spec.device)
        found = spec.scalars[number] = wrap(array, spec_of(array))
    return (x, found) if type(x) is Tensor else (found, y)


def _weak_constant(spec: Spec, number: Any) -> Any:
    """A Python scalar as a 0-d array of the tensor's dtype, cached: NumPy's conversion costs twice an op."""
    if not (type(number) is float or type(number) is int) or spec.plain is None:
        return None
    found = spec.scalars.get(number)
    if found is not None:
        return found
    if number and math.isfinite(number):  # 0 and -0 share a key, so zero is never cached
        if abs(number) > np.finfo(spec.dtype).max:
            return None
        if len(spec.scalars) > 256:
            spec.scalars.clear()
        found = spec.scalars[number] = _asarray(number, spec.dtype)
    return found
