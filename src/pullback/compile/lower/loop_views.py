"""Loops in, loops whose products read transposed matrices in place out.

Nested programs take row-major arrays, so a view of one is taken inside, where products absorb it into strides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ...arrays.spec import spec_of
from ...ops.forms import Contract, Flow
from ...program.ir import Equation, Program, Symbol
from ..loop_ir import Layout, row_major_strides
from .fuse import Fuser
from .views import is_view


def is_row_major(layout: Layout) -> bool:
    in_order = zip(layout.shape, layout.strides, row_major_strides(layout.shape), strict=True)
    return all(n == 1 or s == t for n, s, t in in_order)


def take_views_inside(f: Fuser, e: Equation) -> Equation:
    """A loop or branch of the large arrays that its invariant arguments are views of. A loop that not only multiplies
    with them would read across the rows in every round, so for it a copy is made once.
    """
    chains = {i: _find_view_chain(f, e.args[i]) for i in _invariant_arguments(e)}
    is_branch = e.op.form.kind == "branch"
    chains = {i: chain for i, chain in chains.items() if chain and (is_branch or _only_multiplies(e, i))}
    if not chains:
        return e
    static = dict(e.static)
    for i, chain in chains.items():
        for name, n, k in _programs_taking(e, i):
            held = static[name]
            static[name] = _view_input(held, k, chain) if n is None else (
                *held[:n], _view_input(held[n], k, chain), *held[n + 1 :]
            )  # fmt: skip
    args = tuple(chains[i][-1].args[0] if i in chains else a for i, a in enumerate(e.args))
    return Equation(e.results, e.op, args, static)


def _invariant_arguments(e: Equation) -> Sequence[int]:
    """The arguments that every round takes as they are; carries are left alone even where no round changes them."""
    if e.op.form.kind == "branch":
        return range(1, len(e.args))
    first = e.static["carries"]
    return range(first, first + e.static["constants"] if e.op.form.kind == "iterate" else len(e.args))


def _programs_taking(e: Equation, i: int) -> Iterator[tuple[str, int | None, int]]:
    """The static parameters that hold a program which takes an argument, which of several, and as which input."""
    if e.op.form.kind == "branch":
        yield from (("ways", n, i - 1) for n in range(len(e.static["ways"])))
        return
    yield "body", None, i
    if e.op.form.kind == "repeat":
        yield "condition", None, i


def _find_view_chain(f: Fuser, x: Any) -> list[Equation]:
    """The views, last one first, through which a large value that is not row-major is one that is; none if there is
    none.
    """
    chain: list[Equation] = []
    while isinstance(x, Symbol) and x.spec.size >= f.limits.large_domain and not is_row_major(f.layout_of(x)):
        made = f.producer.get(id(x))
        if made is None or len(made.results) != 1 or not is_view(made) or spec_of(made.args[0]).size != x.spec.size:
            return []
        chain.append(made)
        x = made.args[0]
    return chain if isinstance(x, Symbol) else []


def _only_multiplies(e: Equation, i: int) -> bool:
    """Whether an argument of a loop or branch is in all its programs nothing but a factor of products."""
    for name, n, k in _programs_taking(e, i):
        code: Program = e.static[name] if n is None else e.static[name][n]
        symbol = code.inputs[k]
        if any(o is symbol for o in code.outputs):
            return False
        for inner in code.equations:
            for j, a in enumerate(inner.args):
                if a is symbol and not _multiplies_argument(inner, j):
                    return False
    return True


def _multiplies_argument(e: Equation, j: int) -> bool:
    if isinstance(e.op.form, Flow):
        return j in _invariant_arguments(e) and _only_multiplies(e, j)
    return isinstance(e.op.form, Contract)


def _view_input(code: Program, k: int, chain: Sequence[Equation]) -> Program:
    """A program that takes what an input is a view of."""
    base = chain[-1].args[0]
    source: Symbol = Symbol(base.spec, base.scope, [], None)
    inputs = (*code.inputs[:k], source, *code.inputs[k + 1 :])
    views: list[Equation] = []
    for view in reversed(chain):
        result = code.inputs[k] if view is chain[0] else Symbol(view.results[0].spec, base.scope, [], None)
        views.append(Equation((result,), view.op, (source,), view.static))
        source = result
    return dataclasses.replace(code, inputs=inputs, equations=(*views, *code.equations))
