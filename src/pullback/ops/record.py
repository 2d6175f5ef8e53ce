"""The interpreter of tensors, general path: computes an op one level below and records a node on the tape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..arrays.call_site import set_call_site
from ..arrays.node import Node, NodeCall
from ..arrays.origin import find_origin
from ..arrays.protect import as_immutable, lock_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, copy_variable, wrap
from ..arrays.value import Value
from ..errors import GraphError
from ..instrument import OpCall, SavedSlot
from ..settings import PLAIN, Modes, modes
from .dispatch import compute, run
from .op import OUT, Op, PartRule
from .plans import call_key, find_plan, learn_call
from .plans_of_many import make_call_plan
from .saved_values import SavedVariable
from .timed_calls import time_compute

_getframe = sys._getframe


def record(top: Tensor, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
    """Interpret an op on tensors: by its plan where it has one, else by the general path."""
    if top.spec.number:
        plan = find_plan(key := call_key(op, args, static))
        if plan and (run_plan := plan.in_mode(modes())) is not None:  # type: ignore[union-attr]
            try:
                return run_plan(*args)
            except Exception:
                plan = False  # it depends on the values; the general path raises the proper error
        out = record_general(top, op, args, static)
        if plan is None:
            learn_call(key, lambda: make_call_plan(op, args, static))
        return out
    return record_general(top, op, args, static)


def record_general(top: Tensor, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
    """Compute one level below, then record a node if anything is tracked."""
    level = top.level
    mode = modes()
    if mode.tracing is not None and level < mode.tracing.level and mode.tracing.scope.open:
        return mode.tracing.interpret(op, args, static)  # on captured tensors alone: an equation of the traced program
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
    tracked = bool(needs) and mode.grad and op.differentiable
    evaluate = run if level > 1 else compute
    if mode.instruments is None or not mode.instruments.sees(op):
        out = evaluate(op, values, static)
    elif level == 1 and mode.instruments.timer is not None:
        out = time_compute(mode.instruments.timer, compute, op, values, static)
    else:
        out = mode.instruments.compute(OpCall(op, args, values, static, level, tracked), evaluate)
    if level > 1 and type(out) is not tuple and (not isinstance(out, Value) or out.level < level - 1):
        return out  # a comparison of transformed values has a lower level, and keeps it
    if type(out) is tuple:
        return _record_many(op, args, values, out, static, tuple(needs), mode, shared)
    result = wrap(out, spec_of(out))
    if mode is not PLAIN and mode.inference:
        result.mark("inference")
    elif shared and _may_share_memory(out, values):
        result.mark("shared")
    if tracked and result.spec.inexact:
        result.node = _make_node(op, args, values, out, result.spec, static, tuple(needs), mode, shared)
    return result


def _may_share_memory(out: Any, values: list[Any]) -> bool:
    return getattr(out, "base", None) is not None or any(out is value for value in values)


def _lock_views(out: Any, values: list[Any]) -> Any:
    """A result that is safe to save, where it may share memory that the user can write to."""
    if type(out) is tuple:
        return tuple(_lock_views(x, values) for x in out)
    return lock_array(out) if _may_share_memory(out, values) else out


def _make_node(
    op: Op,
    args: Sequence[Any],
    values: list[Any],
    out: Any,
    spec: Any,
    static: dict[str, Any],
    needs: tuple[int, ...],
    mode: Modes,
    shared: bool,
) -> Node:
    rule = op.rule(needs, len(args))
    node = Node()
    node.rule = rule
    node.parents = tuple([args[i].node for i in needs])
    node.order = max([parent.order for parent in node.parents]) + 1
    set_call_site(node, _getframe(2))
    kept = _lock_views(out, values) if shared and OUT in rule.keeps else out
    node.kept = tuple([keep_value(node, k, args, values, kept, mode) for k in rule.keeps])
    node.spec = spec
    node.call = NodeCall(tuple([spec_of(x) for x in args]), static)
    node.bar = None
    if mode.locates:
        node.call.origin = find_origin(_getframe(2))
    if mode.instruments is not None:
        mode.instruments.node_made(node)
    return node


def keep_value(node: Node, position: int, args: Sequence[Any], values: list[Any], out: Any, mode: Modes) -> Any:
    """One value to save for the backward pass, protected from later writes."""
    if position == OUT:
        value, given = out, None
    else:
        value, given = values[position], args[position]
        if type(given) is Tensor:
            if given.spec.plain is not None and mode is PLAIN and value is not given:
                return value
            if given.is_inference and not mode.inference:
                raise GraphError(
                    f"{node.name}: backward would have to save a tensor made under inference_mode.\n"
                    "  Copy it first: pb.tensor(x)."
                )
            if given.status == "shared":
                value = lock_array(value)
            if value is given and (mode.instruments is None or not mode.instruments.savers):
                return SavedVariable(given)
            if value is given:
                value = mode.tracing.constants.keep(given) if given.is_traced else copy_variable(given)
        else:
            value = value.alias() if isinstance(value, Value) else as_immutable(value)
    instruments = mode.instruments
    if instruments is None or not instruments.savers or isinstance(value, (bool, int, float, complex)):
        return value
    op, leaf = node.rule.op, None
    if type(given) is Tensor and given.node is not None and given.node.rule is None and not given.status:
        leaf = given.node
    slot = SavedSlot(op.name, op.args, position, (node.code, node.lasti), leaf)
    if type(value) is tuple:
        return tuple([instruments.hold(part, slot) for part in value])
    return instruments.hold(value, slot)


def _record_many(
    op: Op,
    args: Sequence[Any],
    values: list[Any],
    outs: tuple[Any, ...],
    static: dict[str, Any],
    needs: tuple[int, ...],
    mode: Modes,
    shared: bool,
) -> tuple[Tensor, ...]:
    """Record an op with several results: one node, and for each result a part node."""
    results = tuple(wrap(x, spec_of(x)) for x in outs)
    for result in results:
        if mode.inference:
            result.mark("inference")
        elif shared and _may_share_memory(result.value, values):
            result.mark("shared")
    if needs and mode.grad and op.differentiable:
        specs = tuple(result.spec for result in results)
        node = _make_node(op, args, values, outs, specs, static, needs, mode, shared)
        for i, result in enumerate(results):
            if result.spec.inexact:
                result.node = part_node(node, i, result.spec)
    return results


def part_node(node: Node, index: int, spec: Spec) -> Node:
    """The node of one result of many."""
    part = Node()
    part.rule, part.parents, part.kept, part.spec = PartRule(node.rule.op, index), (node,), (), spec
    part.order, part.call, part.bar = node.order + 1, NodeCall((), {}), None
    part.code, part.lasti = node.code, node.lasti
    return part


Tensor.interpret = record  # type: ignore[method-assign, assignment]
