"""`ctc_loss`: the likelihood of a label sequence, summed over all alignments."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ...ops.concrete import as_bare_array, is_concrete
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import greater, greater_equal, less, logaddexp, logical_and, maximum, not_equal, where
from ...ops.fusion import cast_whole
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.reduce import reductions
from ...ops.round_once import rounds_once
from ...ops.shape import arrange, reshaping
from ...ops.signatures import of_mixed_arrays
from ...transforms.control.scan import scan
from ..arguments import as_floats, reduce_losses, validate_labels, widen

#: The logarithm of probability 0: far below every real one, but finite, so that no difference is NaN.
_LOG_ZERO = -1e30


@of_mixed_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def ctc_loss(
    log_probs: Any,
    /,
    targets: Any,
    input_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> Any:
    """Minus the log-probability of a label sequence, summed over all alignments with blanks and repeats.

    `log_probs` is (time, batch, classes), `targets` (batch, length); the lengths, all of it by default, are how much of
    each row counts. An alignment that does not fit makes the loss infinite, or 0 with `zero_infinity`. The mean is
    over the batch of the losses divided by their target lengths.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.ctc_loss(np.log(np.full((2, 1, 2), 0.5)), np.array([[1]]))
    array(0.28768207)
    """
    x, targets = widen(as_floats(log_probs, "ctc_loss")), as_value(targets)
    steps, batch, classes = _check_sizes(x, targets)
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank {blank} is not one of {classes} classes.")
    length = shape(targets)[1]
    xp = namespace_for(x)
    times = _check_lengths(input_lengths, batch, steps, xp, "input_lengths")
    counts = _check_lengths(target_lengths, batch, length, xp, "target_lengths")
    outside = greater_equal(xp.arange(length), reshaping.expand_dims(counts, -1))
    labels, _ = validate_labels(where(outside, blank, targets), classes, "ctc_loss")
    losses = -_log_likelihood(x, labels, times, counts, blank)
    impossible = greater(losses, -_LOG_ZERO / 2)
    losses = where(impossible, 0.0 if zero_infinity else math.inf, losses)
    if reduction != "mean":
        return reduce_losses(losses, reduction, "ctc_loss")
    return reductions.mean(losses / reshaping.astype(maximum(counts, 1), spec_of(losses).dtype))


def _check_sizes(x: Any, targets: Any) -> tuple[int, int, int]:
    if ndim(x) != 3:
        raise ShapeError(f"ctc_loss: log_probs have shape {shape(x)}, wants (time, batch, classes).")
    if ndim(targets) != 2 or shape(targets)[0] != shape(x)[1]:
        raise ShapeError(f"ctc_loss: targets have shape {shape(targets)}, wants ({shape(x)[1]}, length).")
    if spec_of(targets).dtype.kind not in "iu":
        raise IndexingError(f"ctc_loss: targets must be integers, got {spec_of(targets).dtype}.")
    steps, batch, classes = shape(x)
    return steps, batch, classes


def _check_lengths(given: Any, batch: int, most: int, xp: Any, name: str) -> Any:
    if given is None:
        return xp.full(batch, most)
    given = as_value(given)
    if shape(given) != (batch,) or spec_of(given).dtype.kind not in "iu":
        raise ShapeError(f"ctc_loss: {name} are {batch} integers, got {spec_of(given)}.")
    if is_concrete(given):
        lengths = as_bare_array(given, "ctc_loss")
        if bool(((lengths < 0) | (lengths > most)).any()):
            raise ArgumentError(f"ctc_loss: {name} lie between 0 and {most}, got {lengths.tolist()}.")
    return given


def _slice_columns(x: Any, start: int | None, stop: int | None) -> Any:
    return indexing.getitem(x, (slice(None), slice(start, stop)))


def _extend_labels(labels: Any, blank: int, xp: Any) -> tuple[Any, Any]:
    """blank, l1, blank, l2, ..., blank; and the states that may be entered by a skip of two: the labels that
    differ from the label before them.
    """
    batch, length = shape(labels)
    blanks = xp.full((batch, length), blank, spec_of(labels).dtype)
    woven = reshaping.reshape(arrange.stack([blanks, labels], axis=-1), (batch, 2 * length))
    states = arrange.concat([woven, xp.full((batch, 1), blank, spec_of(labels).dtype)], axis=1)
    if length == 0:
        return states, xp.zeros((batch, 1), bool)
    news = not_equal(_slice_columns(states, 2, None), _slice_columns(states, None, -2))
    news = arrange.concat([xp.ones((batch, 2), bool), news], axis=1)
    return states, logical_and(not_equal(states, blank), news)


def _log_likelihood(x: Any, labels: Any, times: Any, counts: Any, blank: int) -> Any:
    """From one step to the next a state stays, moves on by one, or skips two:
    a'[s] = log(e^a[s] + e^a[s-1] + e^a[s-2]) + log p[s]. Every path starts in a state before the first.
    """
    xp, dtype = namespace_for(x), spec_of(x).dtype
    states, leaps = _extend_labels(labels, blank, xp)
    steps, (batch, width) = shape(x)[0], shape(states)
    index = reshaping.broadcast_to(reshaping.expand_dims(states, 0), (steps, batch, width))
    emitted = indexing.take_along_axis(x, index, axis=2)
    emitted = where(less(emitted, _LOG_ZERO), _LOG_ZERO, emitted)
    nowhere = xp.full((batch, 1), _LOG_ZERO, dtype)
    begin = arrange.concat([xp.zeros((batch, 1), dtype), xp.full((batch, width), _LOG_ZERO, dtype)], axis=1)

    def step(alpha: Any, now: Any) -> tuple[Any, None]:
        scores, time = now
        leapt = where(leaps, arrange.concat([nowhere, _slice_columns(alpha, None, -2)], axis=1), _LOG_ZERO)
        reached = logaddexp(logaddexp(_slice_columns(alpha, 1, None), _slice_columns(alpha, None, -1)), leapt)
        after = arrange.concat([nowhere, reached + scores], axis=1)
        return where(reshaping.expand_dims(less(time, times), -1), after, alpha), None

    alpha, _ = scan(step, begin, (emitted, xp.arange(steps)))
    last = reshaping.expand_dims(2 * counts, -1)
    ends = [indexing.take_along_axis(alpha, place, axis=1) for place in (last, last + 1)]
    return reshaping.squeeze(logaddexp(*ends), -1)
