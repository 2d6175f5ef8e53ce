"""K-FAC: steps by the inverse of Kronecker factors of the Fisher or Gauss-Newton matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.picklable import picklable
from ...arrays.trees import flatten, map_tree, unflatten
from ...curvature.kronecker import KroneckerBlock, check_options, find_factors
from ...curvature.likelihoods import Likelihood
from ...curvature.pulled import choose_exact, choose_for_likelihood
from ...errors import ArgumentError
from ...ops.elementwise.arithmetic import reciprocal, remainder
from ...ops.elementwise.pointwise import add, equal
from ...ops.linalg.linear_systems import inv
from ...ops.random.keys import fold_in
from ...transforms.control.branches_and_loops import cond
from ..leaves import (
    cast_like,
    check_setting,
    check_settings,
    is_zero,
    require_real,
    split_by_structure,
    steps_as_float64,
    widen,
    zero_step_count,
    zeros_like,
)
from ..rule import Rule, State, check_state
from ..transformations.scaling import descend
from .momentum import trace


@picklable
def kfac(
    lr: Any,
    model: Callable[..., Any],
    loss: Any,
    example: Any,
    damping: Any = 1e-3,
    decay: Any = 0.95,
    period: int = 10,
    samples: int | None = None,
    key: Any = None,
    sharing: str = "expand",
    momentum: Any = 0.0,
    weight_decay: Any = 0.0,
) -> Rule:
    """Steps along (F + damping I)^-1 gradient, where F has a block for each parameter, a Kronecker product of two small
    matrices (Martens and Grosse, 2015); of `model(params, *inputs)` and `loss(output, *targets)` for one sample, and of
    the mean over the batch. The update wants the batch: `rule.update(grads, state, params, batch=(inputs, targets))`,
    two tuples of arrays with the samples along their first axis.

    Factors are running averages (`decay`), inverted every `period` steps, with the damping split between the two by
    their traces. With `samples` labels are drawn for each input by the `key` and the number of the step, and `loss` is
    a likelihood such as `pb.curvature.categorical` (K-FAC); without, the Gauss-Newton matrix of any loss is taken (in
    the outputs exact, K-FLR). `example` is a batch like those of the steps, of any size: which parameters have factors,
    and of which sizes, is found by tracing the model on it. A parameter without factors, such as a bias, has its whole
    block, or the diagonal of that if it has more than 512 elements. `sharing` as of `pb.curvature.kfac_factors`.

    >>> import numpy as np, pullback as pb
    >>> model, loss = (lambda w, x: x @ w), pb.curvature.normal
    >>> x, w = np.array([[1.0, 0.0], [0.0, 10.0]]), np.zeros((2, 2))
    >>> batch = ((x,), (x @ np.ones((2, 2)),))
    >>> rule = pb.optim.kfac(1.0, model, loss, example=batch, damping=1e-14)
    >>> grads = pb.grad(lambda w: pb.mean(pb.vmap(lambda x, y: loss(model(w, x), y))(x, batch[1][0])))(w)
    >>> rule.update(grads, rule.init(w), w, batch=batch)[0].round(4)
    array([[1., 1.],
           [1., 1.]])
    """
    (more,) = check_settings("kfac", damping=damping)
    rho = check_setting(decay, "kfac: decay", 0, 1, open_end=True)
    every = check_count(period, "kfac: period")
    check_options("kfac", "mean", sharing)
    _check_draws(loss, samples, key)
    first = _check_batch(example, "example=")

    def measure(params: Any, batch: Any, t: Any) -> list[KroneckerBlock]:
        (inputs, targets), what = batch, "kfac"
        if samples is None:
            choice: Any = choose_exact(what, model, loss, tuple(targets))
        else:
            choice = choose_for_likelihood(what, model, loss, samples, tuple(inputs), fold_in(key, t))
        return _blocks_of(find_factors(choice, params, tuple(inputs), "mean", sharing), params)

    def start(params: Any) -> State:
        leaves, _ = flatten(params)
        for p in leaves:
            require_real(p, "kfac")
        steps = zero_step_count(leaves)
        blank = [map_tree(zeros_like, block) for block in measure(params, first, steps)]
        return State(steps, {"factors": blank, "inverses": blank})

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, "kfac")
        before, t = state.slots["factors"], add(state.steps, 1)
        found = measure(params, _check_batch(extra.get("batch"), "batch="), t)
        factors = [_blend(old, new, rho) for old, new in zip(before, found, strict=True)]
        correction = 1 - rho ** steps_as_float64(t)  # the averages start at zero

        def invert(_: Any) -> list[KroneckerBlock]:
            return [_invert(_scale(block, correction), more) for block in factors]

        due = equal(remainder(state.steps, every), 0)
        inverses = cond(due, invert, lambda kept: kept, state.slots["inverses"]) if every > 1 else invert(None)
        leaves, structure = flatten(grads)
        updates = [block.multiply(widen(g)) for block, g in zip(inverses, leaves, strict=True)]
        return unflatten(structure, updates), State(t, {"factors": factors, "inverses": inverses})

    moving = None if is_zero(momentum) else trace(momentum)
    return descend("kfac", lr, Rule("kfac", start, advance), weight_decay, moving)


def _blocks_of(tree: Any, params: Any) -> list[KroneckerBlock]:
    """The blocks, in the order of the parameters' leaves."""
    return split_by_structure(flatten(params)[1], tree, "kfac: factors and parameters")


def _blend(old: KroneckerBlock, new: KroneckerBlock, rho: Any) -> KroneckerBlock:
    """A running average of both factors."""
    return map_tree(lambda a, b: cast_like(rho, b) * a + cast_like(1 - rho, b) * b, old, new)  # type: ignore[no-any-return]


def _scale(block: KroneckerBlock, correction: Any) -> KroneckerBlock:
    return map_tree(lambda x: x / cast_like(correction, x), block)  # type: ignore[no-any-return]


def _invert(block: KroneckerBlock, damping: Any) -> KroneckerBlock:
    damped = block.damp(cast_like(damping, block.right))
    if damped.is_diagonal:
        return KroneckerBlock(damped.left, reciprocal(damped.right), damped.layout)
    return KroneckerBlock(inv(damped.left), inv(damped.right), damped.layout)


def _check_batch(batch: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(b, (tuple, list)) for b in batch):
        raise ArgumentError(
            f"kfac: {where} is (inputs, targets), two tuples of arrays with the samples along their first axis, where "
            "model(params, *inputs) and loss(output, *targets) take one sample."
        )
    return batch[0], batch[1]


def _check_draws(loss: Any, samples: int | None, key: Any) -> None:
    if samples is None:
        return
    check_count(samples, "kfac: samples")
    if not isinstance(loss, Likelihood) or key is None:
        raise ArgumentError(
            "kfac: with samples= the loss is a likelihood such as pb.curvature.categorical, and key= is given, by "
            "which labels are drawn.\n  Without samples= any loss does, and nothing is drawn."
        )
