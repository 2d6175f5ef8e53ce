"""Derivatives of every order for the arrays you already have.

>>> import pullback as pb
>>> x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> pb.sum(pb.sin(x) ** 2).backward()
>>> x.grad
tensor([ 0.90929743, -0.7568025 , -0.2794155 ], dtype=float64)
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from . import checkpoint
from .arrays import dtypes
from .arrays.namespace import VERSIONS, namespace_info
from .ops import operators
from .public_names import PublicModuleFinder, load_on_access
from .tape import backward

__version__ = "0.1.0"
__array_api_version__ = VERSIONS[-1]
__array_namespace_info__ = namespace_info

# Loading the ops and the tape gives tensors their operators and `backward`. `checkpoint` is a function that the
# package of this name, once it is loaded, no longer shadows.
del backward, checkpoint, operators

sys.meta_path.append(PublicModuleFinder)


@cache
def _public_names() -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    return load_on_access("pullback", "")


def __getattr__(name: str) -> Any:
    """A public name, imported on first access: `import pullback` loads the ops and the tape alone."""
    return dtypes.narrow_dtype(name) if name in dtypes.NARROW_NAMES else _public_names()[0](name)


def __dir__() -> list[str]:
    return _public_names()[1]()
