"""`jacfwd`, `jacrev`, `jacobian`, `hessian`: all first or second derivatives, in the mode and chunks of a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from ...arrays.argument_checks import check_argnums, check_functions
from ...arrays.call_site import attributed_to_caller
from ...arrays.picklable import picklable
from ...errors import ArgumentError
from ..flat_call import FlatCall
from ..holomorphic import as_complex_results, check_complex, check_holomorphic
from ..vectorize import take_unit_directions
from .directions import check_real, compute_jacobian, to_trees, with_aux
from .planner import HESSIANS, JACOBIANS, DerivativePlanner, parse_memory_budget
from .products import multiply_out, no_product_error, plan_product

P = ParamSpec("P")


@picklable
@attributed_to_caller
def jacfwd(
    f: Callable[P, Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    memory_budget: int | str | None = None,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The Jacobian by forward mode: one direction for each input, all of them in one batch. For few inputs.

    >>> import numpy as np, pullback as pb
    >>> pb.jacfwd(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return _make_derivative("jacfwd", f, argnums, "forward", has_aux, memory_budget, holomorphic)


@picklable
@attributed_to_caller
def jacrev(
    f: Callable[P, Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    memory_budget: int | str | None = None,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The Jacobian by reverse mode: f runs once, then one direction for each output, in one batch. For few outputs.

    >>> import numpy as np, pullback as pb
    >>> pb.jacrev(lambda x: pb.stack([pb.sum(x), x[0] * x[1]]))(np.array([2.0, 3.0]))
    array([[1., 1.],
           [3., 2.]])
    """
    return _make_derivative("jacrev", f, argnums, "reverse", has_aux, memory_budget, holomorphic)


@picklable
@attributed_to_caller
def jacobian(
    f: Callable[P, Any],
    argnums: Any = 0,
    *,
    mode: str = "auto",
    has_aux: bool = False,
    memory_budget: int | str | None = None,
    explain: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """All first derivatives of f: the tree of its result with, at each leaf, the tree of the argument with arrays of
    shape `out.shape + in.shape` in the dtype of the result. Several `argnums` give a tuple at each leaf.

    `mode` is "forward", "reverse", "product" (where f passes through few numbers, in both modes to and from there), or
    "auto": whichever a model of their costs says is fastest. A `memory_budget`
    (bytes, or a text such as "512 MiB") bounds what the directions under way may hold beside f itself and the
    result; they then run in chunks. `explain=True` prints the plan at each call. `holomorphic=True` is for complex
    functions of complex numbers, and gives their complex derivatives; others raise.

    >>> import numpy as np, pullback as pb
    >>> pb.jacobian(lambda x: pb.stack([x[0] ** 2, x[0] * x[1]]))(np.array([2.0, 3.0]))
    array([[4., 0.],
           [3., 2.]])
    """
    return _make_derivative("jacobian", f, argnums, mode, has_aux, memory_budget, holomorphic, explain)


@picklable
@attributed_to_caller
def hessian(
    f: Callable[P, Any],
    argnums: Any = 0,
    *,
    mode: str = "auto",
    has_aux: bool = False,
    memory_budget: int | str | None = None,
    explain: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """All second derivatives of f: the tree of its result with, at each leaf, the tree of the argument, and there that
    tree again, with arrays of shape `out.shape + in.shape + in.shape`.

    `mode` says how the Jacobian of the Jacobian is taken: "forward-over-reverse", "forward-over-forward",
    "reverse-over-reverse", "reverse-over-forward", or "auto"; the rest is as for `jacobian`.

    >>> import numpy as np, pullback as pb
    >>> pb.hessian(lambda x: x[0] ** 2 * x[1])(np.array([2.0, 3.0]))
    array([[6., 4.],
           [4., 0.]])
    """
    return _make_derivative("hessian", f, argnums, mode, has_aux, memory_budget, holomorphic, explain)


def _make_derivative(
    what: str,
    f: Callable[P, Any],
    argnums: Any,
    mode: str,
    has_aux: bool,
    memory_budget: int | str | None,
    holomorphic: bool,
    explain: bool = False,
) -> Callable[P, Any]:
    """The derivative of f in a mode such as "forward" or "reverse-over-forward", which is planned if it is "auto"."""
    check_functions(what, f)
    check_argnums(what, argnums)
    order, modes = ("hessian", tuple(HESSIANS)) if what == "hessian" else ("jacobian", (*JACOBIANS, "product"))
    if mode != "auto" and mode not in modes:
        listed = ", ".join(f'"{name}"' for name in ("auto", *modes))
        raise ArgumentError(f"{what}: mode is one of {listed}, got {mode!r}.")
    check = _check_holomorphic_call if holomorphic else check_real
    planner = DerivativePlanner(order, f, mode, parse_memory_budget(memory_budget, what))

    @functools.wraps(f)
    def derivative(*args: P.args, **kwargs: P.kwargs) -> Any:
        with take_unit_directions(what):
            return derive(args, kwargs)

    def derive(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flat = check(FlatCall(what, f, args, argnums, kwargs, has_aux))
        chosen, chunk, inner_chunk = mode, None, None
        # A plan traces the function, so it is only made where there is something to decide.
        if explain or planner.is_needed(flat.xs):
            find_product = (lambda *_: None) if holomorphic else functools.partial(plan_product, flat)
            plan = planner.plan(with_aux(flat), flat.xs, (args, kwargs, argnums), flat.holders, find_product)
            chosen, chunk, inner_chunk = plan.choice.mode, plan.choice.chunk, plan.choice.inner
            if explain:
                print(plan)
            if chosen == "product":
                return to_trees(flat, multiply_out(flat, plan.choice))
            if mode == "product":
                raise no_product_error(flat)
        if chosen == "auto":  # a single input: one direction forward is the least there is
            chosen = "forward-over-forward" if order == "hessian" else "forward"
        outer_mode, *inner_modes = chosen.split("-over-")

        def first(*inputs: Any, **named: Any) -> Any:
            inner = check(FlatCall(what, f, inputs, argnums, named, has_aux))
            return compute_jacobian(inner, inner_modes[0], inner_chunk, holomorphic)

        # The outer derivative takes the inner one for its function, so any mode goes over any other.
        if inner_modes:
            flat = FlatCall(what, first, args, argnums, kwargs, has_aux)
        return compute_jacobian(flat, outer_mode, chunk, holomorphic)

    return derivative


def _check_holomorphic_call(call: FlatCall) -> FlatCall:
    """The call, if it maps complex numbers to complex numbers, and is holomorphic where that can be seen."""
    check_complex(call)

    def results(*inputs: Any) -> list[Any]:
        return as_complex_results(call.what, call(*inputs))

    check_holomorphic(call, results)
    return call
