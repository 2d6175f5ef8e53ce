"""Rules for `numpy.polynomial`, whose functions run on our values as they stand, in a user's function that a transform
runs, but for those that look whether an argument is NumPy's array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dispatch import as_value, ndim, shape
from ..shape import reshaping
from .nested import any_derivative
from .scipy_functions import as_argument

#: How the names of functions begin, by module.
FAMILIES = {
    "numpy.polynomial.polynomial": "poly",
    "numpy.polynomial.chebyshev": "cheb",
    "numpy.polynomial.legendre": "leg",
    "numpy.polynomial.hermite": "herm",
    "numpy.polynomial.hermite_e": "herme",
    "numpy.polynomial.laguerre": "lag",
}
#: Those that NumPy dispatches on, which would look for a rule.
_DISPATCHED = ("polyval2d", "polygrid2d")


def changes_of(name: str, module: Any) -> dict[str, tuple[Any, Any]]:
    """Functions of a module, and what stands for them."""
    values = [f"{FAMILIES[name]}val", *(("polyvalfromroots",) if FAMILIES[name] == "poly" else ())]
    rules = {key: _with_own_axes(getattr(module, key)) for key in values}
    if FAMILIES[name] == "poly":
        dispatched = {key: getattr(getattr(module, key), "__wrapped__", None) for key in _DISPATCHED}
        rules |= {key: function for key, function in dispatched.items() if function is not None}
    return {key: (getattr(module, key), _with_rule(getattr(module, key), rule)) for key, rule in rules.items()}


def _with_rule(original: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any_derivative(args, kwargs):
            return rule(*map(as_argument, args), **{key: as_argument(x) for key, x in kwargs.items()})
        return original(*args, **kwargs)

    return call


def _with_own_axes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The values of a series at x. The coefficients have their axes before those of x, which NumPy adds to them where
    x is an array of its own.
    """

    def value(x: Any, c: Any = None, tensor: bool = True, *, r: Any = None) -> Any:
        x, c = as_value(x), np.atleast_1d(as_value(r if c is None else c))
        return original(x, reshaping.reshape(c, (*shape(c), *(1,) * ndim(x))) if tensor else c, tensor=False)

    return value
