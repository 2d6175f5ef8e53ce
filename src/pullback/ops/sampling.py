"""Samples in many shapes out: the arguments that ops are tested on, named after where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the module behind it is slow to import
    from numpy.random import Generator

__all__ = ["above", "away_from", "between", "reals", "whole_numbers"]

Sampler = Callable[["Generator"], list[tuple[tuple[Any, ...], dict[str, Any]]]]
Draw = Callable[["Generator", tuple[int, ...]], Any]

#: Shapes for one, two and three arguments: equal, 0-d, empty, broadcast on either side, strange ranks.
_SHAPES: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3,),), ((),), ((2, 3),), ((0,),), ((2, 1, 3),)),
    2: (((3,), (3,)), ((), ()), ((2, 3), (3,)), ((3,), (2, 1)), ((2, 3), ()), ((0, 2), (2,)), ((1,), (2, 2))),
    3: (((3,), (3,), (3,)), ((), (), ()), ((2, 3), (3,), (2, 1)), ((1,), (), (2, 2)), ((0,), (1,), ())),
}


def drawn(count: int, draw: Draw) -> Sampler:
    """Samples for `count` arguments from one distribution, over all the shapes."""
    return lambda rng: [(tuple(draw(rng, shape) for shape in shapes), {}) for shapes in _SHAPES[count]]


def reals(count: int = 1) -> Sampler:
    """Anywhere, but apart from each other and from small whole numbers, where corners lie."""
    return drawn(count, lambda rng, shape: np.asarray(rng.normal(size=shape) * 1.5 + 0.137))


def between(low: float, high: float, count: int = 1) -> Sampler:
    """Inside an interval."""
    return drawn(count, lambda rng, shape: np.asarray(rng.uniform(low, high, size=shape)))


def above(low: float, count: int = 1) -> Sampler:
    """Above a bound."""
    return between(low + 1e-2, low + 3.0, count)


def away_from(point: float, count: int = 1) -> Sampler:
    """On both sides of a point, at least a quarter away."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> Any:
        return np.asarray(point + rng.choice([-1.0, 1.0], size=shape) * rng.uniform(0.25, 2.0, size=shape))

    return drawn(count, draw)


def whole_numbers(count: int = 1) -> Sampler:
    """Integers of either sign."""
    return drawn(count, lambda rng, shape: np.asarray(rng.integers(-9, 9, size=shape)))


def one(*shape: int, **static: Any) -> Sampler:
    """One array of a shape, with static parameters: for ops that say their samples one by one."""
    return lambda rng: [((np.asarray(rng.normal(size=shape)),), static)]


def several(*samplers: Sampler) -> Sampler:
    """The samples of all."""
    return lambda rng: [sample for sampler in samplers for sample in sampler(rng)]
