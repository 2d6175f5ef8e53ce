"""Attention weights of a block of queries: the masked softmax of query-key products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.spec import Spec, spec_of
from ...ops import random
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.reduce import reductions
from ...ops.shape import reshaping


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """How weights are computed: the scale of the scores, whether attention is causal, the dropout rate, and the names
    of the further operands ("mask", "bias", "key").
    """

    scale: float
    is_causal: bool
    dropout_rate: float
    extras: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Rows `start` to `stop` of the queries and all they need: keys and values up to `reach`, and the extras there."""

    start: int
    stop: int
    reach: int
    q: Any
    k: Any
    v: Any
    extras: dict[str, Any]


def query_block(xs: tuple[Any, ...], rule: AttentionConfig, start: int, stop: int) -> QueryBlock:
    """Some rows. Under a causal mask, keys after the last of them are left out."""
    q, k, v, *rest = xs
    count = shape(k)[-2]
    reach = min(stop, count) if rule.is_causal else count
    extras = dict(zip(rule.extras, rest, strict=True))
    parts = {n: x if n == "key" else _slice_block(x, slice(start, stop), slice(0, reach)) for n, x in extras.items()}
    k, v = (_slice_block(x, slice(0, reach), slice(None)) for x in (k, v))
    return QueryBlock(start, stop, reach, _slice_block(q, slice(start, stop), slice(None)), k, v, parts)


def _slice_block(x: Any, rows: slice, columns: slice) -> Any:
    """Rows and columns of the last two axes; those of size one broadcast."""
    picked = [s if n > 1 else slice(None) for s, n in zip((rows, columns), shape(x)[-2:], strict=True)]
    if all(s == slice(None) or (s.start, s.stop) == (0, n) for s, n in zip(picked, shape(x)[-2:], strict=True)):
        return x
    return getitem(x, (Ellipsis, *picked))


def attention_weights(block: QueryBlock, rule: AttentionConfig) -> tuple[Any, Any]:
    """The weights, and the factor of each under dropout (None without it)."""
    share = _masked_softmax(block, rule)
    return share, _dropout_factor(block, rule, share)


def _masked_softmax(block: QueryBlock, rule: AttentionConfig) -> Any:
    """softmax(scale q k^T + bias) over the keys that the masks allow; zeros for a query that has none.

    Softmax is invariant to a shift of the scores, so the largest is subtracted as a constant.
    """
    scores = matmul(block.q * rule.scale, reshaping.matrix_transpose(block.k))
    if spec_of(scores).dtype.itemsize < 4:
        scores = reshaping.astype(scores, np.float32)
    if not block.reach:
        return scores
    if "bias" in block.extras:
        scores = scores + block.extras["bias"]
    barred = _mask_bias(block, rule, spec_of(scores))
    if barred is not None:
        scores = scores + barred
    highest = pointwise.stop_gradient(reductions.max(scores, axis=-1, keepdims=True))
    may_be_empty = bool(block.extras.keys() & {"mask", "bias"})
    if may_be_empty:
        highest = pointwise.where(pointwise.equal(highest, -math.inf), 0.0, highest)
    shares = pointwise.exp(scores - highest)
    total = reductions.sum(shares, axis=-1, keepdims=True)
    if may_be_empty:
        total = pointwise.where(pointwise.equal(total, 0.0), 1.0, total)
    return shares * (1.0 / total)


def _mask_bias(block: QueryBlock, rule: AttentionConfig, like: Spec) -> Any:
    """The mask as a bias on the scores: zero or minus infinity; None if every key is allowed.

    `where` on the scores would compute the same, but mask the cotangents of q and k for nothing: they are zero
    wherever a weight is.
    """
    xp = namespace_on(like.device)
    nothing, everything = xp.zeros((), like.dtype), xp.full((), -math.inf, like.dtype)
    mask = block.extras.get("mask")
    found = None if mask is None else pointwise.where(mask, nothing, everything)
    if rule.is_causal:
        rows = xp.arange(block.start, block.start + shape(block.q)[-2])
        ahead = xp.where(xp.arange(block.reach) > rows[:, None], everything, nothing)
        found = ahead if found is None else found + ahead
    return found


def _dropout_factor(block: QueryBlock, rule: AttentionConfig, like: Any) -> Any:
    """The factor of each weight under dropout: 0 where dropped, else 1 / (1 - rate); None without dropout."""
    if "key" not in block.extras:
        return None
    key = random.fold_in(block.extras["key"], block.start)
    drawn = random.uniform(size=shape(like), key=key, dtype=np.float32)
    kept = pointwise.greater_equal(drawn, np.float32(rule.dropout_rate))
    return reshaping.astype(kept, spec_of(like).dtype) * (1.0 / (1.0 - rule.dropout_rate))
