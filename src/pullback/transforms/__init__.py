"""Functions of functions: each transform is one interpreter and one wrapper over the same op records.

What is named here is loaded with the package; the other modules when one of their names is first used.
"""

from .curvature_products import ggnvp, hvp
from .custom.custom_op import CustomOp, custom_op
from .custom.function import Function, FunctionContext
from .custom.gradient_modifiers import clip_gradient, reverse_gradient, scale_gradient, straight_through
from .forward import Dual, jvp, linearize
from .forward_context import ForwardContext
from .linear_functions import linear_transpose
from .reverse import elementwise_grad, grad, value_and_grad, vjp
from .vectorize import vmap

__all__ = [
    "CustomOp", "Dual", "ForwardContext", "Function", "FunctionContext", "clip_gradient", "custom_op",
    "elementwise_grad", "ggnvp", "grad", "hvp", "jvp", "linear_transpose", "linearize", "reverse_gradient",
    "scale_gradient", "straight_through", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
