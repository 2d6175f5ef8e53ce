"""What users give to a loss or a layer in, checked values out, with errors that say what was wanted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from ..ops import reducing, shaping
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import divide, equal, less, multiply, not_equal, where
from ..ops.families import broadcast_shape
from ..ops.index import namespace_for
from ..ops.known import bare, is_known
from ..ops.random.keys import key_on

__all__ = [
    "along", "floats", "key_beside", "labels_below", "of_rank", "paired", "probability", "reduced", "rescaled",
    "sizes_over", "spatial_sizes", "wide", "widened",
]  # fmt: skip

_NARROW = ("float16", "bfloat16")


def floats(x: Any, what: str) -> Any:
    """x as a value of real floating-point numbers; whole numbers become float64."""
    x = as_value(x)
    found = spec_of(x)
    if found.dtype.kind == "c":
        raise DtypeError(f"{what}: wants real numbers, got {found.dtype}.")
    return x if found.inexact else shaping.astype(x, np.float64)


def wide(x: Any) -> Any:
    """The dtype in which sums over x are taken: narrow ones overflow long before their means do."""
    found = spec_of(x).dtype
    return np.dtype(np.float32) if found.name in _NARROW else found


def widened(x: Any) -> Any:
    return shaping.astype(x, wide(x)) if spec_of(x).dtype != wide(x) else x


def key_beside(key: Any, x: Any, what: str) -> Any:
    """The key given, or the default generator's next, on the device of x."""
    return key_on(key, spec_of(x).device, what, namespace_for(x))


def of_rank(x: Any, least: int, what: str, wanted: str) -> Any:
    if ndim(x) < least:
        raise ShapeError(f"{what}: wants {wanted}, got shape {shape(x)}.")
    return x


def probability(p: Any, what: str) -> float:
    """A Python number between 0 and 1."""
    if isinstance(p, bool) or not isinstance(p, int | float | np.floating) or not 0 <= p <= 1:
        raise ArgumentError(f"{what}: a probability is a number from 0 to 1, got {p!r}.")
    return float(p)


def along(vector: Any, axis: int, rank: int, size: int, what: str) -> Any:
    """One number for each place along an axis, laid out to broadcast against an array of some rank."""
    vector = as_value(vector)
    if shape(vector) != (size,):
        raise ShapeError(f"{what} has shape {shape(vector)}, axis {axis} wants ({size},).")
    return shaping.reshape(vector, (1,) * axis + (size,) + (1,) * (rank - axis - 1))


def paired(x: Any, y: Any, what: str) -> tuple[Any, Any]:
    """A prediction and its target. The target may broadcast to the prediction, never the other way round: two columns
    that make a square are a mistake.
    """
    x, y = floats(x, what), as_value(y)
    if not spec_of(y).inexact or spec_of(y).weak:  # counts, signs and truths are numbers of the prediction's kind
        y = shaping.astype(y, spec_of(x).dtype)
    if broadcast_shape(what, shape(x), shape(y)) != shape(x):
        raise ShapeError(
            f"{what}: a target of shape {shape(y)} does not fit a prediction of shape {shape(x)}.\n"
            "  Reshape one of them so that each prediction has its target."
        )
    return x, y


def rescaled(losses: Any, weight: Any, what: str) -> Any:
    """Losses times weights that broadcast to them."""
    if weight is None:
        return losses
    weight = as_value(weight)
    if broadcast_shape(what, shape(losses), shape(weight)) != shape(losses):
        raise ShapeError(f"{what}: weight of shape {shape(weight)} does not fit losses of shape {shape(losses)}.")
    return multiply(losses, weight)


def reduced(losses: Any, reduction: str, what: str, share: Any = None) -> Any:
    """The losses one by one ("none"), their sum or their mean. With `share`, what each counts for in the mean; if
    nothing counts, the mean is zero: there is nothing to learn from.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return reducing.sum(losses)
    if reduction != "mean":
        raise ArgumentError(f"{what}: reduction must be none, mean or sum, got {reduction!r}.")
    if share is None:
        return reducing.mean(losses)
    total = reducing.sum(share)
    nothing = equal(total, 0)
    return where(nothing, 0.0, divide(reducing.sum(losses), where(nothing, 1.0, total)))


def labels_below(labels: Any, count: int, what: str, ignored: int | None = None) -> tuple[Any, Any]:
    """Labels that can be used as indices, and which of them count: True, or a mask where `ignored` may be among them.

    Labels whose numbers are hidden, as under jit, are checked by the indexing itself; a negative one, which an index
    would count from the end, is sent out of range for it.
    """
    labels = as_value(labels)
    if spec_of(labels).dtype.kind not in "iu":
        raise IndexingError(f"{what}: labels must be integers, got {spec_of(labels).dtype}.")
    if is_known(labels):
        _check_known(bare(labels, what), count, what, ignored)
        safe = labels
    else:
        safe = where(less(labels, 0), count, labels) if spec_of(labels).dtype.kind == "i" else labels
    if ignored is None or (is_known(labels) and not bool((bare(labels, what) == ignored).any())):
        return safe, True
    return where(equal(labels, ignored), 0, safe), not_equal(labels, ignored)


def _check_known(numbers: Any, count: int, what: str, ignored: int | None) -> None:
    bad = (numbers < 0) | (numbers >= count)
    if ignored is not None:
        bad &= numbers != ignored
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(_on_host(bad))[0])
        raise IndexingError(
            f"{what}: label {int(numbers[place])} at {list(place)} is out of range: {count} run from 0 to {count - 1}."
        )


def _on_host(mask: Any) -> Any:
    return mask if type(mask) is np.ndarray else mask.get()


def spatial_sizes(given: Any, count: int, what: str) -> tuple[Any, ...]:
    """One number for each spatial axis, from one for all or a sequence."""
    if isinstance(given, int | float | np.integer | np.floating):
        return (given,) * count
    found = tuple(given)
    if len(found) != count:
        raise ShapeError(f"{what}: wants {count} numbers, one for each spatial axis, got {found}.")
    return found


def sizes_over(x: Any, axes: tuple[int, ...]) -> int:
    return math.prod(shape(x)[a] for a in axes)
