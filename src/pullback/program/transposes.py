"""Program in, one with fewer transposed results out: (x y)^T is y^T x^T, computed in the order in which it is used."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from ..arrays.spec import make_spec, spec_of
from ..ops.contract.matrix_products import matmul_op
from ..ops.shape.reshaping import permute_op
from .ir import Equation, Program, Symbol


def transpose_products(program: Program) -> Program:
    """Where a matrix product is used transposed alone, as the gradient of a weight that acts transposed, multiply in
    the other order: it is then a product where it is stored or added to the weight, and nothing is copied.
    """
    producer = {id(s): e for e in program.equations for s in e.results}
    uses = Counter(id(x) for x in (*(a for e in program.equations for a in e.args), *program.outputs))
    dropped: set[int] = set()
    equations: list[Equation] = []
    for e in program.equations:
        product = producer.get(id(e.args[0])) if _is_transpose(e) else None
        if product is None or product.op is not matmul_op or uses[id(e.args[0])] > 1:
            equations.append(e)
            continue
        dropped.add(id(product))
        x, y = product.args
        factors = [_transposed(z, e.results[0], producer, equations) for z in (y, x)]
        equations.append(Equation(e.results, matmul_op, tuple(factors), product.static))
        producer[id(e.results[0])] = equations[-1]
    if not dropped:
        return program
    return dataclasses.replace(program, equations=tuple(e for e in equations if id(e) not in dropped))


def _is_transpose(e: Equation) -> bool:
    """Whether it exchanges the last two axes."""
    return e.op is permute_op and len(e.static["axes"]) > 1 and e.static["axes"] == _exchange(len(e.static["axes"]))


def _exchange(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed(x: Any, like: Symbol, producer: dict[int, Equation], equations: list[Equation]) -> Any:
    """A matrix, or a stack of them, transposed: what it was made of if it is a transpose itself, else by a new
    equation.
    """
    made = producer.get(id(x))
    if made is not None and _is_transpose(made):
        return made.args[0]
    spec = spec_of(x)
    axes = _exchange(spec.ndim)
    result = Symbol(make_spec(tuple(spec.shape[i] for i in axes), spec.dtype, spec.device), like.scope, [], None)
    equations.append(Equation((result,), permute_op, (x,), {"axes": axes}))
    return result
