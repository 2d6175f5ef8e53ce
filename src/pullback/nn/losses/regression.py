"""Regression losses: squared, absolute, Huber, quantile, and likelihoods."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.node import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ...ops import functions
from ...ops.concrete import as_bare_array, is_concrete
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import (
    abs,
    add,
    divide,
    exp,
    greater,
    less,
    less_equal,
    log,
    log1p,
    multiply,
    negative,
    relu,
    sinh,
    softplus,
    square,
    subtract,
    where,
)
from ...ops.families import broadcast_shape
from ...ops.shape import reshaping
from ..arguments import match_target, reduce_losses, weight_losses


@attributed_to_caller
def mse_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """(x - target)^2.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(2.)
    """
    x, target = match_target(x, target, "mse_loss")
    return reduce_losses(weight_losses(square(subtract(x, target)), weight, "mse_loss"), reduction, "mse_loss")


@attributed_to_caller
def l1_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """|x - target|, with derivative 0 where they are equal.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(1.)
    """
    x, target = match_target(x, target, "l1_loss")
    return reduce_losses(weight_losses(abs(subtract(x, target)), weight, "l1_loss"), reduction, "l1_loss")


def _huber(away: Any, delta: float) -> Any:
    """away^2 / 2 up to delta, and beyond it the straight line that continues it."""
    size = abs(away)
    near = less_equal(size, delta)
    inside = where(near, away, 0.0)  # far away the square may overflow
    return where(near, multiply(square(inside), 0.5), multiply(subtract(size, 0.5 * delta), delta))


@attributed_to_caller
def huber_loss(x: Any, /, target: Any, delta: float = 1.0, *, weight: Any = None, reduction: str = "mean") -> Any:
    """Half the square of x - target up to `delta`, and its tangent beyond.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.huber_loss(np.array([1.0, 5.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.5, 4.5])
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be above zero, got {delta}.")
    x, target = match_target(x, target, "huber_loss")
    return reduce_losses(
        weight_losses(_huber(subtract(x, target), delta), weight, "huber_loss"), reduction, "huber_loss"
    )


@attributed_to_caller
def smooth_l1_loss(x: Any, /, target: Any, beta: float = 1.0, *, weight: Any = None, reduction: str = "mean") -> Any:
    """`huber_loss` over `beta`: |x - target| with its corner rounded; for beta 0 that distance itself.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.smooth_l1_loss(np.array([1.0, 5.0]), np.array([0.0, 0.0]), 2.0, reduction="none")
    array([0.25, 4.  ])
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}.")
    if beta == 0:
        return l1_loss(x, target, weight=weight, reduction=reduction)
    x, target = match_target(x, target, "smooth_l1_loss")
    losses = divide(_huber(subtract(x, target), beta), beta)
    return reduce_losses(weight_losses(losses, weight, "smooth_l1_loss"), reduction, "smooth_l1_loss")


@attributed_to_caller
def log_cosh_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """log(cosh(x - target)): a square near zero, a distance far away, and smooth between.

    >>> import numpy as np, pullback as pb
    >>> float(pb.nn.log_cosh_loss(np.array([1e4]), np.array([0.0])).round(3))
    9999.307
    """
    x, target = match_target(x, target, "log_cosh_loss")
    away = subtract(x, target)
    near = less(abs(away), 1.0)
    inside = where(near, away, 0.0)
    # cosh x = 1 + 2 sinh(x/2)^2 keeps the digits of small x; log cosh x = softplus(2x) - x - log 2 never overflows.
    rounded = log1p(multiply(square(sinh(multiply(inside, 0.5))), 2))
    straight = subtract(subtract(softplus(multiply(away, 2)), away), math.log(2))
    return reduce_losses(
        weight_losses(where(near, rounded, straight), weight, "log_cosh_loss"), reduction, "log_cosh_loss"
    )


@attributed_to_caller
def quantile_loss(x: Any, /, target: Any, q: Any = 0.5, *, weight: Any = None, reduction: str = "mean") -> Any:
    """q (target - x) where x is too low, (1 - q) (x - target) where it is too high: least at the q-quantile.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.quantile_loss(np.array([1.0, 1.0]), np.array([0.0, 2.0]), 0.9, reduction="none")
    array([0.1, 0.9])
    """
    if isinstance(q, int | float) and not 0 <= q <= 1:
        raise ArgumentError(f"quantile_loss: q lies between 0 and 1, got {q}.")
    x, target = match_target(x, target, "quantile_loss")
    away = subtract(target, x)
    losses = add(multiply(relu(away), q), multiply(relu(negative(away)), 1.0 - as_value(q)))
    return reduce_losses(weight_losses(losses, weight, "quantile_loss"), reduction, "quantile_loss")


@attributed_to_caller
def poisson_nll_loss(
    x: Any,
    /,
    target: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """exp(x) - target x, where x is the logarithm of a Poisson rate; x - target log(x + eps), where it is the rate.
    With `full`, plus Stirling's log(target!) for targets above 1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.poisson_nll_loss(np.array([0.0]), np.array([3.0]))
    array(1.)
    """
    x, target = match_target(x, target, "poisson_nll_loss")
    rate, log_rate = (exp(x), x) if log_input else (x, log(add(x, eps)))
    losses = subtract(rate, multiply(target, log_rate))
    if full:
        losses = add(losses, _stirling_term(target))
    return reduce_losses(weight_losses(losses, weight, "poisson_nll_loss"), reduction, "poisson_nll_loss")


def _stirling_term(n: Any) -> Any:
    """n log n - n + log(2 pi n) / 2 for n above 1, else 0."""
    many = greater(n, 1)
    n = where(many, n, 1.0)
    logs = add(multiply(subtract(log(n), 1.0), n), multiply(log(multiply(n, 2 * math.pi)), 0.5))
    return where(many, logs, 0.0)


@attributed_to_caller
def gaussian_nll_loss(
    x: Any,
    /,
    target: Any,
    var: Any,
    *,
    full: bool = False,
    eps: float = 1e-6,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """(log(var) + (x - target)^2 / var) / 2, where a variance below `eps` counts as `eps`. With `full`, plus
    log(2 pi) / 2. One variance for all of the last axis may be given without it, or with size one.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), np.array([1.0]))
    array(2.)
    """
    if eps <= 0:
        raise ArgumentError(f"gaussian_nll_loss: eps must be above zero, got {eps}.")
    x, target = match_target(x, target, "gaussian_nll_loss")
    away, var = subtract(x, target), functions.clip(_check_variances(x, var), min=eps)
    losses = multiply(add(log(var), divide(square(away), var)), 0.5)
    if full:
        losses = add(losses, 0.5 * math.log(2 * math.pi))
    return reduce_losses(weight_losses(losses, weight, "gaussian_nll_loss"), reduction, "gaussian_nll_loss")


def _check_variances(x: Any, var: Any) -> Any:
    """A variance for each prediction: given for each, for each row without its last axis, or so that it broadcasts."""
    var = as_value(var)
    if ndim(x) and shape(var) == shape(x)[:-1] and shape(var) != shape(x):
        var = reshaping.expand_dims(var, -1)
    if broadcast_shape("gaussian_nll_loss", shape(x), shape(var)) != shape(x):
        raise ShapeError(f"gaussian_nll_loss: variances of shape {shape(var)} for predictions of shape {shape(x)}.")
    if is_concrete(var) and bool((as_bare_array(var, "gaussian_nll_loss") < 0).any()):
        raise ArgumentError("gaussian_nll_loss: a variance is negative.")
    return var
