"""Units for a quadratic program in which its numbers are about one, since tolerances are absolute.

With x = u v for a unit of each unknown, the program in v has its objective divided by c and each row by its own r. So
multipliers are c / r times those of v. Units are powers of two, which round nothing, and constants: v follows the data
through u P u / c and so on, and has exact derivatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.elementwise.rounding import rint
from ...ops.elementwise.transcendental import exp2, log2
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat, diagonal
from ...ops.shape.reshaping import broadcast_to, expand_dims, reshape
from ..cones.cones import Cones

#: Numbers from 2^-10 to 2^10 are left as they are.
_ORDINARY = 10


class Units(NamedTuple):
    """The units of x, of the objective, and of the rows of A and of G; None where there are no rows."""

    x: Any
    objective: Any
    equations: Any
    inequalities: Any

    def scale_program(self, data: tuple[Any, ...]) -> tuple[Any, ...]:
        """P, q, A, b, G and h in these units."""
        P, q, A, b, G, h = data
        P = None if P is None else P * (expand_dims(self.x / self.objective, 1) * self.x)
        A, b = _scale_rows(A, b, self.x, self.equations)
        G, h = _scale_rows(G, h, self.x, self.inequalities)
        return P, q * (self.x / self.objective), A, b, G, h

    def restore_multipliers(self, multipliers: dict[str, Any]) -> dict[str, Any]:
        """The multipliers of the rows of A and G, from those of the scaled program."""
        units = {"A": self.equations, "G": self.inequalities}
        return {
            name: found if units[name] is None else found * (self.objective / units[name])
            for name, found in multipliers.items()
        }


def _scale_rows(matrix: Any, right: Any, of_x: Any, units: Any) -> tuple[Any, Any]:
    if matrix is None:
        return None, None
    return matrix * (of_x / expand_dims(units, 1)), right / units


def choose_units(data: tuple[Any, ...], cones: Cones) -> Units:
    """Units for a program: those of x make up for small columns, and x is as large as its rows demand; then each row
    and the objective are as large as the largest number in them.
    """
    known: list[Any] = [None if x is None else pointwise.stop_gradient(x) for x in data]
    P, q, A, b, G, h = known
    columns = _choose_columns(P, q, A, G, cones)
    size: Any = 1.0
    equations: Any = None
    inequalities: Any = None
    if A is not None:
        b, equations = _drop_infinite(b), _largest_in_rows(A, columns)
        size = pointwise.maximum(size, reductions.max(pointwise.abs(b) / _positive(equations)))  # |b| <= |a| |x|
    if G is not None:
        h, inequalities = _drop_infinite(h), _largest_in_rows(G, columns)
        spec = spec_of(h)
        demanded = cones.unit(namespace_on(spec.device), spec.dtype) * pointwise.maximum(-h, 0.0)
        size = pointwise.maximum(size, reductions.max(demanded / _positive(inequalities)))
    size = _round_to_power(size)
    objective = reductions.max(pointwise.abs(q) * columns) * size
    if P is not None:
        bent = reductions.max(_largest_in_rows(P, columns) * columns)
        objective = pointwise.maximum(objective, bent * size * size)
    if A is not None:
        equations = _round_to_power(pointwise.maximum(equations * size, pointwise.abs(b)))
    if G is not None:
        rows = pointwise.maximum(inequalities * size, pointwise.abs(h))
        inequalities = _round_to_power(_share_in_cones(rows, cones))
    return Units(columns * size, _round_to_power(objective), equations, inequalities)


def _choose_columns(P: Any, q: Any, A: Any, G: Any, cones: Cones) -> Any:
    """Units of unknowns, so that none appears with small numbers alone, compared to others of the same rows."""
    found: Any = 0.0
    if P is not None:
        bent = pointwise.abs(diagonal(P))
        found = pointwise.sqrt(bent / _positive(reductions.max(bent)))
    for matrix, kinds in ((A, None), (G, cones)):
        if matrix is not None:
            matrix = pointwise.abs(matrix)
            rows = reductions.max(matrix, axis=1)
            rows = rows if kinds is None else _share_in_cones(rows, kinds)
            found = pointwise.maximum(found, reductions.max(matrix / expand_dims(_positive(rows), 1), axis=0))
    return _round_to_power(1 / _positive(broadcast_to(found, shape(q))))


def _largest_in_rows(matrix: Any, columns: Any) -> Any:
    return reductions.max(pointwise.abs(matrix * columns), axis=1)


def _drop_infinite(x: Any) -> Any:
    return pointwise.where(pointwise.isfinite(x), x, 0.0)


def _positive(x: Any) -> Any:
    return pointwise.where(x > 0, x, 1.0)


def _round_to_power(x: Any) -> Any:
    """The nearest power of two; one where that is close enough, or where there is no positive number."""
    usable = pointwise.isfinite(x) & (x > 0)
    power = rint(log2(pointwise.where(usable, x, 1.0)))
    return exp2(pointwise.where(pointwise.abs(power) > _ORDINARY, power, 0.0))


def _share_in_cones(rows: Any, cones: Cones) -> Any:
    """The same for all rows of a cone: the largest."""
    parts, first = [], 0
    for block in cones.blocks:
        each = reshape(rows[first : first + block.length], (block.degree, block.size))
        largest = reductions.max(each, axis=1, keepdims=True)
        parts.append(reshape(broadcast_to(largest, shape(each)), (block.length,)))
        first += block.length
    return parts[0] if len(parts) == 1 else concat(parts)
