"""Public functions that remember their outcome: which op they apply to an array of a spec, with which parameters.

Checking and normalizing what a user passes costs several times the op. The outcome depends on the spec and the other
parameters alone, so it is found once, by running the function on a probe, and stored as a plan (`ops/plans.py`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import SymbolicValue
from ..settings import PLAIN, enable_grad, modes
from .op import Op
from .plans import CallPlan, learn, make_plan, new_table

F = TypeVar("F", bound=Callable[..., Any])

#: Parameters of these types, and tuples of integers, equal nothing that means something else: 1.0 equals 1.
_EXACT = frozenset((int, bool, str, type(None)))


class _Probe(SymbolicValue):
    """Stands for an array: notes the ops that are applied to it."""

    __slots__ = ("level", "seen", "spec")
    level: int

    def __init__(self, spec: Spec, seen: list[tuple[Op, Sequence[Any], dict[str, Any]]]) -> None:
        self.spec = spec.as_guarded()
        self.seen = seen
        self.level = sys.maxsize

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        self.seen.append((op, args, static))
        return _Probe(op.spec_of([spec_of(x) for x in args], static), self.seen)


def remember(function: F) -> F:
    """A function of one array and parameters that applies one op to it."""
    plans = new_table()

    @functools.wraps(function)
    def call(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        if type(x) is not Tensor or not x.spec.number:
            return function(x, *args, **kwargs)
        key = (x.spec.number, args, *kwargs.items()) if kwargs else (x.spec.number, args)
        try:
            plan = plans.get(key)
        except TypeError:  # a parameter without a hash
            return function(x, *args, **kwargs)
        if plan and is_exact(args) and (not kwargs or is_exact(kwargs.values())):
            run = plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
            if run is not None:
                try:
                    return run(x)
                except Exception:
                    plan = False  # the general path raises the proper error
        out = function(x, *args, **kwargs)
        if plan is None:
            learn(plans, key, out, lambda: _plan_on_probes(function, (x,), args, kwargs))
        return out

    call.plans = plans  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def remember_product(function: F) -> F:
    """A function of two arrays that applies one op to them."""
    plans = new_table()

    @functools.wraps(function)
    def call(x: Any, y: Any, /) -> Any:
        if type(x) is not Tensor or type(y) is not Tensor:
            return function(x, y)
        key = (x.spec.number, y.spec.number)
        plan = plans.get(key)
        if plan:
            run = plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
            if run is not None:
                try:
                    return run(x, y)
                except Exception:
                    plan = False
        out = function(x, y)
        if plan is None and x.spec.number and y.spec.number:
            learn(plans, key, out, lambda: _plan_on_probes(function, (x, y), (), {}))
        return out

    return call  # type: ignore[return-value]


def is_exact(parameters: Any) -> bool:
    """Whether no parameter could be mistaken for an equal one of another type."""
    for value in parameters:
        if type(value) is tuple:
            for n in value:
                if type(n) is not int:
                    return False
        elif type(value) not in _EXACT:
            return False
    return True


def _plan_on_probes(
    function: Callable[..., Any], arrays: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> CallPlan | None:
    """The plan of the op that a function applies to arrays; None if it applies several, or none."""
    if not is_exact((*args, *kwargs.values())):
        return None
    seen: list[tuple[Op, Sequence[Any], dict[str, Any]]] = []
    probes = [_Probe(x.spec, seen) for x in arrays]
    with enable_grad():  # under `no_grad` a function that has nothing to do returns a constant, by an op
        out = function(*probes, *args, **kwargs)
    if len(seen) != 1 or type(out) is not _Probe:
        return None
    op, given, static = seen[0]
    if len(given) != len(arrays) or any(x is not probe for x, probe in zip(given, probes, strict=True)):
        return None
    return make_plan(op, arrays, static)
