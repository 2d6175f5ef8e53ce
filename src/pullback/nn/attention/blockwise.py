"""Blockwise attention: an op whose forward and backward never hold all weights at once.

The op saves only its arguments for the backward pass. With P the weights of a block, D the dropout factor, S their
scores,

    o = (P D) v                         S' = scale (q' k^T + q k'^T) + bias'
    P' = P (S' - rowsum(P S'))          o' = (P' D) v + (P D) v'

and, transposed, with b the cotangent of o,

    v_bar = (P D)^T b                   P_bar = (b v^T) D
    S_bar = P (P_bar - rowsum(P P_bar)) q_bar = scale S_bar k,  k_bar = scale S_bar^T q,  bias_bar = S_bar.

Both rules are written in ops and each block is checkpointed, so derivatives of any order go block by block.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.scope import outside_transforms
from ...arrays.spec import Spec, make_spec, spec_of
from ...checkpoint.recompute.arguments import share_among_checkpoints
from ...checkpoint.recompute.checkpoint import checkpoint
from ...ops import batching, random
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import apply, ndim, shape
from ...ops.elementwise import pointwise
from ...ops.families import broadcast_shape, common_device, result_dtype
from ...ops.forms import Expand
from ...ops.index.indexing import getitem
from ...ops.naming import mark_recomputation
from ...ops.op import Formula, Op
from ...ops.reduce import reductions
from ...ops.shape import arrange, reshaping


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


def attend_block(block: QueryBlock, rule: AttentionConfig) -> Any:
    """The output rows of one block: its weights times the values."""
    share, factor = attention_weights(block, rule)
    product = matmul(match_narrow_dtype(_scale(share, factor), block.v), block.v)
    return match_narrow_dtype(product, block.v)  # NumPy's product of bfloat16 is float32


def _scale(x: Any, factor: Any) -> Any:
    return x if factor is None else x * factor


def match_narrow_dtype(x: Any, other: Any) -> Any:
    """Weights of narrow floats are computed in float32; cast them back to meet the values."""
    narrow = spec_of(other).dtype
    return reshaping.astype(x, narrow) if narrow.itemsize < 4 else x


def block_ranges(xs: Sequence[Any], rows: int) -> Iterator[tuple[int, int]]:
    length = shape(xs[0])[-2]
    return ((start, min(start + rows, length)) for start in range(0, length, rows))


def _value(xp: Any, *xs: Any, rule: AttentionConfig, rows: int) -> Any:
    with outside_transforms():
        parts = [attend_block(query_block(xs, rule, *ends), rule) for ends in block_ranges(xs, rows)]
    return xp.concatenate(parts, axis=-2)


def _expand(*xs: Any, rule: AttentionConfig, rows: int) -> Any:
    """The same block by block in compiled code, which frees the weights of one for the next."""
    # not merged with what the backward pass computes, or the weights of all blocks would wait for it
    xs = tuple(mark_recomputation(x) for x in xs)
    parts = [attend_block(query_block(xs, rule, *ends), rule) for ends in block_ranges(xs, rows)]
    return arrange.concat(parts, axis=-2)


def _spec(*specs: Spec, rule: AttentionConfig, rows: int) -> Spec:
    q, k, v = specs[:3]
    batch_shapes = [s.shape[:-2] for name, s in zip(rule.extras, specs[3:], strict=True) if name != "key"]
    lead = broadcast_shape("attention", *(s.shape[:-2] for s in (q, k, v)), *batch_shapes)
    named = zip(specs, ("q", "k", "v", *rule.extras), strict=True)
    dtype = result_dtype([s for s, name in named if name not in ("mask", "key")])
    return make_spec((*lead, q.shape[-2], v.shape[-1]), dtype, common_device("attention", specs))


def pull_bands(bar: Any, xs: Sequence[Any], rule: AttentionConfig, rows: int) -> list[Any]:
    """The cotangents of all arguments, summed over the blocks."""

    @checkpoint
    def pull_block(start: int, stop: int, bar: Any, *xs: Any) -> tuple[Any, ...]:
        return _pull_block(query_block(xs, rule, start, stop), rule, bar)

    xs = [share_among_checkpoints(x) for x in xs]
    extras = zip(rule.extras, xs[3:], strict=True)  # of a mask, a bias and a key only a bias has a cotangent
    queries: list[Any] = []
    biases: list[Any] = []
    totals: list[Any] = [None, None]  # sums are accumulated at once, or all blocks would stay in memory
    for start, stop in block_ranges(xs, rows):
        part = getitem(bar, (Ellipsis, slice(start, stop), slice(None)))
        q_bar, k_bar, v_bar, bias_bar = pull_block(start, stop, part, *xs)
        queries.append(q_bar)
        biases.append(bias_bar)
        parts = (_pad_to_length(x, shape(xs[1])[-2], -2) for x in (k_bar, v_bar))
        totals = [x if total is None else total + x for total, x in zip(totals, parts, strict=True)]
    extra = [_bias_cotangent(biases, x, shape(xs[1])[-2]) if n == "bias" else None for n, x in extras]
    return [arrange.concat(queries, axis=-2), *totals, *extra]


def _pull_block(block: QueryBlock, rule: AttentionConfig, bar: Any) -> tuple[Any, ...]:
    share, factor = attention_weights(block, rule)
    v_bar = matmul(reshaping.matrix_transpose(match_narrow_dtype(_scale(share, factor), block.v)), bar)
    share_bar = _scale(matmul(bar, reshaping.matrix_transpose(block.v)), factor)
    score_bar = _softmax_jvp(share, share_bar)
    narrow = match_narrow_dtype(score_bar, block.q) * rule.scale
    q_bar, k_bar = matmul(narrow, block.k), matmul(reshaping.matrix_transpose(narrow), block.q)
    return q_bar, k_bar, v_bar, score_bar if "bias" in block.extras else None


def _softmax_jvp(share: Any, moved: Any) -> Any:
    """P (x - rowsum(P x)): the derivative of a softmax, which is its own transpose."""
    return share * (moved - reductions.sum(share * moved, axis=-1, keepdims=True))


def _pad_to_length(x: Any, length: int, axis: int) -> Any:
    missing = length - shape(x)[axis]
    widths = [(0, 0)] * ndim(x)
    widths[axis] = (0, missing)
    return arrange.pad(x, widths) if missing else x


def _bias_cotangent(parts: Sequence[Any], bias: Any, length: int) -> Any:
    """Rows concatenated, or summed where the bias broadcasts over them; columns likewise."""
    rows, columns = shape(bias)[-2:]
    parts = [
        reductions.sum(p, axis=-1, keepdims=True) if columns == 1 else _pad_to_length(p, length, -1) for p in parts
    ]
    if rows > 1 or len(parts) == 1:
        return arrange.concat(parts, axis=-2)
    return functools.reduce(operator.add, (reductions.sum(part, axis=-2, keepdims=True) for part in parts))


def _push(tangents: Sequence[Any], out: Any, xs: Sequence[Any], static: dict[str, Any]) -> Any:
    return push_bands(tangents, xs, static["rule"], static["rows"])


def push_bands(tangents: Sequence[Any], xs: Sequence[Any], rule: AttentionConfig, rows: int) -> Any:
    """The tangent of the output, block by block."""
    if all(t is None for t in tangents):
        return None
    filled = [x if t is None else t for t, x in zip(tangents, xs, strict=True)]
    moves = [t is not None for t in tangents]
    names = ("q", "k", "v", *rule.extras)
    bias_moves = "bias" in names and moves[names.index("bias")]
    parts = []
    for ends in block_ranges(xs, rows):
        block, along = query_block(tuple(xs), rule, *ends), query_block(tuple(filled), rule, *ends)
        parts.append(_push_block(block, along, rule, (*moves[:3], bias_moves)))
    return arrange.concat(parts, axis=-2)


def _push_block(block: QueryBlock, along: QueryBlock, rule: AttentionConfig, moves: tuple[bool, ...]) -> Any:
    share, factor = attention_weights(block, rule)
    terms = [matmul(along.q, reshaping.matrix_transpose(block.k)) * rule.scale] if moves[0] else []
    terms += [matmul(block.q, reshaping.matrix_transpose(along.k)) * rule.scale] if moves[1] else []
    terms += [along.extras["bias"]] if moves[3] else []
    parts = [(_softmax_jvp(share, functools.reduce(operator.add, terms)), block.v)] if terms else []
    parts += [(share, along.v)] if moves[2] else []
    products = (matmul(match_narrow_dtype(_scale(p, factor), v), v) for p, v in parts)
    return functools.reduce(operator.add, products)


def _batch(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> tuple[Any, int]:
    """The batch axis in front of all others; with dropout one by one, since each example draws as if it were alone."""
    rule = static["rule"]
    if "key" in rule.extras:
        pairs = list(zip(xs, axes, strict=True))
        one = [[x if a is None else getitem(x, (*(slice(None),) * a, i)) for x, a in pairs] for i in range(size)]
        return arrange.stack([apply(op, *row, **static) for row in one]), 0
    rank = max(ndim(x) - (a is not None) for x, a in zip(xs, axes, strict=True))
    return apply(op, *(batching.align_rank(x, a, rank) for x, a in zip(xs, axes, strict=True)), **static), 0


attention_bands = Op(
    name="attention_bands", family="general", args=("*xs",), value=_value, spec=_spec, pulls={}, push=_push,
    batch=_batch, samples=lambda rng: [], form=Expand(_expand),
    joint=Formula(pull_bands, ("bar", "xs", "rule", "rows")),
)  # fmt: skip
