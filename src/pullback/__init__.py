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
from .ops.contracting import einsum, matmul, outer, tensordot
from .ops.creation import arange, empty, eye, full, full_like, linspace, ones, ones_like, zeros, zeros_like
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
from .ops.reducing import all, any, argmax, cumulative_sum, logsumexp, max, mean, min, prod, std, sum, var
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
    from .checkpoint.budget import memory_budget
    from .implicit import argmin, fixed_point, least_squares, linear_solve, root
    from .tools import memory
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


#: Namespaces that are imported when they are first asked for.
_PARTS = {"implicit": "implicit", "memory": "tools.memory"}
#: Names whose modules are imported when they are first asked for, so that `import pullback` stays quick.
_LATER = {
    name: module
    for module, names in {
        "checkpoint.budget": "memory_budget",
        "implicit": "argmin fixed_point least_squares linear_solve root",
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

__all__ = [
    "CheckReport", "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext", "GradientTape", "Handle",
    "Node", "SparsePlan", "Spec", "Tensor", "abs", "absolute", "acos", "add", "add_at", "all", "any", "arange",
    "arccos", "arcsin", "arctan", "arctan2", "argmax", "argmin", "asarray", "asin", "associative_scan", "astype",
    "atan", "atan2", "bool_", "broadcast_to", "clip", "clip_gradient", "complex128", "complex64", "concat",
    "concatenate", "cond", "conj", "cos", "cosh", "cumsum", "cumulative_sum", "custom_op", "detect_anomaly", "diagonal",
    "divergence", "divide", "dtypes", "einsum", "elementwise_grad", "empty", "enable_grad", "equal", "erf", "errors",
    "exp", "expand_dims", "expm1", "eye", "fixed_point", "flip", "float16", "float32", "float64", "fori_loop",
    "from_dlpack", "full", "full_like", "gelu", "getitem", "ggnvp", "grad", "gradcheck", "gradgradcheck", "gradients",
    "greater", "greater_equal", "heaviside", "hessian", "hessian_diagonal", "hvp", "imag", "implicit", "inference_mode",
    "int16", "int32", "int64", "int8", "is_grad_enabled", "isfinite", "isinf", "isnan", "jacfwd", "jacobian",
    "jacobian_diagonal", "jacrev", "jet", "jvp", "laplacian", "least_squares", "less", "less_equal", "linear_solve",
    "linear_transpose", "linearize", "linspace", "log", "log1p", "log_softmax", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logsumexp", "map", "matmul", "matrix_transpose", "max", "maximum", "mean",
    "mean_squared_error", "memory", "memory_budget", "min", "minimum", "moveaxis", "multiply", "negative", "no_grad",
    "not_equal", "ones", "ones_like", "outer", "pad", "permute_dims", "positive", "power", "prod", "put_along_axis",
    "real", "register_multi_grad_hook", "register_tree", "relu", "repeat", "reshape", "reverse_gradient", "roll",
    "root", "saved_tensors_hooks", "scale_gradient", "scan", "set_at", "set_grad_enabled", "sigmoid", "sign", "silu",
    "sin", "sinh", "softmax", "softplus", "sparse_hessian", "sparse_jacobian", "sparsity", "spec_of", "split", "sqrt",
    "square", "squeeze", "stack", "std", "stop_gradient", "straight_through", "subtract", "sum", "switch", "take",
    "take_along_axis", "tan", "tanh", "tensor", "tensordot", "tile", "transpose", "tril", "triu", "uint16", "uint32",
    "uint64", "uint8", "value_and_grad", "var", "vjp", "vmap", "where", "while_loop", "zeros", "zeros_like",
]  # fmt: skip
