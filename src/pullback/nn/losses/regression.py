"""Regression losses: squared, absolute, Huber, quantile, and likelihoods."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ...ops import functions
from ...ops.concrete import as_bare_array, is_concrete
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import (
    abs,
    exp,
    greater,
    less_equal,
    log,
    log1p,
    relu,
    sinh,
    softplus,
    square,
    where,
)
from ...ops.families import broadcast_shape
from ...ops.fusion import cast_whole, fuse
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_mixed_arrays
from ..arguments import match_target, reduce_losses


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def mse_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """(x - target)^2.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(2.)
    """
    x, target = match_target(x, target, "mse_loss")
    return reduce_losses(square(x - target), reduction, "mse_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def l1_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """|x - target|, with derivative 0 where they are equal.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(1.)
    """
    x, target = match_target(x, target, "l1_loss")
    return reduce_losses(abs(x - target), reduction, "l1_loss", weight)


def _huber(away: Any, delta: float) -> Any:
    """away^2 / 2 up to delta, and beyond it the straight line that continues it."""
    size = abs(away)
    near = less_equal(size, delta)
    inside = where(near, away, 0.0)  # far away the square may overflow
    return where(near, 0.5 * square(inside), (size - 0.5 * delta) * delta)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def huber_loss(x: Any, /, target: Any, delta: float = 1.0, *, weight: Any = None, reduction: str = "mean") -> Any:
    """Half the square of x - target up to `delta`, and its tangent beyond.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.huber_loss(np.array([1.0, 5.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.5, 4.5])
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be above zero, got {delta}.")
    x, target = match_target(x, target, "huber_loss")
    return reduce_losses(_huber(x - target, delta), reduction, "huber_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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
    return reduce_losses(_huber(x - target, beta) / beta, reduction, "smooth_l1_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def log_cosh_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """log(cosh(x - target)): a square near zero, a distance far away, and smooth between.

    >>> import numpy as np, pullback as pb
    >>> float(pb.nn.log_cosh_loss(np.array([1e4]), np.array([0.0])).round(3))
    9999.307
    """
    x, target = match_target(x, target, "log_cosh_loss")
    away = x - target
    near = greater(1.0, abs(away))
    inside = where(near, away, 0.0)
    # cosh x = 1 + 2 sinh(x/2)^2 keeps the digits of small x; log cosh x = softplus(2x) - x - log 2 never overflows.
    rounded = log1p(2 * square(sinh(0.5 * inside)))
    straight = softplus(2 * away) - away - math.log(2)
    return reduce_losses(where(near, rounded, straight), reduction, "log_cosh_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def quantile_loss(x: Any, /, target: Any, q: Any = 0.5, *, weight: Any = None, reduction: str = "mean") -> Any:
    """q (target - x) where x is too low, (1 - q) (x - target) where it is too high: least at the q-quantile.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.quantile_loss(np.array([1.0, 1.0]), np.array([0.0, 2.0]), 0.9, reduction="none")
    array([0.1, 0.9])
    """
    if isinstance(q, int | float) and not 0 <= q <= 1:
        raise ArgumentError(f"quantile_loss: q lies between 0 and 1, got {q}.")
    x, target = match_target(x, target, "quantile_loss")
    q = as_value(q)
    return reduce_losses(q * relu(target - x) + (1.0 - q) * relu(x - target), reduction, "quantile_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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
    rate, log_rate = (exp(x), x) if log_input else (x, log(x + eps))
    losses = rate - target * log_rate
    if full:
        losses = losses + _stirling_term(target)
    return reduce_losses(losses, reduction, "poisson_nll_loss", weight)


def _stirling_term(n: Any) -> Any:
    """n log n - n + log(2 pi n) / 2 for n above 1, else 0."""
    many = greater(n, 1)
    n = where(many, n, 1.0)
    return where(many, n * (log(n) - 1.0) + 0.5 * log(2 * math.pi * n), 0.0)


@of_mixed_arrays
@cast_whole("high")
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
    return _gaussian_nll(x, target, _check_variances(x, var), full, eps, weight, reduction)


@fuse
@attributed_to_caller
@rounds_once
def _gaussian_nll(x: Any, target: Any, var: Any, full: bool, eps: float, weight: Any, reduction: str) -> Any:
    var = functions.clip(var, min=eps)
    losses = 0.5 * (log(var) + square(x - target) / var + (math.log(2 * math.pi) if full else 0.0))
    return reduce_losses(losses, reduction, "gaussian_nll_loss", weight)


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
