"""Functions of functions: each transform is one interpreter and one wrapper over the same op records."""

from .batching import vmap
from .forward import jvp
from .reverse import grad, vjp

__all__ = ["grad", "jvp", "vjp", "vmap"]
