"""Samplers of the arguments that ops are tested on, in many shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # slow to import
    from numpy.random import Generator

Sampler = Callable[["Generator"], list[tuple[tuple[Any, ...], dict[str, Any]]]]
ArrayDraw = Callable[["Generator", tuple[int, ...]], Any]

#: Shapes for one, two and three arguments: equal, 0-d, empty, broadcast on either side, different ranks.
_SHAPES: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3,),), ((),), ((2, 3),), ((0,),), ((2, 1, 3),)),
    2: (((3,), (3,)), ((), ()), ((2, 3), (3,)), ((3,), (2, 1)), ((2, 3), ()), ((0, 2), (2,)), ((1,), (2, 2))),
    3: (((3,), (3,), (3,)), ((), (), ()), ((2, 3), (3,), (2, 1)), ((1,), (), (2, 2)), ((0,), (1,), ())),
}


def sample_shapes(count: int, draw: ArrayDraw) -> Sampler:
    """Samples for `count` arguments from one distribution, over all the shapes."""
    return lambda rng: [(tuple(draw(rng, shape) for shape in shapes), {}) for shapes in _SHAPES[count]]


def reals(count: int = 1) -> Sampler:
    """Anywhere, but distinct and away from small integers, where corners lie."""
    return sample_shapes(count, lambda rng, shape: np.asarray(rng.normal(size=shape) * 1.5 + 0.137))


def reals_between(low: float, high: float, count: int = 1) -> Sampler:
    """Inside an interval."""
    return sample_shapes(count, lambda rng, shape: np.asarray(rng.uniform(low, high, size=shape)))


def reals_above(low: float, count: int = 1) -> Sampler:
    """Above a bound."""
    return reals_between(low + 1e-2, low + 3.0, count)


def reals_away_from(point: float, count: int = 1) -> Sampler:
    """On both sides of a point, at least a quarter away."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> Any:
        return np.asarray(point + rng.choice([-1.0, 1.0], size=shape) * rng.uniform(0.25, 2.0, size=shape))

    return sample_shapes(count, draw)


def integers(count: int = 1) -> Sampler:
    """Integers of either sign."""
    return sample_shapes(count, lambda rng, shape: np.asarray(rng.integers(-9, 9, size=shape)))


def normal_samples(shapes: Sequence[tuple[int, ...]], **statics: Any) -> Sampler:
    """A normal array of each shape, with static parameters: a list has one for each sample, else it is for all."""
    rows = [{n: v[i] if isinstance(v, list) else v for n, v in statics.items()} for i in range(len(shapes))]
    return lambda rng: [((np.asarray(rng.normal(size=s)),), row) for s, row in zip(shapes, rows, strict=True)]


def join_samples(*samplers: Sampler) -> Sampler:
    """The samples of all samplers."""
    return lambda rng: [sample for sampler in samplers for sample in sampler(rng)]
