"""What selections of a program are idle: a mask applied twice need be applied once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..ops.elementwise.pointwise import logical_and, where
from ..ops.shape.reshaping import broadcast_op, reshape_op
from .ir import Equation, Program, Symbol

_SELECT, _AND = where.op, logical_and.op
_VIEWS = broadcast_op, reshape_op


class Masks:
    """What is known of the masks of a program: for each the masks that hold wherever it holds. Keys stand for masks;
    what is smaller than the result is broadcast to it in one way, so equal keys are equal there.
    """

    def __init__(self, program: Program) -> None:
        self.producer = {id(s): e for e in program.equations for s in e.results}
        self.implied: dict[int, frozenset[Any]] = {}

    def implied_by(self, mask: Any) -> frozenset[Any]:
        """The keys of masks that hold where this one does, those of its own among them."""
        found = self.implied.get(id(mask))
        if found is None:
            e = self.producer.get(id(mask))
            found = self.keys_of(mask)
            if e is not None and e.op is _AND:
                found = found.union(*map(self.implied_by, e.args))
            elif e is not None and e.op in _VIEWS:
                found |= {(_view_key(e), key) for key in self.implied_by(e.args[0])}
            self.implied[id(mask)] = found
        return found

    def keys_of(self, mask: Any) -> frozenset[Any]:
        """The keys of a mask: its own, and as the view of another."""
        e = self.producer.get(id(mask))
        if e is None or e.op not in _VIEWS:
            return frozenset((id(mask),))
        return frozenset((id(mask), *((_view_key(e), key) for key in self.keys_of(e.args[0]))))

    def without_selection(self, mask: Any, value: Any, branch: int) -> Any:
        """A value of which only the elements under the mask (or, for branch 2, off it) matter."""
        while isinstance(value, Symbol) and (e := self.producer.get(id(value))) is not None and e.op is _SELECT:
            inner, under = e.args[0], e.args[branch]
            holds = bool(self.keys_of(inner) & (self.implied_by(mask) if branch == 1 else self.keys_of(mask)))
            if not holds or spec_of(under) != value.spec:
                break
            value = under
        return value

    def supports_of(self, value: Any) -> frozenset[Any]:
        """The keys of masks off which a value is zero."""
        e = self.producer.get(id(value))
        if e is not None and e.op is _SELECT and _is_zero(e.args[2]):
            return self.implied_by(e.args[0]) | self.supports_of(e.args[1])
        if e is not None and e.op in _VIEWS:
            return frozenset((_view_key(e), key) for key in self.supports_of(e.args[0]))
        return frozenset()

    def holds_on(self, mask: Any, supports: frozenset[Any]) -> bool:
        """Whether a mask holds wherever all of those do."""
        if self.keys_of(mask) & supports:
            return True
        e = self.producer.get(id(mask))
        return e is not None and e.op is _AND and all(self.holds_on(a, supports) for a in e.args)

    def find_selected(self, e: Equation) -> tuple[Any] | None:
        """The argument of a selection that changes nothing, since it is zero off the mask already."""
        if e.op is not _SELECT or not _is_zero(e.args[2]) or spec_of(e.args[1]) != e.results[0].spec:
            return None
        return (e.args[1],) if self.holds_on(e.args[0], self.supports_of(e.args[1])) else None

    def select_once(self, e: Equation) -> Equation:
        """A selection from a value itself, where that was selected by the same mask, or a weaker one, before."""
        if e.op is not _SELECT:
            return e
        mask, *branches = e.args
        found = [self.without_selection(mask, x, i) for i, x in enumerate(branches, 1)]
        if all(x is y for x, y in zip(found, branches, strict=True)):
            return e
        return Equation(e.results, e.op, (mask, *found), e.static)


def _is_zero(x: Any) -> bool:
    """Whether it is the number zero, and not a negative one, in either part of a complex one."""
    return not isinstance(x, Symbol) and not np.ndim(x) and not x and not np.signbit([np.real(x), np.imag(x)]).any()


def _view_key(e: Equation) -> Any:
    return id(e.op), repr(sorted(e.static.items()))
