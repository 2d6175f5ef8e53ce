"""Losses of binary targets, from logits or probabilities."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.node import attributed_to_caller
from ...errors import ArgumentError
from ...ops.concrete import as_bare_array, is_concrete
from ...ops.dispatch import as_value, ndim
from ...ops.elementwise.pointwise import exp, greater, log, softplus, stop_gradient, where
from ...ops.reduce import reductions
from ..arguments import match_target, reduce_losses, require_rank

#: The least logarithm of a probability, so that a certain mistake has a finite loss.
_MIN_LOG = -100.0
#: The slope of a clamped logarithm, as PyTorch has it.
_CLAMPED_SLOPE = 1e12


def _clamped_log(p: Any) -> Any:
    """log p, and `_MIN_LOG` where it would be below that, with the slope `_CLAMPED_SLOPE`, so that a certain mistake
    still has a gradient.
    """
    enough = greater(p, math.exp(_MIN_LOG))
    held = _CLAMPED_SLOPE * (p - stop_gradient(p)) + _MIN_LOG
    return where(enough, log(where(enough, p, 1.0)), held)


@attributed_to_caller
def binary_cross_entropy(p: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """-target log(p) - (1 - target) log(1 - p) of probabilities p; each logarithm is clamped to -100 or above,
    with a slope of 1e12 there. Logits go to `binary_cross_entropy_with_logits`, which has no such corner.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.binary_cross_entropy(np.array([0.25, 1.0]), np.array([1.0, 0.0]), reduction="none")
    array([  1.38629436, 100.        ])
    """
    p, target = match_target(p, target, "binary_cross_entropy")
    if is_concrete(p):
        values = as_bare_array(p, "binary_cross_entropy")
        if bool(((values < 0) | (values > 1)).any()):
            raise ArgumentError(
                "binary_cross_entropy: wants probabilities from 0 to 1.\n"
                "  Pass scores to binary_cross_entropy_with_logits."
            )
    losses = -(target * _clamped_log(p) + (1.0 - target) * _clamped_log(1.0 - p))
    return reduce_losses(losses, reduction, "binary_cross_entropy", weight)


@attributed_to_caller
def binary_cross_entropy_with_logits(
    x: Any, /, target: Any, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> Any:
    """`binary_cross_entropy` of sigmoid(x), without overflow; `pos_weight` is the weight of positive targets.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.binary_cross_entropy_with_logits(np.array([0.0, -1e4]), np.array([1.0, 1.0]), reduction="none")
    array([6.93147181e-01, 1.00000000e+04])
    """
    what = "binary_cross_entropy_with_logits"
    x, target = match_target(x, target, what)
    # -log sigmoid(x) = softplus(-x) and -log(1 - sigmoid(x)) = x + softplus(-x)
    surprise = softplus(-x)
    if pos_weight is not None:
        surprise = surprise * ((as_value(pos_weight) - 1.0) * target + 1.0)
    return reduce_losses((1.0 - target) * x + surprise, reduction, what, weight)


@attributed_to_caller
def soft_margin_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """log(1 + exp(-target x)), for targets 1 and -1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.soft_margin_loss(np.array([-1e4]), np.array([1.0]))
    array(10000.)
    """
    x, target = match_target(x, target, "soft_margin_loss")
    return reduce_losses(softplus(-(target * x)), reduction, "soft_margin_loss", weight)


@attributed_to_caller
def multilabel_soft_margin_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """The mean over classes (the last axis) of `binary_cross_entropy_with_logits`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.multilabel_soft_margin_loss(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]))
    array(0.69314718)
    """
    what = "multilabel_soft_margin_loss"
    each = binary_cross_entropy_with_logits(x, target, weight=weight, reduction="none")
    return reduce_losses(reductions.mean(require_rank(each, 1, what, "an axis of classes"), axis=-1), reduction, what)


@attributed_to_caller
def focal_loss(
    x: Any,
    /,
    target: Any,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """Binary cross-entropy of scores, where each loss is scaled by (1 - p)^gamma, p being the probability of the
    target: well-classified examples count little. `alpha` is the weight of positives, 1 - alpha of negatives; None:
    equal.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.focal_loss(np.array([0.0]), np.array([1.0]), alpha=None)
    array(0.1732868)
    """
    if gamma < 0:
        raise ArgumentError(f"focal_loss: gamma must not be negative, got {gamma}.")
    if alpha is not None and not 0 <= alpha <= 1:
        raise ArgumentError(f"focal_loss: alpha lies between 0 and 1, got {alpha}.")
    x, target = match_target(x, target, "focal_loss")
    # Of a positive, 1 - p = sigmoid(-x) = exp(-softplus(x)): no power of a value that may be zero.
    up, down = softplus(x), softplus(-x)
    share, rest = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    losses = share * target * exp(-gamma * up) * down + rest * (1.0 - target) * exp(-gamma * down) * up
    return reduce_losses(losses, reduction, "focal_loss", weight)


@attributed_to_caller
def dice_loss(p: Any, /, target: Any, *, axis: Any = None, smooth: float = 1.0, reduction: str = "mean") -> Any:
    """1 - (2 sum(p target) + smooth) / (sum(p) + sum(target) + smooth) over some axes; without `axis` over all but
    the first.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.dice_loss(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]))
    array(0.)
    """
    if smooth <= 0:
        raise ArgumentError(f"dice_loss: smooth must be above zero, got {smooth}.")
    p, target = match_target(p, target, "dice_loss")
    axes = tuple(range(1, ndim(p))) if axis is None else axis
    both, total = reductions.sum(p * target, axis=axes), reductions.sum(p + target, axis=axes)
    return reduce_losses(1.0 - (2.0 * both + smooth) / (total + smooth), reduction, "dice_loss")
