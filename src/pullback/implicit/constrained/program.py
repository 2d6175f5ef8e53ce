"""A minimum with constraints as an equation: functions and constraints on trees in, conditions of the optimum out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, unflatten
from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import reshape
from ...transforms.boundary import as_array_leaf
from ...transforms.reverse import vjp
from ..cones.cones import Cones
from ..cones.program_shape import ProgramShape
from ..equation.problem import detach
from ..vector_layout import VectorLayout
from .bounds import Bounds, bound_distances, find_fixed, move_inside
from .constraints import AtLeast, AtMost, Constraint, Equal, NormAtMost, join_rows

Function = Callable[..., Any]
#: The name of a constraint, and the shapes of the arrays that it returns.
RowNames = tuple[str, list[tuple[int, ...]]]
#: The groups of rows, in their order: E, then what C has of numbers and of cones.
_GROUPS: tuple[tuple[type[Constraint], ...], ...] = ((Equal,), (AtLeast, AtMost), (NormAtMost,))


@dataclass(frozen=True, eq=False)
class ConstrainedProgram:
    """Minimize f(x, *params) over x within bounds and constraints; on vectors x of a layout."""

    what: str
    f: Function
    layout: VectorLayout
    bounds: Bounds
    constraints: tuple[Constraint, ...]
    #: The names of rows with the shapes of their arrays, by group; known once `measure` has run.
    names: tuple[list[RowNames], ...] = field(default_factory=lambda: ([], [], []), init=False)

    @functools.cached_property
    def fixed(self) -> Any:
        """The elements that bounds fix, which are equations: between two inequalities there would be no room."""
        return find_fixed(self.layout, self.bounds)

    def measure(self, x: Any, params: tuple[Any, ...]) -> ProgramShape:
        """The shape of the program, from one evaluation of the constraints."""
        for group, rows in zip(self.names, self._rows(x, params), strict=True):
            group[:] = [(name, [shape(leaf) for leaf in leaves]) for name, leaves in rows]
        equal, numbers, cones = ([sum(math.prod(s) for s in shapes) for _, shapes in group] for group in self.names)
        return ProgramShape(self.layout.size, sum(equal), Cones.of(sum(numbers), cones))

    def evaluate(self, x: Any, *params: Any) -> Any:
        """f, E and C at a vector x, as one vector."""
        value = as_array_leaf(self.f(self.layout.to_tree(x), *params), self.what)
        if shape(value) != ():
            raise ArgumentError(f"{self.what}: the function must return one number, got the shape {shape(value)}.")
        rows = [leaf for group in self._rows(x, params) for _, leaves in group for leaf in leaves]
        return join_rows([value, *rows], self.layout.dtype)

    def find_start(self, x: Any, params: tuple[Any, ...]) -> Any:
        """A start, or one inside of the bounds where the functions are not defined at this one."""
        if self.bounds[0] is None and self.bounds[1] is None:
            return x
        inside = move_inside(self.layout, x, self.bounds)
        if is_array(x) and is_array(inside) and bool((x == inside).all()):
            return x
        given, structure = flatten(params)
        constants = unflatten(structure, [detach(p) for p in given])
        with np.errstate(all="ignore"):
            values, pull = vjp(lambda x: self.evaluate(x, *constants), x)
            found = concat([values, pull(0.0 * values + 1.0)[0]])
            return detach(pointwise.where(reductions.all(pointwise.isfinite(found)), x, inside))

    def conditions(self, shape: ProgramShape) -> Function:
        """The function of (w, *params) that `ProgramShape` describes."""

        def evaluate_conditions(w: Any, *params: Any) -> Any:
            x, y, z = shape.cut_unknown(w)
            values, pull = vjp(lambda x: self.evaluate(x, *params), x)
            one = pointwise.add(pointwise.multiply(0.0, values[:1]), 1.0)
            gradient = pull(concat([one, pointwise.negative(y), pointwise.negative(z)]))[0]
            return concat([gradient, values[1:], values[:1]])

        return evaluate_conditions

    def slopes(self, shape: ProgramShape) -> None:
        """Of functions nothing is known."""

    def name_equation(self, row: int) -> str:
        """What the user calls a row of E."""
        return f"bounds[{self.fixed[row]}]" if row < len(self.fixed) else _name_row(self.names[0], row)

    def name_inequality(self, row: int) -> str:
        """What the user calls a row of C."""
        return _name_row([*self.names[1], *self.names[2]], row)

    def multipliers(self, y: Any, z: Any) -> dict[str, Any]:
        """Multipliers by the name of their constraint, each like what the constraint returns."""
        found = _cut_rows(self.names[0], y) | _cut_rows([*self.names[1], *self.names[2]], z)
        if len(self.fixed):
            pressed = matmul(self._mark_fixed(y).T, found.pop("bounds"))
            for name, sign in (("lower bounds", 1.0), ("upper bounds", -1.0)):
                found[name] = found[name] + pointwise.maximum(sign * pressed, 0.0)
        bounds = {
            name: self.layout.to_tree(reshape(found.pop(name), (self.layout.size,)))
            for name in ("lower bounds", "upper bounds")
            if name in found
        }
        return bounds | found

    def _mark_fixed(self, like: Any) -> Any:
        """The rows of the unit matrix that belong to fixed elements, where a value is."""
        xp = namespace_on(spec_of(like).device)
        return xp.asarray(np.eye(self.layout.size)[self.fixed], self.layout.dtype)

    def _rows(self, x: Any, params: tuple[Any, ...]) -> list[list[tuple[str, list[Any]]]]:
        """The rows of each group, by name."""
        groups: list[list[tuple[str, list[Any]]]] = [[], [], []]
        for bound, name, sign in zip(self.bounds, ("lower bounds", "upper bounds"), (1.0, -1.0), strict=True):
            if bound is not None:
                distances = bound_distances(x, self.layout, bound, sign)
                if len(self.fixed):
                    marks = self._mark_fixed(x)
                    groups[0] += [("bounds", [matmul(marks, distances)])] if sign > 0 else []
                    distances = pointwise.where(reductions.sum(marks, 0) > 0, 1.0, distances)
                groups[1].append((name, [distances]))
        for number, constraint in enumerate(self.constraints):
            group = next(i for i, kinds in enumerate(_GROUPS) if isinstance(constraint, kinds))
            groups[group].append((f"constraints[{number}]", constraint.residual(x, self.layout, params)))
        return groups


def check_constraints(what: str, constraints: Any) -> tuple[Constraint, ...]:
    """A sequence of constraints, or an error."""
    given = (constraints,) if isinstance(constraints, Constraint) else constraints
    if not isinstance(given, Sequence) or not all(isinstance(c, Constraint) for c in given):
        raise ArgumentError(
            f"{what}: constraints is a list of pb.implicit.Equal(g, value), AtLeast(g, bound), AtMost(g, bound) or "
            f"NormAtMost(g, bound), got {constraints!r}."
        )
    return tuple(given)


def check_bounds(what: str, bounds: Any) -> tuple[Any, Any]:
    """A pair (lower, upper), or an error."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ArgumentError(
            f"{what}: bounds is a pair (lower, upper) of numbers, of trees like x, or of None, got {bounds!r}.\n"
            "  Where SciPy has a pair for each number of x, write (np.array(lowers), np.array(uppers))."
        )
    return bounds[0], bounds[1]


def _name_row(names: Sequence[RowNames], row: int) -> str:
    first = 0
    for name, shapes in names:
        size = sum(map(math.prod, shapes))
        if row < first + size:
            return name if size == 1 else f"{name}[{row - first}]"
        first += size
    raise IndexError(row)


def _cut_rows(names: Sequence[RowNames], vector: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    first = 0
    for name, shapes in names:
        leaves = []
        for s in shapes:
            leaves.append(reshape(vector[first : first + math.prod(s)], s))
            first += math.prod(s)
        found[name] = leaves[0] if len(leaves) == 1 else leaves
    return found
