"""Scaled dot-product and multi-head attention, whole or in blocks of query rows."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.axes import as_integer
from ...ops.dispatch import apply, as_value, ndim, shape
from ...ops.families import broadcast_shape
from ...ops.fusion import cast_whole, fuse
from ...ops.random.keys import next_key
from ...ops.shape import reshaping
from ...ops.shape.arrange import concat
from ...ops.signatures import of_mixed_arrays, of_three_arrays
from .blockwise import AttentionConfig, attend_block, attention_bands, block_ranges, query_block
from .on_chip import attend_on_chip, can_stay_on_chip

#: With more weights than this (64 MB of float32) queries are processed in blocks of about so many weights each. A GPU
#: has no caches that large, and needs them all at once to be busy.
_MAX_SCORES, _SCORES_PER_BLOCK = 1 << 24, 1 << 21
_MAX_SCORES_ON_GPU, _SCORES_PER_BLOCK_ON_GPU = 1 << 28, 1 << 26
#: From so many queries on, causal ones are processed in so many bands, none of which meets keys after its last query.
_MIN_BANDED_LENGTH, _BANDS = 1024, 4


@of_mixed_arrays
@cast_whole("low")
@attributed_to_caller
def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    /,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    key: Any = None,
    block_size: int | None = None,
) -> Any:
    """softmax(scale q k^T) v for q of shape (..., T, d), k (..., S, d) and v (..., S, e); `scale` is 1 / sqrt(d).

    A boolean `mask` is True where a query may attend to a key; a float mask is added to the scores. `is_causal` lets
    query i attend to keys 0 to i. A query with no key gets zeros. k and v may have fewer heads (axis -3) than q, each
    shared by a group (grouped-query attention). `block_size` is the number of queries processed at a time, so that
    memory is linear in the length, in the backward pass too; by default that begins where the weights take 64 MB, or
    1 GB on a GPU.

    >>> import numpy as np, pullback as pb
    >>> q = k = np.zeros((2, 1)); v = np.array([[1.0], [3.0]])
    >>> pb.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    array([[1.],
           [2.]])
    """
    q, k, v = (check_operand(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    check_shapes(q, k, v)
    extras = {} if mask is None else _classify_mask(mask, q, k)
    if not 0.0 <= dropout < 1.0:
        raise ArgumentError(f"attention: dropout is a share of weights in [0, 1), got {dropout}.")
    grouped = _query_group_size(q, k, v)
    if grouped:
        q, k, v, extras = _group_heads(q, k, v, extras, grouped)
    if dropout:
        extras["key"] = next_key() if key is None else as_value(key)
    width = shape(q)[-1]
    factor = (1.0 / math.sqrt(width) if width else 1.0) if scale is None else float(scale)
    rule = AttentionConfig(factor, bool(is_causal), float(dropout), tuple(extras))
    out = _run_blocks((q, k, v, *extras.values()), rule, block_size)
    return reshaping.reshape(out, (*shape(out)[:-4], -1, *shape(out)[-2:])) if grouped else out


def _run_blocks(xs: tuple[Any, ...], rule: AttentionConfig, block_size: int | None) -> Any:
    length, keys = shape(xs[0])[-2], shape(xs[1])[-2]
    rows = length if block_size is None else as_integer(block_size, "attention: block_size")
    if rows < 1 and length:
        raise ArgumentError(f"attention: block_size is a positive number of rows, got {block_size}.")
    if block_size is None:
        several = math.prod(broadcast_shape("attention", shape(xs[0])[:-2], shape(xs[1])[:-2]))
        most, per_block = score_limits(spec_of(xs[0]).device)
        if several * length * keys > most:
            rows = max(16, per_block // (several * keys))
    if can_stay_on_chip(xs[:3], rule.extras) and (block_size is None or rows >= length):
        q, k, v = xs
        return _attend_on_chip(q, k, v, rule.scale, rule.is_causal)
    if rows >= length or not keys:
        return _attend_at_once(*xs, rule=rule, rows=_band_rows(length, rule))
    return apply(attention_bands, *xs, rule=rule, rows=rows)


def _band_rows(length: int, rule: AttentionConfig) -> int:
    # bands draw numbers of their own, so where weights are dropped there is one
    has_bands = rule.is_causal and length >= _MIN_BANDED_LENGTH and "key" not in rule.extras
    return -(-length // _BANDS) if has_bands else max(length, 1)


@fuse
def _attend_on_chip(q: Any, k: Any, v: Any, scale: float, is_causal: bool) -> Any:
    return attend_on_chip(q, k, v, scale, is_causal)


@fuse
def _attend_at_once(*xs: Any, rule: AttentionConfig, rows: int) -> Any:
    if rows >= shape(xs[0])[-2]:
        return attend_block(query_block(xs, rule, 0, shape(xs[0])[-2]), rule)
    return concat([attend_block(query_block(xs, rule, *ends), rule) for ends in block_ranges(xs, rows)], axis=-2)


def score_limits(device: str) -> tuple[int, int]:
    """How many scores there may be at once, and about how many a block has if there are more."""
    return (_MAX_SCORES, _SCORES_PER_BLOCK) if device == "cpu" else (_MAX_SCORES_ON_GPU, _SCORES_PER_BLOCK_ON_GPU)


def check_operand(x: Any, name: str) -> Any:
    x = as_value(x)
    if spec_of(x).dtype.kind not in "fV" or ndim(x) < 2:  # kind V is bfloat16
        raise DtypeError(f"attention: {name} holds floats over (..., length, width), got {spec_of(x)}.")
    return x


def check_shapes(q: Any, k: Any, v: Any) -> None:
    if shape(q)[-1] != shape(k)[-1]:
        raise ShapeError(f"attention: q of shape {shape(q)} and k of shape {shape(k)} differ in width, the last axis.")
    if shape(k)[-2] != shape(v)[-2]:
        raise ShapeError(f"attention: k of shape {shape(k)} and v of shape {shape(v)} differ in length, axis -2.")


def _classify_mask(mask: Any, q: Any, k: Any) -> dict[str, Any]:
    """A mask by its dtype: boolean, or floats to add to the scores."""
    mask = as_value(mask)
    kind = spec_of(mask).dtype.kind
    if kind not in "bfV":
        raise DtypeError(f"attention: a mask holds booleans or floats, got {spec_of(mask).dtype}.")
    wanted = (shape(q)[-2], shape(k)[-2])
    if ndim(mask) < 2:
        mask = reshaping.reshape(mask, (*(1,) * (2 - ndim(mask)), *shape(mask)))
    if any(n not in (1, size) for n, size in zip(shape(mask)[-2:], wanted, strict=True)):
        raise ShapeError(f"attention: the mask has shape {shape(mask)}, its last axes should fit (T, S) = {wanted}.")
    return {"mask" if kind == "b" else "bias": mask}


def _query_group_size(q: Any, k: Any, v: Any) -> int:
    """How many heads of q share one of k and v; 0 where there is nothing to share, or broadcasting does it."""
    if min(ndim(q), ndim(k)) < 3:
        return 0
    heads, fewer = shape(q)[-3], shape(k)[-3]
    if heads == fewer or 1 in (heads, fewer):
        return 0
    if heads % fewer or ndim(v) < 3 or shape(v)[-3] != fewer:
        raise ShapeError(f"attention: {heads} heads of q cannot share {fewer} of k and {shape(v)[-3:-2]} of v.")
    return heads // fewer


def _group_heads(q: Any, k: Any, v: Any, extras: dict[str, Any], group: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Heads of q as (heads of k, group), with an axis of one for the group in k and v."""
    heads = shape(q)[-3]
    found = {
        name: _split_head_axis(x, group) if ndim(x) > 2 and shape(x)[-3] == heads else _add_group_axis(x)
        for name, x in extras.items()
    }
    return _split_head_axis(q, group), _add_group_axis(k), _add_group_axis(v), found


def _split_head_axis(x: Any, group: int) -> Any:
    *lead, heads, length, width = shape(x)
    return reshaping.reshape(x, (*lead, heads // group, group, length, width))


def _add_group_axis(x: Any) -> Any:
    """An axis of size one before the last two, if there are heads at all."""
    return reshaping.expand_dims(x, -3) if ndim(x) > 2 else x


@of_three_arrays
@fuse(autocast="low")
@attributed_to_caller
def multi_head_attention(q: Any, k: Any, v: Any, /, heads: int, *, kv_heads: int | None = None, **options: Any) -> Any:
    """Attention in several heads: the last axis of q, k and v is split into heads, and the heads' outputs are
    concatenated. `kv_heads` is the number of heads of k and v; options are those of `scaled_dot_product_attention`.

    >>> import numpy as np, pullback as pb
    >>> x = np.ones((5, 6))
    >>> pb.nn.multi_head_attention(x, x, x, heads=2).shape
    (5, 6)
    """
    count = as_integer(heads, "multi_head_attention: heads")
    fewer = count if kv_heads is None else as_integer(kv_heads, "multi_head_attention: kv_heads")
    q, k, v = (_split_heads(as_value(x), n, name) for x, n, name in ((q, count, "q"), (k, fewer, "k"), (v, fewer, "v")))
    out = scaled_dot_product_attention(q, k, v, **options)
    joined = reshaping.moveaxis(out, -3, -2)
    return reshaping.reshape(joined, (*shape(joined)[:-2], shape(joined)[-2] * shape(joined)[-1]))


def _split_heads(x: Any, heads: int, name: str) -> Any:
    if ndim(x) < 2 or heads < 1 or shape(x)[-1] % heads:
        raise ShapeError(f"multi_head_attention: {name} of shape {shape(x)} cannot be split into {heads} heads.")
    apart = reshaping.reshape(x, (*shape(x)[:-1], heads, shape(x)[-1] // heads))
    return reshaping.moveaxis(apart, -2, -3)
