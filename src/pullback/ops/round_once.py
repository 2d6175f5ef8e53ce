"""Composites in half precision: computed in float32, rounded once at the result, their gradients too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..arrays.spec import HALF_CODES, Spec, spec_of
from ..arrays.value import Value
from .families import result_dtype
from .op import widen_halves
from .shape.reshaping import narrow

P = ParamSpec("P")
R = TypeVar("R")
_ndarray = np.ndarray


def rounds_once(function: Callable[P, R]) -> Callable[P, R]:
    """A function written in ops that computes in float32 where arrays among its arguments have half precision, and
    rounds its results once: the casts are ops, so its gradients are computed in float32 and rounded once too.
    """

    @functools.wraps(function)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        for x in args if not kwargs else (*args, *kwargs.values()):
            if _is_half(x):
                found: R = _compute_wide(function, args, kwargs)
                return found
        return function(*args, **kwargs)

    return composite


def _is_half(x: Any) -> bool:
    return (type(x) is _ndarray or isinstance(x, Value) or hasattr(x, "__cuda_array_interface__")) and (
        x.dtype.char in HALF_CODES
    )


def _compute_wide(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    specs = [spec_of(x) for x in (*args, *kwargs.values()) if isinstance(x, (_ndarray, Value)) or _is_half(x)]
    dtype = result_dtype([s for s in specs if s.inexact])
    found = function(*widen_halves(args), **{name: widen_halves(x) for name, x in kwargs.items()})
    return _round(found, dtype)


def _round(found: Any, dtype: Any) -> Any:
    """The results that came out in float32, in half precision; indices and masks as they are."""
    if isinstance(found, tuple):
        parts = [_round(part, dtype) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if isinstance(found, list):
        return [_round(part, dtype) for part in found]
    is_array = not isinstance(found, Spec) and hasattr(found, "dtype")
    return narrow(found, dtype) if is_array and found.dtype == np.float32 else found
