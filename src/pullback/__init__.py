"""Derivatives of every order for the arrays you already have.

>>> import pullback as pb
>>> x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> pb.sum(pb.sin(x) ** 2).backward()
>>> x.grad
tensor([ 0.90929743, -0.7568025 , -0.2794155 ], dtype=float64)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import errors
from .arrays import dtypes
from .arrays.dtypes import (
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from .arrays.node import Handle, Node
from .arrays.spec import Spec, spec_of
from .arrays.tensor import Tensor, asarray, from_dlpack, tensor
from .arrays.trees import register_tree
from .ops.arranging import concat, diagonal, flip, pad, repeat, roll, split, stack, tile, tril, triu
from .ops.contracting import matmul, outer, tensordot
from .ops.creation import arange, empty, eye, full, full_like, linspace, ones, ones_like, zeros, zeros_like
from .ops.einsum import einsum
from .ops.elementwise import (
    abs,
    acos,
    add,
    asin,
    atan,
    atan2,
    conj,
    cos,
    cosh,
    divide,
    equal,
    erf,
    exp,
    expm1,
    greater,
    greater_equal,
    heaviside,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    positive,
    power,
    real,
    relu,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tan,
    tanh,
    where,
)  # fmt: skip
from .ops.functions import clip, gelu, log_softmax, mean_squared_error, silu, softmax, softplus
from .ops.indexing import add_at, getitem, put_along_axis, set_at, take, take_along_axis
from .ops.keeping import saved_tensors_hooks
from .ops.reducing import all, any, argmax, logsumexp, max, mean, min, prod, std, sum, var
from .ops.scanning import cumulative_prod, cumulative_sum
from .ops.shaping import (
    astype,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    squeeze,
)
from .settings import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from .tape.backward import gradients
from .tape.hooks import register_multi_grad_hook
from .tools.gradcheck import CheckReport, gradcheck, gradgradcheck
from .transforms import (
    CustomOp,
    Dual,
    ForwardContext,
    Function,
    FunctionContext,
    clip_gradient,
    custom_op,
    elementwise_grad,
    ggnvp,
    grad,
    hvp,
    jvp,
    linear_transpose,
    linearize,
    reverse_gradient,
    scale_gradient,
    straight_through,
    value_and_grad,
    vjp,
    vmap,
)  # fmt: skip

if TYPE_CHECKING:
    from . import implicit
    from .checkpoint.loops import checkpoint_loop
    from .checkpoint.offload import offload_to_disk
    from .checkpoint.policies import offload_named, save_contractions, save_everything, save_named, save_nothing
    from .checkpoint.recompute import checkpoint, checkpoint_sequential
    from .implicit import argmin, fixed_point, least_squares, linear_solve, root
    from .ops import einops, fft, linalg, random, special
    from .ops.distances import cdist, pairwise_distance, pdist
    from .ops.layouts import (
        append,
        array_split,
        atleast_1d,
        atleast_2d,
        atleast_3d,
        block,
        block_diag,
        broadcast_arrays,
        cartesian_prod,
        column_stack,
        combinations,
        delete,
        diag,
        diag_embed,
        diagflat,
        dsplit,
        dstack,
        fill_diagonal,
        flatten,
        fliplr,
        flipud,
        hsplit,
        hstack,
        insert,
        meshgrid,
        ravel,
        resize,
        rollaxis,
        rot90,
        swapaxes,
        tensor_split,
        trace,
        tri,
        trim_zeros,
        unflatten,
        unstack,
        vsplit,
        vstack,
    )
    from .ops.multiplying import cross, dot, inner, kron, matvec, vdot, vecdot, vecmat
    from .ops.naming import name
    from .ops.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
    from .ops.quantising import fake_quantize
    from .ops.scanning import cummax, cummin, linear_recurrence, logcumsumexp, nancumprod, nancumsum
    from .ops.scattering import (
        gather,
        index_add,
        index_copy,
        index_fill,
        index_reduce,
        scatter,
        scatter_add,
        scatter_reduce,
    )
    from .ops.segments import segment_max, segment_mean, segment_min, segment_prod, segment_sum
    from .ops.selecting import (
        argwhere,
        choose,
        compress,
        extract,
        flatnonzero,
        masked_fill,
        masked_scatter,
        masked_select,
        nonzero,
        one_hot,
        place,
        put,
    )
    from .ops.sorting import (
        argpartition,
        argsort,
        kthvalue,
        lexsort,
        msort,
        partition,
        searchsorted,
        sort,
        topk,
        unique,
        unique_all,
        unique_counts,
        unique_inverse,
        unique_values,
    )
    from .ops.statistics import (
        average,
        bincount,
        count_nonzero,
        cumulative_trapezoid,
        nanargmax,
        nanargmin,
        nanmax,
        nanmean,
        nanmin,
        nanprod,
        nanstd,
        nansum,
        nanvar,
        ptp,
        trapezoid,
        trapz,
    )
    from .ops.windows import as_strided, im2col, sliding_window_view, unfold
    from .transforms.associative import associative_scan
    from .transforms.control import cond, fori_loop, switch, while_loop
    from .transforms.explicit import GradientTape
    from .transforms.fields import divergence, laplacian
    from .transforms.jacobian import hessian, jacfwd, jacobian, jacrev
    from .transforms.loops import map, scan
    from .transforms.sparse import (
        SparsePlan,
        hessian_diagonal,
        jacobian_diagonal,
        sparse_hessian,
        sparse_jacobian,
        sparsity,
    )
    from .transforms.taylor import jet

__version__ = "0.1.0"

# `checkpoint` is a function; its layer is loaded now, so that no later import can put itself in the function's place.
import_module("pullback.checkpoint")
del globals()["checkpoint"]


#: Namespaces that are imported when they are first asked for.
_PARTS = {
    "einops": "ops.einops",
    "fft": "ops.fft",
    "implicit": "implicit",
    "linalg": "ops.linalg",
    "random": "ops.random",
    "special": "ops.special",
}
#: Names whose modules are imported when they are first asked for, so that `import pullback` stays quick.
_LATER = {
    name: module
    for module, names in {
        "checkpoint.loops": "checkpoint_loop",
        "checkpoint.offload": "offload_to_disk",
        "checkpoint.policies": "offload_named save_contractions save_everything save_named save_nothing",
        "checkpoint.recompute": "checkpoint checkpoint_sequential",
        "implicit": "argmin fixed_point least_squares linear_solve root",
        "ops.naming": "name",
        "ops.distances": "cdist pairwise_distance pdist",
        "ops.layouts": (
            "append array_split atleast_1d atleast_2d atleast_3d block block_diag broadcast_arrays cartesian_prod "
            "column_stack combinations delete diag diag_embed diagflat dsplit dstack fill_diagonal flatten fliplr "
            "flipud hsplit hstack insert meshgrid ravel resize rollaxis rot90 swapaxes tensor_split trace tri "
            "trim_zeros unflatten unstack vsplit vstack"
        ),
        "ops.multiplying": "cross dot inner kron matvec vdot vecdot vecmat",
        "ops.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "ops.quantising": "fake_quantize",
        "ops.scanning": "cummax cummin linear_recurrence logcumsumexp nancumprod nancumsum",
        "ops.scattering": "gather index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce",
        "ops.segments": "segment_max segment_mean segment_min segment_prod segment_sum",
        "ops.selecting": (
            "argwhere choose compress extract flatnonzero masked_fill masked_scatter masked_select nonzero "
            "one_hot place put"
        ),
        "ops.sorting": (
            "argpartition argsort kthvalue lexsort msort partition searchsorted sort topk unique unique_all "
            "unique_counts unique_inverse unique_values"
        ),
        "ops.statistics": (
            "average bincount count_nonzero cumulative_trapezoid nanargmax nanargmin nanmax nanmean nanmin "
            "nanprod nanstd nansum nanvar ptp trapezoid trapz"
        ),
        "ops.windows": "as_strided im2col sliding_window_view unfold",
        "transforms.associative": "associative_scan",
        "transforms.control": "cond fori_loop switch while_loop",
        "transforms.explicit": "GradientTape",
        "transforms.fields": "divergence laplacian",
        "transforms.jacobian": "hessian jacfwd jacobian jacrev",
        "transforms.loops": "map scan",
        "transforms.sparse": "SparsePlan hessian_diagonal jacobian_diagonal sparse_hessian sparse_jacobian sparsity",
        "transforms.taylor": "jet",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    """`pb.bfloat16`, whose package may be slow, and what is in `_PARTS` and `_LATER`."""
    if name == "bfloat16":
        return dtypes.bfloat16()
    if name in _PARTS:
        return import_module(f"pullback.{_PARTS[name]}")
    if name in _LATER:
        found: object = getattr(import_module(f"pullback.{_LATER[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'pullback' has no attribute {name!r}")


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
cumsum, concatenate, transpose, absolute = cumulative_sum, concat, permute_dims, abs
cumprod, amax, amin = cumulative_prod, max, min

__all__ = [
    "CheckReport", "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext", "GradientTape", "Handle",
    "Node", "SparsePlan", "Spec", "Tensor", "abs", "absolute", "acos", "add", "add_at", "all", "amax", "amin",
    "any", "append", "arange", "arccos", "arcsin", "arctan", "arctan2", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "array_split", "as_strided", "asarray", "asin", "associative_scan", "astype", "atan",
    "atan2", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bincount", "block", "block_diag", "bool_",
    "broadcast_arrays", "broadcast_to", "cartesian_prod", "cdist", "checkpoint", "checkpoint_loop",
    "checkpoint_sequential", "choose", "clip", "clip_gradient", "column_stack", "combinations", "complex128",
    "complex64", "compress", "concat", "concatenate", "cond", "conj", "cos", "cosh", "count_nonzero", "cross",
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "cumulative_trapezoid",
    "custom_op", "delete", "detect_anomaly", "diag", "diag_embed", "diagflat", "diagonal", "divergence", "divide",
    "dot", "dsplit", "dstack", "dtypes", "einops", "einsum", "elementwise_grad", "empty", "enable_grad", "equal",
    "erf", "errors", "exp", "expand_dims", "expm1", "extract", "eye", "fake_quantize", "fft", "fill_diagonal",
    "fixed_point", "flatnonzero", "flatten", "flip", "fliplr", "flipud", "float16", "float32", "float64",
    "fori_loop", "from_dlpack", "full", "full_like", "gather", "gelu", "getitem", "ggnvp", "grad", "gradcheck",
    "gradgradcheck", "gradients", "greater", "greater_equal", "heaviside", "hessian", "hessian_diagonal", "hsplit",
    "hstack", "hvp", "im2col", "imag", "implicit", "index_add", "index_copy", "index_fill", "index_reduce",
    "inference_mode", "inner", "insert", "int16", "int32", "int64", "int8", "is_grad_enabled", "isfinite", "isinf",
    "isnan", "jacfwd", "jacobian", "jacobian_diagonal", "jacrev", "jet", "jvp", "kron", "kthvalue", "laplacian",
    "least_squares", "less", "less_equal", "lexsort", "linalg", "linear_recurrence", "linear_solve",
    "linear_transpose", "linearize", "linspace", "log", "log1p", "log_softmax", "logaddexp", "logcumsumexp",
    "logical_and", "logical_not", "logical_or", "logsumexp", "map", "masked_fill", "masked_scatter",
    "masked_select", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "mean_squared_error",
    "median", "meshgrid", "min", "minimum", "moveaxis", "msort", "multiply", "name", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
    "nanquantile", "nanstd", "nansum", "nanvar", "negative", "no_grad", "nonzero", "not_equal", "offload_named",
    "offload_to_disk", "one_hot", "ones", "ones_like", "outer", "pad", "pairwise_distance", "partition", "pdist",
    "percentile", "permute_dims", "place", "positive", "power", "prod", "ptp", "put", "put_along_axis", "quantile",
    "random", "ravel", "real", "register_multi_grad_hook", "register_tree", "relu", "repeat", "reshape", "resize",
    "reverse_gradient", "roll", "rollaxis", "root", "rot90", "save_contractions", "save_everything", "save_named",
    "save_nothing", "saved_tensors_hooks", "scale_gradient", "scan", "scatter", "scatter_add", "scatter_reduce",
    "searchsorted", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum", "set_at",
    "set_grad_enabled", "sigmoid", "sign", "silu", "sin", "sinh", "sliding_window_view", "softmax", "softplus",
    "sort", "sparse_hessian", "sparse_jacobian", "sparsity", "spec_of", "special", "split", "sqrt", "square",
    "squeeze", "stack", "std", "stop_gradient", "straight_through", "subtract", "sum", "swapaxes", "switch", "take",
    "take_along_axis", "tan", "tanh", "tensor", "tensor_split", "tensordot", "tile", "topk", "trace", "transpose",
    "trapezoid", "trapz", "tri", "tril", "trim_zeros", "triu", "uint16", "uint32", "uint64", "uint8", "unflatten",
    "unfold", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack",
    "value_and_grad", "var", "vdot", "vecdot", "vecmat", "vjp", "vmap", "vsplit", "vstack", "where", "while_loop",
    "zeros", "zeros_like",
]  # fmt: skip
