"""The root of an equation as an op, with derivatives of any order and in both modes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply
from ...ops.forms import Expand
from ...ops.op import Formula, Op
from ...transforms.custom.rules import as_bare_results, make_custom_record
from ..late_checks import can_check_later, check_later
from .adjoint import EagerAdjoint
from .implicit_equation import ImplicitEquation
from .search import Search


def find_root(equation: ImplicitEquation, start: Any, *p: Any) -> Any:
    """x with F(x, *p) = 0, differentiable in p to any order; the start is not differentiated."""
    return apply(_root_op, start, *p, equation=equation)


def _solve_bare(xp: Any, start: Any, *p: Any, equation: ImplicitEquation) -> Any:
    """The root for bare arrays, checked by its true residual."""
    with np.errstate(all="ignore"):
        x, left, _ = Search(equation).run(start, *p)
    return as_bare_results(equation.check_converged(x, left), equation.what)


def _stage_solve(start: Any, *p: Any, equation: ImplicitEquation) -> Any:
    """The search as a loop in a traced program, reported at its end; None where a callback wants to see each step."""
    if equation.watch is not None:
        return None
    x, left, steps = Search(equation).run(start, *p)
    if can_check_later(x, equation.strict):
        return check_later(x, left, f"{equation.what}: no convergence", equation.report)
    return apply(_check_converged_op, x, left, steps, equation=equation)


def _pull_root(bar: Any, out: Any, xs: tuple[Any, ...], equation: ImplicitEquation) -> tuple[Any, ...]:
    p = xs[1:]
    if not p:
        return (None,)
    is_bare = is_array if not equation.scalar else lambda x: type(x) is np.ndarray
    if not equation.batches and all(map(is_bare, (bar, out, *p))):
        return (None, *EagerAdjoint(equation, bar, out, p).pull())
    return (None, *equation.pull(bar, out, p))


def _push_root(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: ImplicitEquation) -> Any:
    return equation.push(tangents[1:], out, xs[1:]) if len(xs) > 1 else None


def _batch_root(size: int, axes: tuple[int | None, ...], *xs: Any, equation: ImplicitEquation) -> tuple[Any, int]:
    start, *p = xs
    return find_root(equation.batch((0, *axes[1:])), move_batch_first(start, axes[0], size), *p), 0


_check_converged_op: Op = make_custom_record(
    "check_root", ("x", "left", "steps"), lambda xp, x, left, steps, equation: equation.check_converged(x, left, steps),
    None, None, None, lambda x, left, steps, equation: x,
)  # fmt: skip
_root_op: Op = replace(make_custom_record(
    "root", ("*xs",), _solve_bare, Formula(_pull_root, ("bar", "out", "xs", "equation")),
    Formula(_push_root, ("tangents", "out", "xs", "equation")), _batch_root, lambda start, *p, equation: start,
), form=Expand(_stage_solve))  # fmt: skip
