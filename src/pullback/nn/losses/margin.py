"""Margin losses: hinge, ranking, triplet, and multi-class margins."""

from __future__ import annotations

from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import equal, less, logical_and, logical_not, minimum, not_equal, relu, square, where
from ...ops.fusion import fuse
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.reduce import reductions
from ...ops.reduce.distances import pairwise_distance
from ...ops.reduce.scans import cumulative_sum
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_mixed_arrays
from ..arguments import as_floats, match_target, reduce_losses, validate_labels
from ..norm import cosine_similarity


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def hinge_loss(x: Any, /, target: Any, margin: float = 1.0, *, reduction: str = "mean") -> Any:
    """max(0, margin - target x), for targets 1 and -1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hinge_loss(np.array([0.5, 3.0]), np.array([1.0, 1.0]), reduction="none")
    array([0.5, 0. ])
    """
    x, target = match_target(x, target, "hinge_loss")
    return reduce_losses(relu(margin - target * x), reduction, "hinge_loss")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def squared_hinge_loss(x: Any, /, target: Any, margin: float = 1.0, *, reduction: str = "mean") -> Any:
    """The square of `hinge_loss`, smooth at the margin.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.squared_hinge_loss(np.array([0.5, 3.0]), np.array([1.0, 1.0]), reduction="none")
    array([0.25, 0.  ])
    """
    x, target = match_target(x, target, "squared_hinge_loss")
    return reduce_losses(square(relu(margin - target * x)), reduction, "squared_hinge_loss")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def hinge_embedding_loss(x: Any, /, target: Any, margin: float = 1.0, *, reduction: str = "mean") -> Any:
    """The distance x itself for targets 1, max(0, margin - x) for targets -1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hinge_embedding_loss(np.array([0.25, 0.25]), np.array([1, -1]), reduction="none")
    array([0.25, 0.75])
    """
    x, target = match_target(x, target, "hinge_embedding_loss")
    return reduce_losses(where(equal(target, 1), x, relu(margin - x)), reduction, "hinge_embedding_loss")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def margin_ranking_loss(x: Any, y: Any, /, target: Any, margin: float = 0.0, *, reduction: str = "mean") -> Any:
    """max(0, margin - target (x - y)): for target 1 x should be the greater, for -1 y.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.margin_ranking_loss(np.array([1.0]), np.array([3.0]), np.array([1.0]))
    array(2.)
    """
    x, y = match_target(x, y, "margin_ranking_loss")
    away, target = match_target(x - y, target, "margin_ranking_loss")
    return reduce_losses(relu(margin - target * away), reduction, "margin_ranking_loss")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def cosine_embedding_loss(
    x: Any, y: Any, /, target: Any, margin: float = 0.0, *, axis: int = -1, eps: float = 1e-8, reduction: str = "mean"
) -> Any:
    """1 - cos for targets 1, max(0, cos - margin) for targets -1, of the angle between x and y along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.cosine_embedding_loss(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]), np.array([1]))
    array(1.)
    """
    cosine, target = match_target(cosine_similarity(x, y, axis=axis, eps=eps), target, "cosine_embedding_loss")
    losses = where(equal(target, 1), 1.0 - cosine, relu(cosine - margin))
    return reduce_losses(losses, reduction, "cosine_embedding_loss")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def triplet_margin_loss(
    anchor: Any,
    /,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, margin + |anchor - positive| - |anchor - negative|) along the last axis; with `swap`, the negative counts
    as near as it is to the nearer of the other two.

    >>> import numpy as np, pullback as pb
    >>> a, p, n = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]])
    >>> pb.nn.triplet_margin_loss(a, p, n, eps=0.0)
    array(4.)
    """
    a, b, c = (as_floats(v, "triplet_margin_loss") for v in (anchor, positive, negative))
    if not shape(a) or len({shape(v)[-1:] for v in (a, b, c)}) > 1:
        raise ShapeError(f"triplet_margin_loss: wants rows of one length, got {shape(a)}, {shape(b)} and {shape(c)}.")
    near, far = pairwise_distance(a, b, p, eps=eps), pairwise_distance(a, c, p, eps=eps)
    if swap:
        far = minimum(far, pairwise_distance(b, c, p, eps=eps))
    return reduce_losses(relu(near - far + margin), reduction, "triplet_margin_loss")


def _check_class_scores(x: Any, what: str) -> Any:
    x = as_floats(x, what)
    if ndim(x) not in (1, 2):
        raise ShapeError(f"{what}: wants (batch, classes) or (classes,), got shape {shape(x)}.")
    return x


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def multi_margin_loss(
    x: Any, /, labels: Any, *, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    """The mean over the classes (last axis) other than the label of max(0, margin - x[label] + x[class])^p, p being 1
    or 2, times the label's weight.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.multi_margin_loss(np.array([[0.1, 0.2, 0.4, 0.8]]), np.array([3]))
    array(0.325)
    """
    what = "multi_margin_loss"
    x, labels = _check_class_scores(x, what), as_value(labels)
    if p not in (1, 2):
        raise ArgumentError(f"{what}: p must be 1 or 2, got {p}.")
    if shape(labels) != shape(x)[:-1]:
        raise ShapeError(f"{what}: labels have shape {shape(labels)}, scores of shape {shape(x)} want {shape(x)[:-1]}.")
    classes = shape(x)[-1]
    labels, _ = validate_labels(labels, classes, what)
    place = reshaping.expand_dims(labels, -1)
    each = relu(x - indexing.take_along_axis(x, place, axis=-1) + margin)
    each = each if p == 1 else square(each)
    if weight is not None:
        each = each * reshaping.expand_dims(indexing.take(as_value(weight), labels, axis=0), -1)
    others = not_equal(namespace_for(x).arange(classes), place)
    return reduce_losses(reductions.sum(where(others, each, 0.0), axis=-1) / max(classes, 1), reduction, what)


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def multilabel_margin_loss(x: Any, /, labels: Any, *, reduction: str = "mean") -> Any:
    """The mean over classes of max(0, 1 - x[label] + x[class]), summed over the labels of a row and the classes that
    are not among them. Labels come first in their row; the first -1 ends them.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.multilabel_margin_loss(np.array([[0.1, 0.2, 0.4, 0.8]]), np.array([[3, 0, -1, 1]]))
    array(0.85)
    """
    what = "multilabel_margin_loss"
    x, labels = _check_class_scores(x, what), as_value(labels)
    if shape(labels) != shape(x):
        raise ShapeError(f"{what}: labels have shape {shape(labels)}, the scores {shape(x)}.")
    if spec_of(labels).dtype.kind != "i":
        raise IndexingError(f"{what}: labels must be signed integers, got {spec_of(labels).dtype}.")
    classes = shape(x)[-1]
    safe, _ = validate_labels(labels, classes, what, -1)
    ended = cumulative_sum(reshaping.astype(less(labels, 0), "int64"), axis=-1)
    named = equal(ended, 0)
    same = equal(reshaping.expand_dims(safe, -1), namespace_for(x).arange(classes))
    hit = logical_and(same, reshaping.expand_dims(named, -1))
    among = reductions.any(hit, axis=-2, keepdims=True)
    own = reshaping.expand_dims(indexing.take_along_axis(x, safe, axis=-1), -1)
    each = relu(reshaping.expand_dims(x, -2) - own + 1.0)
    counts = logical_and(reshaping.expand_dims(named, -1), logical_not(among))
    return reduce_losses(reductions.sum(where(counts, each, 0.0), axis=(-2, -1)) / max(classes, 1), reduction, what)
