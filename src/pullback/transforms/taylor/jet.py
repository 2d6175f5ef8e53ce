"""`jet`: derivatives of any order along a curve, in polynomial time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.argument_checks import check_functions
from ...arrays.scope import Scope
from ...arrays.spec import spec_of, zeros
from ...arrays.trees import flatten, leaves_matching, map_tree, unflatten
from ...errors import ArgumentError
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import divide, multiply
from ...ops.user_calls import call_function
from ..boundary import as_array_leaf, as_differentiable, check_paired, owned_copy, unwrap_to_level
from ..forward import check_tangent
from .series import Series, series_scope

#: 8! is the greatest factorial that every dtype holds: 9! is more than float16 has.
_MAX_FACTORIAL = 8


def jet(f: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The value of f and its derivatives of order 1 to n along a curve, from those of the curve: (value, derivatives).

    `primals` are the arguments of f where the curve starts. `series` has for each argument the list of its derivatives
    by t there, first, second, ..., each a tree like the argument or None for zero; a list that is shorter than others
    goes on with zeros, and None in its place stands for a constant argument. The work grows with n^2 for
    each op, where nested derivatives double it with each order.

    >>> import numpy as np, pullback as pb
    >>> pb.jet(lambda x: x**3, (np.array(2.0),), ([1.0, None, None],))
    (array(8.), [array(12.), array(12.), array(6.)])
    """
    check_functions("jet", f)
    # All series get the order of the longest: the missing derivatives are zero.
    given = _check_series(primals, series)
    order = max(map(len, given), default=0)
    scope = series_scope()
    inputs = [_make_series(x, derivatives, order, scope) for x, derivatives in zip(primals, given, strict=True)]
    with scope:
        leaves, structure = flatten(call_function(f, inputs, {}))
        rows = [_split_derivatives(unwrap_to_level(as_array_leaf(x, "jet"), scope), order, scope) for x in leaves]
        value, *found = [unflatten(structure, [row[k] for row in rows]) for k in range(order + 1)]
        return value, found


def _check_series(primals: Sequence[Any], series: Sequence[Any]) -> list[Sequence[Any]]:
    check_paired("jet", primals, series, "series")
    for i, one in enumerate(series):
        if not (one is None or isinstance(one, (tuple, list))):
            raise ArgumentError(
                f"jet: the series of argument {i} is a {type(one).__name__}, wanted the list of its derivatives.\n"
                "  For a first derivative v alone: [v]."
            )
    return [() if one is None else one for one in series]


def _make_series(primal: Any, derivatives: Sequence[Any], order: int, scope: Scope) -> Any:
    """One argument as series, leaf by leaf; unchanged if it is constant."""
    if all(d is None for d in derivatives):
        return map_tree(as_value, primal)
    leaves, structure = flatten(primal)
    values = [as_differentiable(x, "jet", structure, i) for i, x in enumerate(leaves)]
    known = [[x] for x in values]
    for k, derivative in enumerate(derivatives, 1):
        parts = [None] * len(leaves) if derivative is None else leaves_matching(structure, derivative, "jet: series")
        for row, part in zip(known, parts, strict=True):
            row.append(None if part is None else _scale_by_factorial(divide, check_tangent(row[0], part, "jet"), k))
    for row in known:
        row += [None] * (order + 1 - len(row))
    return unflatten(structure, [Series(row, scope) for row in known])


def _split_derivatives(out: Any, order: int, scope: Scope) -> list[Any]:
    """A result and its derivatives, as values of the level below: the k-th is k! times the k-th coefficient."""
    if type(out) is not Series or out.scope is not scope:
        return [owned_copy(out), *(zeros(spec_of(out)) for _ in range(order))]
    later = [owned_copy(out.coefficient(k)) for k in range(1, order + 1)]
    return [
        owned_copy(out.coefficient(0)),
        *(zeros(out.spec) if c is None else _scale_by_factorial(multiply, c, k) for k, c in enumerate(later, 1)),
    ]


def _scale_by_factorial(op: Callable[[Any, Any], Any], x: Any, k: int) -> Any:
    """x times or over k!, by factors that every dtype holds."""
    factors = [math.factorial(min(k, _MAX_FACTORIAL)), *range(_MAX_FACTORIAL + 1, k + 1)]
    # One product of all would overflow float16 before the result does.
    for factor in factors:
        x = x if factor == 1 else op(x, factor)
    return x
