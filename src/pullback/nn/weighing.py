"""Queries and keys in, the weight of each key for each query out: the softmax of their products, masked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.backends import namespace_on
from ..arrays.spec import Spec, spec_of
from ..ops import elementwise as pointwise
from ..ops import random, reducing, shaping
from ..ops.contracting import matmul
from ..ops.dispatch import shape
from ..ops.indexing import getitem

__all__ = ["Band", "Rule", "band_of", "kept", "weights"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How weights come about: what the scores are multiplied by, whether a query sees only keys up to its own place,
    the share of weights that is dropped, and what stands beside q, k and v ("mask", "bias", "key").
    """

    scale: float
    causal: bool
    rate: float
    extras: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """Rows `start` to `stop` of the queries and all they need: keys and values up to `reach`, and the extras there."""

    start: int
    stop: int
    reach: int
    q: Any
    k: Any
    v: Any
    extras: dict[str, Any]


def band_of(xs: tuple[Any, ...], rule: Rule, start: int, stop: int) -> Band:
    """Some rows. Under a causal mask keys after the last of them play no part, so they are not looked at."""
    q, k, v, *rest = xs
    count = shape(k)[-2]
    reach = min(stop, count) if rule.causal else count
    extras = dict(zip(rule.extras, rest, strict=True))
    parts = {n: x if n == "key" else _part(x, slice(start, stop), slice(0, reach)) for n, x in extras.items()}
    across = slice(0, reach), slice(None)
    return Band(
        start, stop, reach, _part(q, slice(start, stop), slice(None)), _part(k, *across), _part(v, *across), parts
    )


def _part(x: Any, rows: slice, columns: slice) -> Any:
    """Rows and columns of the last two axes; those of size one stand for all."""
    picked = [s if n > 1 else slice(None) for s, n in zip((rows, columns), shape(x)[-2:], strict=True)]
    if all(s == slice(None) or (s.start, s.stop) == (0, n) for s, n in zip(picked, shape(x)[-2:], strict=True)):
        return x
    return getitem(x, (Ellipsis, *picked))


def weights(band: Band, rule: Rule) -> Any:
    """softmax(scale q k^T + bias) over the keys that the masks allow; zeros for a query that may see none.

    It does not change if the scores of a query are shifted, so the largest is taken off as a constant.
    """
    scores = matmul(pointwise.multiply(band.q, rule.scale), shaping.matrix_transpose(band.k))
    if spec_of(scores).dtype.itemsize < 4:
        scores = shaping.astype(scores, np.float32)
    if not band.reach:
        return scores
    if "bias" in band.extras:
        scores = pointwise.add(scores, band.extras["bias"])
    barred = _barred(band, rule, spec_of(scores))
    if barred is not None:
        scores = pointwise.add(scores, barred)
    highest = pointwise.stop_gradient(reducing.max(scores, axis=-1, keepdims=True))
    may_be_empty = bool(band.extras.keys() & {"mask", "bias"})
    if may_be_empty:
        highest = pointwise.where(pointwise.equal(highest, -math.inf), 0.0, highest)
    shares = pointwise.exp(pointwise.subtract(scores, highest))
    total = reducing.sum(shares, axis=-1, keepdims=True)
    if may_be_empty:
        total = pointwise.where(pointwise.equal(total, 0.0), 1.0, total)
    return pointwise.multiply(shares, pointwise.divide(1.0, total))


def _barred(band: Band, rule: Rule, like: Spec) -> Any:
    """What to add to the scores so that a query sees only the keys it may: zero or minus infinity; None for all.

    Choosing by `where` would say the same, and the cotangents of q and k would then carry a mask for nothing: they are
    zero wherever a weight is.
    """
    xp = namespace_on(like.device)
    nothing, everything = xp.zeros((), like.dtype), xp.full((), -math.inf, like.dtype)
    mask = band.extras.get("mask")
    found = None if mask is None else pointwise.where(mask, nothing, everything)
    if rule.causal:
        rows = xp.arange(band.start, band.start + shape(band.q)[-2])
        ahead = xp.where(xp.arange(band.reach) > rows[:, None], everything, nothing)
        found = ahead if found is None else pointwise.add(found, ahead)
    return found


def kept(band: Band, rule: Rule, like: Any) -> Any:
    """What weights are multiplied by under dropout: zero for those dropped, more than one for others; None without."""
    if "key" not in band.extras:
        return None
    key = random.fold_in(band.extras["key"], band.start)
    drawn = pointwise.greater_equal(random.uniform(size=shape(like), key=key, dtype=np.float32), np.float32(rule.rate))
    return pointwise.multiply(shaping.astype(drawn, spec_of(like).dtype), 1.0 / (1.0 - rule.rate))
