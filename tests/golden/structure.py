"""PyTorch's names of reductions, orders, scatters, windows and layouts in, ours out: a part of `names.py`."""

import numpy as np

import pullback as pb

from .forms import axes, lifted, reduction


def quantile_of(function):
    def call(x, q, dim=None, keepdim=False, interpolation="linear"):
        return function(x, q, axis=axes(x, dim), keepdims=keepdim, method=interpolation)

    return call


def lower(function):
    """torch's median is the lower of the two in the middle."""

    def call(x, dim=None, keepdim=False):
        return function(x, 0.5, axis=axes(x, dim), keepdims=keepdim, method="lower")

    return call


def sorted_by(x, dim=-1, descending=False, stable=True):
    return lifted(lambda v: pb.sort(v, axis=dim, descending=descending), x)


def largest(x, k, dim=-1, is_largest=True, is_sorted=True, *, largest=None, sorted=True):
    is_largest = is_largest if largest is None else largest
    return pb.topk(x, k, axis=dim, largest=is_largest)


def kth(x, k, dim=-1, keepdim=False):
    if not x.ndim:
        return pb.reshape(pb.kthvalue(pb.reshape(x, (1,)), k, axis=0)[0], ())
    return pb.kthvalue(x, k, axis=dim, keepdims=keepdim)[0]


def most_frequent(x, dim=-1, keepdim=False):
    """`mode` where no two elements are equal: the least."""
    if not x.ndim:
        return pb.reshape(x, ())
    return pb.sort(x, axis=dim)[(slice(None),) * (dim % x.ndim) + (slice(0, 1) if keepdim else 0,)]


def windowed(x, axis, size, step):
    return pb.unfold(x, axis, size, step) if x.ndim else pb.reshape(pb.unfold(pb.reshape(x, (1,)), 0, 1), (1,))


def echoed(x, pad, mode):
    """torch lists (before, after) pairs from the last axis backward; a negative length cuts off."""
    ours = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    widths = [(max(a, 0), max(b, 0)) for a, b in pairs]

    def cut(v):
        return v[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, v.shape, strict=True))]

    if min(pad) >= 0:
        return pb.pad(x, widths, mode=ours)
    return pb.pad(cut(x), widths, mode=ours) if mode == "circular" else cut(pb.pad(x, widths, mode=ours))


def columns(x, kernel, dilation=1, padding=0, stride=1):
    return pb.im2col(x, kernel, dilation=dilation, padding=padding, stride=stride)


def masked(function, **more):
    """A reduction over what a mask lets through."""

    def call(x, dim=None, *, keepdim=False, mask=None, **options):
        where = None if mask is None else np.broadcast_to(mask, x.shape)
        return function(x, axis=axes(x, dim), keepdims=keepdim, where=where, **more, **options)

    return call


def masked_spread(function):
    def call(x, dim=None, unbiased=True, *, correction=None, keepdim=False, mask=None):
        where = None if mask is None else np.broadcast_to(mask, x.shape)
        correction = int(unbiased) if correction is None else correction
        return function(x, axis=axes(x, dim), keepdims=keepdim, where=where, correction=correction)

    return call


def masked_scan(function, neutral):
    def call(x, dim, *, mask=None, dtype=None):
        kept = x if mask is None else pb.where(np.broadcast_to(mask, x.shape), x, neutral)
        return lifted(lambda v: function(v, axis=dim), kept)

    return call


def masked_median(x, dim, *, keepdim=False, mask=None):
    hidden = x if mask is None else pb.where(np.broadcast_to(mask, x.shape), x, np.nan)
    return pb.nanquantile(hidden, 0.5, axis=axes(x, dim), keepdims=keepdim, method="lower")


def unsafe_index(x, mask, indices, fill):
    kept = [np.clip(i, 0, n - 1) for i, n in zip(indices, x.shape, strict=True)]
    return pb.where(mask, x[tuple(kept)], fill)


STRUCTURE = {
    "block_diag": pb.block_diag,
    "combinations": lambda x, r=2, with_replacement=False: pb.combinations(x, r, with_replacement),
    "cartesian_prod": pb.cartesian_prod,
    "cdist": lambda x, y, p=2.0, compute_mode=None: pb.cdist(x, y, p),
    "nn.functional.pdist": pb.pdist,
    "nn.functional.pairwise_distance": lambda x, y, p=2.0, eps=1e-6, keepdim=False: pb.pairwise_distance(
        x, y, p, eps=eps, keepdims=keepdim
    ),
    "cross": lambda x, y, dim=-1: pb.cross(x, y, axis=dim),
    "linalg.cross": lambda x, y, dim=-1: pb.cross(x, y, axis=dim),
    "cumprod": lambda x, dim: lifted(lambda v: pb.cumprod(v, axis=dim), x),
    "cummax": lambda x, dim: lifted(lambda v: pb.cummax(v, axis=dim), x),
    "cummin": lambda x, dim: lifted(lambda v: pb.cummin(v, axis=dim), x),
    "logcumsumexp": lambda x, dim: lifted(lambda v: pb.logcumsumexp(v, axis=dim), x),
    "diag_embed": lambda x, offset=0, dim1=-2, dim2=-1: pb.diag_embed(x, offset, dim1, dim2),
    "diagflat": lambda x, offset=0: pb.diagflat(x, offset),
    "kthvalue": kth,
    "topk": lambda x, *args, **more: lifted(lambda v: largest(v, *args, **more)[0], x),
    "mode": most_frequent,
    "sort": sorted_by,
    "msort": pb.msort,
    "median": lower(pb.quantile),
    "nanmedian": lower(pb.nanquantile),
    "quantile": quantile_of(pb.quantile),
    "nanquantile": quantile_of(pb.nanquantile),
    "masked_scatter": pb.masked_scatter,
    "meshgrid:variadic_tensors": lambda *xs, indexing: list(pb.meshgrid(*xs, indexing=indexing)),
    "meshgrid:list_of_tensors": lambda xs, *, indexing: list(pb.meshgrid(*xs, indexing=indexing)),
    "as_strided": lambda x, shape, strides, storage_offset=0: pb.as_strided(x, shape, strides, storage_offset),
    "as_strided_copy": lambda x, shape, strides, storage_offset=0: pb.as_strided(x, shape, strides, storage_offset),
    "nn.functional.pad:reflect": echoed,
    "nn.functional.pad:replicate": echoed,
    "nn.functional.pad:replicate_negative": echoed,
    "nn.functional.pad:circular": echoed,
    "nn.functional.unfold": columns,
    "rot90": lambda x, k=1, dims=(0, 1): pb.rot90(x, k, dims),
    "column_stack": pb.column_stack,
    "unfold": windowed,
    "unfold_copy": windowed,
    "trapz": lambda y, x=None, *, dx=1.0, dim=-1: pb.trapezoid(y, x, dx, dim),
    "trapezoid": lambda y, x=None, *, dx=1.0, dim=-1: pb.trapezoid(y, x, dx, dim),
    "cumulative_trapezoid": lambda y, x=None, *, dx=1.0, dim=-1: pb.cumulative_trapezoid(y, x, dx, dim),
    "nanmean": reduction(pb.nanmean),
    "nansum": reduction(pb.nansum),
    "scatter_reduce": lambda x, dim, index, values, reduce, *, include_self=True: pb.scatter_reduce(
        x, dim, index, values, reduce=reduce, include_self=include_self
    ),
    "index_reduce": lambda x, dim, index, values, reduce, *, include_self=True: pb.index_reduce(
        x, dim, index, values, reduce=reduce, include_self=include_self
    ),
    "_unsafe_masked_index": unsafe_index,
    "masked.sum": masked(pb.sum),
    "masked.prod": masked(pb.prod),
    "masked.mean": masked(pb.mean),
    "masked.amax": masked(pb.max, initial=-np.inf),
    "masked.amin": masked(pb.min, initial=np.inf),
    "masked.logsumexp": masked(pb.logsumexp),
    "masked.var": masked_spread(pb.var),
    "masked.std": masked_spread(pb.std),
    "masked.cumsum": masked_scan(pb.cumsum, 0),
    "masked.cumprod": masked_scan(pb.cumprod, 1),
    "masked.median": masked_median,
}
