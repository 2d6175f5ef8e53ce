"""`flex_attention`: attention whose scores a function of the user's changes, in bands of queries.

Each band meets its keys at once, so its softmax is whole. A band of a long row of keys is a checkpoint: its scores are
computed again in the backward pass and never all held, whatever the function closes over. The backward pass of that one
saves what it computes with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.argument_checks import check_count, check_functions
from ...arrays.backends import namespace_on
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...checkpoint.recompute.arguments import share_among_checkpoints
from ...checkpoint.recompute.checkpoint import checkpoint
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import ndim, shape
from ...ops.elementwise import pointwise
from ...ops.families import broadcast_shape
from ...ops.fusion import cast_whole, fuse
from ...ops.index.indexing import getitem
from ...ops.reduce import reductions
from ...ops.shape import reshaping
from ...ops.shape.arrange import concat, split
from ...ops.signatures import of_three_arrays
from .block_mask import Band, BlockMask, at_places, bands_of, check_block_mask, for_each_pair
from .blockwise import match_narrow_dtype
from .dot_product import check_operand, check_shapes, score_limits


@of_three_arrays
@cast_whole("low")
@attributed_to_caller
def flex_attention(
    q: Any,
    k: Any,
    v: Any,
    /,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    *,
    mask_mod: Callable[..., Any] | None = None,
    block_size: int | None = None,
) -> Any:
    """Attention with scores `score_mod(score, b, h, q_idx, kv_idx)`, for q of shape (batch, heads, T, d), k (batch,
    heads, S, d) and v (batch, heads, S, e); `scale` is 1 / sqrt(d). k and v may have fewer heads.

    `score_mod` maps one score and its position, 0-d values, to a score; what it closes over (slopes, biases, tables)
    has a gradient. `mask_mod(b, h, q_idx, kv_idx)` says which pairs may attend; a `block_mask` made of one by
    `create_block_mask` also skips blocks in which none may. A query with no key gets zeros. `block_size` is the number
    of queries processed at a time, so that memory is linear in the length; by default that begins where the scores
    take 64 MB, or 1 GB on a GPU.

    >>> import numpy as np, pullback as pb
    >>> q = k = np.zeros((1, 1, 2, 1)); v = np.array([[[[1.0], [3.0]]]])
    >>> pb.nn.flex_attention(q, k, v, lambda score, b, h, q, k: pb.where(k <= q, score, -np.inf))[0, 0]
    array([[1.],
           [2.]])
    """
    q, k, v = (check_operand(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    sizes = _check_axes(q, k, v)
    check_functions("flex_attention", *(f for f in (score_mod, mask_mod) if f is not None))
    if block_mask is not None and (mask_mod is not None or block_size is not None):
        raise ArgumentError("flex_attention: a block_mask has a mask_mod and a block_size, so give no other.")
    if block_mask is not None:
        check_block_mask(block_mask).check_fit(sizes)
        mask_mod = block_mask.mask_mod
    factor = 1.0 / math.sqrt(max(shape(q)[-1], 1)) if scale is None else float(scale)
    if not all(sizes):  # no keys, so all zeros; or no queries
        return _group_product(_group_product(q, reshaping.matrix_transpose(k)), v)
    bands, is_long = _choose_bands(sizes, spec_of(q).device, block_mask, mask_mod, block_size)

    def attend(band: Band, q: Any, k: Any, v: Any) -> Any:
        return _attend_band(band, q, k, v, sizes[:2], factor, score_mod, mask_mod)

    run = checkpoint(attend) if is_long else attend
    if is_long:
        k, v = share_among_checkpoints(k), share_among_checkpoints(v)
    parts = split(q, [band.stop for band in bands[:-1]], axis=-2)
    return concat([run(band, part, k, v) for band, part in zip(bands, parts, strict=True)], axis=-2)


def _check_axes(q: Any, k: Any, v: Any) -> tuple[int, int, int, int]:
    """The sizes (batch, heads, queries, keys)."""
    check_shapes(q, k, v)
    if {ndim(x) for x in (q, k, v)} != {4}:
        raise ShapeError(
            f"flex_attention: q, k and v have axes (batch, heads, length, width), got shapes {shape(q)}, {shape(k)} "
            f"and {shape(v)}."
        )
    fewer = shape(k)[1]
    if shape(v)[1] != fewer or (fewer and shape(q)[1] % fewer):
        raise ShapeError(f"flex_attention: {shape(q)[1]} heads of q cannot share {fewer} of k and {shape(v)[1]} of v.")
    (batch,) = broadcast_shape("flex_attention", *(shape(x)[:1] for x in (q, k, v)))
    return batch, shape(q)[1], shape(q)[2], shape(k)[2]


def _choose_bands(
    sizes: tuple[int, int, int, int], device: str, block_mask: BlockMask | None, mask_mod: Any, block_size: int | None
) -> tuple[list[Band], bool]:
    """Bands of queries, and whether the scores of all of them are too many to be held at once."""
    heads, length, keys = sizes[0] * sizes[1], *sizes[2:]
    most, per_block = score_limits(device)
    if block_mask is not None:
        bands = bands_of(block_mask, heads, per_block)
        return bands, heads * sum((b.stop - b.start) * sum(e - a for a, e in b.keys) for b in bands) > most
    is_long = heads * length * keys > most if block_size is None else block_size < length
    rows = max(16, per_block // (heads * keys)) if is_long else length
    rows = rows if block_size is None else check_count(block_size, "flex_attention: block_size")
    ends = [(start, min(start + rows, length)) for start in range(0, length, rows)]
    return [Band(*end, ((0, keys),), mask_mod is not None) for end in ends], is_long


def _attend_band(
    band: Band, q: Any, k: Any, v: Any, lead: tuple[int, int], scale: float, score_mod: Any, mask_mod: Any
) -> Any:
    k, v = (_rows_in(x, band.keys) for x in (k, v))
    scores = _group_product(q * scale, reshaping.matrix_transpose(k))
    dtype = np.dtype(np.float32) if spec_of(scores).dtype.itemsize < 4 else spec_of(scores).dtype
    scores = reshaping.astype(scores, dtype)
    xp = namespace_on(spec_of(q).device)
    keys = [xp.arange(*ends) for ends in band.keys]
    places = [*map(xp.arange, lead), xp.arange(band.start, band.stop), xp.concatenate(keys)]
    if score_mod is not None:
        scores = _change_scores(score_mod, scores, places, dtype)
    if mask_mod is not None and band.is_masked:
        allowed = at_places(mask_mod, places)
        # a bias, since `where` would mask the cotangents of q and k for nothing: they are zero wherever a weight is
        scores = scores + pointwise.where(allowed, xp.zeros((), dtype), xp.full((), -math.inf, dtype))
    return _attend(scores, v)


def _change_scores(score_mod: Callable[..., Any], scores: Any, places: list[Any], dtype: Any) -> Any:
    changed = for_each_pair(score_mod, 1)(scores, *places)
    if shape(changed) != shape(scores):
        raise ShapeError(
            f"flex_attention: score_mod returned {spec_of(changed)} for scores of shape {shape(scores)}; it maps one "
            "score to one score."
        )
    if spec_of(changed).dtype.kind not in "fV":
        raise DtypeError(
            f"flex_attention: score_mod returned {spec_of(changed)}, wanted floating-point scores.\n"
            "  What says which pairs may attend is mask_mod=; positions become scores by pb.astype."
        )
    return reshaping.astype(changed, dtype)  # positions are integers, which promote float32


def _rows_in(x: Any, ranges: Sequence[tuple[int, int]]) -> Any:
    if tuple(ranges) == ((0, shape(x)[-2]),):
        return x
    parts = [getitem(x, (Ellipsis, slice(*ends), slice(None))) for ends in ranges]
    return parts[0] if len(parts) == 1 else concat(parts, axis=-2)


@fuse
def _attend(scores: Any, v: Any) -> Any:
    """softmax(scores) v; zeros for a row in which all scores are minus infinity."""
    highest = pointwise.stop_gradient(reductions.max(scores, axis=-1, keepdims=True))
    highest = pointwise.where(pointwise.equal(highest, -math.inf), 0.0, highest)
    shares = pointwise.exp(scores - highest)
    total = reductions.sum(shares, axis=-1, keepdims=True)
    shares = shares * (1.0 / pointwise.where(pointwise.equal(total, 0.0), 1.0, total))
    return match_narrow_dtype(_group_product(match_narrow_dtype(shares, v), v), v)


def _group_product(x: Any, y: Any) -> Any:
    """x @ y, where groups of heads of x share one of y."""
    batch, heads, rows, width = shape(x)
    fewer = shape(y)[1]
    if fewer == heads:
        return matmul(x, y)
    grouped = reshaping.reshape(x, (batch, fewer, heads // fewer, rows, width))
    out = matmul(grouped, reshaping.expand_dims(y, 2))
    return reshaping.reshape(out, (shape(out)[0], heads, rows, shape(out)[-1]))
