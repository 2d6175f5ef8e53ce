"""Program in, one with casts where they cost least out: what has half precision is moved as such.

Moving elements (reshapes, transposes, slices, concatenations) commutes with converting each of them. So a value is
narrowed before it is moved, by the loop that computes it, and widened after, by the loop that uses it; in between, half
the bytes are stored, and products read and write them where they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..arrays.spec import Spec, is_half, make_spec, spec_of
from ..ops.forms import Cast, Name, ScatterAdd
from ..ops.op import PURE
from ..ops.shape.reshaping import astype_op, broadcast_op
from .ir import Equation, Program, Symbol


def move_casts(program: Program) -> Program:
    """Narrow before moves, widen after them, and drop casts that undo each other."""
    if not any(is_half(s.spec.dtype) for e in program.equations if _is_cast(e) for s in (*e.results, e.args[0])):
        return program
    return _narrow_early(_widen_late(program))


def _widen_late(program: Program) -> Program:
    """Move values of half precision that were widened first, and widen the result."""
    narrow: dict[int, Symbol] = {}  # the value of half precision that each widened one is
    equations: list[Equation] = []
    known: dict[int, Any] = {}
    for e in program.equations:
        e = _substitute(e, known)
        sources = [narrow.get(id(a)) if _is_wide(spec_of(a)) else a for a in e.args]
        if _is_widening(e):
            narrow[id(e.results[0])] = e.args[0]
        elif _is_cast(e) and sources[0] is not None and spec_of(sources[0]) == e.results[0].spec:
            known[id(e.results[0])] = sources[0]
            continue
        elif _is_move(e) and e.op is not broadcast_op and (dtype := _common_dtype(sources, e)) is not None:
            moved = tuple(_symbol_like(r, dtype) for r in e.results)
            equations.append(Equation(moved, e.op, tuple(sources), e.static))
            for symbol, result in zip(moved, e.results, strict=True):
                equations.append(_cast(symbol, result))
                narrow[id(result)] = symbol
            continue
        equations.append(e)
    return _with(program, equations, known)


def _common_dtype(sources: Sequence[Any], e: Equation) -> Any:
    """The half dtype of all that an equation moves, if it has one."""
    found = {None if s is None else s.spec.dtype for s, a in zip(sources, e.args, strict=True) if s is not a}
    return found.pop() if len(found) == 1 else None


def _narrow_early(program: Program) -> Program:
    """Narrow what is moved only to be narrowed, before it is."""
    early = _find_early(program)
    if not early:
        return program
    narrow: dict[tuple[int, Any], Any] = {}
    equations: list[Equation] = []
    known: dict[int, Any] = {}

    def narrowed(x: Symbol, dtype: Any) -> Any:
        if spec_of(x).dtype == dtype:
            return x
        if (id(x), dtype) not in narrow:
            narrow[id(x), dtype] = _symbol_like(x, dtype)
            equations.append(_cast(x, narrow[id(x), dtype]))
        return narrow[id(x), dtype]

    for e in program.equations:
        e = _substitute(e, known)
        dtype = early.get(id(e.results[0]))
        if dtype is not None:
            moved = tuple(_symbol_like(r, dtype) for r in e.results)
            equations.append(Equation(moved, e.op, tuple(narrowed(a, dtype) for a in e.args), e.static))
            narrow.update({(id(r), dtype): m for r, m in zip(e.results, moved, strict=True)})
        elif _is_narrowing(e) and (found := narrow.get((id(e.args[0]), e.results[0].spec.dtype))) is not None:
            known[id(e.results[0])] = found
        else:
            equations.append(e)
    return _with(program, equations, known)


def _find_early(program: Program) -> dict[int, Any]:
    """The dtype to which the results of a move are all narrowed, by the first result; those are moved as such. Of a
    value of which moves take few elements, the others need not be narrowed.
    """
    asked: dict[int, set[Any]] = {id(o): {None} for o in program.outputs}
    taken: dict[int, int] = {}  # how many elements of each value moves take in all
    for e in program.equations:
        if _is_plain_move(e):
            for a in e.args:
                taken[id(a)] = taken.get(id(a), 0) + sum(s.spec.size for s in e.results)
    early: dict[int, Any] = {}
    for e in reversed(program.equations):
        wanted = {dtype for s in e.results for dtype in asked.get(id(s), ())}
        request: Any = None
        if _is_narrowing(e):
            request = e.results[0].spec.dtype
        elif _is_plain_move(e) and len(wanted) == 1 and all(taken[id(a)] >= a.spec.size for a in e.args):
            (request,) = wanted
            early |= {} if request is None else {id(e.results[0]): request}
        for a in e.args:
            asked.setdefault(id(a), set()).add(request)
    return early


def _is_cast(e: Equation) -> bool:
    return isinstance(e.op.form, Cast) and isinstance(e.args[0], Symbol)


def _is_widening(e: Equation) -> bool:
    return _is_cast(e) and is_half(e.args[0].spec.dtype) and _is_wide(e.results[0].spec)


def _is_narrowing(e: Equation) -> bool:
    return _is_cast(e) and _is_wide(e.args[0].spec) and is_half(e.results[0].spec.dtype)


def _is_wide(spec: Spec) -> bool:
    return spec.dtype.char == "f" and spec.weak is None


def _is_move(e: Equation) -> bool:
    """Whether each element of the results is one of the arguments', or zero."""
    op = e.op
    if op.family != "linear" or not op.rearranges or op.effects is not PURE or isinstance(op.form, Cast | Name):
        return False
    once = not op.wide_value or (isinstance(op.form, ScatterAdd) and len(e.args) == 1)
    return once and all(_is_wide(s.spec) for s in e.results) and any(_is_wide(spec_of(a)) for a in e.args)


def _is_plain_move(e: Equation) -> bool:
    """Whether it moves by strides alone: what is gathered at indices is converted in the same loop anyway."""
    return _is_move(e) and all(isinstance(a, Symbol) and spec_of(a).dtype.kind in "fV" for a in e.args)


def _symbol_like(x: Symbol, dtype: Any) -> Symbol:
    found: Symbol = Symbol(make_spec(x.spec.shape, dtype, x.spec.device), x.scope, [], None)
    if (site := getattr(x, "site", None)) is not None:
        found.site = site
    return found


def _cast(x: Symbol, result: Symbol) -> Equation:
    return Equation((result,), astype_op, (x,), {"dtype": result.spec.dtype})


def _substitute(e: Equation, known: dict[int, Any]) -> Equation:
    if not known or not any(id(a) in known for a in e.args):
        return e
    return Equation(e.results, e.op, tuple(known.get(id(a), a) for a in e.args), e.static)


def _with(program: Program, equations: list[Equation], known: dict[int, Any]) -> Program:
    outputs = tuple(known.get(id(o), o) for o in program.outputs)
    return dataclasses.replace(program, equations=tuple(equations), outputs=outputs)
