"""The einops package on tensors. (`pb.einops` has its functions without the package.)"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from ..arrays.exchange import asarray
from ..arrays.value import Value
from ..ops.contract.einsum import einsum
from ..ops.creation import arange
from ..ops.shape.arrange import stack, tile
from ..ops.shape.reshaping import expand_dims, permute_dims

__all__ = ["register"]


def register() -> None:
    """Makes einops take tensors: its functions then return tensors, and are recorded, differentiated and compiled like
    ops. It imports einops; a second call does nothing.

    >>> import pullback as pb
    >>> pb.interop.einops.register()  # doctest: +SKIP
    >>> einops.rearrange(pb.ones((2, 3)), "a b -> b a").shape  # doctest: +SKIP
    (3, 2)
    """
    _make_backend()


@functools.cache
def _make_backend() -> type:
    """A subclass of einops's own class: einops looks among those, and nothing but this cache keeps it alive."""
    try:
        base: Any = import_module("einops._backends").AbstractBackend
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "interop.einops.register: einops is not installed.\n"
            "  Install it (pip install einops), or use pb.einops, which needs no package."
        ) from error
    return type("PullbackBackend", (base,), {"framework_name": "pullback", **_METHODS})


#: What einops asks of a backend beside `shape`, `reshape` and `reduce`, for which it calls methods of x.
_METHODS: dict[str, Any] = {
    "is_appropriate_type": lambda self, x: isinstance(x, Value),
    "from_numpy": lambda self, x: asarray(x),
    "to_numpy": lambda self, x: x.numpy(),
    "transpose": lambda self, x, axes: permute_dims(x, axes),
    "arange": lambda self, start, stop: arange(start, stop),
    "stack_on_zeroth_dimension": lambda self, tensors: stack(tensors),
    "add_axis": lambda self, x, new_position: expand_dims(x, axis=new_position),
    "tile": lambda self, x, repeats: tile(x, repeats),
    "is_float_type": lambda self, x: x.spec.inexact,
    "einsum": lambda self, pattern, *x: einsum(pattern, *x),
}
