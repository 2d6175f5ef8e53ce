"""Attention as an op that works on bands of rows: neither it nor its way back ever holds all weights at once.

The op keeps its arguments alone. With P the weights of a band, D what dropout multiplies them by, S their scores,

    o = (P D) v                         S' = scale (q' k^T + q k'^T) + bias'
    P' = P (S' - rowsum(P S'))          o' = (P' D) v + (P D) v'

and, read backward along b, the cotangent of o,

    v_bar = (P D)^T b                   P_bar = (b v^T) D
    S_bar = P (P_bar - rowsum(P P_bar)) q_bar = scale S_bar k,  k_bar = scale S_bar^T q,  bias_bar = S_bar.

Both rules are written in ops, band by band, and each band is checkpointed, so derivatives of any order go band by band.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..arrays.scope import aside
from ..arrays.spec import Spec, make_spec, spec_of
from ..checkpoint.recompute import checkpoint
from ..ops import arranging, batching, reducing, shaping
from ..ops import elementwise as pointwise
from ..ops.contracting import matmul
from ..ops.dispatch import apply, ndim, shape
from ..ops.families import broadcast_shape, common_device, result_dtype
from ..ops.indexing import getitem
from ..ops.op import Op, Terms
from .weighing import Band, Rule, band_of, kept, weights

__all__ = ["attention_bands", "attend"]


def attend(band: Band, rule: Rule) -> Any:
    """The rows of one band: its weights times the values."""
    share = weights(band, rule)
    factor = kept(band, rule, share)
    share = share if factor is None else pointwise.multiply(share, factor)
    return _like(matmul(_like(share, band.v), band.v), band.v)  # NumPy's product of bfloat16 is float32


def _like(x: Any, other: Any) -> Any:
    """Weights of narrow floats were computed in wider ones, and are narrow again beside the values."""
    narrow = spec_of(other).dtype
    return shaping.astype(x, narrow) if narrow.itemsize < 4 else x


def _bands(xs: Sequence[Any], rows: int) -> Iterator[tuple[int, int]]:
    length = shape(xs[0])[-2]
    return ((start, min(start + rows, length)) for start in range(0, length, rows))


def _value(xp: Any, *xs: Any, rule: Rule, rows: int) -> Any:
    with aside():
        parts = [attend(band_of(xs, rule, *ends), rule) for ends in _bands(xs, rows)]
    return xp.concatenate(parts, axis=-2)


def _spec(*specs: Spec, rule: Rule, rows: int) -> Spec:
    q, k, v = specs[:3]
    beside = [s.shape[:-2] for name, s in zip(rule.extras, specs[3:], strict=True) if name != "key"]
    lead = broadcast_shape("attention", *(s.shape[:-2] for s in (q, k, v)), *beside)
    dtype = result_dtype(
        [s for s, name in zip(specs, ("q", "k", "v", *rule.extras), strict=True) if name not in ("mask", "key")]
    )
    return make_spec((*lead, q.shape[-2], v.shape[-1]), dtype, common_device("attention", specs))


def _pull(bar: Any, xs: Sequence[Any], rule: Rule, rows: int) -> list[Any]:
    """The cotangents of all arguments, added up over the bands."""

    @checkpoint
    def of_band(start: int, stop: int, bar: Any, *xs: Any) -> tuple[Any, ...]:
        return _pull_band(band_of(xs, rule, start, stop), rule, bar)

    queries, biases, totals = [], [], [None, None]  # what is added up is so at once, or all bands would be held
    for start, stop in _bands(xs, rows):
        part = getitem(bar, (Ellipsis, slice(start, stop), slice(None)))
        q_bar, k_bar, v_bar, bias_bar = of_band(start, stop, part, *xs)
        queries.append(q_bar)
        biases.append(bias_bar)
        totals = [_added(total, x, shape(xs[1])[-2]) for total, x in zip(totals, (k_bar, v_bar), strict=True)]
    return [arranging.concat(queries, axis=-2), *totals, *_of_extras(biases, xs, rule)]


def _pull_band(band: Band, rule: Rule, bar: Any) -> tuple[Any, ...]:
    share = weights(band, rule)
    factor = kept(band, rule, share)
    used = share if factor is None else pointwise.multiply(share, factor)
    v_bar = matmul(shaping.matrix_transpose(_like(used, band.v)), bar)
    share_bar = matmul(bar, shaping.matrix_transpose(band.v))
    share_bar = share_bar if factor is None else pointwise.multiply(share_bar, factor)
    score_bar = _moved(share, share_bar)
    narrow = pointwise.multiply(_like(score_bar, band.q), rule.scale)
    q_bar, k_bar = matmul(narrow, band.k), matmul(shaping.matrix_transpose(narrow), band.q)
    return q_bar, k_bar, v_bar, score_bar if "bias" in band.extras else None


def _moved(share: Any, moved: Any) -> Any:
    """P (x - rowsum(P x)): the derivative of a softmax, which is its own transpose."""
    level = reducing.sum(pointwise.multiply(share, moved), axis=-1, keepdims=True)
    return pointwise.multiply(share, pointwise.subtract(moved, level))


def _added(total: Any, part: Any, length: int) -> Any:
    """A sum and one more part, which may not reach as far along the keys."""
    far = _reaching(part, length, -2)
    return far if total is None else pointwise.add(total, far)


def _reaching(x: Any, length: int, axis: int) -> Any:
    missing = length - shape(x)[axis]
    widths = [(0, 0)] * ndim(x)
    widths[axis] = (0, missing)
    return arranging.pad(x, widths) if missing else x


def _of_extras(bias_bars: Sequence[Any], xs: Sequence[Any], rule: Rule) -> list[Any]:
    """Cotangents of what stands beside q, k and v; only a bias has one."""
    return [
        _bias_bar(bias_bars, x, shape(xs[1])[-2]) if n == "bias" else None
        for n, x in zip(rule.extras, xs[3:], strict=True)
    ]


def _bias_bar(parts: Sequence[Any], bias: Any, length: int) -> Any:
    """Rows side by side, or added up where one row of the bias stands for all; columns likewise."""
    rows, columns = shape(bias)[-2:]
    parts = [reducing.sum(p, axis=-1, keepdims=True) if columns == 1 else _reaching(p, length, -1) for p in parts]
    if rows > 1 or len(parts) == 1:
        return arranging.concat(parts, axis=-2)
    total = None
    for part in parts:
        row = reducing.sum(part, axis=-2, keepdims=True)
        total = row if total is None else pointwise.add(total, row)
    return total


def _push(tangents: Sequence[Any], out: Any, xs: Sequence[Any], static: dict[str, Any]) -> Any:
    rule, rows = static["rule"], static["rows"]
    if all(t is None for t in tangents):
        return None
    filled = [x if t is None else t for t, x in zip(tangents, xs, strict=True)]
    moves = [t is not None for t in tangents]
    names = ("q", "k", "v", *rule.extras)
    bias_moves = "bias" in names and moves[names.index("bias")]
    parts = []
    for ends in _bands(xs, rows):
        band, along = band_of(tuple(xs), rule, *ends), band_of(tuple(filled), rule, *ends)
        parts.append(_push_band(band, along, rule, (*moves[:3], bias_moves)))
    return arranging.concat(parts, axis=-2)


def _push_band(band: Band, along: Band, rule: Rule, moves: tuple[bool, ...]) -> Any:
    share = weights(band, rule)
    factor = kept(band, rule, share)
    terms = [pointwise.multiply(matmul(along.q, shaping.matrix_transpose(band.k)), rule.scale)] if moves[0] else []
    terms += [pointwise.multiply(matmul(band.q, shaping.matrix_transpose(along.k)), rule.scale)] if moves[1] else []
    terms += [along.extras["bias"]] if moves[3] else []
    parts = []
    if terms:
        score = terms[0]
        for term in terms[1:]:
            score = pointwise.add(score, term)
        parts.append((_moved(share, score), band.v))
    if moves[2]:
        parts.append((share, along.v))
    products = [matmul(_like(p if factor is None else pointwise.multiply(p, factor), v), v) for p, v in parts]
    return products[0] if len(products) == 1 else pointwise.add(*products)


def _batch(op: Op, size: int, xs: Sequence[Any], axes: Sequence[int | None], static: dict[str, Any]) -> tuple[Any, int]:
    """The batch axis in front of all others; with dropout one by one, since each draws as if it were alone."""
    rule = static["rule"]
    if "key" in rule.extras:
        one = [
            [x if a is None else getitem(x, (*(slice(None),) * a, i)) for x, a in zip(xs, axes, strict=True)]
            for i in range(size)
        ]
        return arranging.stack([apply(op, *row, **static) for row in one]), 0
    rank = max(ndim(x) - (a is not None) for x, a in zip(xs, axes, strict=True))
    return apply(op, *(batching.padded(x, a, rank) for x, a in zip(xs, axes, strict=True)), **static), 0


attention_bands = Op(
    name="attention_bands", family="general", args=("*xs",), value=_value, spec=_spec, pulls={}, push=_push,
    batch=_batch, samples=lambda rng: [], joint=Terms(_pull, ("bar", "xs", "rule", "rows")),
)  # fmt: skip
