"""`mcmc`: chains over a log-density, warmup and draws as one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...arrays.trees import map_tree
from ...compile.jit import jit
from ...errors import ArgumentError
from ...ops.axes import as_integer
from ...ops.elementwise.pointwise import exp, logical_and, where
from ...ops.random.keys import fold_in, split
from ...ops.random.samplers import normal
from ...ops.shape.arrange import stack
from ...ops.shape.ravel_tree import ravel_pytree
from ...transforms.control.branches_and_loops import while_loop
from ...transforms.control.scan import scan
from ...transforms.reverse import value_and_grad
from ...transforms.vectorize import vmap
from ..unconstrain import Unconstrained
from .adaptation import Moments, add_point, plan_windows, shrink_variance, start_average, update_average
from .kernels import NUTS, Kernel
from .leapfrog import Phase, Place, Slope, draw_momentum, energy, take_leapfrog


class Run(NamedTuple):
    """One chain as arrays: positions (draws, size), acceptance, diverged, slopes of each draw; step and mass."""

    positions: Any
    acceptance: Any
    diverged: Any
    slopes: Any
    step: Any
    inverse_mass: Any


@final
@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Draws of a posterior: a tree like the point, with axes (chains, draws) in front, and how the chains went."""

    draws: Any
    acceptance: Any
    diverged: Any
    slopes: Any
    step_size: Any
    inverse_mass: Any


def compile_chain(
    log_density: Callable[[Any], Any],
    *,
    kernel: Kernel | None = None,
    draws: int = 1000,
    warmup: int = 1000,
    target: float = 0.8,
) -> Callable[[Any, Any], Run]:
    """A compiled function of a key and a start vector that runs one chain over a log-density of vectors.

    >>> import numpy as np, pullback as pb
    >>> run = pb.distributions.compile_chain(lambda x: -0.5 * pb.sum(x * x), draws=50, warmup=50)
    >>> run(pb.random.key(0), np.zeros(2)).positions.shape
    (50, 2)
    """
    slope: Slope = value_and_grad(log_density)
    kernel = NUTS() if kernel is None else kernel
    plan = plan_windows(warmup)

    def run(key: Any, position: Any) -> Run:
        place = Place(position, *slope(position))
        inverse_mass = position * 0.0 + 1.0
        step = _find_step(slope, place, fold_in(key, 0), inverse_mass)
        state = (place, start_average(step), Moments(step * 0.0, position * 0.0, position * 0.0), inverse_mass)

        def adapt(state: Any, row: Any) -> Any:
            place, average, moments, inverse_mass = state
            number, counts, ends = row
            made = kernel.move(fold_in(fold_in(key, 1), number), slope, place, exp(average.log_step), inverse_mass)
            average = update_average(average, made.acceptance, target)
            moments = add_point(moments, made.place.position, counts)
            inverse_mass = where(ends, shrink_variance(moments), inverse_mass)
            fresh = start_average(exp(average.log_average))
            average = map_tree(lambda a, b: where(ends, a, b), fresh, average)
            moments = map_tree(lambda m: where(ends, 0.0, m), moments)
            return (made.place, average, moments, inverse_mass), made.acceptance

        rows = (np.arange(warmup), plan.counts, plan.ends)
        (place, average, _, inverse_mass), _ = scan(adapt, state, rows)
        step = exp(average.log_average)

        def draw(place: Any, number: Any) -> Any:
            made = kernel.move(fold_in(fold_in(key, 2), number), slope, place, step, inverse_mass)
            return made.place, (made.place.position, made.acceptance, made.diverged, made.slopes)

        _, (positions, acceptance, diverged, slopes) = scan(draw, place, np.arange(draws))
        return Run(positions, acceptance, diverged, slopes, step, inverse_mass)

    return jit(run)


def _find_step(slope: Slope, place: Place, key: Any, inverse_mass: Any) -> Any:
    """A step whose acceptance is near a half: doubled or halved from one on until it crosses that."""
    start = Phase(place, draw_momentum(key, inverse_mass))
    before = energy(start, inverse_mass)

    def gain(step: Any) -> Any:
        return before - energy(take_leapfrog(slope, start, step, inverse_mass), inverse_mass)

    one = place.value * 0.0 + 1.0
    grows = gain(one) > np.log(0.5)
    factor = where(grows, 2.0, 0.5)

    def goes_on(step: Any) -> Any:
        # at most 2^+-40: a flat density would double for ever
        inside = logical_and(step > 2.0**-40, step < 2.0**40)
        return logical_and(where(grows, 1.0, -1.0) * (gain(step) - np.log(0.5)) > 0, inside)

    return while_loop(goes_on, lambda step: step * factor, one)


def mcmc(
    log_density: Callable[[Any], Any],
    initial: Any,
    *,
    key: Any,
    kernel: Kernel | None = None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 1,
    target: float = 0.8,
    spread: float = 0.1,
) -> Chains:
    """Draws from a log-density, by NUTS or another kernel. Each chain starts near the initial point, off by noise of a
    standard deviation `spread`, and adapts step size and mass in its warmup, which is not kept. `target` is the
    acceptance that the step size aims at.

    A density over supports is made one over all numbers by `to_unconstrained`; initial point and draws are then those
    of the supports.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> found = D.mcmc(D.Normal(3.0, 0.5).log_prob, 0.0, key=pb.random.key(0), draws=500, warmup=200, chains=2)
    >>> found.draws.shape, bool(abs(found.draws.mean() - 3.0) < 0.2)
    ((2, 500), True)
    """
    if as_integer(chains, "mcmc: chains") < 1 or as_integer(draws, "mcmc: draws") < 1 or warmup < 0:
        raise ArgumentError(f"mcmc: wants chains and draws, got {chains} chains of {draws} draws after {warmup}.")
    bounded = isinstance(log_density, Unconstrained)
    point = log_density.unconstrain(initial) if isinstance(log_density, Unconstrained) else initial
    vector, unravel = ravel_pytree(point)
    vector = vector if vector.dtype.kind == "f" else vector.astype(float)
    run = compile_chain(lambda x: log_density(unravel(x)), kernel=kernel, draws=draws, warmup=warmup, target=target)
    runs = []
    for one in split(key, chains):
        noise = spread * normal(size=vector.shape, key=fold_in(one, 3), dtype=vector.dtype)
        runs.append(run(one, vector + noise))
    whole = Run(*(stack(parts, axis=0) for parts in zip(*runs, strict=True)))
    restore = (lambda x: log_density.constrain(unravel(x))) if bounded else unravel  # type: ignore[attr-defined]
    return Chains(vmap(vmap(restore))(whole.positions), *whole[1:])
