"""Systems with the derivative of the conditions of a minimum, without the rows of inequalities that are not active.

With D the slope of the projection at u = C - z, the derivative of the residual is the matrix

    H         -E'^T   -C'^T
    E'          0       0
    (I - D) C'  0       D

D is one for a number that is not active: its row says dz = r, and its column only moves what is known to the right. Of
the active ones, with D = 0, a system with a solution has no more than unknowns that the equations leave. So many rows
of C' are gathered, the active ones first; the matrix that is left is as regular as the whole one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape as shape_of
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.order.sorting import argsort
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims
from ..cones.cone_blocks import INSIDE, Orthant
from ..cones.cones import Cones
from ..cones.program_shape import ProgramShape
from ..linear.direct import solve_dense
from .active_set import ActiveSet


def _cut_cones(shape: ProgramShape) -> tuple[int, Cones]:
    """How many inequalities are numbers, and the cones behind them."""
    blocks = shape.cones.blocks
    numbers = blocks[0].length if blocks and isinstance(blocks[0], Orthant) else 0
    return numbers, Cones(blocks[1:] if numbers else blocks)


def _count_gathered(shape: ProgramShape) -> int:
    return min(_cut_cones(shape)[0], max(shape.variables - shape.equalities, 0))


def condensed_size(shape: ProgramShape) -> int:
    """The unknowns of a condensed system."""
    return shape.variables + shape.equalities + _count_gathered(shape) + _cut_cones(shape)[1].length


def make_condensed_solve(
    conditions: Callable[..., Any], slopes: Callable[..., Any], active_set: ActiveSet
) -> Callable[..., Any]:
    """The function of (is_transposed, r, w, *p) that solves the system, or the transposed one, at a solution w, from
    the conditions and their `slopes` by the variables.
    """
    shape = active_set.shape
    numbers = _cut_cones(shape)[0]
    last = shape.variables + shape.equalities

    def solve(is_transposed: bool, r: Any, w: Any, *p: Any) -> Any:
        apart = pointwise.stop_gradient(shape.cut_conditions(conditions(w, *p))[2] - shape.cut_unknown(w)[2])
        pieces = active_set.pieces(apart)
        hessian, equal, inside = shape.cut_conditions(slopes(w, *p))
        right, right_y, right_z = shape.cut_unknown(r)
        # rows below the Hessian: equations, gathered inequalities, cones
        borders = [_Border(equal, equal, 0.0, right_y)]
        if numbers:
            chosen = _Gathered(pieces[:numbers], _count_gathered(shape))
            # rows of inactive inequalities say dz = r, which moves to the right side
            known = pointwise.where(chosen.is_active, 0.0, right_z[:numbers])
            if not is_transposed:
                right = right + matmul(inside[:numbers].T, known)
            borders.append(chosen.border(inside[:numbers], right_z[:numbers]))
        if numbers < shape.cones.length:
            borders.append(_border_of_cones(shape, apart, pieces, inside, right_z))
        matrix, right = _assemble(hessian, borders, right)
        found = solve_dense(matrix.T if is_transposed else matrix, right)
        if not numbers:
            return found
        if is_transposed:
            known = pointwise.where(chosen.is_active, 0.0, known + matmul(inside[:numbers], found[: shape.variables]))
        end = last + chosen.count
        return concat([found[:last], chosen.spread(found[last:end], known), found[end:]])

    return solve


class _Border(NamedTuple):
    """Rows of the matrix below the Hessian: the multipliers' columns are minus `slopes`, transposed, `rows` their own
    ones, `corner` where both meet, and the right side.
    """

    slopes: Any
    rows: Any
    corner: Any
    right: Any


class _Gathered:
    """The active ones of some inequalities, gathered in a fixed number of places; places left over say 0 = 0 + dz."""

    def __init__(self, pieces: Any, count: int) -> None:
        self.is_active = pointwise.not_equal(pieces, INSIDE)
        self.count = count
        #: The active ones first; None where each has a place of its own.
        self._order: Any = None
        if count < shape_of(pieces)[0]:
            self._order = argsort(astype(self.is_active, np.int64), descending=True)

    def border(self, inside: Any, right: Any) -> _Border:
        """Their rows of the matrix."""
        active = astype(self._take(self.is_active), spec_of(right).dtype)
        rows = expand_dims(active, 1) * self._take(inside)
        unit = namespace_on(spec_of(right).device).eye(self.count, dtype=spec_of(right).dtype)
        return _Border(rows, rows, (1 - active) * unit, active * self._take(right))

    def _take(self, v: Any) -> Any:
        return v if self._order is None else getitem(v, self._order[: self.count])

    def spread(self, found: Any, known: Any) -> Any:
        """What was found for the active ones, in their places, and what is known of the others; nothing if there are
        more active ones than places.
        """
        if self._order is None:
            return pointwise.where(self.is_active, found, known)
        is_lost = reductions.sum(astype(self.is_active, np.int64)) > self.count
        rest = 0.0 * known[self.count :]
        spread = getitem(concat([found, rest]), argsort(self._order))
        return pointwise.where(is_lost, math.nan, pointwise.where(self.is_active, spread, known))


def _border_of_cones(shape: ProgramShape, apart: Any, pieces: Any, inside: Any, right_z: Any) -> _Border:
    """All rows of vectors in cones: (I - D) C' and D."""
    numbers, cones = _cut_cones(shape)
    unit = namespace_on(spec_of(apart).device).eye(cones.length, dtype=spec_of(apart).dtype)

    def times_slope(function: Callable[[Any], Any], v: Any) -> Any:
        return cones.apply_slope(apart[numbers:], pieces[numbers:], function, v)

    inside = inside[numbers:]
    rows, corner = times_slope(lambda d: 1 - d, inside), times_slope(lambda d: d, unit)
    return _Border(inside, rows, corner, right_z[numbers:])


def _assemble(hessian: Any, borders: Sequence[_Border], right: Any) -> tuple[Any, Any]:
    """The matrix and its right side."""
    borders = [b for b in borders if shape_of(b.right)[0]]
    spec, sizes = spec_of(right), [shape_of(b.right)[0] for b in borders]
    xp = namespace_on(spec.device)
    matrix = [concat([hessian, *(-b.slopes.T for b in borders)], 1)]
    for i, border in enumerate(borders):
        corners = [border.corner if j == i else 0.0 for j in range(len(borders))]
        blocks = [xp.zeros((sizes[i], size), spec.dtype) + c for size, c in zip(sizes, corners, strict=True)]
        matrix.append(concat([border.rows, *blocks], 1))
    return concat(matrix), concat([right, *(b.right for b in borders)])
