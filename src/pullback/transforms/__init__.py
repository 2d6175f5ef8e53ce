"""Functions of functions: each transform is one interpreter and one wrapper over the same op records."""

from .altered import clip_gradient, reverse_gradient, scale_gradient, straight_through
from .associative import associative_scan
from .batching import vmap
from .control import cond, fori_loop, switch, while_loop
from .custom import CustomOp, custom_op
from .duals import ForwardContext
from .explicit import GradientTape
from .fields import divergence, laplacian
from .forward import Dual, jvp, linearize
from .function import Function, FunctionContext
from .jacobian import hessian, jacfwd, jacobian, jacrev
from .linear import linear_transpose
from .loops import map, scan
from .products import ggnvp, hvp
from .reverse import elementwise_grad, grad, value_and_grad, vjp
from .sparse import SparsePlan, hessian_diagonal, jacobian_diagonal, sparse_hessian, sparse_jacobian, sparsity
from .taylor import jet

__all__ = [
    "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext", "GradientTape", "SparsePlan",
    "associative_scan", "clip_gradient", "cond", "custom_op", "divergence", "elementwise_grad", "fori_loop",
    "ggnvp", "grad", "hessian", "hessian_diagonal", "hvp", "jacfwd", "jacobian", "jacobian_diagonal", "jacrev",
    "jet", "jvp", "laplacian", "linear_transpose", "linearize", "map", "reverse_gradient", "scale_gradient", "scan",
    "sparse_hessian", "sparse_jacobian", "sparsity", "straight_through", "switch", "value_and_grad", "vjp", "vmap",
    "while_loop",
]  # fmt: skip
