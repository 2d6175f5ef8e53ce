"""Gathers of computed values as computations of gathered ones: a value of which few elements are read stays a line of
its loop, where it would be stored as a whole to be read at indices.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arrays.spec import make_spec, spec_of
from ..ops.forms import Cast, Gather, Reduce
from ..ops.shape.reshaping import broadcast_op
from .ir import Equation, Program, Symbol

#: A gather is moved if it reads at most this part of its source, and adds no more equations than that.
_SMALL_SHARE, _MOST_EQUATIONS = 8, 24


def gather_sources(program: Program) -> Program:
    """Where few elements of an elementwise value are gathered, and nothing else needs the value in memory, gather from
    what it is computed of and compute those elements alone.
    """
    producer = {id(s): e for e in program.equations for s in e.results}
    uses: dict[int, list[Equation | None]] = {}
    for e in program.equations:
        for a in e.args:
            uses.setdefault(id(a), []).append(e)
    for o in program.outputs:
        uses.setdefault(id(o), []).append(None)
    equations: list[Equation] = []
    for e in program.equations:
        moved = None
        if _reads_few(e) and _is_computed(producer.get(id(e.args[0]))) and all(map(_joins, uses[id(e.args[0])])):
            moved = _Mover(e, producer).move()
        equations += [e] if moved is None else moved
    if len(equations) == len(program.equations):
        return program
    return dataclasses.replace(program, equations=tuple(equations))


def _reads_few(e: Equation) -> bool:
    if not isinstance(e.op.form, Gather) or len(e.args) < 2:
        return False
    return _SMALL_SHARE * e.results[0].spec.size <= spec_of(e.args[0]).size


def _is_computed(e: Equation | None) -> bool:
    """Whether a value is computed element by element, and may be computed again."""
    if e is None or len(e.results) != 1 or e.results[0].spec.weak is not None or not e.op.is_repeatable(e.static):
        return False
    return e.op.family == "elementwise" or isinstance(e.op.form, Cast)


def _joins(e: Equation | None) -> bool:
    """Whether a use of a value can be in the loop that computes it, or is a small gather itself."""
    return e is not None and (_is_computed(e) or isinstance(e.op.form, Reduce) or _reads_few(e))


class _Mover:
    """One gather while it is moved to the sources of its argument."""

    def __init__(self, gather: Equation, producer: dict[int, Equation]) -> None:
        self.gather, self.producer = gather, producer
        self.whole, self.result = spec_of(gather.args[0]), gather.results[0]
        self.known: dict[int, Any] = {}
        self.equations: list[Equation] = []
        self.count = 0

    def move(self) -> list[Equation] | None:
        """The equations in place of the gather; None if they would be many, or none of them looked at the indices."""
        found = self._gathered(self.gather.args[0])
        if self.count > _MOST_EQUATIONS or not self.count:
            return None
        last = self.equations[-1]
        assert last.results[0] is found
        return [*self.equations[:-1], Equation((self.result,), last.op, last.args, last.static)]

    def _gathered(self, x: Any) -> Any:
        """The elements of a value of the source's shape; of one without axes, itself."""
        spec = spec_of(x)
        if not spec.ndim:
            return x
        if id(x) not in self.known:
            made = self.producer.get(id(x))
            if (
                made is not None
                and _is_computed(made)
                and spec.shape == self.whole.shape
                and self.count <= _MOST_EQUATIONS
            ):
                args = tuple(self._gathered(a) for a in made.args)
                self.known[id(x)] = self._add(made.op, args, made.static, spec, self.result.spec.shape)
            else:
                self.known[id(x)] = self._gather_leaf(x)
        return self.known[id(x)]

    def _gather_leaf(self, x: Any) -> Any:
        spec = spec_of(x)
        if spec.shape != self.whole.shape:
            x = self._add(broadcast_op, (x,), {"shape": self.whole.shape}, spec, self.whole.shape)
        args = (x, *self.gather.args[1:])
        return self._add(self.gather.op, args, self.gather.static, spec, self.result.spec.shape)

    def _add(self, op: Any, args: tuple[Any, ...], static: dict[str, Any], like: Any, shape: tuple[int, ...]) -> Symbol:
        self.count += 1
        spec = make_spec(shape, like.dtype, like.device)
        found: Symbol = Symbol(spec, self.result.scope, [], None)
        self.equations.append(Equation((found,), op, args, static))
        return found
