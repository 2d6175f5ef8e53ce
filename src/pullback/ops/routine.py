"""Routines: traced functions inside an equation, such as the body of a loop or a branch.

A *routine* has inputs, equations and outputs, and refers to nothing else: whatever the function captured (a symbol
of the enclosing program, a tensor, an array) is one of its last inputs. What it computed from those alone was computed
once, when it was traced, and not at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from .specialize import Equation, Symbol, live_equations, replay, stage_equations


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Routine:
    """A program inside an equation. `derived` caches the routines made from it: its push, pull and batch."""

    inputs: tuple[Symbol, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]
    derived: dict[Any, Any] = field(default_factory=dict)

    def run(self, *values: Any) -> list[Any]:
        """Run it on arrays, or on anything else that ops take."""
        given = [_as_number(x) if s.spec.weak else x for s, x in zip(self.inputs, values, strict=True)]
        return replay(self.inputs, self.equations, self.outputs, given)

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(s.spec for s in self.inputs)

    @property
    def results(self) -> tuple[Spec, ...]:
        return tuple(spec_of(o) for o in self.outputs)

    def __repr__(self) -> str:
        return f"<routine {id(self):x}: {len(self.equations)} equations>"


def _as_number(x: Any) -> Any:
    """The count of a loop as a weak Python number, which yields in promotion."""
    return x.item() if isinstance(x, np.generic) or (is_array(x) and not x.ndim) else x


def make_routine(
    function: Callable[..., Sequence[Any]], *specs: Spec, hoisted: bool = True
) -> tuple[Routine, list[Any]]:
    """Trace a function to a routine of its arguments and captured values; returns it and those values. Arrays
    that are not `hoisted` stay in it as constants.
    """
    inputs, equations, outputs = stage_equations(function, *specs)
    own = {id(s) for s in inputs} | {id(s) for e in equations for s in e.results}
    closed: dict[int, Symbol] = {}
    found: list[Any] = []

    def hoist(x: Any) -> Any:
        if type(x) is Tensor and x.node is None and is_array(x.value):
            x = x.value
        constant = is_array(x) and not (x.ndim and hoisted and inputs)
        if id(x) in own or constant or not (isinstance(x, Value) or is_array(x)):
            return x
        if id(x) not in closed:
            closed[id(x)] = Symbol(spec_of(x), inputs[0].scope if inputs else x.scope, [], None)
            found.append(x)
        return closed[id(x)]

    lines = tuple(Equation(e.results, e.op, tuple(map(hoist, e.args)), e.static) for e in equations)
    outs = tuple(map(hoist, outputs))
    return prune_routine(Routine((*inputs, *closed.values()), lines, outs)), found


def routines_in(equations: Iterable[Equation]) -> Iterator[Routine]:
    """The routines that equations refer to, inner ones first, each once."""
    seen: set[int] = set()

    def walk(lines: Iterable[Equation]) -> Iterator[Routine]:
        for e in lines:
            for v in e.static.values():
                for r in v if type(v) is tuple else (v,):
                    if isinstance(r, Routine) and id(r) not in seen:
                        seen.add(id(r))
                        yield from walk(r.equations)
                        yield r

    return walk(equations)


def prune_routine(given: Routine) -> Routine:
    """The same without equations whose results are unused."""
    return Routine(given.inputs, live_equations(given.equations, given.outputs), given.outputs)
