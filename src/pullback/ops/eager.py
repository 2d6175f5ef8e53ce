"""Op call in, tensor out: computing at once and recording what the way back needs.

`entry` makes the public function of an elementwise op with a short path for plain tensors (real NumPy floats of
one spec, no mode changed): it saves the general scan of arguments, specs and statics, about two microseconds an
op. `record` is the general path, for everything else; a test holds the two equal.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.node import NO_CALL, Call, Node, next_order, sign
from ..arrays.protect import locked, settled
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import GraphError, HookError
from ..settings import PLAIN, Modes, modes, switched
from .dispatch import apply, as_value, compute
from .op import BOTH, OUT, SECOND, Op

__all__ = ["Packed", "PartRule", "entry", "is_operand", "operator_of", "part_of", "record"]

_getframe = sys._getframe
_ndarray = np.ndarray
_asarray = np.asarray


def entry(op: Op) -> Any:
    """The public function of an elementwise op."""
    public = _unary(op) if len(op.args) == 1 else _binary(op) if len(op.args) == 2 else _n_ary(op)
    public.__name__ = public.__qualname__ = op.name
    public.__doc__ = op.doc
    public.__module__ = "pullback"
    public.op = op
    return public


def _n_ary(op: Op) -> Any:
    def function(*args: Any) -> Any:
        return apply(op, *map(as_value, args))

    return function


def _unary(op: Op) -> Any:
    if not op.ufunc or not op.differentiable:
        return lambda x, /: apply(op, as_value(x))
    ufunc = getattr(np, op.ufunc)
    rule = op.rule((0,), 1)
    keeps_out, keeps_nothing, keeps_both = rule.keeps == (OUT,), not rule.keeps, rule.keeps == (0, OUT)

    def function(x: Any, /) -> Any:
        if type(x) is not Tensor or x.spec.plain is None or modes() is not PLAIN:
            return _raw(op, ufunc, x) if type(x) is _ndarray else apply(op, as_value(x))
        a = x.value
        value = ufunc(a)
        if type(value) is not _ndarray:
            value = _asarray(value)
        out = Tensor()
        out.value = value
        out.spec = spec = x.spec
        parent = x.node
        if parent is None:
            out.node = None
            return out
        out.node = node = Node()
        node.order = next_order()
        node.rule = rule
        node.parents = (parent,)
        node.kept = (value,) if keeps_out else () if keeps_nothing else (a, value) if keeps_both else (a,)
        node.spec = spec
        node.bar = node.call = node.hooks = None
        frame = _getframe(1)
        node.code = frame.f_code
        node.lasti = frame.f_lasti
        return out

    return function


def operator_of(op: Op) -> Any:
    """The same function as a Python operator: it lets classes it does not know have their turn."""
    return _binary(op, as_operator=True)


def is_operand(x: Any) -> bool:
    """Whether an operator of ours takes this on its other side."""
    known = (Value, _ndarray, np.generic, bool, int, float, complex, list, tuple)
    return isinstance(x, known) or hasattr(x, "__cuda_array_interface__")


def _binary(op: Op, as_operator: bool = False) -> Any:
    if not op.ufunc or not op.differentiable:
        return lambda x, y, /: apply(op, as_value(x), as_value(y))
    ufunc = getattr(np, op.ufunc)
    both, left, right = op.rule((0, 1), 2), op.rule((0,), 2), op.rule((1,), 2)

    def function(x: Any, y: Any, /) -> Any:
        a: Any
        b: Any
        n: Any
        m: Any
        if type(x) is Tensor:
            spec, a, n = x.spec, x.value, x.node
            if type(y) is Tensor:
                b, m = y.value, y.node
                plain = spec is y.spec and spec.plain is not None
            else:
                b, m = _weak_constant(spec, y), None
                plain = b is not None
        elif type(y) is Tensor:
            spec, b, m = y.spec, y.value, y.node
            a, n = _weak_constant(spec, x), None
            plain = a is not None
        elif type(x) is _ndarray and type(y) is _ndarray:
            return _raw(op, ufunc, x, y)
        else:
            plain = False
        if not plain or modes() is not PLAIN:
            if as_operator and not is_operand(y):
                return NotImplemented
            return apply(op, as_value(x), as_value(y))
        value = ufunc(a, b)
        if type(value) is not _ndarray:
            value = _asarray(value)
        out = Tensor()
        out.value = value
        out.spec = spec
        if n is None and m is None:
            out.node = None
            return out
        out.node = node = Node()
        node.order = next_order()
        if n is None:
            node.rule = rule = right
            node.parents = (m,)
        elif m is None:
            node.rule = rule = left
            node.parents = (n,)
        else:
            node.rule = rule = both
            node.parents = (n, m)
        keeps = rule.keeps
        if keeps is BOTH:
            node.kept = (a, b)
        elif keeps is SECOND:
            node.kept = (b,)
        else:
            node.kept = tuple([value if k == OUT else b if k else a for k in keeps]) if keeps else ()
        node.spec = spec
        node.bar = node.call = node.hooks = None
        frame = _getframe(1)
        node.code = frame.f_code
        node.lasti = frame.f_lasti
        return out

    return function


def _raw(op: Op, ufunc: Any, *arrays: Any) -> Any:
    """The value on bare arrays, most often in a rule; if NumPy refuses, the general path words the error."""
    try:
        value = ufunc(*arrays)
    except (TypeError, ValueError):
        return apply(op, *arrays)
    return value if type(value) is _ndarray else _asarray(value)


def _weak_constant(spec: Spec, number: Any) -> Any:
    """A Python scalar as a 0-d array of the tensor's dtype, remembered: NumPy converts one at twice an op's cost."""
    if not (type(number) is float or type(number) is int) or spec.plain is None:
        return None
    found = spec.scalars.get(number)
    if found is not None:
        return found
    if number and math.isfinite(number):  # 0 and -0 share a key, so zero is never remembered
        if abs(number) > np.finfo(spec.dtype).max:
            return None
        if len(spec.scalars) > 256:
            spec.scalars.clear()
        found = spec.scalars[number] = _asarray(number, spec.dtype)
    return found


class Packed:
    """A kept value that went through a user's `pack`; `unpack` brings it back when a rule asks."""

    __slots__ = ("spec", "stored", "unpack")

    def __init__(self, tensor: Tensor, hooks: tuple[Any, Any]) -> None:
        pack, self.unpack = hooks
        self.spec = tensor.spec
        with switched(grad=False, saved=None):
            self.stored = pack(tensor)

    def value(self) -> Any:
        with switched(grad=False, saved=None):
            found = self.unpack(self.stored)
        value = found.value if isinstance(found, Tensor) else found
        if not (is_array(value) or isinstance(value, Value)):
            raise HookError(f"unpack returned a {type(found).__name__}, wanted a tensor or an array of {self.spec}.")
        if spec_of(value) != self.spec:
            raise HookError(f"unpack returned {spec_of(value)}, what was packed is {self.spec}.")
        return value


def record(top: Tensor, op: Op, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
    """Interpret an op on tensors: compute one level below, then remember the step if anything is tracked."""
    level = top.level
    values: list[Any] = []
    needs: list[int] = []
    shared = False
    for i, x in enumerate(args):
        if type(x) is Tensor and (level == 1 or x.level == level):
            values.append(x.value)
            if x.node is not None:
                needs.append(i)
            if x.spec.plain is None and x.status == "shared":
                shared = True
        else:
            values.append(x)
    out = compute(op, values, static) if level == 1 else apply(op, *values, **static)
    mode = modes()
    if type(out) is tuple:
        return _many(op, args, values, out, static, tuple(needs), mode, shared)
    result = wrap(out, spec_of(out))
    if mode is not PLAIN and mode.inference:
        result.mark("inference")
    elif shared and _same_memory(out, values):
        result.mark("shared")
    if needs and mode.grad and op.differentiable and result.spec.inexact:
        result.node = _node(op, args, values, out, result.spec, static, tuple(needs), mode)
    return result


def _same_memory(out: Any, values: list[Any]) -> bool:
    return getattr(out, "base", None) is not None or any(out is value for value in values)


def _node(
    op: Op,
    args: tuple[Any, ...],
    values: list[Any],
    out: Any,
    spec: Any,
    static: dict[str, Any],
    needs: tuple[int, ...],
    mode: Modes,
) -> Node:
    rule = op.rule(needs, len(args))
    node = Node()
    node.order, node.rule = next_order(), rule
    node.parents = tuple([args[i].node for i in needs])
    node.kept = tuple([_keep(op, k, args, values, out, mode) for k in rule.keeps])
    node.spec = spec
    node.call = Call(tuple([spec_of(x) for x in args]), static)
    node.bar = node.hooks = None
    sign(node, _getframe(2))
    return node


def _keep(op: Op, position: int, args: tuple[Any, ...], values: list[Any], out: Any, mode: Modes) -> Any:
    """One value for the way back, made safe from later writes."""
    if position == OUT:
        value, given = out, None
    else:
        value, given = values[position], args[position]
        if type(given) is Tensor:
            if given.spec.plain is not None and mode is PLAIN:
                return value
            if given.is_inference and not mode.inference:
                raise GraphError(
                    f"{op.name}: backward would have to keep a tensor made under inference_mode.\n"
                    "  Copy it first: pb.tensor(x)."
                )
            if given.status == "shared":
                value = locked(value)
        elif not isinstance(value, Value):
            value = settled(value)
    if mode.saved is not None and not isinstance(value, (bool, int, float, complex)):
        return Packed(wrap(value, spec_of(value)), mode.saved)
    return value


def _many(
    op: Op,
    args: tuple[Any, ...],
    values: list[Any],
    outs: tuple[Any, ...],
    static: dict[str, Any],
    needs: tuple[int, ...],
    mode: Modes,
    shared: bool,
) -> tuple[Tensor, ...]:
    """An op with several results has one node, and each result a part of it."""
    results = tuple(wrap(x, spec_of(x)) for x in outs)
    for result in results:
        if mode.inference:
            result.mark("inference")
        elif shared and _same_memory(result.value, values):
            result.mark("shared")
    if needs and mode.grad and op.differentiable:
        specs = tuple(result.spec for result in results)
        node = _node(op, args, values, outs, specs, static, needs, mode)
        for i, result in enumerate(results):
            if result.spec.inexact:
                result.node = part_of(node, i, result.spec)
    return results


class PartRule:
    """The rule of one result of many: its cotangent goes to its place among the node's."""

    __slots__ = ("index", "keeps", "needs", "op")

    def __init__(self, op: Op, index: int) -> None:
        self.op = op
        self.index = index
        self.needs = (0,)
        self.keeps = ()


def part_of(node: Node, index: int, spec: Spec) -> Node:
    """The node of one result of many."""
    part = Node()
    part.rule, part.parents, part.kept, part.spec = PartRule(node.rule.op, index), (node,), (), spec
    part.order, part.call, part.hooks, part.bar = next_order(), NO_CALL, None, None
    part.code, part.lasti = node.code, node.lasti
    return part


Tensor.interpret = record  # type: ignore[method-assign, assignment]
