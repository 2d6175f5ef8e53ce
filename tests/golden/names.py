"""PyTorch's names in, ours out: one line per torch op says how its arguments become ours.

A key is `op`, or `op:variant` where the variants differ. The parameters on the left are PyTorch's; `split` and its kind
return lists. Ops whose samples are random, or that have no counterpart here, are absent.
"""

import numpy as np

import pullback as pb

from .forms import (
    at,
    diagonal_at,
    equal_pieces,
    expanded,
    grid,
    index_added,
    index_put,
    index_set,
    item,
    lifted,
    logit,
    narrowed,
    near_equal_pieces,
    ones_dropped,
    padded,
    pieces,
    product_added,
    put_flat,
    reduction,
    scaled,
    scattered,
    spread,
    swapped,
    unflattened,
)
from .matrices import FOURIER, LINALG, lstsq, svd
from .networks import NETWORKS
from .pointwise import POINTWISE
from .structure import STRUCTURE

SAME = (
    *("acos", "asin", "atan", "atan2", "cos", "cosh", "exp", "expm1", "log", "log1p", "sigmoid", "sin", "sinh"),
    *("sqrt", "square", "tan", "maximum", "minimum", "matmul", "outer", "real", "conj"),
)

TORCH = {name: getattr(pb, name) for name in SAME} | {
    # arithmetic
    "add": lambda x, y, *, alpha=1: pb.add(x, scaled(alpha, y)),
    "sub": lambda x, y, *, alpha=1: pb.subtract(x, scaled(alpha, y)),
    "rsub": lambda x, y, *, alpha=1: pb.subtract(y, scaled(alpha, x)),
    "mul": pb.multiply,
    "div:no_rounding_mode": pb.divide,
    "true_divide": pb.divide,
    "pow": pb.power,
    "__radd__": lambda x, y: x.__radd__(y),
    "__rsub__": lambda x, y: x.__rsub__(y),
    "__rmul__": lambda x, y: x.__rmul__(y),
    "__rdiv__": lambda x, y: x.__rtruediv__(y),
    "__rpow__": lambda x, y: x.__rpow__(y),
    "__rmatmul__": lambda x, y: x.__rmatmul__(y),
    "positive": lambda x: +x,
    "conj_physical": pb.conj,
    "clamp": lambda x, min=None, max=None: pb.clip(x, min=min, max=max),
    "clamp_min": lambda x, min: pb.clip(x, min=min),
    "clamp_max": lambda x, max: pb.clip(x, max=max),
    "where": lambda x, condition, y: pb.where(condition, x, y),
    "masked_fill": lambda x, mask, value: pb.where(mask, value, x),
    "lerp": lambda x, y, weight: x + weight * (y - x),
    "logit": logit,
    # special functions
    **{name: getattr(pb.special, name) for name in ("digamma", "erfc", "i0", "lgamma", "xlogy")},
    **{
        f"special.{name}": getattr(pb.special, name)
        for name in ("entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "xlog1py")
    },
    "polygamma": lambda x, n: pb.special.polygamma(n, x),
    "special.polygamma": lambda x, n: pb.special.polygamma(n, x),
    "mvlgamma": lambda x, p: pb.special.multigammaln(x, p),
    "max:binary": pb.maximum,
    "min:binary": pb.minimum,
    # types
    "double": lambda x: pb.astype(x, np.float64),
    "float": lambda x: pb.astype(x, np.float32),
    "half": lambda x: pb.astype(x, np.float16),
    "cdouble": lambda x: pb.astype(x, np.complex128),
    "cfloat": lambda x: pb.astype(x, np.complex64),
    "complex": lambda x, y: x + 1j * y,
    # reductions
    "sum": reduction(pb.sum),
    "mean": reduction(pb.mean),
    "prod": reduction(pb.prod),
    "amax": reduction(pb.max),
    "amin": reduction(pb.min),
    "aminmax": lambda x, *, dim=None, keepdim=False: [reduction(f)(x, dim, keepdim) for f in (pb.min, pb.max)],
    "max:reduction_no_dim": reduction(pb.max),
    "max:reduction_with_dim": reduction(pb.max),
    "min:reduction_no_dim": reduction(pb.min),
    "min:reduction_with_dim": reduction(pb.min),
    "var": spread(pb.var),
    "std": spread(pb.std),
    "var_mean": lambda x, dim=None, **more: [
        spread(pb.var)(x, dim, **more),
        reduction(pb.mean)(x, None if isinstance(dim, bool) else dim, more.get("keepdim", False)),
    ],
    "std_mean": lambda x, dim=None, **more: [
        spread(pb.std)(x, dim, **more),
        reduction(pb.mean)(x, None if isinstance(dim, bool) else dim, more.get("keepdim", False)),
    ],
    "logsumexp": reduction(pb.logsumexp),
    "cumsum": lambda x, dim: lifted(lambda v: pb.cumulative_sum(v, axis=dim), x),
    "trace": lambda x: pb.sum(pb.diagonal(x)),
    "sum_to_size": lambda x, *size: pb.sum(
        x,
        axis=tuple(k for k, n in enumerate(size if isinstance(size[0], int) else size[0]) if n != x.shape[k]),
        keepdims=True,
    ),
    # contractions
    "mm": pb.matmul,
    "einsum": lambda operands, equation: pb.einsum(equation, *operands),
    "tensordot": lambda x, y, *, dims: pb.tensordot(x, y, axes=dims),
    "inner": lambda x, y: pb.tensordot(x, y, axes=1),
    "vdot": lambda x, y: pb.sum(pb.conj(x) * y),
    "addmm": product_added(pb.matmul),
    "addmv": product_added(pb.matmul),
    "baddbmm": product_added(pb.matmul),
    "addbmm": product_added(lambda a, b: pb.sum(pb.matmul(a, b), axis=0)),
    "addr": product_added(pb.outer),
    # shapes
    "reshape": lambda x, shape: pb.reshape(x, tuple(shape)),
    "reshape_as": lambda x, other: pb.reshape(x, other.shape),
    "view": lambda x, shape: pb.reshape(x, tuple(shape)),
    "view_as": lambda x, other: pb.reshape(x, other.shape),
    "view_copy": lambda x, shape: pb.reshape(x, tuple(shape)),
    "ravel": lambda x: pb.reshape(x, (-1,)),
    "flatten": lambda x: pb.reshape(x, (-1,)),
    "unflatten": unflattened,
    "atleast_1d": lambda x: x if x.ndim else pb.reshape(x, (1,)),
    "atleast_2d": lambda x: x if x.ndim else pb.reshape(x, (1, 1)),
    "atleast_3d": lambda x: pb.reshape(x, (*x.shape, *(1,) * (3 - x.ndim))),
    "squeeze": ones_dropped,
    "squeeze_copy": ones_dropped,
    "unsqueeze": lambda x, dim: pb.expand_dims(x, axis=dim),
    "unsqueeze_copy": lambda x, dim: pb.expand_dims(x, axis=dim),
    "permute": lambda x, dims: pb.permute_dims(x, tuple(dims)),
    "permute_copy": lambda x, dims: pb.permute_dims(x, tuple(dims)),
    "movedim": lambda x, source, destination: pb.moveaxis(x, tuple(source), tuple(destination)),
    "transpose": swapped,
    "transpose_copy": swapped,
    "t": lambda x: x.T if x.ndim == 2 else pb.permute_dims(x, tuple(range(x.ndim))),
    "t_copy": lambda x: x.T if x.ndim == 2 else pb.permute_dims(x, tuple(range(x.ndim))),
    "T": lambda x: x.T,
    "H": lambda x: pb.conj(x.T),
    "mT": lambda x: x.mT,
    "mH": lambda x: pb.conj(pb.matrix_transpose(x)),
    "broadcast_to": lambda x, shape: pb.broadcast_to(x, tuple(shape)),
    "broadcast_tensors": lambda *xs: [pb.broadcast_to(x, np.broadcast_shapes(*(v.shape for v in xs))) for x in xs],
    "expand": expanded,
    "expand_copy": expanded,
    "expand_as": lambda x, other: pb.broadcast_to(x, other.shape),
    "cat": lambda arrays, *, dim=0: pb.concat([a for a in arrays if a.shape != (0,)], axis=dim),
    "stack": lambda arrays, dim=0: pb.stack(arrays, axis=dim),
    "hstack": lambda vectors: pb.concat(vectors, axis=0),
    "vstack": lambda vectors: pb.stack(vectors, axis=0),
    "dstack": lambda vectors: pb.expand_dims(pb.stack(vectors, axis=1), axis=0),
    "split": equal_pieces,
    "split:list_args": pieces,
    "split_with_sizes": pieces,
    "split_with_sizes_copy": pieces,
    "unsafe_split": equal_pieces,
    "chunk": lambda x, chunks, dim=0: equal_pieces(x, -(-x.shape[dim] // chunks), dim),
    "unsafe_chunk": lambda x, chunks, dim=0: equal_pieces(x, -(-x.shape[dim] // chunks), dim),
    "tensor_split": near_equal_pieces,
    "hsplit": lambda x, sections: pb.split(x, sections, axis=0 if x.ndim == 1 else 1),
    "vsplit": lambda x, sections: pb.split(x, sections, axis=0),
    "dsplit": lambda x, sections: pb.split(x, sections, axis=2),
    "unbind": lambda x, dim=0: list(pb.moveaxis(x, dim, 0)),
    "unbind_copy": lambda x, dim=0: list(pb.moveaxis(x, dim, 0)),
    "flip": lambda x, *, dims: pb.flip(x, axis=tuple(dims)),
    "fliplr": lambda x: pb.flip(x, axis=1),
    "flipud": lambda x: pb.flip(x, axis=0),
    "roll": lambda x, shifts, dims=None: pb.roll(x, shifts, axis=dims),
    "tile": lambda x, dims: pb.tile(x, tuple(dims)),
    "repeat": lambda x, sizes: pb.tile(x, tuple(sizes)),
    "repeat_interleave": lambda x, *, repeats, dim=None: pb.repeat(x, repeats, axis=dim),
    "constant_pad_nd": lambda x, pad, value: padded(x, pad, value=value),
    "nn.functional.pad:constant": padded,
    "tril": lambda x, diagonal=0: pb.tril(x, k=diagonal),
    "triu": lambda x, diagonal=0: pb.triu(x, k=diagonal),
    "diag": lambda x, offset=0: pb.diagonal(x, offset=offset),
    "diagonal": lambda x, *, offset=0, dim1=0, dim2=1: pb.diagonal(x, offset=offset, axis1=dim1, axis2=dim2),
    "diagonal_copy": lambda x, *, offset=0, dim1=0, dim2=1: pb.diagonal(x, offset=offset, axis1=dim1, axis2=dim2),
    "linalg.diagonal": lambda x, *, offset=0, dim1=-2, dim2=-1: pb.diagonal(x, offset=offset, axis1=dim1, axis2=dim2),
    # indexing and its assignment forms
    "__getitem__": item,
    "select": lambda x, dim, index: x[at(x, dim, index)],
    "narrow": narrowed,
    "narrow_copy": narrowed,
    "masked_select": lambda x, mask: pb.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape))[mask],
    "index_select": lambda x, dim, index: pb.take(x, index, axis=dim),
    "take": lambda x, index: pb.take(x, index),
    "gather": lambda x, dim, index: pb.take_along_axis(x if x.ndim else pb.reshape(x, (1,)), index, axis=dim),
    "take_along_dim": lambda x, index, dim: pb.take_along_axis(x, index, axis=dim),
    "scatter": scattered,
    "scatter_add": lambda x, dim, index, values: pb.add_at(x, grid(x, dim, index), values),
    "index_put": index_put,
    "index_add": index_added,
    "index_copy": index_set,
    "index_fill": index_set,
    "put": put_flat,
    "select_scatter": lambda x, values, dim, index: pb.set_at(x, at(x, dim, index), values),
    "diagonal_scatter": lambda x, values, offset=0: pb.set_at(x, diagonal_at(x, offset, values.shape[0]), values),
    # composites
    "softmax": lambda x, dim, *, dtype=None: lifted(lambda v: pb.softmax(v, axis=dim), x),
    "log_softmax": lambda x, dim, *, dtype=None: lifted(lambda v: pb.log_softmax(v, axis=dim), x),
}

TORCH |= FOURIER | LINALG
#: Functions that look at the case too: which parts of the results PyTorch's sample takes.
OF_CASE = (lstsq, svd)


TORCH |= STRUCTURE | POINTWISE | NETWORKS


def ours(op, variant):
    """Our function for a torch op, or None."""
    return TORCH.get(f"{op}:{variant}") or TORCH.get(op)
