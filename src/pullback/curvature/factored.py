"""Gradients of parameters as rows of two factors: how each output of a program is put together from its terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import is_half, spec_of
from ..ops.contract.einsum import contract_operands, einsum
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import multiply
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype, reshape
from ..program.ir import Program, Symbol
from .layout import Layout, lay_out
from .terms import Term, find_terms

#: Values of a program by the ids of their symbols.
Known = Mapping[int, Any]


class Rows(NamedTuple):
    """Matrices left^T right: left is (..., stack, rows, m), right is (..., stack, rows, n)."""

    left: Any
    right: Any

    @property
    def row_count(self) -> int:
        """The number of rows: one for a matrix that each sample is multiplied with once."""
        return int(shape(self.left)[-2])

    def multiply_out(self) -> Any:
        """(..., stack, m, n)"""
        return einsum("...srm,...srn->...smn", self.left, self.right)


@dataclass(frozen=True, slots=True)
class Leaf:
    """How the gradient of one parameter is computed: from its terms, or (without any) as the output alone. `layout` is
    that of the matrices. What depends on cotangents, if anything is said to, is on the right side.
    """

    output: Any
    layout: Layout | None = None
    terms: tuple[Term, ...] = ()
    late: Set[int] = frozenset()

    def symbols(self, late: bool) -> dict[int, Symbol]:
        """The values of the program that it is made of, and that depend on cotangents or do not."""
        of_terms = [x for t in self.terms for x in (*(o.value for o in t.operands), *t.scales)]
        found = of_terms if self.terms else [self.output]
        return {id(x): x for x in found if type(x) is Symbol and (id(x) in self.late) is late}

    def value(self, known: Known) -> Any:
        """The gradient, of a leaf without terms."""
        return widen(known.get(id(self.output), self.output))

    def side(self, number: int, known: Known) -> Any:
        """The left side (0) or the right one (1), of all terms below each other."""
        parts = [_arrange_side(t, number, known, self._scales(t, number)) for t in self.terms]
        return parts[0] if len(parts) == 1 else concat(parts, axis=-2)

    def _scales(self, term: Term, number: int) -> list[Any]:
        return [x for x in term.scales if (id(x) in self.late) is bool(number)]


def make_leaf(program: Program, output: Any, late: Set[int] = frozenset()) -> Leaf:
    """The leaf of one output: factored if all its terms have one layout, transposed or not, and if what is late is on
    one side of them all.
    """
    plain = Leaf(output, late=late)
    terms = find_terms(program, output) if spec_of(output).size else None
    if not terms:
        return plain
    first = _put_late_right(terms[0], late)
    layout = lay_out(first)[0]
    aligned = [_align(t, layout) for t in (first, *terms[1:])]
    found = tuple(t for t in aligned if t is not None and _late_sides(t, late) in ((False, False), (False, True)))
    return Leaf(output, layout, found, late) if len(found) == len(terms) and layout.is_matrix else plain


def _late_sides(term: Term, late: Set[int]) -> tuple[bool, bool]:
    left, right = (id(o.value) in late for o in term.operands)
    return left, right


def _put_late_right(term: Term, late: Set[int]) -> Term:
    return _swap(term) if _late_sides(term, late) == (True, False) else term


def _swap(term: Term) -> Term:
    return replace(term, operands=term.operands[::-1])


def _align(term: Term, layout: Layout) -> Term | None:
    """The term with its operands in the order of the layout."""
    found = lay_out(term)[0]
    return term if found == layout else _swap(term) if found.swap() == layout else None


def _arrange_side(term: Term, number: int, known: Known, scales: list[Any]) -> Any:
    """An operand as (stack, rows, own axes), scaled; what only it has, and the result has not, is summed."""
    _, (stack, contracted, *own) = lay_out(term)
    operand, groups = term.operands[number], (stack, contracted, own[number])
    value = widen(known.get(id(operand.value), operand.value))
    value = value if operand.prepare is None else operand.prepare(value)
    apart = reshape(value, tuple(term.sizes[c] for c in operand.letters))
    side = contract_operands([apart], [operand.letters], "".join(groups))
    for x in scales:
        scale = widen(known.get(id(x), x))
        side = multiply(side, reshape(scale, ()) if spec_of(scale).ndim else scale)
    return reshape(side, tuple(math.prod(term.sizes[c] for c in group) for group in groups))


def widen(x: Any) -> Any:
    """Half precision as float32: squares of gradients leave its range."""
    return astype(x, np.float32) if spec_of(x).inexact and is_half(spec_of(x).dtype) else x
