"""Densities and distribution functions of `scipy.stats` at values, and for parameters, that carry derivatives.

SciPy's public methods shift and scale, look where the argument lies in the support, and call the formula of the
distribution there: `norm._logpdf`, in NumPy's functions and those of `scipy.special`, which work on our values. So only
the frame around the formula is written again, without assignment to masked places: outside of the support the formula
is computed at a point inside, and not taken, so that neither values nor derivatives leave the finite (`where` twice).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConversionError, UnsupportedFunction
from ..elementwise import pointwise
from ..lazy import find_public
from ..reduce import reductions
from .nested import as_array_or_value, with_rule
from .scipy_functions import as_argument, symmetric

where = pointwise.where


class Frame(NamedTuple):
    """What surrounds the formula of a method: its results below and above the support, and what the scale does."""

    below: float
    above: float
    is_density: bool = False
    is_log: bool = False


CONTINUOUS = {
    "pdf": Frame(0.0, 0.0, is_density=True),
    "logpdf": Frame(-np.inf, -np.inf, is_density=True, is_log=True),
    "cdf": Frame(0.0, 1.0),
    "logcdf": Frame(-np.inf, 0.0),
    "sf": Frame(1.0, 0.0),
    "logsf": Frame(0.0, -np.inf),
}
DISCRETE = {
    "pmf": Frame(0.0, 0.0, is_density=True),
    "logpmf": Frame(-np.inf, -np.inf, is_density=True),
    "cdf": Frame(0.0, 1.0),
    "logcdf": Frame(-np.inf, 0.0),
    "sf": Frame(1.0, 0.0),
    "logsf": Frame(0.0, -np.inf),
}
#: Those of quantiles: whether the argument counts from above.
QUANTILES = {"ppf": False, "isf": True}


def _parameters(law: Any, args: Any, kwargs: Any) -> tuple[list[Any], Any, Any]:
    shapes, loc, scale = law._parse_args(*args, **kwargs)
    # as SciPy does: lists and integers are arrays from here on
    return [as_array_or_value(as_argument(x)) for x in shapes], *(
        as_array_or_value(as_argument(x)) for x in (loc, scale)
    )


def _inside(low: Any, high: Any) -> Any:
    """A point in the support, away from its ends."""
    low, high = pointwise.multiply(low, 1.0), pointwise.multiply(high, 1.0)
    finite_low, finite_high = np.isfinite(low), np.isfinite(high)
    with_low = where(finite_high, (where(finite_low, low, 0.0) + where(finite_high, high, 0.0)) / 2, low + 1.0)
    return where(finite_low, with_low, where(finite_high, high - 1.0, 0.0))


def _evaluate(law: Any, name: str, *args: Any) -> Any:
    """The formula of a method, which SciPy may have in compiled code, or solve for."""
    try:
        return getattr(law, f"_{name}")(*args)
    except (ConversionError, UnsupportedFunction, TypeError) as error:
        raise UnsupportedFunction(
            f"scipy.stats.{law.name}.{name}: SciPy's formula goes through bare arrays.\n"
            f"  {str(error).splitlines()[0]}\n  Use a law of pb.distributions, or functions of pb.special."
        ) from error


def continuous(name: str, frame: Frame, law: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A method of a continuous law."""
    shapes, loc, scale = _parameters(law, args, kwargs)
    y = (as_array_or_value(as_argument(x)) - loc) / scale
    low, high = law._get_support(*shapes)
    valid = np.logical_and(law._argcheck(*shapes), scale > 0)
    # as in SciPy: densities on the closed support, distribution functions on the open one
    within = (y >= low) & (y <= high) if frame.is_density else (y > low) & (y < high)
    taken = np.logical_and(within, valid)
    found = _evaluate(law, name, where(taken, y, _inside(low, high)), *shapes)
    if frame.is_density:
        found = found - np.log(where(valid, scale, 1.0)) if frame.is_log else found / where(valid, scale, 1.0)
    outside = where(y > low, frame.above, frame.below)
    return where(np.logical_and(valid, np.logical_not(np.isnan(y))), where(taken, found, outside), law.badvalue)


def discrete(name: str, frame: Frame, law: Any, k: Any, *args: Any, **kwargs: Any) -> Any:
    """A method of a law of integers: its derivatives are those with respect to parameters."""
    shapes, loc, _ = _parameters(law, args, kwargs)
    k = as_array_or_value(as_argument(k)) - loc
    low, high = law._get_support(*shapes)
    valid = law._argcheck(*shapes)
    within = (k >= low) & ((k <= high) if frame.is_density else (k < high))
    if frame.is_density:
        within = np.logical_and(within, law._nonzero(k, *shapes))
    taken = np.logical_and(within, valid)
    found = _evaluate(law, name, where(taken, k, where(np.isfinite(low), low, 0.0)), *shapes)
    outside = where(k >= high, frame.above, frame.below)
    return where(np.logical_and(valid, np.logical_not(np.isnan(k))), where(taken, found, outside), law.badvalue)


def quantile(name: str, from_above: bool, law: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """The quantile function of a continuous law, or that of the upper tail."""
    shapes, loc, scale = _parameters(law, args, kwargs)
    q = as_array_or_value(as_argument(q))
    low, high = (loc + end * scale for end in law._get_support(*shapes))
    taken = np.logical_and(np.logical_and(q > 0, q < 1), np.logical_and(law._argcheck(*shapes), scale > 0))
    found = _evaluate(law, name, where(taken, q, 0.5), *shapes) * scale + loc
    at_ends = where(q == (1 if from_above else 0), low, where(q == (0 if from_above else 1), high, law.badvalue))
    return where(taken, found, where(np.logical_and(law._argcheck(*shapes), scale > 0), at_ends, law.badvalue))


def normal_logpdf(law: Any, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """`multivariate_normal.logpdf`: -(n log 2 pi + log det C + |L^-1 (x - m)|^2) / 2 with C = L L^T, by the lower
    triangle of C.
    """
    x, cov, mean = (as_array_or_value(as_argument(a)) for a in (x, cov, 0.0 if mean is None else mean))
    size = max((*mean.shape[-1:], *cov.shape[-1:]), default=1)
    cov = symmetric(cov, True) if cov.ndim == 2 else pointwise.multiply(np.eye(size), cov)  # a number, or a diagonal
    factor = find_public("linalg.cholesky")(cov)
    # of one variable, each number of a vector is a point
    rest = (x.reshape((*x.shape, 1)) if size == 1 and x.ndim < 2 else x) - mean
    lead = rest.shape[:-1]
    z = find_public("linalg.triangular_solve")(factor, rest.reshape(-1, size).T, lower=True)
    log_det = 2 * reductions.sum(np.log(np.diagonal(factor)))
    found = -0.5 * (size * np.log(2 * np.pi) + log_det + reductions.sum(z**2, axis=0))
    return found.reshape(lead)


def normal_pdf(law: Any, *args: Any, **kwargs: Any) -> Any:
    return np.exp(normal_logpdf(law, *args, **kwargs))


def freeze_normal(kind: Any, law: Any, mean: Any = None, cov: Any = 1, *_: Any, **__: Any) -> Any:
    """`multivariate_normal(mean, cov)`, without what SciPy computes of the covariance."""
    frozen = kind.__new__(kind)
    vars(frozen)["given"] = mean, cov
    return frozen


def frozen_logpdf(frozen: Any, x: Any) -> Any:
    mean, cov = vars(frozen).get("given") or (frozen.mean, frozen.cov)
    return normal_logpdf(None, x, mean, cov)


def frozen_pdf(frozen: Any, x: Any) -> Any:
    return np.exp(frozen_logpdf(frozen, x))


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(frozen: Any, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedFunction(
            f"scipy.stats.multivariate_normal.{name}: has no rule for values that carry derivatives.\n"
            "  Use pb.distributions.MultivariateNormal."
        )

    return refuse


def replaced_methods(stats: Any) -> dict[type, dict[str, Callable[..., Any]]]:
    """For each class of laws, the methods that take values that carry derivatives."""
    normal = type(stats.multivariate_normal)
    frozen = type(stats.multivariate_normal())
    rules: dict[type, dict[str, Callable[..., Any]]] = {
        stats.rv_continuous: {
            **{name: functools.partial(continuous, name, frame) for name, frame in CONTINUOUS.items()},
            **{name: functools.partial(quantile, name, above) for name, above in QUANTILES.items()},
        },
        stats.rv_discrete: {name: functools.partial(discrete, name, frame) for name, frame in DISCRETE.items()},
        normal: {"logpdf": normal_logpdf, "pdf": normal_pdf, "__call__": functools.partial(freeze_normal, frozen)},
        frozen: {
            **{name: _refusal(name) for name in ("cdf", "logcdf", "rvs", "entropy", "marginal")},
            "logpdf": frozen_logpdf,
            "pdf": frozen_pdf,
        },
    }
    return {
        kind: {name: with_rule(vars(kind)[name], rule, "given") for name, rule in methods.items() if name in vars(kind)}
        for kind, methods in rules.items()
    }
