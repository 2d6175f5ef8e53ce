"""`mcmc`: chains over a log-density, warmup and draws as one compiled program."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...arrays.argument_checks import check_functions, explains_arguments, short_repr
from ...arrays.spec import spec_of
from ...arrays.trees import map_tree
from ...compile.jit import jit
from ...compile.threads import get_num_threads
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.axes import as_integer
from ...ops.concrete import is_concrete
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import exp, isfinite, logical_and, where
from ...ops.placement import move
from ...ops.random.draw_ops import held
from ...ops.random.keys import fold_in, key_on_device, split
from ...ops.random.samplers import normal
from ...ops.reduce.reductions import all as all_of
from ...ops.shape.arrange import stack
from ...ops.shape.ravel_tree import ravel_pytree
from ...ops.shape.reshaping import astype
from ...transforms.control.branches_and_loops import cond, while_loop
from ...transforms.control.scan import scan
from ...transforms.reverse import value_and_grad
from ...transforms.vectorize import vmap
from ..unconstrain import Unconstrained
from .adaptation import (
    DualAverage,
    Moments,
    add_point,
    plan_windows,
    shrink_covariance,
    start_average,
    start_moments,
    update_average,
)
from .kernels import NUTS, Kernel
from .leapfrog import Phase, Place, Slope, energy, take_leapfrog
from .metric import Metric, metric_of, start_metric


class Run(NamedTuple):
    """One chain as arrays: positions (draws, size), acceptance, diverged, slopes of each draw; step and inverse mass,
    which is a vector or, if dense, a matrix.
    """

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
    dense: bool = False,
) -> Callable[[Any, Any], Run]:
    """A compiled function of a key and a start vector that runs one chain over a log-density of vectors. It adapts a
    mass for each coordinate, or a whole matrix if `dense`.

    >>> import numpy as np, pullback as pb
    >>> run = pb.distributions.compile_chain(lambda x: -0.5 * pb.sum(x * x), draws=50, warmup=50)
    >>> run(pb.random.key(0), np.zeros(2)).positions.shape
    (50, 2)
    """
    slope = _slope_of(log_density)
    kernel = NUTS() if kernel is None else kernel
    if not callable(getattr(kernel, "move", None)) or isinstance(kernel, type):
        raise ArgumentError(
            f"compile_chain: kernel must be an object such as pb.distributions.NUTS(), got {short_repr(kernel)}."
        )
    if not 0.0 < target < 1.0:
        raise ArgumentError(f"compile_chain: target, the acceptance aimed at, is between 0 and 1, got {target}.")
    draws, warmup = as_integer(draws, "compile_chain: draws"), as_integer(warmup, "compile_chain: warmup")
    if draws < 1 or warmup < 0:
        raise ArgumentError(f"compile_chain: wants draws, got {draws} after {warmup} of warmup.")
    plan = plan_windows(warmup)

    def run(key: Any, position: Any) -> Run:
        found = spec_of(position)
        if len(found.shape) != 1 or found.dtype.kind != "f":
            raise ArgumentError(f"compile_chain: wants a start vector of floating-point numbers, got {found}.")
        key = key_on_device(key, spec_of(position).device, "compile_chain")
        place = Place(position, *slope(position))
        metric = start_metric(position, dense)
        step = _find_step(slope, place, fold_in(key, 0), metric)
        state = (place, start_average(step), start_moments(position, dense), metric)

        def adapt(state: Any, row: Any) -> Any:
            place, average, moments, metric = state
            number, counts, ends = row
            made = kernel.move(fold_in(fold_in(key, 1), number), slope, place, exp(average.log_step), metric)
            average = update_average(average, made.acceptance, target)
            moments = add_point(moments, made.place.position, counts)
            average, moments, metric = cond(ends, _end_window, lambda *state: state, average, moments, metric)
            return (made.place, average, moments, metric), made.acceptance

        device = spec_of(position).device
        counts = plan.counts.astype(spec_of(position).dtype)
        rows = tuple(move(x, device) for x in (np.arange(warmup), counts, plan.ends))
        (place, average, _, metric), _ = scan(adapt, state, rows)
        step = exp(average.log_average)

        def draw(place: Any, number: Any) -> Any:
            made = kernel.move(fold_in(fold_in(key, 2), number), slope, place, step, metric)
            return made.place, (made.place.position, made.acceptance, made.diverged, made.slopes)

        _, (positions, acceptance, diverged, slopes) = scan(draw, place, move(np.arange(draws), device))
        return Run(positions, acceptance, diverged, slopes, step, metric.inverse_mass)

    return jit(run)


def _slope_of(log_density: Callable[[Any], Any]) -> Slope:
    """A log-density and its slope at a position; draws that depend on it have no derivative."""

    def slope(position: Any) -> tuple[Any, Any]:
        value, found = value_and_grad(log_density)(position)
        if spec_of(value).shape:
            raise ShapeError(f"mcmc: the log-density must return a number, got shape {spec_of(value).shape}.")
        return held("mcmc", value), found

    return slope


def _end_window(average: DualAverage, moments: Moments, metric: Metric) -> tuple[DualAverage, Moments, Metric]:
    """A window ends: its points make the metric, and step size and points begin anew."""
    metric = metric_of(shrink_covariance(moments))
    return start_average(exp(average.log_average)), map_tree(lambda m: m * 0.0, moments), metric


def _find_step(slope: Slope, place: Place, key: Any, metric: Metric) -> Any:
    """A step whose acceptance is near a half: doubled or halved from one on until it crosses that."""
    start = Phase(place, metric.draw_momentum(key))
    before = energy(start, metric)

    def gain(step: Any) -> Any:
        return before - energy(take_leapfrog(slope, start, step, metric), metric)

    one = place.value * 0.0 + 1.0
    grows = gain(one) > math.log(0.5)
    factor = where(grows, 2.0 * one, 0.5 * one)

    def goes_on(step: Any) -> Any:
        # at most 2^+-40: a flat density would double for ever
        inside = logical_and(step > 2.0**-40, step < 2.0**40)
        return logical_and(where(grows, 1.0, -1.0) * (gain(step) - math.log(0.5)) > 0, inside)

    return while_loop(goes_on, lambda step: step * factor, one)


@explains_arguments("mcmc")
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
    dense: bool = False,
) -> Chains:
    """Draws from a log-density, by NUTS or another kernel. Each chain starts near the initial point, off by noise of a
    standard deviation `spread`, and adapts step size and mass in its warmup, which is not kept. `target` is the
    acceptance that the step size aims at. With `dense` the mass is a matrix, for coordinates that go together. Chains
    run at once on as many threads as compiled code may use, and draw the same numbers on any number of them.

    A density over supports is made one over all numbers by `to_unconstrained`; initial point and draws are then those
    of the supports.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> found = D.mcmc(D.Normal(3.0, 0.5).log_prob, 0.0, key=pb.random.key(0), draws=500, warmup=200, chains=2)
    >>> found.draws.shape, bool(abs(found.draws.mean() - 3.0) < 0.2)
    ((2, 500), True)
    """
    if as_integer(chains, "mcmc: chains") < 1:
        raise ArgumentError(f"mcmc: wants one chain or more, got {chains} chains.")
    check_functions("mcmc", log_density, hint="\n  The order is mcmc(log_density, initial, key=key).")
    bounded = isinstance(log_density, Unconstrained)
    point = log_density.unconstrain(initial) if isinstance(log_density, Unconstrained) else initial
    vector, unravel = ravel_pytree(map_tree(_as_real, point))
    run = compile_chain(
        lambda x: log_density(unravel(x)), kernel=kernel, draws=draws, warmup=warmup, target=target, dense=dense
    )
    keys = split(key_on_device(key, spec_of(vector).device, "mcmc"), chains)
    starts = [vector + spread * normal(size=vector.shape, key=fold_in(k, 3), dtype=vector.dtype) for k in keys]
    for start in starts:
        _check_start(lambda x: log_density(unravel(x)), start)
    runs = _run_together(run, list(zip(keys, starts, strict=True)))
    whole = Run(*(stack(parts, axis=0) for parts in zip(*runs, strict=True)))
    restore = (lambda x: log_density.constrain(unravel(x))) if bounded else unravel  # type: ignore[attr-defined]
    return Chains(vmap(vmap(restore))(whole.positions), *whole[1:])


def _as_real(x: Any) -> Any:
    x = held("mcmc", as_value(x))
    kind = spec_of(x).dtype.kind
    if kind not in "biuf":
        raise DtypeError(f"mcmc: the initial point must be real, got {spec_of(x)}.")
    return x if kind == "f" else astype(x, "float64")


def _check_start(log_density: Callable[[Any], Any], start: Any) -> None:
    """Refuse a start that no chain can leave."""
    with np.errstate(all="ignore"):
        value, slope = _slope_of(log_density)(start)
    if not (is_concrete(value) and is_concrete(slope)):
        return
    name, found = ("slope", slope) if np.isfinite(float(value)) else ("log-density", value)
    if not bool(all_of(isfinite(found))):
        raise ArgumentError(
            f"mcmc: the {name} at the start is {found}, which no chain can leave."
            "\n  Start where the density is positive; a density over supports goes through to_unconstrained; a smaller "
            "`spread` keeps the chains near the initial point."
        )


def _run_together(run: Callable[[Any, Any], Run], chains: list[tuple[Any, Any]]) -> list[Run]:
    """All chains, on threads, compiled once before; one after the other on a GPU, whose queue is one."""
    threads = min(len(chains), get_num_threads())
    if threads == 1 or spec_of(chains[0][1]).device != "cpu":
        return [run(*chain) for chain in chains]
    run.find(*chains[0])  # type: ignore[attr-defined]
    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(contextvars.copy_context().run, run, *chain) for chain in chains]
        return [call.result() for call in calls]
