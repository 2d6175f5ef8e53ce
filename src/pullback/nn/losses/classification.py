"""Losses of class labels: cross-entropy and negative log-likelihood."""

from __future__ import annotations

from typing import Any

from ...arrays.node import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.axes import normalize_axis
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import equal, isinf, logical_and, where
from ...ops.index import indexing
from ...ops.reduce import reductions
from ...ops.shape import reshaping
from ..arguments import as_floats, expand_along_axis, reduce_losses, validate_labels


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
    shares = reshaping.astype(counts, spec_of(losses).dtype) if shares is None else where(counts, shares, 0.0)
    return where(counts, losses, 0.0), shares


@attributed_to_caller
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


@attributed_to_caller
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
    total = reductions.logsumexp(x, axis=axis, keepdims=True)
    if spec_of(target).dtype.kind in "iu":
        return _cross_entropy_of_labels(x, total, target, axis, weight, ignore_index, reduction, label_smoothing)
    return _cross_entropy_of_probabilities(x, total, target, axis, weight, reduction, label_smoothing)


def _cross_entropy_of_labels(
    x: Any, total: Any, labels: Any, axis: int, weight: Any, ignored: int | None, reduction: str, smoothing: float
) -> Any:
    """log(sum exp x) - x at the label; the smoothed part is its mean over all classes, each with its weight."""
    _check_label_shape(x, labels, axis, "cross_entropy")
    classes = shape(x)[axis]
    labels, counts = validate_labels(labels, classes, "cross_entropy", ignored)
    losses = reshaping.squeeze(total, axis) - _take_labels(x, labels, axis)
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
    x: Any, total: Any, target: Any, axis: int, weight: Any, reduction: str, smoothing: float
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
    gone = logical_and(equal(target, 0), isinf(x))
    losses = reductions.sum(target * (total - where(gone, 0.0, x)), axis=axis)
    return reduce_losses(losses, reduction, "cross_entropy")
