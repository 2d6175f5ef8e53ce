"""What can be computed, with its rules: every op is one record in `OPS`."""

from importlib import import_module

from . import (
    arranging,
    basis,
    contracting,
    creation,
    einsum,
    elementwise,
    functions,
    indexing,
    operators,
    record,
    reducing,
    scanning,
    shaping,
)
from .op import OPS, Op

__all__ = ["LIBRARY", "OPS", "Op", "everything"]

#: Modules of ops that are imported when one of their names is first asked for; `everything` imports them all.
LIBRARY: tuple[str, ...] = (
    "arithmetic",
    "calculus",
    "convolution",
    "curves",
    "products",
    "rounding",
    "diagonals",
    "distances",
    "editing",
    "einops",
    "fft",
    "layouts",
    "linalg",
    "multiplying",
    "naming",
    "pooling",
    "quantiles",
    "quantising",
    "random",
    "running",
    "scattering",
    "segments",
    "selecting",
    "sorting",
    "special",
    "statistics",
    "windows",
)


def everything() -> dict[str, Op]:
    """Every op of the package by its name, also those of modules not asked for yet."""
    for module in LIBRARY:
        import_module(f"pullback.ops.{module}")
    return OPS


basis.bind(
    add=elementwise.add, multiply=elementwise.multiply, negative=elementwise.negative, conj=elementwise.conj,
    positive=elementwise.positive, unrecorded=elementwise.unrecorded,
    moveaxis=shaping.moveaxis, reshape=shaping.reshape, broadcast_to=shaping.broadcast_to,
)  # fmt: skip
operators.install()
del arranging, contracting, creation, einsum, functions, indexing, record, reducing, scanning
