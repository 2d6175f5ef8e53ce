"""A product of cones: one vector, cut into blocks, each of which has its algebra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat, stack
from ...transforms.vectorize import vmap
from .cone_blocks import ConeBlock, Orthant, Scaling, SecondOrderCones


@dataclass(frozen=True)
class Cones:
    """The blocks that a vector of inequalities consists of, in their order."""

    blocks: tuple[ConeBlock, ...]

    @staticmethod
    def of(numbers: int, second_order: Sequence[int] = ()) -> Cones:
        """So many numbers that are not negative, then second-order cones of these sizes; equal neighbors together."""
        blocks: list[ConeBlock] = [Orthant(numbers)] if numbers else []
        for size in second_order:
            last = blocks[-1] if blocks else None
            if isinstance(last, SecondOrderCones) and last.size == size:
                blocks[-1] = SecondOrderCones(last.degree + 1, size)
            else:
                blocks.append(SecondOrderCones(1, size))
        return Cones(tuple(blocks))

    @property
    def length(self) -> int:
        """How many elements the vector has."""
        return sum(block.length for block in self.blocks)

    @property
    def degree(self) -> int:
        """How many cones there are."""
        return sum(block.degree for block in self.blocks)

    def cone_of_row(self, row: int) -> tuple[int, int, int]:
        """Of an element: the number of its cone, where that starts, and how many elements it has."""
        cone = first = 0
        for block in self.blocks:
            if row < first + block.length:
                inside = (row - first) // block.size
                return cone + inside, first + inside * block.size, block.size
            cone, first = cone + block.degree, first + block.length
        raise IndexError(row)

    def unit(self, xp: Any, dtype: Any) -> Any:
        """The one of the product."""
        return _join([block.unit(xp, dtype) for block in self.blocks]) if self.blocks else xp.zeros(0, dtype)

    def mark_numbers(self, xp: Any, dtype: Any) -> Any:
        """One for each element that is a number by itself, and zero for those of longer vectors."""
        marks = [xp.full(block.length, block.size == 1, dtype) for block in self.blocks]
        return _join(marks) if marks else xp.zeros(0, dtype)

    def product(self, a: Any, b: Any) -> Any:
        """The product of two vectors, cone by cone."""
        return self._each("product", a, b)

    def divide(self, a: Any, b: Any) -> Any:
        """x whose product with a is b, for a inside of the cones."""
        return self._each("divide", a, b)

    def barrier(self, s: Any) -> Any:
        """The barrier: it is minus infinity at the boundary."""
        if not self.blocks:
            return reductions.sum(s)
        parts = [block.barrier(v) for block, v in zip(self.blocks, self._cut(s), strict=True)]
        return reductions.sum(stack(parts))

    def scaling(self, s: Any, z: Any) -> list[Scaling]:
        """W with W z = W^-1 s, block by block."""
        pairs = zip(self.blocks, self._cut(s), self._cut(z), strict=True)
        return [block.scaling(a, b) for block, a, b in pairs]

    def scale(self, scalings: Sequence[Scaling], v: Any) -> Any:
        """W v."""
        return self._each_scaled(lambda block: block.scale, scalings, v)

    def unscale(self, scalings: Sequence[Scaling], v: Any) -> Any:
        """W^-1 v."""
        return self._each_scaled(lambda block: block.unscale, scalings, v)

    def unscale_rows(self, scalings: Sequence[Scaling], matrix: Any) -> Any:
        """W^-1 times a matrix."""
        if not self.blocks:
            return matrix
        found: Any = vmap(lambda column: self.unscale(scalings, column), 1, 1)(matrix)
        return found

    def depth(self, v: Any) -> Any:
        """The smallest eigenvalue of each cone: negative where the vector lies outside."""
        return self._each("depth", v)

    def longest_step(self, s: Any, ds: Any, limit: float = 1.0) -> Any:
        """The largest t up to a limit with s + t ds in the cones."""
        if not self.blocks:
            return limit
        exits = [block.fastest_exit(a, b) for block, a, b in zip(self.blocks, self._cut(s), self._cut(ds), strict=True)]
        return 1 / pointwise.maximum(reductions.max(stack(exits)), 1 / limit)

    def move_inside(self, v: Any, unit: Any) -> Any:
        """v, or, where it lies not well inside, v and as much of the unit as brings it there."""
        if not self.blocks:
            return v
        depth = reductions.min(self.depth(v))
        size = pointwise.maximum(reductions.max(pointwise.abs(v)), 1.0)
        return v + pointwise.where(depth > 1e-3 * size, 0.0, 1 - depth) * unit

    def pieces(self, u: Any, margin: float = 0.0) -> Any:
        """For each cone, which formula projects u to it."""
        cut = zip(self.blocks, self._cut(u), strict=True)
        return _join([block.pieces(v, margin) for block, v in cut]) if self.blocks else u

    def project(self, u: Any, pieces: Any) -> Any:
        """The closest point of the cones, by the formulas of these pieces."""
        if not self.blocks:
            return u
        found, first = [], 0
        for block, v in zip(self.blocks, self._cut(u), strict=True):
            found.append(block.project(v, pieces[first : first + block.degree]))
            first += block.degree
        return _join(found)

    def apply_slope(self, u: Any, pieces: Any, function: Callable[[Any], Any], v: Any) -> Any:
        """A function of the slope of the projection at u, times a vector or the columns of a matrix."""
        if not self.blocks:
            return v
        if len(shape(v)) == 2:
            found: Any = vmap(lambda column: self.apply_slope(u, pieces, function, column), 1, 1)(v)
            return found
        parts, first = [], 0
        for block, a, b in zip(self.blocks, self._cut(u), self._cut(v), strict=True):
            parts.append(block.apply_slope(a, pieces[first : first + block.degree], function, b))
            first += block.degree
        return _join(parts)

    def _cut(self, v: Any) -> list[Any]:
        found, first = [], 0
        for block in self.blocks:
            found.append(v if len(self.blocks) == 1 else v[first : first + block.length])
            first += block.length
        return found

    def _each(self, name: str, *vectors: Any) -> Any:
        if not self.blocks:
            return vectors[0]
        cut = [self._cut(v) for v in vectors]
        return _join([getattr(block, name)(*parts) for block, *parts in zip(self.blocks, *cut, strict=True)])

    def _each_scaled(self, function: Callable[[ConeBlock], Any], scalings: Sequence[Scaling], v: Any) -> Any:
        if not self.blocks:
            return v
        triples = zip(self.blocks, scalings, self._cut(v), strict=True)
        return _join([function(block)(scaling, part) for block, scaling, part in triples])


def _join(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else concat(list(parts))
