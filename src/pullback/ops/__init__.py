"""All ops with their rules: every op is one record in `OPS`."""

from importlib import import_module

from ..public_names import explain_missing_names
from . import basis, creation, functions, operators, record
from .contract import einsum
from .contract import matrix_products as contracting
from .elementwise import pointwise
from .index import indexing
from .op import OPS, Op
from .reduce import reductions as reducing
from .reduce import scans as scanning
from .shape import arrange as arranging
from .shape import reshaping

__all__ = ["LIBRARY", "OPS", "Op", "load_all_ops"]

#: Modules of ops that are imported on first access to one of their names; `load_all_ops` imports them all.
LIBRARY: tuple[str, ...] = (
    "collective",
    "elementwise.arithmetic",
    "reduce.calculus",
    "window.convolution",
    "elementwise.transcendental",
    "contract.polynomials",
    "elementwise.rounding",
    "shape.diagonals",
    "reduce.distances",
    "shape.edit",
    "shape.einops",
    "fft",
    "shape.stack_split",
    "linalg",
    "linalg.sparse_solve",
    "contract.dot_products",
    "index.lookup",
    "naming",
    "window.pooling",
    "order.largest",
    "order.quantiles",
    "elementwise.quantize",
    "random",
    "reduce.deviations",
    "reduce.running",
    "index.scatter_gather",
    "index.segments",
    "index.selection",
    "order.sorting",
    "special",
    "reduce.statistics",
    "window.sliding_window",
)


def load_all_ops() -> dict[str, Op]:
    """Every op of the package by its name, also those of modules not imported yet."""
    for module in LIBRARY:
        import_module(f"pullback.ops.{module}")
    return OPS


basis.bind(
    add=pointwise.add, astype=reshaping.astype, multiply=pointwise.multiply, negative=pointwise.negative,
    conj=pointwise.conj, positive=pointwise.positive, unrecorded=pointwise.unrecorded,
    moveaxis=reshaping.moveaxis, reshape=reshaping.reshape, broadcast_to=reshaping.broadcast_to,
)  # fmt: skip
operators.install()
del arranging, contracting, creation, einsum, functions, indexing, record, reducing, scanning
explain_missing_names(__name__, "ops")  # a namespace of JAX's
