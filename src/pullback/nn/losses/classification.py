"""Losses of class labels and of binary targets: cross-entropies and their relatives."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.axes import normalize_axis
from ...ops.concrete import as_bare_array, is_concrete
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import (
    equal,
    exp,
    greater,
    isinf,
    log,
    logical_and,
    softplus,
    stop_gradient,
    where,
    zero_unless,
)
from ...ops.fusion import cast_whole, fuse
from ...ops.index import indexing
from ...ops.reduce import reductions
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_mixed_arrays
from ..arguments import as_floats, expand_along_axis, match_target, reduce_losses, require_rank, validate_labels


def _class_axis(x: Any, axis: int | None, what: str) -> int:
    """The axis of classes: 1, as in (batch, classes, ...), or the only one."""
    if not ndim(x):
        raise ShapeError(f"{what}: wants scores with an axis of classes, got a scalar.")
    return normalize_axis(axis, ndim(x), what) if axis is not None else min(1, ndim(x) - 1)


def _drop_axis(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return sizes[:axis] + sizes[axis + 1 :]


def _check_label_shape(x: Any, labels: Any, axis: int, what: str) -> None:
    if shape(labels) != _drop_axis(shape(x), axis):
        raise ShapeError(
            f"{what}: labels have shape {shape(labels)}, scores of shape {shape(x)} with classes along axis {axis} "
            f"want {_drop_axis(shape(x), axis)}."
        )


def _take_labels(x: Any, labels: Any, axis: int) -> Any:
    """For each label the element of x along the axis of classes."""
    return reshaping.squeeze(indexing.take_along_axis(x, reshaping.expand_dims(labels, axis), axis=axis), axis)


def _mask_ignored(losses: Any, shares: Any, counts: Any) -> tuple[Any, Any]:
    """Losses with those of ignored labels zero, and what each counts for; None is one each."""
    if counts is True:
        return losses, shares
    shares = reshaping.astype(counts, spec_of(losses).dtype) if shares is None else zero_unless(counts, shares)
    return zero_unless(counts, losses), shares


def _zero_ignored(x: Any, counts: Any) -> Any:
    """x without what belongs to ignored labels, which may be anything."""
    return x if counts is True else zero_unless(counts, x)


# not fused: what made the logarithms of ignored labels need not have finite slopes
@of_mixed_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def nll_loss(
    log_probs: Any,
    /,
    labels: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    axis: int | None = None,
) -> Any:
    """Minus the log-probability of each label, times the weight of its class; the mean is over the weights.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.nll_loss(np.log(np.array([[0.25, 0.75], [0.5, 0.5]])), np.array([0, 1]), reduction="none")
    array([1.38629436, 0.69314718])
    """
    x, labels = as_floats(log_probs, "nll_loss"), as_value(labels)
    axis = _class_axis(x, axis, "nll_loss")
    _check_label_shape(x, labels, axis, "nll_loss")
    labels, counts = validate_labels(labels, shape(x)[axis], "nll_loss", ignore_index)
    losses = -_take_labels(x, labels, axis)
    if counts is not True:
        # a mask, since what made the logarithms need not be finite for ignored labels
        losses = where(counts, losses, 0.0)
    shares = None
    if weight is not None:
        shares = _class_weights(weight, labels, shape(x)[axis], "nll_loss")
        losses = losses * shares
    losses, shares = _mask_ignored(losses, shares, counts)
    return reduce_losses(losses, reduction, "nll_loss", share=shares)


def _class_weights(weight: Any, labels: Any, classes: int, what: str) -> Any:
    weight = as_value(weight)
    if shape(weight) != (classes,):
        raise ShapeError(f"{what}: weight has shape {shape(weight)}, {classes} classes want ({classes},).")
    return indexing.take(weight, labels, axis=0)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def cross_entropy(
    logits: Any,
    /,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Any:
    """The negative log-likelihood of the target under softmax(logits). The target is a label for each position, or
    the probabilities of all classes. Classes lie along axis 1, or along `axis`.

    A label `ignore_index` counts for nothing (None: all count); if all are ignored, the mean is 0. `weight` has one
    value for each class, and `label_smoothing` moves that share of each target to all classes alike.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.cross_entropy(np.array([[0.0, 0.0], [1e4, 0.0]]), np.array([1, 0]), reduction="none")
    array([0.69314718, 0.        ])
    """
    x, target = as_floats(logits, "cross_entropy"), as_value(target)
    axis = _class_axis(x, axis, "cross_entropy")
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing lies between 0 and 1, got {label_smoothing}.")
    if spec_of(target).dtype.kind in "iu":
        return _cross_entropy_of_labels(x, target, axis, weight, ignore_index, reduction, label_smoothing)
    return _cross_entropy_of_probabilities(x, target, axis, weight, reduction, label_smoothing)


def _cross_entropy_of_labels(
    x: Any, labels: Any, axis: int, weight: Any, ignored: int | None, reduction: str, smoothing: float
) -> Any:
    """log(sum exp x) - x at the label; the smoothed part is its mean over all classes, each with its weight."""
    _check_label_shape(x, labels, axis, "cross_entropy")
    classes = shape(x)[axis]
    labels, counts = validate_labels(labels, classes, "cross_entropy", ignored)
    # taken from the scores themselves: compiled, those without ignored ones are never in memory
    own = _zero_ignored(_take_labels(x, labels, axis), counts)
    x = _zero_ignored(x, counts if counts is True else reshaping.expand_dims(counts, axis))
    total = reductions.logsumexp(x, axis=axis, keepdims=True)
    losses = reshaping.squeeze(total, axis) - own
    shares = None
    if weight is not None:
        shares = _class_weights(weight, labels, classes, "cross_entropy")
        losses = losses * shares
    if smoothing:
        each = total - x
        if weight is not None:
            each = each * expand_along_axis(weight, axis, ndim(x), classes, "cross_entropy: weight")
        losses = (1 - smoothing) * losses + smoothing / classes * reductions.sum(each, axis=axis)
    losses, shares = _mask_ignored(losses, shares, counts)
    return reduce_losses(losses, reduction, "cross_entropy", share=shares)


def _cross_entropy_of_probabilities(
    x: Any, target: Any, axis: int, weight: Any, reduction: str, smoothing: float
) -> Any:
    """sum over classes of p (log(sum exp x) - x); a class of probability 0 counts for nothing, also at x = -inf."""
    if shape(target) != shape(x):
        raise ShapeError(
            f"cross_entropy: probabilities have shape {shape(target)}, the scores {shape(x)}.\n"
            "  For labels pass integers."
        )
    classes = shape(x)[axis]
    if smoothing:
        target = (1 - smoothing) * target + smoothing / classes
    if weight is not None:
        target = target * expand_along_axis(weight, axis, ndim(x), classes, "cross_entropy: weight")
    total = reductions.logsumexp(x, axis=axis, keepdims=True)
    gone = logical_and(equal(target, 0), isinf(x))
    losses = reductions.sum(target * (total - where(gone, 0.0, x)), axis=axis)
    return reduce_losses(losses, reduction, "cross_entropy")


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


@of_mixed_arrays
@cast_whole("high")
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
    return _binary_cross_entropy(p, target, weight, reduction)


@fuse
@attributed_to_caller
@rounds_once
def _binary_cross_entropy(p: Any, target: Any, weight: Any, reduction: str) -> Any:
    losses = -(target * _clamped_log(p) + (1.0 - target) * _clamped_log(1.0 - p))
    return reduce_losses(losses, reduction, "binary_cross_entropy", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def soft_margin_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """log(1 + exp(-target x)), for targets 1 and -1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.soft_margin_loss(np.array([-1e4]), np.array([1.0]))
    array(10000.)
    """
    x, target = match_target(x, target, "soft_margin_loss")
    return reduce_losses(softplus(-(target * x)), reduction, "soft_margin_loss", weight)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def multilabel_soft_margin_loss(x: Any, /, target: Any, *, weight: Any = None, reduction: str = "mean") -> Any:
    """The mean over classes (the last axis) of `binary_cross_entropy_with_logits`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.multilabel_soft_margin_loss(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]))
    array(0.69314718)
    """
    what = "multilabel_soft_margin_loss"
    each = binary_cross_entropy_with_logits(x, target, weight=weight, reduction="none")
    return reduce_losses(reductions.mean(require_rank(each, 1, what, "an axis of classes"), axis=-1), reduction, what)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
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
