"""Checks of arguments of public functions: each returns the argument, or raises an error that names what is wrong."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError

F = TypeVar("F", bound=Callable[..., Any])

#: What keywords known from elsewhere are called here.
_KEYWORDS = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "tau": "temperature",
    "num_groups": "groups", "size_average": "reduction", "reduce": "reduction", "attn_mask": "mask",
    "dropout_p": "dropout", "unbiased": "correction", "padding_mode": "mode", "sample_shape": "shape",
    "reinterpreted_batch_ndims": "reinterpreted", "base_distribution": "base", "transforms": "bijector",
    "mixture_distribution": "weights", "component_distribution": "components",
}  # fmt: skip
#: Keywords known from elsewhere that say nothing here.
_NEEDLESS = {
    "inplace": "Results are always new",
    "validate_args": "Parameters are checked wherever their elements are known",
}


def short_repr(x: Any) -> str:
    """A value as shown in an error: numbers and strings by value, anything larger by type."""
    if isinstance(x, (bool, int, float, complex, str, type(None))) and len(repr(x)) < 60:
        return repr(x)
    return f"a {type(x).__name__}"


def check_functions(what: str, *functions: Any, hint: str = "") -> None:
    """Raise unless every argument is callable."""
    for function in functions:
        if not callable(function):
            raise ArgumentTypeError(f"{what}: wants a function, got a {type(function).__name__}.{hint}")


def check_argnums(what: str, argnums: Any) -> None:
    """Raise unless argnums are integers."""
    for i in argnums if isinstance(argnums, (tuple, list)) else (argnums,):
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise ArgumentTypeError(
                f"{what}: argnums must be integers, got {short_repr(i)}.\n"
                f"  pb.{what}(f) is a function; the arguments go to that: pb.{what}(f)(x)."
            )


def check_count(number: Any, what: str, low: int = 1) -> int:
    """A count, as a Python integer."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < low:
        raise ArgumentError(f"{what} must be an integer of at least {low}, got {short_repr(number)}.")
    return int(number)


def check_number(what: str, number: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """A finite real number, from `least` up and above `above`."""
    try:
        if isinstance(number, (str, bytes)):
            raise TypeError  # float() would read it
        found = float(number)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{what} must be a number, got {short_repr(number)}.") from None
    if not math.isfinite(found) or found < least or found <= above:
        bound = f" from {least:g} up" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
        raise ArgumentError(f"{what} must be a finite number{bound}, got {short_repr(number)}.")
    return found


def unknown_keyword(what: str, keyword: str, known: Iterable[str] | None) -> ArgumentTypeError:
    """The error for a keyword that a function does not have; `known` are those that it has, None if that is unknown."""
    names = list(_KEYWORDS.values()) if known is None else list(known)
    close = [ours for ours in (_KEYWORDS.get(keyword), *difflib.get_close_matches(keyword, names)) if ours in names]
    if close:
        advice = f"Here it is {close[0]}="
    elif keyword in _NEEDLESS:
        advice = f"{_NEEDLESS[keyword]}; leave it out"
    else:
        advice = f"Its keywords are {', '.join(names)}" if known and names else "Arrays are passed by position"
    return ArgumentTypeError(f"{what}: there is no argument {keyword!r}.\n  {advice}.")


def explains_keywords(function: F) -> F:
    """A decorator of a function that has parameters of PyTorch's names only to refuse them (`dim: None = None`, and
    `refuse_keywords` if it is not None): Python's own error would not name ours, and a wrapper would cost each call.
    They are no part of the signature.
    """
    signature = inspect.signature(function)
    declared = [p for p in signature.parameters.values() if (p.kind, p.annotation) != (p.KEYWORD_ONLY, "None")]
    function.__signature__ = signature.replace(parameters=declared)  # type: ignore[attr-defined]
    return function


def refuse_keywords(function: Callable[..., Any], **given: Any) -> None:
    """Raise the error for the first keyword that was given."""
    keyword = next(name for name, value in given.items() if value is not None)
    raise unknown_keyword(function.__name__, keyword, keywords_of(function))


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """The parameters of a function that may be passed by name."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
