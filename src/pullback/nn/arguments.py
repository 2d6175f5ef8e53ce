"""Argument checks shared by losses and layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import to_host
from ..arrays.spec import spec_of
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from ..ops.concrete import as_bare_array, is_concrete
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import divide, equal, less, multiply, not_equal, where, zero_unless
from ..ops.families import broadcast_shape
from ..ops.random.keys import key_on_device
from ..ops.reduce import reductions
from ..ops.shape import reshaping

_NARROW = ("float16", "bfloat16")


def as_floats(x: Any, what: str) -> Any:
    """x as a real floating-point value; integers become float64."""
    x = as_value(x)
    found = spec_of(x)
    if found.dtype.kind == "c":
        raise DtypeError(f"{what}: wants real values, got {found.dtype}.")
    return x if found.inexact else reshaping.astype(x, np.float64)


def accumulation_dtype(x: Any) -> Any:
    """The dtype in which sums over x are taken: narrow ones overflow long before their means do."""
    found = spec_of(x).dtype
    return np.dtype(np.float32) if found.name in _NARROW else found


def widen(x: Any) -> Any:
    return reshaping.astype(x, accumulation_dtype(x)) if spec_of(x).dtype != accumulation_dtype(x) else x


def key_on_device_of(key: Any, x: Any, what: str) -> Any:
    """The key given, or the default generator's next, on the device of x."""
    return key_on_device(key, spec_of(x).device, what)


def require_rank(x: Any, least: int, what: str, wanted: str) -> Any:
    if ndim(x) < least:
        raise ShapeError(f"{what}: wants {wanted}, got shape {shape(x)}.")
    return x


def check_probability(p: Any, what: str) -> float:
    """A Python number between 0 and 1."""
    if isinstance(p, bool) or not isinstance(p, int | float | np.floating) or not 0 <= p <= 1:
        raise ArgumentError(f"{what}: a probability is a number from 0 to 1, got {p!r}.")
    return float(p)


def expand_along_axis(vector: Any, axis: int, rank: int, size: int, what: str) -> Any:
    """A vector along one axis, reshaped to broadcast against an array of some rank."""
    vector = as_value(vector)
    if shape(vector) != (size,):
        raise ShapeError(f"{what} has shape {shape(vector)}, axis {axis} wants ({size},).")
    return reshaping.reshape(vector, (1,) * axis + (size,) + (1,) * (rank - axis - 1))


def match_target(x: Any, y: Any, what: str) -> tuple[Any, Any]:
    """A prediction and its target. The target may broadcast to the prediction, never the other way round: two columns
    that make a square are a mistake.
    """
    x, y = as_floats(x, what), as_value(y)
    if not spec_of(y).inexact or spec_of(y).weak:  # counts, signs and booleans take the prediction's dtype
        y = reshaping.astype(y, spec_of(x).dtype)
    if broadcast_shape(what, shape(x), shape(y)) != shape(x):
        raise ShapeError(
            f"{what}: a target of shape {shape(y)} does not fit a prediction of shape {shape(x)}.\n"
            "  Reshape one of them so that each prediction has its target."
        )
    return x, y


def reduce_losses(losses: Any, reduction: str, what: str, weight: Any = None, share: Any = None) -> Any:
    """The losses times weights that broadcast to them, one by one ("none"), their sum or their mean. With `share`, what
    each counts for in the mean; if nothing counts, the mean is zero.
    """
    losses = as_value(losses)
    if weight is not None:
        weight = as_value(weight)
        if broadcast_shape(what, shape(losses), shape(weight)) != shape(losses):
            raise ShapeError(f"{what}: weight of shape {shape(weight)} does not fit losses of shape {shape(losses)}.")
        losses = multiply(losses, weight)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return reductions.sum(losses)
    if reduction != "mean":
        raise ArgumentError(f"{what}: reduction must be none, mean or sum, got {reduction!r}.")
    if share is None:
        return reductions.mean(losses)
    total = reductions.sum(share)
    something = not_equal(total, 0)
    return zero_unless(something, divide(reductions.sum(losses), where(something, total, 1.0)))


def validate_labels(labels: Any, count: int, what: str, ignored: int | None = None) -> tuple[Any, Any]:
    """Labels that can be used as indices, and which of them count: True, or a mask where `ignored` may be among them.

    Labels whose values are unknown, as under jit, are checked by the indexing itself; a negative one, which an index
    would count from the end, is sent out of range for it.
    """
    labels = as_value(labels)
    if spec_of(labels).dtype.kind not in "iu":
        raise IndexingError(f"{what}: labels must be integers, got {spec_of(labels).dtype}.")
    if is_concrete(labels):
        _check_label_range(as_bare_array(labels, what), count, what, ignored)
        safe = labels
    else:
        safe = where(less(labels, 0), count, labels) if spec_of(labels).dtype.kind == "i" else labels
    if ignored is None or (is_concrete(labels) and not bool((as_bare_array(labels, what) == ignored).any())):
        return safe, True
    return where(equal(labels, ignored), 0, safe), not_equal(labels, ignored)


def _check_label_range(labels: Any, count: int, what: str, ignored: int | None) -> None:
    bad = (labels < 0) | (labels >= count)
    if ignored is not None:
        bad &= labels != ignored
    if bad.any():
        noun, counted = ("index", f"{count} rows") if what.startswith("embedding") else ("label", f"{count} classes")
        place = tuple(int(i) for i in np.argwhere(to_host(bad))[0])
        raise IndexingError(
            f"{what}: {noun} {int(labels[place])} at {list(place)} is out of range: {counted} run from 0 to "
            f"{count - 1}."
        )
