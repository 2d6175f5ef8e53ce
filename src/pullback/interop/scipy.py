"""SciPy's `minimize`, `least_squares` and `root` over trees, with exact derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .flat_function import FlatFunction, UnknownTree, bounds_as_vectors

__all__ = ["least_squares", "minimize", "root"]

#: The derivatives SciPy's methods take; methods not listed take none.
_GRADIENT = {"cg", "bfgs", "l-bfgs-b", "tnc", "slsqp"}
_PRODUCT = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
_HESSIAN = {"dogleg", "trust-exact"}


def minimize(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    method: str | None = None,
    *,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: dict[str, Any] | None = None,
    jit: bool = False,
) -> Any:
    """SciPy's `minimize` of `f(x, *args)` over a tree x of arrays, with the exact gradient, and with products of the
    Hessian (the Hessian itself for dogleg and trust-exact) where the method takes them. The result is SciPy's,
    with `.x` a tree like `x0`.

    `bounds` is (lower, upper), each None, a number or a tree like x0. `constraints` are SciPy's dicts or
    `NonlinearConstraint`s over functions of the tree, which get exact Jacobians and Hessians. `jit=True` compiles.

    >>> import numpy as np, pullback as pb
    >>> f = lambda p: (1 - p["x"]) ** 2 + 100 * (p["y"] - p["x"] ** 2) ** 2
    >>> found = pb.interop.scipy.minimize(f, {"x": -1.2, "y": 1.0}, method="trust-exact")
    >>> bool(found.success), found.x["x"].round(6), found.x["y"].round(6)
    (True, np.float64(1.0), np.float64(1.0))
    """
    optimize = _import_optimize()
    unknown = UnknownTree(x0, "minimize")
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    objective = FlatFunction(unknown, f, args, jit)
    limits = None if bounds is None else optimize.Bounds(*bounds_as_vectors(unknown, bounds))
    held = [_convert_constraint(unknown, c, jit) for c in _as_list(constraints)]
    name = _resolve_method(method, bounds is not None, bool(held))
    exact = name in _GRADIENT | _PRODUCT | _HESSIAN
    derivatives: dict[str, Any] = {"jac": True} if exact else {}
    if name in _PRODUCT:
        derivatives["hessp"] = objective.hessian_product()
    elif name in _HESSIAN:
        derivatives["hess"] = objective.hessian()
    found = optimize.minimize(
        objective.value_and_gradient() if exact else objective.value(),
        unknown.start,
        method=name,
        bounds=limits,
        constraints=held,
        tol=tol,
        callback=_wrap_callback(unknown, callback),
        options=options,
        **derivatives,
    )
    found.x = unknown.from_vector(found.x)
    return found


def _import_optimize() -> Any:
    from scipy import optimize

    return optimize


def _resolve_method(method: str | None, bounded: bool, constrained: bool) -> str:
    """The method as SciPy chooses it."""
    if method is None:
        return "slsqp" if constrained else "l-bfgs-b" if bounded else "bfgs"
    if not isinstance(method, str):
        raise ArgumentError(f"minimize: the method is one of SciPy's by name, got {method!r}.")
    return method.lower()


def _as_list(constraints: Any) -> list[Any]:
    return list(constraints) if isinstance(constraints, (list, tuple)) else [constraints]


def _wrap_callback(unknown: UnknownTree, callback: Callable[[Any], Any] | None) -> Callable[..., Any] | None:
    """A callback that gets the tree."""
    return None if callback is None else lambda vector, *rest: callback(unknown.from_vector(vector))


def _convert_constraint(unknown: UnknownTree, given: Any, jit: bool) -> Any:
    """A constraint over the tree as one over the vector, with its derivatives."""
    optimize = _import_optimize()
    if isinstance(given, dict):
        if "fun" not in given or "type" not in given:
            raise ArgumentError(f"minimize: a constraint is a dict with 'type' and 'fun', got {sorted(given)}.")
        seen = FlatFunction(unknown, given["fun"], tuple(given.get("args", ())), jit)
        return {"type": given["type"], "fun": seen.residuals(), "jac": seen.jacobian()}
    if isinstance(given, optimize.NonlinearConstraint):
        seen = FlatFunction(unknown, given.fun, (), jit)
        product = seen.weighted_hessian_product()
        size = unknown.layout.size

        def curvature(x: Any, weights: Any) -> Any:
            from scipy.sparse.linalg import LinearOperator

            return LinearOperator((size, size), matvec=lambda along: product(x, weights, along.ravel()), dtype=float)

        keep = given.keep_feasible
        return optimize.NonlinearConstraint(
            seen.residuals(), given.lb, given.ub, jac=seen.jacobian(), hess=curvature, keep_feasible=keep
        )
    if isinstance(given, optimize.LinearConstraint):
        return given  # over the leaves of x0, flattened one after the other
    raise ArgumentError(f"minimize: constraints are dicts or SciPy's constraints, got a {type(given).__name__}.")


def least_squares(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    *,
    bounds: Any = (None, None),
    jit: bool = False,
    **options: Any,
) -> Any:
    """SciPy's `least_squares` of the residuals `f(x, *args)`, a tree of arrays, over a tree x, with the exact Jacobian.
    Other settings are passed to SciPy.

    >>> import numpy as np, pullback as pb
    >>> t = np.linspace(0, 1, 5)
    >>> f = lambda p: p["a"] * pb.exp(p["b"] * t) - 2 * np.exp(-t)
    >>> found = pb.interop.scipy.least_squares(f, {"a": 1.0, "b": 0.0})
    >>> found.x["a"].round(6), found.x["b"].round(6)
    (np.float64(2.0), np.float64(-1.0))
    """
    optimize = _import_optimize()
    unknown = UnknownTree(x0, "least_squares")
    seen = FlatFunction(unknown, f, tuple(args), jit)
    limits = bounds_as_vectors(unknown, bounds)
    found = optimize.least_squares(seen.residuals(), unknown.start, jac=seen.jacobian(), bounds=limits, **options)
    found.x = unknown.from_vector(found.x)
    return found


def root(
    f: Callable[..., Any], x0: Any, args: Sequence[Any] = (), method: str = "hybr", *, jit: bool = False, **options: Any
) -> Any:
    """SciPy's `root`: a tree x where `f(x, *args)`, of as many elements as x, is zero, with the exact Jacobian for the
    methods that take one (hybr, lm). Other settings are passed to SciPy.

    >>> import numpy as np, pullback as pb
    >>> pb.interop.scipy.root(lambda x: pb.cos(x) - x, np.array([1.0])).x.round(6)
    array([0.739085])
    """
    optimize = _import_optimize()
    unknown = UnknownTree(x0, "root")
    seen = FlatFunction(unknown, f, tuple(args), jit)
    exact = {"jac": seen.jacobian()} if method.lower() in ("hybr", "lm") else {}
    found = optimize.root(seen.residuals(), unknown.start, method=method.lower(), **exact, **options)
    found.x = unknown.from_vector(found.x)
    return found
