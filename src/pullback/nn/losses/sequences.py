"""Scores over time and sequences of labels in, the likelihood of every way to align the two out."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.node import signed
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ...ops import arranging, indexing, reducing, shaping
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise import (
    add,
    divide,
    greater,
    greater_equal,
    less,
    logaddexp,
    logical_and,
    maximum,
    multiply,
    negative,
    not_equal,
    where,
)
from ...ops.index import namespace_for
from ...ops.known import bare, is_known
from ...transforms.loops import scan
from ..arguments import floats, labels_below, reduced, widened

__all__ = ["ctc_loss"]

#: The logarithm of what cannot happen: far below every real one, and still a number, so that no difference is NaN.
_NEVER = -1e30


@signed
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

    `log_probs` is (time, batch, classes), `targets` (batch, length); the lengths, all of it by default, say how much of
    each row counts. An alignment that does not fit makes the loss infinite, or 0 with `zero_infinity`. The mean is
    over the batch of the losses divided by their target lengths.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.ctc_loss(np.log(np.full((2, 1, 2), 0.5)), np.array([[1]]))
    array(0.28768207)
    """
    x, targets = widened(floats(log_probs, "ctc_loss")), as_value(targets)
    steps, batch, classes = _sizes(x, targets)
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank {blank} is not one of {classes} classes.")
    length = shape(targets)[1]
    xp = namespace_for(x)
    times = _lengths(input_lengths, batch, steps, xp, "input_lengths")
    counts = _lengths(target_lengths, batch, length, xp, "target_lengths")
    outside = greater_equal(xp.arange(length), shaping.expand_dims(counts, -1))
    labels, _ = labels_below(where(outside, blank, targets), classes, "ctc_loss")
    losses = negative(_likelihood(x, labels, times, counts, blank))
    impossible = greater(losses, -_NEVER / 2)
    losses = where(impossible, 0.0 if zero_infinity else math.inf, losses)
    if reduction != "mean":
        return reduced(losses, reduction, "ctc_loss")
    return reducing.mean(divide(losses, shaping.astype(maximum(counts, 1), spec_of(losses).dtype)))


def _sizes(x: Any, targets: Any) -> tuple[int, int, int]:
    if ndim(x) != 3:
        raise ShapeError(f"ctc_loss: log_probs have shape {shape(x)}, wants (time, batch, classes).")
    if ndim(targets) != 2 or shape(targets)[0] != shape(x)[1]:
        raise ShapeError(f"ctc_loss: targets have shape {shape(targets)}, wants ({shape(x)[1]}, length).")
    if spec_of(targets).dtype.kind not in "iu":
        raise IndexingError(f"ctc_loss: targets must be integers, got {spec_of(targets).dtype}.")
    steps, batch, classes = shape(x)
    return steps, batch, classes


def _lengths(given: Any, batch: int, most: int, xp: Any, name: str) -> Any:
    if given is None:
        return xp.full(batch, most)
    given = as_value(given)
    if shape(given) != (batch,) or spec_of(given).dtype.kind not in "iu":
        raise ShapeError(f"ctc_loss: {name} are {batch} integers, got {spec_of(given)}.")
    if is_known(given):
        numbers = bare(given, "ctc_loss")
        if bool(((numbers < 0) | (numbers > most)).any()):
            raise ArgumentError(f"ctc_loss: {name} lie between 0 and {most}, got {numbers.tolist()}.")
    return given


def _columns(x: Any, start: int | None, stop: int | None) -> Any:
    return indexing.getitem(x, (slice(None), slice(start, stop)))


def _states(labels: Any, blank: int, xp: Any) -> tuple[Any, Any]:
    """blank, l1, blank, l2, ..., blank; and into which of them one may leap over the state before: the labels that
    differ from the label before them.
    """
    batch, length = shape(labels)
    blanks = xp.full((batch, length), blank, spec_of(labels).dtype)
    woven = shaping.reshape(arranging.stack([blanks, labels], axis=-1), (batch, 2 * length))
    states = arranging.concat([woven, xp.full((batch, 1), blank, spec_of(labels).dtype)], axis=1)
    if length == 0:
        return states, xp.zeros((batch, 1), bool)
    news = not_equal(_columns(states, 2, None), _columns(states, None, -2))
    news = arranging.concat([xp.ones((batch, 2), bool), news], axis=1)
    return states, logical_and(not_equal(states, blank), news)


def _likelihood(x: Any, labels: Any, times: Any, counts: Any, blank: int) -> Any:
    """From one step to the next a state stays, moves on by one, or leaps by two:
    a'[s] = log(e^a[s] + e^a[s-1] + e^a[s-2]) + log p[s]. A state before the first is where everything begins.
    """
    xp, dtype = namespace_for(x), spec_of(x).dtype
    states, leaps = _states(labels, blank, xp)
    steps, (batch, width) = shape(x)[0], shape(states)
    index = shaping.broadcast_to(shaping.expand_dims(states, 0), (steps, batch, width))
    emitted = indexing.take_along_axis(x, index, axis=2)
    emitted = where(less(emitted, _NEVER), _NEVER, emitted)
    nowhere = xp.full((batch, 1), _NEVER, dtype)
    begin = arranging.concat([xp.zeros((batch, 1), dtype), xp.full((batch, width), _NEVER, dtype)], axis=1)

    def step(alpha: Any, now: Any) -> tuple[Any, None]:
        scores, time = now
        leapt = where(leaps, arranging.concat([nowhere, _columns(alpha, None, -2)], axis=1), _NEVER)
        reached = logaddexp(logaddexp(_columns(alpha, 1, None), _columns(alpha, None, -1)), leapt)
        after = arranging.concat([nowhere, add(reached, scores)], axis=1)
        return where(shaping.expand_dims(less(time, times), -1), after, alpha), None

    alpha, _ = scan(step, begin, (emitted, xp.arange(steps)))
    last = shaping.expand_dims(multiply(counts, 2), -1)
    ends = [indexing.take_along_axis(alpha, place, axis=1) for place in (last, add(last, 1))]
    return shaping.squeeze(logaddexp(*ends), -1)
