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
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from ...arrays.scope import outside_transforms
from ...arrays.spec import Spec, make_spec, spec_of
from ...checkpoint.recompute.checkpoint import checkpoint
from ...ops import batching
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import apply, ndim, shape
from ...ops.families import broadcast_shape, common_device, result_dtype
from ...ops.index.indexing import getitem
from ...ops.op import Formula, Op
from ...ops.reduce import reductions
from ...ops.shape import arrange, reshaping
from .weights import AttentionConfig, QueryBlock, attention_weights, query_block


def attend_block(block: QueryBlock, rule: AttentionConfig) -> Any:
    """The output rows of one block: its weights times the values."""
    share, factor = attention_weights(block, rule)
    product = matmul(_match_narrow_dtype(_scale(share, factor), block.v), block.v)
    return _match_narrow_dtype(product, block.v)  # NumPy's product of bfloat16 is float32


def _scale(x: Any, factor: Any) -> Any:
    return x if factor is None else x * factor


def _match_narrow_dtype(x: Any, other: Any) -> Any:
    """Weights of narrow floats are computed in float32; cast them back to meet the values."""
    narrow = spec_of(other).dtype
    return reshaping.astype(x, narrow) if narrow.itemsize < 4 else x


def _block_ranges(xs: Sequence[Any], rows: int) -> Iterator[tuple[int, int]]:
    length = shape(xs[0])[-2]
    return ((start, min(start + rows, length)) for start in range(0, length, rows))


def _value(xp: Any, *xs: Any, rule: AttentionConfig, rows: int) -> Any:
    with outside_transforms():
        parts = [attend_block(query_block(xs, rule, *ends), rule) for ends in _block_ranges(xs, rows)]
    return xp.concatenate(parts, axis=-2)


def _spec(*specs: Spec, rule: AttentionConfig, rows: int) -> Spec:
    q, k, v = specs[:3]
    batch_shapes = [s.shape[:-2] for name, s in zip(rule.extras, specs[3:], strict=True) if name != "key"]
    lead = broadcast_shape("attention", *(s.shape[:-2] for s in (q, k, v)), *batch_shapes)
    named = zip(specs, ("q", "k", "v", *rule.extras), strict=True)
    dtype = result_dtype([s for s, name in named if name not in ("mask", "key")])
    return make_spec((*lead, q.shape[-2], v.shape[-1]), dtype, common_device("attention", specs))


def _pull(bar: Any, xs: Sequence[Any], rule: AttentionConfig, rows: int) -> list[Any]:
    """The cotangents of all arguments, summed over the blocks."""

    @checkpoint
    def pull_block(start: int, stop: int, bar: Any, *xs: Any) -> tuple[Any, ...]:
        return _pull_block(query_block(xs, rule, start, stop), rule, bar)

    extras = zip(rule.extras, xs[3:], strict=True)  # of a mask, a bias and a key only a bias has a cotangent
    queries: list[Any] = []
    biases: list[Any] = []
    totals: list[Any] = [None, None]  # sums are accumulated at once, or all blocks would stay in memory
    for start, stop in _block_ranges(xs, rows):
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
    v_bar = matmul(reshaping.matrix_transpose(_match_narrow_dtype(_scale(share, factor), block.v)), bar)
    share_bar = _scale(matmul(bar, reshaping.matrix_transpose(block.v)), factor)
    score_bar = _softmax_jvp(share, share_bar)
    narrow = _match_narrow_dtype(score_bar, block.q) * rule.scale
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
    rule, rows = static["rule"], static["rows"]
    if all(t is None for t in tangents):
        return None
    filled = [x if t is None else t for t, x in zip(tangents, xs, strict=True)]
    moves = [t is not None for t in tangents]
    names = ("q", "k", "v", *rule.extras)
    bias_moves = "bias" in names and moves[names.index("bias")]
    parts = []
    for ends in _block_ranges(xs, rows):
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
    products = (matmul(_match_narrow_dtype(_scale(p, factor), v), v) for p, v in parts)
    return functools.reduce(operator.add, products)


def _batch(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> tuple[Any, int]:
    """The batch axis in front of all others; with dropout one by one, since each example draws as if it were alone."""
    rule = static["rule"]
    if "key" in rule.extras:
        one = [
            [x if a is None else getitem(x, (*(slice(None),) * a, i)) for x, a in zip(xs, axes, strict=True)]
            for i in range(size)
        ]
        return arrange.stack([apply(op, *row, **static) for row in one]), 0
    rank = max(ndim(x) - (a is not None) for x, a in zip(xs, axes, strict=True))
    return apply(op, *(batching.align_rank(x, a, rank) for x, a in zip(xs, axes, strict=True)), **static), 0


attention_bands = Op(
    name="attention_bands", family="general", args=("*xs",), value=_value, spec=_spec, pulls={}, push=_push,
    batch=_batch, samples=lambda rng: [], joint=Formula(_pull, ("bar", "xs", "rule", "rows")),
)  # fmt: skip
