"""Function in, a program for the inside of an equation out: the body of a loop, or a branch.

A *routine* has inputs, equations and outputs, and refers to nothing else: whatever the function closed over (a symbol
of the program around it, a tensor, an array) is one of its last inputs. What it computed of those alone was computed
when it was written down, once, and not at each step.
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
from .specialise import Equation, Symbol, replay, write_down

__all__ = ["Routine", "pruned", "routine", "routines_in"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Routine:
    """A program inside an equation. `derived` remembers what was made of it: its push, its pull, its batch."""

    inputs: tuple[Symbol, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]
    derived: dict[Any, Any] = field(default_factory=dict)

    def run(self, *values: Any) -> list[Any]:
        """Its results on arrays, or on anything else that ops take."""
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
    """The count of a loop as the Python number that it stands for, which gives way in promotion."""
    return x.item() if isinstance(x, np.generic) or (is_array(x) and not x.ndim) else x


def routine(function: Callable[..., Sequence[Any]], *specs: Spec, hoisted: bool = True) -> tuple[Routine, list[Any]]:
    """A function of so many values as a routine of them and of what it closed over, which comes beside it. Arrays
    that are not to be `hoisted` stay in it as constants.
    """
    inputs, equations, outputs = write_down(function, *specs)
    own = {id(s) for s in inputs} | {id(s) for e in equations for s in e.results}
    closed: dict[int, Symbol] = {}
    found: list[Any] = []

    def inside(x: Any) -> Any:
        if type(x) is Tensor and x.node is None and is_array(x.value):
            x = x.value
        constant = is_array(x) and not (x.ndim and hoisted and inputs)
        if id(x) in own or constant or not (isinstance(x, Value) or is_array(x)):
            return x
        if id(x) not in closed:
            closed[id(x)] = Symbol(spec_of(x), inputs[0].scope if inputs else x.scope, [], None)
            found.append(x)
        return closed[id(x)]

    lines = tuple(Equation(e.results, e.op, tuple(map(inside, e.args)), e.static) for e in equations)
    outs = tuple(map(inside, outputs))
    return pruned(Routine((*inputs, *closed.values()), lines, outs)), found


def routines_in(equations: Iterable[Equation]) -> Iterator[Routine]:
    """The routines that equations refer to, those inside of others first, each once."""
    seen: set[int] = set()

    def of(lines: Iterable[Equation]) -> Iterator[Routine]:
        for e in lines:
            for v in e.static.values():
                for r in v if type(v) is tuple else (v,):
                    if isinstance(r, Routine) and id(r) not in seen:
                        seen.add(id(r))
                        yield from of(r.equations)
                        yield r

    return of(equations)


def pruned(given: Routine) -> Routine:
    """The same without equations whose results nobody uses."""
    wanted = {id(o) for o in given.outputs}
    kept = []
    for e in reversed(given.equations):
        if any(id(s) in wanted for s in e.results):
            kept.append(e)
            wanted |= {id(a) for a in e.args}
    return Routine(given.inputs, tuple(reversed(kept)), given.outputs)
