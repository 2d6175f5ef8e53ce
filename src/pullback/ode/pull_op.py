"""The pullback of a solve as an op, whose own derivatives are those of a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..arrays.spec import Spec
from ..ops.forms import Expand
from ..ops.op import Formula, Op
from ..transforms.custom.rules import make_custom_record
from .policies import Call, apply_to_batch


def make_pull_op(
    name: str, record: int, compute: Callable[[Call, Any], tuple[Any, ...]], pull: Callable[..., Any],
    push: Callable[..., Any],
) -> Op:  # fmt: skip
    """An op on a cotangent, so many arrays that a solve left as its `record`, and what the solve was given: its results
    are the cotangents of those that can have derivatives. `pull(bar, xs, call)` and `push(tangents, xs, call)` are its
    derivatives.
    """

    def run_bare(xp: Any, *xs: Any, call: Call) -> Any:
        return tuple(xp.asarray(x) for x in compute(call, xs))

    def find_specs(*specs: Spec, call: Call) -> tuple[Spec, ...]:
        return tuple(s for s in specs[1 + record :] if s.inexact)

    def batch(size: int, axes: tuple[int | None, ...], *xs: Any, call: Call) -> Any:
        return apply_to_batch(op, size, axes, xs, call)

    op: Op = replace(make_custom_record(
        name, ("*xs",), run_bare, Formula(pull, ("bar", "xs", "call")), Formula(push, ("tangents", "xs", "call")),
        batch, find_specs,
    ), form=Expand(lambda *xs, call: compute(call, xs)))  # fmt: skip
    return op
