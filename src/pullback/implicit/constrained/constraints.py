"""Constraints of a minimum: equations, inequalities and cones, as objects that turn x into rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from ...arrays.spec import spec_of
from ...arrays.trees import LEAF, flatten
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, broadcast_to, reshape
from ...transforms.boundary import as_array_leaf
from ..vector_layout import VectorLayout


class Constraint(ABC):
    """A constraint on x."""

    @abstractmethod
    def residual(self, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
        """The arrays of numbers that must be zero, not negative, or in a cone, at a vector x of this layout."""


@final
@dataclass(frozen=True, eq=False)
class Equal(Constraint):
    """g(x, *params) = value, for every element of the tree that g returns. `g` may be a matrix too: then it multiplies
    x, flattened to one vector.

    >>> import numpy as np, pullback as pb
    >>> circle = pb.implicit.Equal(lambda x: pb.sum(x * x), 2.0)
    >>> np.round(pb.argmin(lambda x: x[0] + x[1], np.array([1.0, -2.0]), constraints=[circle]), 6)
    array([-1., -1.])
    """

    g: Any
    value: Any = 0.0

    def residual(self, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
        return _subtract_bound(_evaluate(self.g, x, layout, params), self.value, "Equal: value")


@final
@dataclass(frozen=True, eq=False)
class AtLeast(Constraint):
    """g(x, *params) >= bound, for every element of the tree that g returns. `g` may be a matrix too, see `Equal`.

    >>> import numpy as np, pullback as pb
    >>> outside = pb.implicit.AtLeast(lambda x: pb.sum(x * x), 2.0)
    >>> np.round(pb.argmin(lambda x: pb.sum((x - 0.5) ** 2), np.array([1.0, 2.0]), constraints=[outside]), 6)
    array([1., 1.])
    """

    g: Any
    bound: Any = 0.0

    def residual(self, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
        return _subtract_bound(_evaluate(self.g, x, layout, params), self.bound, "AtLeast: bound")


@final
@dataclass(frozen=True, eq=False)
class AtMost(Constraint):
    """g(x, *params) <= bound, for every element of the tree that g returns. `g` may be a matrix too, see `Equal`.

    >>> import numpy as np, pullback as pb
    >>> share = pb.implicit.AtMost(np.ones((1, 2)), 1.0)
    >>> np.round(pb.argmin(lambda x: pb.sum((x - 1.0) ** 2), np.zeros(2), constraints=[share]), 6)
    array([0.5, 0.5])
    """

    g: Any
    bound: Any = 0.0

    def residual(self, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
        rows = _subtract_bound(_evaluate(self.g, x, layout, params), self.bound, "AtMost: bound")
        return [pointwise.negative(row) for row in rows]


@final
@dataclass(frozen=True, eq=False)
class NormAtMost(Constraint):
    """The Euclidean norm of all that g(x, *params) returns is at most a bound: a number, or a function of (x, *params).
    A cone, whose tip has no derivative either; away from it this is a smooth constraint.

    >>> import numpy as np, pullback as pb
    >>> ball = pb.implicit.NormAtMost(lambda x: x, 1.0)
    >>> np.round(pb.argmin(lambda x: pb.sum((x - np.array([3.0, 4.0])) ** 2), np.zeros(2), constraints=[ball]), 6)
    array([0.6, 0.8])
    """

    g: Any
    bound: Any

    def residual(self, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
        bound = self.bound(layout.to_tree(x), *params) if callable(self.bound) else self.bound
        if shape(real_leaf(bound, "NormAtMost: bound")) != ():
            raise ShapeError(f"NormAtMost: the bound is one number, got the shape {shape(bound)}.")
        if isinstance(bound, (int, float)):  # an array where x is
            bound = pointwise.add(pointwise.multiply(x[0], 0.0), bound)
        return [bound, *_evaluate(self.g, x, layout, params)]


def _evaluate(g: Any, x: Any, layout: VectorLayout, params: tuple[Any, ...]) -> list[Any]:
    """The leaves of g at x, a vector, as values."""
    if callable(g):
        found = g(layout.to_tree(x), *params)
        if found is None:
            raise ArgumentError("constraints: the function returned None.\n  Return what is to be compared.")
        return [real_leaf(leaf, "constraints") for leaf in flatten(found)[0]]
    matrix = real_leaf(g, "constraints")
    if len(shape(matrix)) != 2 or shape(matrix)[1] != layout.size:
        raise ShapeError(
            f"constraints: a matrix of shape {shape(matrix)} for {layout.size} unknowns.\n"
            "  Give a matrix with a column for each unknown, or a function of x."
        )
    return [matmul(matrix, reshape(x, (layout.size,)))]


def real_leaf(x: Any, what: str) -> Any:
    """A value of a tree, which must be real."""
    leaf = as_array_leaf(x, what)
    if spec_of(leaf).dtype.kind == "c":
        raise DtypeError(f"{what}: complex numbers, wanted real ones.\n  Constrain real and imaginary part.")
    return leaf


def _subtract_bound(leaves: list[Any], bound: Any, what: str) -> list[Any]:
    """g(x) - bound: one bound for all, or one for each leaf."""
    given, structure = flatten(bound)
    if structure is LEAF or len(given) == 1:
        given = given * len(leaves)
    if len(given) != len(leaves):
        raise ArgumentError(f"{what}: {len(given)} arrays for the {len(leaves)} that the constraint returns.")
    return [pointwise.subtract(leaf, _fit(b, leaf, what)) for leaf, b in zip(leaves, given, strict=True)]


def _fit(bound: Any, leaf: Any, what: str) -> Any:
    """A bound that must broadcast to what it bounds; a number does, wherever that is."""
    if isinstance(bound, (int, float)):
        return bound
    bound = real_leaf(bound, what)
    try:
        return broadcast_to(bound, shape(leaf))
    except ShapeError:
        raise ShapeError(f"{what}: shape {shape(bound)} does not fit {shape(leaf)}.") from None


def join_rows(leaves: list[Any], dtype: Any) -> Any:
    """Leaves as one vector of rows."""
    flat = [reshape(astype(leaf, dtype), (-1,)) for leaf in leaves]
    return flat[0] if len(flat) == 1 else concat(flat)
