"""`pb.ode.solve_sde`: paths of stochastic differential equations on a grid of equal steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments, short_repr
from ..arrays.backends import to_host
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, leaves_matching, unflatten
from ..checkpoint.loops.checkpoint_loop import checkpoint_loop
from ..errors import ArgumentError, ShapeError
from ..implicit.option_checks import check_positive_count
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import as_value, shape
from ..ops.placement import move
from ..ops.random.keys import fold_in, key_on_device
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype, expand_dims, reshape
from ..ops.user_calls import call_function
from ..transforms.boundary import as_array_leaf
from ..transforms.control.branches_and_loops import fori_loop
from ..transforms.control.scan import scan
from ..transforms.vectorize import vmap
from .brownian import BrownianTree, Noise, draw_noise
from .loops import is_bare
from .problem import integers_as_floats
from .stochastic_methods import EulerMaruyama, Field, StochasticMethod, StochasticRungeKutta

Function = Callable[..., Any]


class Path(NamedTuple):
    """The state `y` at the time `t`: at the end, or stacked at the times that were saved."""

    t: Any
    y: Any


@explains_arguments("ode.solve_sde")
def solve_sde(
    drift: Function,
    diffusion: Function,
    y0: Any,
    span: Any,
    *params: Any,
    steps: int,
    key: Any = None,
    path: BrownianTree | None = None,
    method: StochasticMethod | None = None,
    noises: int | None = None,
    save_every: int | None = None,
    snapshots: int | None = None,
) -> Path:
    """A path of dy = drift(t, y, *params) dt + diffusion(t, y, *params) dW from y(t0) = y0 to t1, in `steps` equal
    steps; `span` is (t0, t1).

    y is a tree. Each of its numbers has a Brownian motion of its own and the diffusion is a tree like y, unless there
    are `noises` motions: then each array of the diffusion has one more axis, of that length. The noise comes from a
    `key`, each step's by itself, or from a `path` (`BrownianTree`), which is the same for any number of steps. `.y` of
    the result is the state at t1 or, with `save_every=n`, the states at t0 and after each n steps, stacked.

    The path moves smoothly with y0, the params and what both functions close over, to every order, its noise held;
    with `snapshots` a backward pass keeps so many states, and takes steps again. Equations are Ito's, or
    Stratonovich's if the method is `Heun`; by default the method is `StochasticRungeKutta`, or `EulerMaruyama` where
    `noises` are given.

    >>> import pullback as pb
    >>> growth = lambda r, key: pb.ode.solve_sde(
    ...     lambda t, y: r * y, lambda t, y: 0.2 * y, 1.0, (0.0, 1.0), steps=50, key=key
    ... ).y
    >>> ends = pb.vmap(growth, (None, 0))(0.5, pb.random.split(pb.random.key(0), 500))
    >>> bool(abs(ends.mean() - 1.6487) < 0.05)
    True
    """
    check_functions("ode.solve_sde", drift, diffusion)
    count = check_positive_count(steps, "ode.solve_sde: steps")
    layout, leaves = VectorLayout.from_tree(integers_as_floats(y0), "ode.solve_sde")
    if method is None:
        method = StochasticRungeKutta() if noises is None else EulerMaruyama()
    _check_method(method, noises)
    start = layout.join_leaves(leaves)
    t0, t1 = (move(t, spec_of(start).device) for t in _parse_span(span, layout))
    h = (t1 - t0) / count
    size = (layout.size if noises is None else check_positive_count(noises, "ode.solve_sde: noises"),)
    make_noise = _choose_noise(key, path, (t0, t1), size, h, spec_of(start))
    given, structure = flatten(params)
    p = [as_array_leaf(x, "ode.solve_sde") for x in given]

    filled = unflatten(structure, p)
    a = _on_vectors(drift, "ode.solve_sde: drift", layout, filled, None)
    b = _on_vectors(diffusion, "ode.solve_sde: diffusion", layout, filled, noises)

    def step(i: Any, y: Any) -> Any:
        t = t0 + move(astype(as_value(i), layout.dtype), spec_of(y).device) * h
        return method.advance(a, b, t, y, h, make_noise(i, t, t + h))

    if save_every is None:
        return Path(t1, layout.to_tree(_run(step, start, count, snapshots)))
    every = check_positive_count(save_every, "ode.solve_sde: save_every")
    if count % every or snapshots is not None:
        raise ArgumentError(
            f"ode.solve_sde: save_every must divide the {count} steps, and takes no snapshots; got {every}."
        )
    times = t0 + h * move(np.arange(0, count + 1, every).astype(layout.dtype), spec_of(start).device)
    return Path(times, vmap(layout.to_tree)(_run_and_save(step, start, count, every)))


def _run(step: Function, start: Any, count: int, snapshots: int | None) -> Any:
    if snapshots is None:
        return fori_loop(0, count, step, start)
    return checkpoint_loop(step, start, count, snapshots=snapshots)


def _run_and_save(step: Function, start: Any, count: int, every: int) -> Any:
    """The start and the state after each so many steps."""

    def save(y: Any, j: Any) -> tuple[Any, Any]:
        y = fori_loop(0, every, lambda i, y: step(j * every + i, y), y)
        return y, y

    saved = scan(save, start, move(np.arange(count // every), spec_of(start).device))[1]
    return concat([expand_dims(start, axis=0), saved])


def _check_method(method: Any, noises: int | None) -> None:
    if not isinstance(method, StochasticMethod):
        raise ArgumentError(
            f"ode.solve_sde: method must be an object such as pb.ode.StochasticRungeKutta(), got {short_repr(method)}."
        )
    if noises is not None and not method.takes_matrix:
        raise ArgumentError(
            f"ode.solve_sde: {type(method).__name__} takes diagonal noise, a Brownian motion for each number of y.\n"
            "  For noises=... use pb.ode.EulerMaruyama() or, for Stratonovich's equation, pb.ode.Heun()."
        )


def _parse_span(span: Any, layout: VectorLayout) -> tuple[Any, Any]:
    if not isinstance(span, (tuple, list)) or len(span) != 2:
        raise ArgumentError(f"ode.solve_sde: the span is (t0, t1), got {short_repr(span)}.")
    t0, t1 = (astype(as_array_leaf(t, "ode.solve_sde: the span"), layout.dtype) for t in span)
    if shape(t0) or shape(t1):
        raise ShapeError(f"ode.solve_sde: t0 and t1 are numbers, got shapes {shape(t0)} and {shape(t1)}.")
    if all(type(t) is np.ndarray for t in (t0, t1)) and not t0 < t1 < np.inf:
        raise ArgumentError(f"ode.solve_sde: t1 must be finite and after t0, got ({t0}, {t1}): noise has no past.")
    return t0, t1


def _choose_noise(
    key: Any, path: BrownianTree | None, span: tuple[Any, Any], size: tuple[int, ...], h: Any, state: Spec
) -> Function:
    """The noise of a step, by its number and times, in the dtype of the state and where it lies."""
    if (key is None) == (path is None):
        raise ArgumentError("ode.solve_sde: pass a key, or a path such as pb.ode.BrownianTree(key, t0, t1, shape).")
    if path is None:
        key = key_on_device(key, state.device, "solve_sde")
        return lambda i, t, after: draw_noise(fold_in(key, i), size, h, state.dtype)
    tree = path
    if math.prod(tree.shape) != math.prod(size):
        raise ShapeError(f"ode.solve_sde: the path has shape {tree.shape}, the noise of this equation {size}.")
    if all(is_bare(t) or isinstance(t, (int, float)) for t in (*span, tree.t0, tree.t1)):
        t0, t1, first, last = (float(to_host(t)) for t in (*span, tree.t0, tree.t1))
        slack = 1e-6 * (last - first)
        if t0 < first - slack or t1 > last + slack:
            raise ArgumentError(f"ode.solve_sde: the path is known from {first} to {last}, the span is ({t0}, {t1}).")

    def noise_of_path(i: Any, t: Any, after: Any) -> Noise:
        return Noise(*(astype(reshape(x, size), state.dtype) for x in tree.noise(t, after)))

    return noise_of_path


def _on_vectors(f: Function, what: str, layout: VectorLayout, params: Any, noises: int | None) -> Field:
    """A drift or diffusion of trees as one of vectors; with `noises` its result is a matrix, a row for each number."""

    def of_vector(t: Any, y: Any) -> Any:
        found = call_function(f, (t, layout.to_tree(y), *params), {})
        if noises is None:
            return layout.to_vector(found, what)
        leaves = leaves_matching(layout.structure, found, what)
        for x, spec in zip(leaves, layout.specs, strict=True):
            if shape(x) != (*spec.shape, noises):
                raise ShapeError(f"{what}: wanted shape {(*spec.shape, noises)} for {noises} noises, got {shape(x)}.")
        return concat([reshape(astype(x, layout.dtype), (-1, noises)) for x in leaves])

    return of_vector
