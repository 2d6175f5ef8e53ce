"""Derivatives of every order for the arrays you already have.

>>> import pullback as pb
>>> x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> pb.sum(pb.sin(x) ** 2).backward()
>>> x.grad
tensor([ 0.90929743, -0.7568025 , -0.2794155 ], dtype=float64)
"""

import math
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
from .arrays.namespace import VERSIONS, namespace_info
from .arrays.node import Handle, Node
from .arrays.spec import Spec, spec_of
from .arrays.tensor import Tensor, asarray, from_dlpack, tensor
from .arrays.trees import register_tree
from .ops.contract.einsum import einsum
from .ops.contract.matrix_products import matmul, outer, tensordot
from .ops.creation import arange, empty, empty_like, eye, full, full_like, linspace, ones, ones_like, zeros, zeros_like
from .ops.elementwise.pointwise import (
    abs,
    acos,
    add,
    asin,
    atan,
    atan2,
    bitwise_and,
    bitwise_invert,
    bitwise_or,
    bitwise_xor,
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
    softplus,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tan,
    tanh,
    where,
)  # fmt: skip
from .ops.functions import astype, clip, gelu, log_softmax, mean_squared_error, silu, softmax
from .ops.index.indexing import add_at, getitem, put_along_axis, set_at, take, take_along_axis
from .ops.reduce.reductions import all, any, argmax, logsumexp, max, mean, min, prod, std, sum, var
from .ops.reduce.scans import cumulative_prod, cumulative_sum
from .ops.saved_values import saved_tensors_hooks
from .ops.shape.arrange import concat, diagonal, flip, pad, repeat, roll, split, stack, tile, tril, triu
from .ops.shape.reshaping import (
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    squeeze,
)
from .settings import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from .tape.anomaly import detect_anomaly
from .tape.backward import gradients
from .tape.hooks import register_multi_grad_hook
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
    from . import implicit, interop, nn, optim, tools
    from .checkpoint.budget.memory_budget import memory_budget
    from .checkpoint.loops.checkpoint_loop import checkpoint_loop
    from .checkpoint.offload.offload_to_disk import offload_to_disk
    from .checkpoint.recompute.checkpoint import checkpoint, checkpoint_sequential
    from .checkpoint.recompute.save_policies import (
        offload_named,
        save_contractions,
        save_everything,
        save_named,
        save_nothing,
    )
    from .compile.jit import jit
    from .compile.threads import get_num_threads, set_num_threads
    from .graph import Graph, GraphBuilder, GraphStep, GraphValue, stage
    from .implicit import argmin, fixed_point, least_squares, linear_solve, root
    from .ops import fft, linalg, random, special
    from .ops.contract.dot_products import cross, dot, inner, kron, matvec, vdot, vecdot, vecmat
    from .ops.contract.polynomials import convolve, correlate, polyval, vander
    from .ops.dtype_info import broadcast_shapes, can_cast, finfo, iinfo, isdtype, result_type
    from .ops.elementwise.arithmetic import (
        addcdiv,
        addcmul,
        bitwise_count,
        bitwise_left_shift,
        bitwise_right_shift,
        copysign,
        divmod,
        float_power,
        floor_divide,
        fmax,
        fmin,
        fmod,
        gcd,
        hypot,
        lcm,
        logaddexp2,
        logical_xor,
        nextafter,
        reciprocal,
        remainder,
        rsqrt,
        xlogy,
    )  # fmt: skip
    from .ops.elementwise.piecewise import apply_along_axis, isin, piecewise, select
    from .ops.elementwise.quantize import fake_quantize
    from .ops.elementwise.rounding import (
        ceil,
        fix,
        floor,
        frexp,
        isclose,
        iscomplex,
        isneginf,
        isposinf,
        isreal,
        ldexp,
        modf,
        nan_to_num,
        rint,
        round,
        signbit,
        spacing,
        trunc,
    )  # fmt: skip
    from .ops.elementwise.transcendental import (
        acosh,
        angle,
        asinh,
        atanh,
        cbrt,
        deg2rad,
        exp2,
        log2,
        log10,
        rad2deg,
        sinc,
    )  # fmt: skip
    from .ops.index.scatter_gather import (
        gather,
        index_add,
        index_copy,
        index_fill,
        index_reduce,
        scatter,
        scatter_add,
        scatter_reduce,
    )
    from .ops.index.segments import segment_max, segment_mean, segment_min, segment_prod, segment_sum
    from .ops.index.selection import (
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
    from .ops.naming import name
    from .ops.order.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
    from .ops.order.sorting import (
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
    from .ops.protocol import register_numpy
    from .ops.reduce.calculus import diff, ediff1d, gradient, interp, unwrap
    from .ops.reduce.distances import cdist, pairwise_distance, pdist
    from .ops.reduce.running import cummax, cummin, logcumsumexp, nancumprod, nancumsum
    from .ops.reduce.scans import linear_recurrence
    from .ops.reduce.statistics import (
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
    from .ops.shape import einops
    from .ops.shape.diagonals import block_diag, diag, diag_embed, diagflat, fill_diagonal, trace, tri
    from .ops.shape.edit import append, cartesian_prod, combinations, delete, insert, resize, trim_zeros
    from .ops.shape.stack_split import (
        array_split,
        atleast_1d,
        atleast_2d,
        atleast_3d,
        block,
        broadcast_arrays,
        column_stack,
        dsplit,
        dstack,
        flatten,
        fliplr,
        flipud,
        hsplit,
        hstack,
        meshgrid,
        ravel,
        rollaxis,
        rot90,
        swapaxes,
        tensor_split,
        unflatten,
        unstack,
        vsplit,
        vstack,
    )
    from .ops.window.sliding_window import as_strided, im2col, sliding_window_view, unfold
    from .saving.checkpoints import Checkpoints
    from .saving.save_load import load, load_metadata, save
    from .tools import memory
    from .tools.certify.report import Certificate
    from .tools.certify.run import certify
    from .tools.gradcheck import CheckReport, gradcheck, gradgradcheck
    from .transforms.control.associative_scan import associative_scan
    from .transforms.control.branches_and_loops import cond, fori_loop, switch, while_loop
    from .transforms.control.scan import map, scan
    from .transforms.gradient_tape import GradientTape
    from .transforms.jacobian.functions import hessian, jacfwd, jacobian, jacrev
    from .transforms.sparse import (
        SparsePlan,
        hessian_diagonal,
        jacobian_diagonal,
        sparse_hessian,
        sparse_jacobian,
        sparsity,
    )
    from .transforms.taylor.jet import jet
    from .transforms.vector_calculus import divergence, laplacian

__version__ = "0.1.0"
__array_api_version__ = VERSIONS[-1]
__array_namespace_info__ = namespace_info

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

# `checkpoint` is a function; its layer is loaded now, so that no later import of the package shadows the function.
import_module("pullback.checkpoint")
del globals()["checkpoint"]


#: Namespaces imported on first access.
_PARTS = {
    "einops": "ops.shape.einops",
    "fft": "ops.fft",
    "implicit": "implicit",
    "interop": "interop",
    "linalg": "ops.linalg",
    "memory": "tools.memory",
    "nn": "nn",
    "optim": "optim",
    "random": "ops.random",
    "special": "ops.special",
    "tools": "tools",
}
#: Names whose modules are imported on first access, so that `import pullback` stays fast.
_LATER = {
    name: module
    for module, names in {
        "checkpoint.loops.checkpoint_loop": "checkpoint_loop",
        "checkpoint.offload.offload_to_disk": "offload_to_disk",
        "checkpoint.recompute.save_policies": "offload_named save_contractions save_everything save_named save_nothing",
        "checkpoint.recompute.checkpoint": "checkpoint checkpoint_sequential",
        "checkpoint.budget.memory_budget": "memory_budget",
        "compile.jit": "jit",
        "compile.threads": "get_num_threads set_num_threads",
        "graph": "Graph GraphBuilder GraphStep GraphValue stage",
        "implicit": "argmin fixed_point least_squares linear_solve root",
        "ops.naming": "name",
        "ops.reduce.distances": "cdist pairwise_distance pdist",
        "ops.shape.diagonals": "block_diag diag diag_embed diagflat fill_diagonal trace tri",
        "ops.shape.edit": "append cartesian_prod combinations delete insert resize trim_zeros",
        "ops.shape.stack_split": (
            "array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays column_stack dsplit dstack "
            "flatten fliplr flipud hsplit hstack meshgrid ravel rollaxis rot90 swapaxes tensor_split unflatten "
            "unstack vsplit vstack"
        ),
        "ops.contract.dot_products": "cross dot inner kron matvec vdot vecdot vecmat",
        "ops.order.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "ops.elementwise.quantize": "fake_quantize",
        "ops.reduce.running": "cummax cummin logcumsumexp nancumprod nancumsum",
        "ops.reduce.scans": "linear_recurrence",
        "ops.index.scatter_gather": (
            "gather index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce"
        ),
        "ops.index.segments": "segment_max segment_mean segment_min segment_prod segment_sum",
        "ops.index.selection": (
            "argwhere choose compress extract flatnonzero masked_fill masked_scatter masked_select nonzero "
            "one_hot place put"
        ),
        "ops.order.sorting": (
            "argpartition argsort kthvalue lexsort msort partition searchsorted sort topk unique unique_all "
            "unique_counts unique_inverse unique_values"
        ),
        "ops.reduce.statistics": (
            "average bincount count_nonzero cumulative_trapezoid nanargmax nanargmin nanmax nanmean nanmin "
            "nanprod nanstd nansum nanvar ptp trapezoid trapz"
        ),
        "ops.window.sliding_window": "as_strided im2col sliding_window_view unfold",
        "ops.elementwise.arithmetic": (
            "addcdiv addcmul bitwise_count bitwise_left_shift bitwise_right_shift copysign divmod "
            "float_power floor_divide fmax fmin fmod gcd hypot lcm logaddexp2 logical_xor nextafter "
            "reciprocal remainder rsqrt xlogy"
        ),
        "ops.elementwise.transcendental": "acosh angle asinh atanh cbrt deg2rad exp2 log10 log2 rad2deg sinc",
        "ops.elementwise.rounding": (
            "ceil fix floor frexp isclose iscomplex isneginf isposinf isreal ldexp modf nan_to_num rint "
            "round signbit spacing trunc"
        ),
        "ops.reduce.calculus": "diff ediff1d gradient interp unwrap",
        "ops.contract.polynomials": "convolve correlate polyval vander",
        "ops.elementwise.piecewise": "apply_along_axis isin piecewise select",
        "ops.protocol": "register_numpy",
        "ops.dtype_info": "broadcast_shapes can_cast finfo iinfo isdtype result_type",
        "saving.checkpoints": "Checkpoints",
        "saving.save_load": "load load_metadata save",
        "tools.certify.report": "Certificate",
        "tools.certify.run": "certify",
        "tools.gradcheck": "CheckReport gradcheck gradgradcheck",
        "transforms.control.associative_scan": "associative_scan",
        "transforms.control.branches_and_loops": "cond fori_loop switch while_loop",
        "transforms.gradient_tape": "GradientTape",
        "transforms.vector_calculus": "divergence laplacian",
        "transforms.jacobian.functions": "hessian jacfwd jacobian jacrev",
        "transforms.control.scan": "map scan",
        "transforms.sparse": "SparsePlan hessian_diagonal jacobian_diagonal sparse_hessian sparse_jacobian sparsity",
        "transforms.taylor.jet": "jet",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    """`pb.bfloat16` and the names in `_PARTS` and `_LATER`, imported on first access."""
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
cumsum, concatenate, transpose, absolute, pow = cumulative_sum, concat, permute_dims, abs, power
bool = bool_
cumprod, amax, amin = cumulative_prod, max, min

__all__ = [
    "Certificate", "CheckReport", "Checkpoints", "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext",
    "GradientTape", "Graph", "GraphBuilder", "GraphStep", "GraphValue", "Handle", "Node", "SparsePlan", "Spec",
    "Tensor", "abs", "absolute", "acos", "acosh", "add", "add_at", "addcdiv", "addcmul", "all", "amax", "amin",
    "angle", "any", "append", "apply_along_axis", "arange", "arccos", "arcsin", "arctan", "arctan2", "argmax",
    "argmin", "argpartition", "argsort", "argwhere", "array_split", "as_strided", "asarray", "asin", "asinh",
    "associative_scan", "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average",
    "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "block", "block_diag", "bool", "bool_", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "cartesian_prod", "cbrt", "cdist", "ceil", "certify", "checkpoint",
    "checkpoint_loop", "checkpoint_sequential", "choose", "clip", "clip_gradient", "column_stack", "combinations",
    "complex128", "complex64", "compress", "concat", "concatenate", "cond", "conj", "convolve", "copysign",
    "correlate", "cos", "cosh", "count_nonzero", "cross", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod",
    "cumulative_sum", "cumulative_trapezoid", "custom_op", "deg2rad", "delete", "detect_anomaly", "diag", "diag_embed",
    "diagflat", "diagonal", "diff", "divergence", "divide", "divmod", "dot", "dsplit", "dstack", "dtypes", "e",
    "ediff1d", "einops", "einsum", "elementwise_grad", "empty", "empty_like", "enable_grad", "equal", "erf", "errors",
    "exp", "exp2", "expand_dims", "expm1", "extract", "eye", "fake_quantize", "fft", "fill_diagonal", "finfo", "fix",
    "fixed_point", "flatnonzero", "flatten", "flip", "fliplr", "flipud", "float16", "float32", "float64",
    "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "fori_loop", "frexp", "from_dlpack", "full",
    "full_like", "gather", "gcd", "gelu", "get_num_threads", "getitem", "ggnvp", "grad", "gradcheck", "gradgradcheck",
    "gradient", "gradients", "greater", "greater_equal", "heaviside", "hessian", "hessian_diagonal", "hsplit",
    "hstack", "hvp", "hypot", "iinfo", "im2col", "imag", "implicit", "index_add", "index_copy", "index_fill",
    "index_reduce", "inf", "inference_mode", "inner", "insert", "int16", "int32", "int64", "int8", "interop", "interp",
    "is_grad_enabled", "isclose", "iscomplex", "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf",
    "isreal", "jacfwd", "jacobian", "jacobian_diagonal", "jacrev", "jet", "jit", "jvp", "kron", "kthvalue",
    "laplacian", "lcm", "ldexp", "least_squares", "less", "less_equal", "lexsort", "linalg", "linear_recurrence",
    "linear_solve", "linear_transpose", "linearize", "linspace", "load", "load_metadata", "log", "log10", "log1p",
    "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logsumexp", "map", "masked_fill", "masked_scatter", "masked_select", "matmul", "matrix_transpose",
    "matvec", "max", "maximum", "mean", "mean_squared_error", "median", "memory", "memory_budget", "meshgrid", "min",
    "minimum", "modf", "moveaxis", "msort", "multiply", "name", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "negative", "newaxis", "nextafter", "nn", "no_grad", "nonzero", "not_equal",
    "offload_named", "offload_to_disk", "one_hot", "ones", "ones_like", "optim", "outer", "pad", "pairwise_distance",
    "partition", "pdist", "percentile", "permute_dims", "pi", "piecewise", "place", "polyval", "positive", "pow",
    "power", "prod", "ptp", "put", "put_along_axis", "quantile", "rad2deg", "random", "ravel", "real", "reciprocal",
    "register_multi_grad_hook", "register_numpy", "register_tree", "relu", "remainder", "repeat", "reshape", "resize",
    "result_type", "reverse_gradient", "rint", "roll", "rollaxis", "root", "rot90", "round", "rsqrt", "save",
    "save_contractions", "save_everything", "save_named", "save_nothing", "saved_tensors_hooks", "scale_gradient",
    "scan", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "segment_max", "segment_mean", "segment_min",
    "segment_prod", "segment_sum", "select", "set_at", "set_grad_enabled", "set_num_threads", "sigmoid", "sign",
    "signbit", "silu", "sin", "sinc", "sinh", "sliding_window_view", "softmax", "softplus", "sort", "spacing",
    "sparse_hessian", "sparse_jacobian", "sparsity", "spec_of", "special", "split", "sqrt", "square", "squeeze",
    "stack", "stage", "std", "stop_gradient", "straight_through", "subtract", "sum", "swapaxes", "switch", "take",
    "take_along_axis", "tan", "tanh", "tensor", "tensor_split", "tensordot", "tile", "tools", "topk", "trace",
    "transpose", "trapezoid", "trapz", "tri", "tril", "trim_zeros", "triu", "trunc", "uint16", "uint32", "uint64",
    "uint8", "unflatten", "unfold", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unstack", "unwrap", "value_and_grad", "vander", "var", "vdot", "vecdot", "vecmat", "vjp", "vmap", "vsplit",
    "vstack", "where", "while_loop", "xlogy", "zeros", "zeros_like",
]  # fmt: skip
