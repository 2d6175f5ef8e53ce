"""PyTorch's ways of calling in, our calls out: what `names.py` needs where a change of name is not enough."""

import numpy as np

import pullback as pb


def axes(x, dim):
    """`dim` as `axis`: None and () mean every axis, and a 0-d array has no axis to name."""
    if x.ndim == 0 or dim is None or dim in ((), []):
        return None
    return tuple(dim) if isinstance(dim, list) else dim


def at(x, dim, index):
    """The index that picks `index` along `dim` and everything along the axes before it."""
    return (slice(None),) * (dim % x.ndim) + (index,)


def lifted(function, x):
    """`function` of at least one axis: torch lets a 0-d tensor pass for a vector of one element."""
    return function(x) if x.ndim else pb.reshape(function(pb.reshape(x, (1,))), ())


def pieces(x, sizes, dim=0):
    """`x` cut along `dim` into pieces of the given sizes."""
    return pb.split(x, np.cumsum(sizes)[:-1].tolist(), axis=dim)


def equal_pieces(x, size, dim=0):
    """`x` cut along `dim` into pieces of one size; the last may be shorter."""
    return pb.split(x, list(range(size, x.shape[dim], size)), axis=dim)


def near_equal_pieces(x, cuts, dim=0):
    """`tensor_split`: `cuts` is where to cut, or how many pieces whose sizes differ by one at most."""
    if not isinstance(cuts, int):
        return pb.split(x, [int(cut) for cut in cuts], axis=dim)
    size, longer = divmod(x.shape[dim], cuts)
    return pieces(x, [size + (k < longer) for k in range(cuts)], dim)


def swapped(x, first, second):
    """`x` with two axes exchanged."""
    order = list(range(x.ndim))
    if order:
        order[first], order[second] = order[second], order[first]
    return pb.permute_dims(x, tuple(order))


def ones_dropped(x, dim=None):
    """`squeeze`: torch ignores the axes that are longer than one."""
    wanted = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return pb.squeeze(x, tuple(d for d in wanted if x.ndim and x.shape[d] == 1))


def expanded(x, sizes):
    """`expand`: -1 keeps the length an axis has."""
    lead = len(sizes) - x.ndim
    return pb.broadcast_to(x, tuple(x.shape[k - lead] if n == -1 else n for k, n in enumerate(sizes)))


def padded(x, pad, mode="constant", value=0.0):
    """torch lists (before, after) pairs from the last axis backward; a negative length cuts off."""
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    if min(pad) < 0:
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, x.shape, strict=True))]
    return pb.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


def spread(reduce):
    """`var` or `std`: torch's default is the unbiased estimate, and a bare boolean says `unbiased`."""

    def call(x, dim=None, unbiased=True, correction=None, keepdim=False):
        dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
        correction = int(unbiased) if correction is None else correction
        return reduce(x, axis=axes(x, dim), correction=correction, keepdims=keepdim)

    return call


def reduction(reduce):
    """A reduction called with `dim` and `keepdim`."""
    return lambda x, dim=None, keepdim=False: reduce(x, axis=axes(x, dim), keepdims=keepdim)


def item(x, index):
    """`x[index]`: torch reads a list as one row index if it holds integers, else as the tuple it stands for."""
    if isinstance(index, list) and not all(isinstance(k, int) for k in index):
        index = tuple(np.asarray(k) if isinstance(k, list) else k for k in index)
    return x[index]


def narrowed(x, dim, start, length):
    """A stretch of one axis; a negative start counts from the end."""
    start = int(start) % x.shape[dim]
    return x[at(x, dim, slice(start, start + length))]


def grid(x, dim, index):
    """The integer-array index that `gather` and `scatter` mean: `index` along `dim`, its own place elsewhere."""
    if x.ndim == 0:
        return ()
    own = list(np.indices(index.shape))
    own[dim] = index
    return tuple(own)


def scattered(x, dim, index, values):
    """Assignment along one axis; where the index is shorter than `x` along another, at the grid it means."""
    if x.ndim and all(n == m for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if k != dim % x.ndim):
        return pb.put_along_axis(x, index, values, axis=dim)
    return pb.set_at(x, grid(x, dim, index), values)


def diagonal_at(x, offset, length):
    """The integer-array index of a diagonal."""
    return np.arange(length) + max(-offset, 0), np.arange(length) + max(offset, 0)


def scaled(factor, x):
    """`factor * x`, and `x` itself where the factor is one."""
    return x if factor == 1 else factor * x


def product_added(product):
    """`beta * x + alpha * product(a, b)`, the family of `addmm`."""
    return lambda x, a, b, *, beta=1, alpha=1: scaled(beta, x) + scaled(alpha, product(a, b))


def put_flat(x, index, values, accumulate):
    """Assignment into the flattened array."""
    write = pb.add_at if accumulate else pb.set_at
    return pb.reshape(write(pb.reshape(x, (-1,)), index, pb.reshape(values, index.shape)), x.shape)


def index_put(x, indices, values, *, accumulate):
    """Assignment, or addition, at an integer-array index."""
    return (pb.add_at if accumulate else pb.set_at)(x, tuple(indices), values)


def index_added(x, dim, index, values, *, alpha=1):
    """Addition to the slices that `index` names; an index that repeats adds each time."""
    flat = pb.reshape(x, (1,)) if x.ndim == 0 else x
    return pb.reshape(pb.add_at(flat, at(flat, dim, index), scaled(alpha, values)), x.shape)


def index_set(x, dim, index, values):
    """Assignment to the slices that `index` names."""
    flat = pb.reshape(x, (1,)) if x.ndim == 0 else x
    return pb.reshape(pb.set_at(flat, at(flat, dim, index), values), x.shape)


def unflattened(x, dim, sizes):
    """One axis told as several."""
    dim %= x.ndim
    return pb.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def logit(x, eps):
    """log(x / (1 - x)) of x kept within [eps, 1 - eps]."""
    kept = pb.clip(x, min=eps, max=1 - eps)
    return pb.log(kept / (1 - kept))
