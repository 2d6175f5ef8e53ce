"""How the matrices of a term make up an array: `Layout`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays.spec import spec_of
from ..ops.shape.reshaping import permute_dims, reshape
from .terms import Term


@dataclass(frozen=True, slots=True)
class Layout:
    """How stacks of matrices (stack, m, n) make up an array: for each axis the parts (class, size) that it is a product
    of, from slowest to fastest; the class is "s" (stack), "m" (rows, from the first operand) or "n" (columns).
    """

    axes: tuple[tuple[tuple[str, int], ...], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(stack, m, n)"""
        stack, m, n = (math.prod(size for kind, size in self._parts() if kind == k) for k in "smn")
        return stack, m, n

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(size for _, size in axis) for axis in self.axes)

    @property
    def is_matrix(self) -> bool:
        """Whether factors are smaller than their product."""
        return min(self.sizes[1:]) > 1

    def _parts(self) -> list[tuple[str, int]]:
        return [part for axis in self.axes for part in axis]

    def _order(self) -> list[int]:
        """The parts by class, each class in the order of the array."""
        return sorted(range(len(self._parts())), key=lambda i: "smn".index(self._parts()[i][0]))

    def to_array(self, matrices: Any) -> Any:
        """(..., stack, m, n) as (..., *shape)."""
        front, parts, order = spec_of(matrices).shape[:-3], self._parts(), self._order()
        apart = reshape(matrices, (*front, *(parts[i][1] for i in order)))
        k = len(front)
        axes = (*range(k), *(k + order.index(i) for i in range(len(order))))
        return reshape(permute_dims(apart, axes), (*front, *self.shape))

    def to_matrices(self, array: Any) -> Any:
        """An array (*shape) as (stack, m, n)."""
        apart = reshape(array, tuple(n for _, n in self._parts()))
        return reshape(permute_dims(apart, self._order()), self.sizes)

    def swap(self) -> Layout:
        """The layout of the transposed matrices."""
        other = {"s": "s", "m": "n", "n": "m"}
        return Layout(tuple(tuple((other[k], size) for k, size in axis) for axis in self.axes))


def lay_out(term: Term) -> tuple[Layout, tuple[str, str, str, str]]:
    """The layout of a term, and the letters that are stack, contracted, rows and columns."""
    left, right, result = term.operands[0].letters, term.operands[1].letters, "".join(term.axes)
    kinds = {c: "s" if c in left and c in right else "m" if c in left else "n" for c in result}
    stack, rows, columns = ("".join(c for c in result if kinds[c] == k) for k in "smn")
    contracted = "".join(c for c in left if c in right and c not in result)
    axes = tuple(_join_parts([(kinds[c], term.sizes[c]) for c in axis]) for axis in term.axes)
    return Layout(axes), (stack, contracted, rows, columns)


def _join_parts(parts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Neighbors of one class are one part."""
    found: list[tuple[str, int]] = []
    for kind, size in parts:
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] * size)
        else:
            found.append((kind, size))
    return tuple(found)
