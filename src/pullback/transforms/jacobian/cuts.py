"""Narrow places of a program: the fewest numbers through which all its derivatives pass, by maximum flow.

Values are pipes as wide as they have elements; what can flow from the inputs to the outputs is as much as the narrowest
set of values lets through that separates the two (Menger; Ford and Fulkerson). The chain rule multiplies the Jacobians
on both sides of such a set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import GraphError
from ...program.ir import Equation, Program, Symbol
from ...program.passes import drop_unused

#: The most steps of a search, about a second: each path is sought from end to end, and scalars make many of them.
_MOST_STEPS = 1_000_000
_UNBOUNDED = 1 << 62
_SOURCE, _SINK = -1, -2
#: Complex values move in two directions, and halves would be rounded between the factors.
_CUT_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, slots=True)
class MovingProgram:
    """A program whose first `moving` inputs move; the others are held fixed."""

    program: Program
    moving: int

    @property
    def values(self) -> list[Symbol]:
        """Every value, in an order that is the same for all traces that come to the same equations."""
        return [*self.program.inputs, *(s for e in self.program.equations for s in e.results)]

    def moving_values(self) -> set[int]:
        """The ids of values that have derivatives by the inputs that move."""
        found = {id(s) for s in self.program.inputs[: self.moving]}
        for e in self.program.equations:
            if e.op.differentiable and any(id(x) in found for x in _arguments_with_derivative(e)):
                found |= {id(s) for s in e.results if s.spec.inexact}
        return found


def _arguments_with_derivative(e: Equation) -> Iterable[Any]:
    return [x for i, x in enumerate(e.args) if e.op.joint is not None or e.op.pull_of(i) is not None]


@dataclass(slots=True)
class _Network:
    """Residual capacities: how much more can go from one node to another."""

    residual: dict[int, dict[int, int]] = field(default_factory=dict)

    def connect(self, start: int, end: int, capacity: int) -> None:
        self.residual.setdefault(start, {})[end] = capacity
        self.residual.setdefault(end, {}).setdefault(start, 0)

    def augment(self) -> int:
        """Send as much as a shortest path takes; 0 if there is none."""
        before = self._reach(_SOURCE, forward=True)
        if _SINK not in before:
            return 0
        path = [_SINK]
        while path[-1] != _SOURCE:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path, strict=False))
        amount = min(self.residual[a][b] for a, b in steps)
        for a, b in steps:
            self.residual[a][b] -= amount
            self.residual[b][a] += amount
        return amount

    def _reach(self, start: int, forward: bool) -> dict[int, int]:
        """The nodes that can still be reached from one (or from which it can), each with the node before it."""
        before, waiting = {start: start}, deque([start])
        while waiting:
            here = waiting.popleft()
            for there in self.residual.get(here, ()):
                left = self.residual[here][there] if forward else self.residual[there][here]
                if left and there not in before:
                    before[there] = here
                    waiting.append(there)
        return before

    def reached(self) -> set[int]:
        return set(self._reach(_SOURCE, forward=True))

    def reaching(self) -> set[int]:
        return set(self._reach(_SINK, forward=False))


def find_cuts(whole: MovingProgram, below: int) -> list[tuple[int, ...]]:
    """The narrowest sets of values (their places among all values) that separate outputs from inputs, of fewer than
    `below` elements together: the one nearest to the inputs, and the one nearest to the outputs.
    """
    values, moving = whole.values, whole.moving_values()
    network = _connect_values(whole, values, moving)
    width, steps = 0, 0
    while width < below and steps <= _MOST_STEPS and (more := network.augment()):
        width, steps = width + more, steps + len(network.residual)
    if not 0 < width < below or steps > _MOST_STEPS:
        return []
    early, late = network.reached(), network.reaching()
    near = tuple([i for i in range(len(values)) if 2 * i in early and 2 * i + 1 not in early])
    far = tuple([i for i in range(len(values)) if 2 * i + 1 in late and 2 * i not in late])
    return [near] if near == far else [near, far]


def _connect_values(whole: MovingProgram, values: Sequence[Symbol], moving: set[int]) -> _Network:
    """Value i is the pipe from node 2 i to node 2 i + 1."""
    network = _Network({_SOURCE: {}, _SINK: {}})
    places = {id(s): i for i, s in enumerate(values)}
    for i, s in enumerate(values):
        if id(s) in moving:
            network.connect(2 * i, 2 * i + 1, s.spec.size if s.spec.dtype in _CUT_DTYPES else _UNBOUNDED)
    for s in whole.program.inputs[: whole.moving]:
        network.connect(_SOURCE, 2 * places[id(s)], _UNBOUNDED)
    for e in whole.program.equations:
        sources = [places[id(x)] for x in _arguments_with_derivative(e) if id(x) in moving]
        for s in e.results:
            for i in sources if id(s) in moving else ():
                network.connect(2 * i + 1, 2 * places[id(s)], _UNBOUNDED)
    for x in whole.program.outputs:
        if id(x) in moving:
            network.connect(2 * places[id(x)] + 1, _SINK, _UNBOUNDED)
    return network


@dataclass(frozen=True, slots=True)
class Halves:
    """A program in two: `first` returns the values of the cut, `held` what the second half needs besides, which has no
    derivatives; `second` takes the one and then the other.
    """

    first: MovingProgram
    held: Program
    second: MovingProgram


def split_at(whole: MovingProgram, cut: Sequence[int]) -> Halves:
    """The two sides of a cut. What lies between two values of the cut is computed on both."""
    program, values, moving = whole.program, whole.values, whole.moving_values()
    middle = tuple([values[i] for i in cut])
    stops = {id(s) for s in middle}
    wanted = {id(x) for x in program.outputs}
    late: list[Equation] = []
    for e in reversed(program.equations):
        if any(id(s) in wanted and id(s) in moving and id(s) not in stops for s in e.results):
            late.append(e)
            wanted |= {id(x) for x in e.args}
    made = {id(s) for e in late for s in e.results if id(s) in moving} | stops
    held = tuple([s for s in values if id(s) in wanted and id(s) not in made])
    if any(id(s) in moving for s in held):
        raise GraphError("jacobian: these values do not separate the outputs of a function from its inputs.")
    return Halves(
        MovingProgram(drop_unused(Program(program.inputs, program.equations, middle)), whole.moving),
        drop_unused(Program(program.inputs, program.equations, held)),
        MovingProgram(Program((*middle, *held), tuple(late[::-1]), program.outputs), len(middle)),
    )
