"""Functions of functions: each transform is one interpreter and one wrapper over the same op records."""

from .batching import vmap
from .forward import Dual, jvp, linearize
from .reverse import elementwise_grad, grad, value_and_grad, vjp

__all__ = ["Dual", "elementwise_grad", "grad", "jvp", "linearize", "value_and_grad", "vjp", "vmap"]
