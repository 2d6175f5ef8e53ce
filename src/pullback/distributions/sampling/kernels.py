"""Kernels of Markov chains: HMC with a fixed number of steps, and NUTS, whose trajectories end where they turn back."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from ...arrays.argument_checks import check_count
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from ...ops.elementwise.arithmetic import bitwise_left_shift
from ...ops.elementwise.pointwise import exp, log, logaddexp, logical_and, logical_not, logical_or, minimum, where
from ...ops.index.indexing import set_at, take
from ...ops.placement import move
from ...ops.random.keys import fold_in, split
from ...ops.random.samplers import uniform
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import astype, broadcast_to
from ...transforms.control.branches_and_loops import fori_loop, while_loop
from .leapfrog import Phase, Place, Slope, energy, take_leapfrog
from .metric import Metric

#: Beyond this error of the energy a trajectory is lost: the step is far too long for the curvature.
DIVERGENCE = 1000.0


class Step(NamedTuple):
    """The place after one transition, and what it tells: mean acceptance, whether it diverged, slopes computed."""

    place: Place
    acceptance: Any
    diverged: Any
    slopes: Any


class Kernel(Protocol):
    """How a chain moves: one transition from a place, with a step size and a metric."""

    def move(self, key: Any, slope: Slope, place: Place, step: Any, metric: Metric) -> Step: ...


@final
@dataclass(frozen=True, slots=True)
class HMC:
    """Hamiltonian Monte Carlo: trajectories of a number of leapfrog steps. Each draws its step size within a share
    `jitter` of the given one, so that no period of the target is missed.

    >>> import pullback as pb
    >>> pb.distributions.HMC(steps=20)
    HMC(steps=20, jitter=0.2)
    """

    steps: int = 16
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_count(self.steps, "HMC: steps")
        if not 0 <= self.jitter < 1:
            raise ArgumentError(f"HMC: wants a jitter from 0 to below 1, got {self}.")

    def move(self, key: Any, slope: Slope, place: Place, step: Any, metric: Metric) -> Step:
        """One transition: a momentum, a trajectory, and acceptance by the error of its energy."""
        keys = split(key, 3)
        start = Phase(place, metric.draw_momentum(keys[0]))
        length = step * (1.0 + self.jitter * uniform(-1.0, 1.0, key=keys[2], dtype=spec_of(step).dtype))
        end = fori_loop(0, self.steps, lambda i, phase: take_leapfrog(slope, phase, length, metric), start)
        gain = energy(start, metric) - energy(end, metric)
        accepted = log(uniform(key=keys[1])) < gain
        return Step(choose(accepted, end.place, place), minimum(1.0, exp(gain)), gain < -DIVERGENCE, self.steps)


def choose(predicate: Any, yes: Place, no: Place) -> Place:
    """One of two places."""
    return Place(*(where(predicate, a, b) for a, b in zip(yes, no, strict=True)))


@final
@dataclass(frozen=True, slots=True)
class NUTS:
    """The no-U-turn sampler: a trajectory doubles, forward or backward, until it turns back, and the draw is chosen
    along it by its weights (multinomial, in favor of the newer half).

    >>> import pullback as pb
    >>> pb.distributions.NUTS(max_depth=8)
    NUTS(max_depth=8)
    """

    max_depth: int = 10

    def __post_init__(self) -> None:
        if not 1 <= check_count(self.max_depth, "NUTS: max_depth") <= 20:
            raise ArgumentError(f"NUTS: max_depth is from 1 to 20, got {self.max_depth}.")

    def move(self, key: Any, slope: Slope, place: Place, step: Any, metric: Metric) -> Step:
        """One transition."""
        start = Phase(place, metric.draw_momentum(fold_in(key, 0)))
        zero = total(start.momentum) * 0.0
        walk = _Walk(slope, step, metric, energy(start, metric), self.max_depth)
        tree = while_loop(
            lambda tree: logical_and(tree.depth < self.max_depth, logical_not(tree.ended)),
            functools.partial(_double, walk, fold_in(key, 1)),
            _Tree(start, start, place, start.momentum, zero, 0, False, False, zero, 0),
        )
        count = astype(tree.count, spec_of(zero).dtype)
        return Step(tree.choice, tree.accepted / count, tree.diverged, tree.count)


class _Walk(NamedTuple):
    """What all steps of a trajectory have in common."""

    slope: Slope
    step: Any
    metric: Metric
    start_energy: Any
    max_depth: int


class _Tree(NamedTuple):
    """A trajectory: both ends, the place chosen so far, the sum of momenta, the log of the sum of weights."""

    left: Phase
    right: Phase
    choice: Place
    momenta: Any
    weight: Any
    depth: Any
    ended: Any
    diverged: Any
    accepted: Any
    count: Any


class _Branch(NamedTuple):
    """The newer half of a trajectory while it grows, and the momenta that its subtrees began with."""

    end: Phase
    choice: Place
    momenta: Any
    weight: Any
    turned: Any
    diverged: Any
    accepted: Any
    count: Any
    first: Any
    before: Any


def _double(walk: _Walk, key: Any, tree: _Tree) -> _Tree:
    keys = split(fold_in(key, tree.depth), 3)
    forward = uniform(key=keys[0]) < 0.5
    branch = _grow(walk, keys[1], _choose_phase(forward, tree.right, tree.left), forward, tree.depth)
    broken = logical_or(branch.turned, branch.diverged)
    # in favor of the newer half: it wins by the ratio of weights, not by its share
    newer = log(uniform(key=keys[2])) < branch.weight - tree.weight
    choice = choose(logical_and(newer, logical_not(broken)), branch.choice, tree.choice)
    left = _choose_phase(forward, tree.left, branch.end)
    right = _choose_phase(forward, branch.end, tree.right)
    momenta = tree.momenta + branch.momenta
    turned = _turns(walk.metric, left.momentum, right.momentum, momenta)
    return _Tree(
        left, right, choice, momenta, logaddexp(tree.weight, branch.weight), tree.depth + 1,
        logical_or(broken, turned), branch.diverged, tree.accepted + branch.accepted, tree.count + branch.count,
    )  # fmt: skip


def _choose_phase(predicate: Any, yes: Phase, no: Phase) -> Phase:
    return Phase(choose(predicate, yes.place, no.place), where(predicate, yes.momentum, no.momentum))


def _grow(walk: _Walk, key: Any, end: Phase, forward: Any, depth: Any) -> _Branch:
    """2 ** depth steps from one end, or fewer if a subtree turns back or diverges."""
    length = bitwise_left_shift(depth * 0 + 1, depth)
    step = where(forward, walk.step, -walk.step)
    none = end.momentum * 0.0
    tables = [move(table, spec_of(none).device) for table in _subtree_tables(walk.max_depth)]
    empty, zero = broadcast_to(none, (walk.max_depth, *none.shape)), total(none)
    grown: _Branch = while_loop(
        lambda b: logical_and(b.count < length, logical_not(logical_or(b.turned, b.diverged))),
        functools.partial(_extend, walk, key, step, tables),
        _Branch(end, end.place, none, zero - float("inf"), False, False, zero, 0, empty, empty),
    )
    return grown


def _extend(walk: _Walk, key: Any, step: Any, tables: Any, b: _Branch) -> _Branch:
    end = take_leapfrog(walk.slope, b.end, step, walk.metric)
    gain = walk.start_energy - energy(end, walk.metric)
    weight = logaddexp(b.weight, gain)
    chosen = log(uniform(key=fold_in(key, b.count))) < gain - weight
    momenta = b.momenta + end.momentum
    # Of each subtree that is still open the first momentum and the sum before it are kept, by its level; a leaf of
    # odd number closes those from `lowest` to `level`, which are asked whether they turn back.
    level, lowest = (take(table, b.count) for table in tables)
    even = b.count % 2 == 0
    first = set_at(b.first, level, where(even, end.momentum, take(b.first, level, axis=0)))
    before = set_at(b.before, level, where(even, b.momenta, take(b.before, level, axis=0)))

    def close(state: Any) -> Any:
        row = state[0]
        sums = momenta - take(before, row, axis=0)
        return row - 1, _turns(walk.metric, take(first, row, axis=0), end.momentum, sums)

    _, turned = while_loop(
        lambda state: logical_and(state[0] >= lowest, logical_not(state[1])),
        close,
        (where(even, lowest - 1, level), False),
    )
    return _Branch(
        end, choose(chosen, end.place, b.choice), momenta, weight, turned, gain < -DIVERGENCE,
        b.accepted + minimum(1.0, exp(gain)), b.count + 1, first, before,
    )  # fmt: skip


def _turns(metric: Metric, left: Any, right: Any, momenta: Any) -> Any:
    """Whether a trajectory turns back at either end: the velocity there points against the sum of momenta, of which
    half of the ends is left out, so that two steps count as one.
    """
    across = metric.velocity(momenta - 0.5 * (left + right))
    return logical_or(total(across * left, axis=-1) <= 0, total(across * right, axis=-1) <= 0)


@functools.cache
def _subtree_tables(max_depth: int) -> tuple[Any, Any]:
    """For each number of a leaf: the level of its subtree among those that are open, and the lowest that it closes."""
    leaves = np.arange(2 ** (max_depth - 1))
    level = np.array([bin(n >> 1).count("1") for n in leaves])
    ones = np.array([bin(n ^ (n + 1)).count("1") - 1 for n in leaves])
    return level, level - ones + 1
