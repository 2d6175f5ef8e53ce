"""Functions of functions: each transform is one interpreter and one wrapper over the same op records.

What is named here is loaded with the package; the other modules when one of their names is first asked for.
"""

from .altered import clip_gradient, reverse_gradient, scale_gradient, straight_through
from .batching import vmap
from .custom import CustomOp, custom_op
from .duals import ForwardContext
from .forward import Dual, jvp, linearize
from .function import Function, FunctionContext
from .linear import linear_transpose
from .products import ggnvp, hvp
from .reverse import elementwise_grad, grad, value_and_grad, vjp

__all__ = [
    "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext", "clip_gradient", "custom_op",
    "elementwise_grad", "ggnvp", "grad", "hvp", "jvp", "linear_transpose", "linearize", "reverse_gradient",
    "scale_gradient", "straight_through", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
