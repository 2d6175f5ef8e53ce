"""What can be computed, with its rules: every op is one record in `OPS`."""

from . import (
    arranging,
    basis,
    contracting,
    creation,
    elementwise,
    functions,
    indexing,
    operators,
    record,
    reducing,
    shaping,
)
from .op import OPS, Op

__all__ = ["OPS", "Op"]

basis.bind(
    add=elementwise.add, multiply=elementwise.multiply, negative=elementwise.negative, conj=elementwise.conj,
    positive=elementwise.positive,
    moveaxis=shaping.moveaxis, reshape=shaping.reshape, broadcast_to=shaping.broadcast_to,
)  # fmt: skip
operators.install()
del arranging, contracting, creation, functions, indexing, record, reducing
