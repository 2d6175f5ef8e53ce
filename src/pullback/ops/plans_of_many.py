"""Call plans of ops with several results, such as `split`: one node, and for each result a part node, found once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.call_site import user_line
from ..arrays.node import Node, PlannedCall
from ..arrays.spec import Spec
from ..arrays.tensor import Tensor
from .binding import bind_function, converter
from .op import Op, PartRule
from .plans import CallPlan, keep_values, make_plan, specs_of_call

_getframe = sys._getframe


def make_call_plan(op: Op, args: Sequence[Any], static: dict[str, Any]) -> CallPlan | None:
    """The plan of a call with arguments like these, None if it can have none."""
    found = specs_of_call(op, args, static)
    if found is None or type(found[1]) is Spec:
        return make_plan(op, args, static)
    specs, outs = found
    compute, calls = bind_function(op, specs, static), _CallsOfMany(op, specs, static, outs)
    evaluate = _evaluator(compute, outs)
    infer = _evaluator(compute, tuple([s.as_inference() for s in outs]), "inference")
    is_recorded = op.differentiable and any(s.inexact for s in outs)
    if any(type(x) is Tensor and x.spec.number < 0 for x in args):
        return CallPlan(op, outs, None, None, infer)
    return CallPlan(op, outs, _recorder(compute, calls) if is_recorded else evaluate, evaluate, infer)


class _CallsOfMany:
    """What nodes of such a call point at: by which arguments are tracked, and one for each result that has a node."""

    __slots__ = ("_known", "_op", "_specs", "_static", "outs", "parts")

    def __init__(self, op: Op, specs: tuple[Spec, ...], static: dict[str, Any], outs: tuple[Spec, ...]) -> None:
        self._op, self._specs, self._static, self.outs = op, specs, static, outs
        self._known: dict[tuple[int, ...], PlannedCall] = {}
        self.parts = [PlannedCall(PartRule(op, i), (), {}, s) if s.inexact else None for i, s in enumerate(outs)]

    def tracking(self, needs: tuple[int, ...]) -> PlannedCall:
        found = self._known.get(needs)
        if found is None:
            rule = self._op.rule(needs, len(self._specs))
            found = self._known[needs] = PlannedCall(rule, self._specs, self._static, self.outs)
        return found


def _evaluator(compute: Callable[..., Any], specs: tuple[Spec, ...], status: str = "") -> Callable[..., Any]:
    """What only computes; with a status, its results are marked."""
    wrap_all = _wrapper(specs)

    def evaluate(*args: Any) -> tuple[Tensor, ...]:
        outs = wrap_all(compute(*[x.value if type(x) is Tensor else x for x in args]))
        if status:
            for out in outs:
                out._status = status
        return outs

    return evaluate


def _wrapper(specs: tuple[Spec, ...]) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
    """What makes tensors of results."""
    converters = [(spec, converter(spec)) for spec in specs]

    def wrap_all(values: Sequence[Any]) -> tuple[Tensor, ...]:
        outs = []
        for value, (spec, as_array) in zip(values, converters, strict=True):
            out = Tensor()
            out.value = as_array(value)
            out.spec = spec
            out.node = None
            outs.append(out)
        return tuple(outs)

    return wrap_all


def _recorder(compute: Callable[..., Any], calls: _CallsOfMany) -> Callable[..., tuple[Tensor, ...]]:
    wrap_all, specs = _wrapper(calls.outs), calls.outs

    def record(*args: Any) -> tuple[Tensor, ...]:
        values = [x.value if type(x) is Tensor else x for x in args]
        outs = wrap_all(compute(*values))
        needs = tuple([i for i, x in enumerate(args) if type(x) is Tensor and x.node is not None])
        if not needs:
            return outs
        node = Node()
        node.call = call = calls.tracking(needs)
        node.rule = rule = call.rule
        node.parents = parents = tuple([args[i].node for i in needs])
        node.order = order = max([parent.order for parent in parents]) + 1
        node.kept = keep_values(rule.keeps, tuple([x.value for x in outs]), values, args) if rule.keeps else ()
        node.spec = specs
        node.bar = None
        node.code, node.lasti = user_line(_getframe(2))
        for out, part in zip(outs, calls.parts, strict=True):
            if part is not None:
                out.node = own = Node()
                own.rule, own.call, own.parents, own.kept, own.spec = part.rule, part, (node,), (), part.out
                own.order, own.bar, own.code, own.lasti = order + 1, None, node.code, node.lasti
        return outs

    return record
