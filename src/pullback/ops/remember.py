"""Public functions that remember their outcome: which op they apply to arrays of a spec, with which parameters.

Checking and normalizing what a user passes costs several times the op. The outcome depends on the specs and the other
parameters alone, so it is found once, by running the function on probes, and stored as a plan (`ops/plans.py`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..arrays.call_site import UNTYPED
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import SymbolicValue
from ..errors import PullbackError
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


class Outcomes:
    """What the calls of one function came to. The function asks `find` for what runs a call by its plan, and if that is
    None goes its own way.

    A function of the package asks only for tensors, so that rules, which run on bare arrays, pay for one test.
    """

    __slots__ = ("_function", "_names", "_plans")
    _function: Callable[..., Any]
    _names: tuple[str, ...]

    def __init__(self) -> None:
        self._plans = new_table()

    def of(self, function: F) -> F:
        """Say whose calls these are; its first parameter is the array."""
        self._function = function
        _, *named = inspect.signature(function).parameters
        self._names = tuple([name for name in named if name != "out"])  # which is refused
        function.outcomes = self  # type: ignore[attr-defined]
        return function

    def find(self, x: Tensor, *parameters: Any) -> Callable[[Tensor], Tensor] | None:
        """What runs a call on a tensor, given all other parameters in order."""
        number = x.spec.number
        if not number or not is_exact(parameters):
            return None
        plan = self._plans.get(key := (number, *parameters))
        if plan:
            return plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
        if plan is None:
            named = dict(zip(self._names, parameters, strict=True))
            learn(self._plans, key, lambda: _plan_on_probes(lambda probe: self._function(probe, **named), (x,)))
        return None


class JoinedOutcomes:
    """The same for a function that applies one op to all arrays of a list."""

    __slots__ = ("_apply", "_plans")

    def __init__(self, apply: Callable[..., Any]) -> None:
        self._apply, self._plans = apply, new_table()

    def find(self, arrays: Sequence[Any], *parameters: Any) -> Callable[..., Tensor] | None:
        """What runs `apply(arrays, *parameters)`."""
        numbers: list[Any] = [parameters]
        for x in arrays:
            if type(x) is not Tensor or not (number := x.spec.number):
                return None
            numbers.append(number)
        if not is_exact(parameters):
            return None
        plan = self._plans.get(key := tuple(numbers))
        if plan:
            return plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
        return self._find(key, arrays, parameters)

    def find_pair(self, x: Tensor, y: Tensor) -> Callable[..., Tensor] | None:
        """The same for two tensors."""
        plan = self._plans.get(key := (x.spec.number, y.spec.number))
        if plan:
            return plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
        return self._find(key, (x, y), ()) if all(key) else None

    def _find(self, key: Any, arrays: Sequence[Any], parameters: tuple[Any, ...]) -> Callable[..., Tensor] | None:
        plan = self._plans.get(key)
        if plan is None and arrays:
            learn(self._plans, key, lambda: _plan_on_probes(lambda *probes: self._apply(probes, *parameters), arrays))
        return plan.in_mode(modes()) if plan else None  # type: ignore[union-attr]


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


def _plan_on_probes(function: Callable[..., Any], arrays: Sequence[Any]) -> CallPlan | None:
    """The plan of the op that a function applies to arrays; None if it applies several, or none, or raises."""
    seen: list[tuple[Op, Sequence[Any], dict[str, Any]]] = []
    probes = [_Probe(x.spec, seen) for x in arrays]
    try:
        with enable_grad():  # under `no_grad` a function that has nothing to do returns a constant, by an op
            out = function(*probes)
    except (PullbackError, *UNTYPED):
        return None
    if len(seen) != 1 or type(out) is not _Probe:
        return None
    op, given, static = seen[0]
    if len(given) != len(arrays) or any(x is not probe for x, probe in zip(given, probes, strict=True)):
        return None
    return make_plan(op, arrays, static)
