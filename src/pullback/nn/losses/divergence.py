"""Divergences of distributions, and contrastive losses."""

from __future__ import annotations

from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import divide, equal, exp, greater, log, where
from ...ops.fusion import fuse
from ...ops.index.normalize import namespace_for
from ...ops.reduce import reductions
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_mixed_arrays, of_two_arrays
from ..arguments import as_floats, match_target, reduce_losses
from ..norm import normalize
from .classification import cross_entropy


def _safe_xlogy(p: Any, q: Any) -> Any:
    """p log q, and zero where p is zero, with no derivative that is not finite there."""
    some = greater(p, 0)
    return where(some, p * log(where(some, q, 1.0)), 0.0)


def _reduce_divergence(losses: Any, reduction: str, what: str) -> Any:
    """`reduce_losses`, and "batchmean": the sum over the size of the first axis, which is the mean divergence."""
    if reduction != "batchmean":
        return reduce_losses(losses, reduction, what)
    if not ndim(losses):
        return losses
    return divide(reductions.sum(losses), shape(losses)[0])


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def kl_div(log_q: Any, /, target: Any, *, log_target: bool = False, reduction: str = "mean") -> Any:
    """target (log(target) - log_q), element by element: the Kullback-Leibler divergence of the target from q, given as
    logarithms. With `log_target` the target is logarithms too. reduction="batchmean" sums and divides by the batch.

    >>> import numpy as np, pullback as pb
    >>> q, p = np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    >>> pb.nn.kl_div(np.log(q), p, reduction="batchmean")
    array(0.69314718)
    """
    x, target = match_target(log_q, target, "kl_div")
    if log_target:
        gone = equal(target, -float("inf"))
        losses = where(gone, 0.0, exp(target) * (where(gone, 0.0, target) - x))
    else:
        some = greater(target, 0)
        losses = _safe_xlogy(target, target) - where(some, target * where(some, x, 0.0), 0.0)
    return _reduce_divergence(losses, reduction, "kl_div")


@of_two_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def js_div(p: Any, q: Any, /, *, reduction: str = "mean") -> Any:
    """Half of p log(p / m) + q log(q / m) with m between the two, element by element: the Jensen-Shannon divergence of
    probabilities, never infinite. reduction="batchmean" sums and divides by the batch.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.js_div(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), reduction="batchmean")
    array(0.69314718)
    """
    p, q = match_target(p, q, "js_div")
    middle = 0.5 * (p + q)
    left, right = (_safe_xlogy(d, d) - _safe_xlogy(d, middle) for d in (p, q))
    return _reduce_divergence(0.5 * (left + right), reduction, "js_div")


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def info_nce(
    queries: Any,
    /,
    keys: Any,
    *,
    temperature: Any = 0.07,
    symmetric: bool = False,
    normalized: bool = True,
    reduction: str = "mean",
) -> Any:
    """Each query should find its own key among all keys: cross-entropy of the cosines over `temperature`. Row i of the
    keys belongs to query i; further rows are negatives for all. `symmetric` adds the loss of the keys finding their
    queries.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.info_nce(np.eye(2), np.eye(2), temperature=1.0)
    array(0.31326169)
    """
    q, k = as_floats(queries, "info_nce"), as_floats(keys, "info_nce")
    if ndim(q) != 2 or ndim(k) != 2 or shape(q)[1] != shape(k)[1] or shape(k)[0] < shape(q)[0]:
        raise ShapeError(f"info_nce: wants a key for each query, got shapes {shape(q)} and {shape(k)}.")
    if symmetric and shape(q) != shape(k):
        raise ArgumentError(f"info_nce: symmetric wants as many keys as queries, got {shape(k)[0]} and {shape(q)[0]}.")
    if normalized:
        q, k = normalize(q), normalize(k)
    scores = matmul(q, reshaping.matrix_transpose(k)) / as_value(temperature)
    own = namespace_for(q).arange(shape(q)[0])
    losses = cross_entropy(scores, own, reduction="none")
    if symmetric:
        losses = 0.5 * (losses + cross_entropy(reshaping.matrix_transpose(scores), own, reduction="none"))
    return reduce_losses(losses, reduction, "info_nce")
