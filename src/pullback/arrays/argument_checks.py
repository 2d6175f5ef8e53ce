"""Checks of arguments of public functions: each returns the argument, or raises an error that names what is wrong."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..public_names import describe_parameters

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

#: What keywords known from elsewhere are called here, in functions of arrays.
_KEYWORDS = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "tau": "temperature",
    "num_groups": "groups", "size_average": "reduction", "reduce": "reduction", "attn_mask": "mask",
    "dropout_p": "dropout", "unbiased": "correction", "padding_mode": "mode",
}  # fmt: skip

#: In other functions; of several names, the one that the function has.
_OTHER_KEYWORDS = {
    "B": "batch", "H": "heads", "Q_LEN": "queries", "KV_LEN": "keys", "BLOCK_SIZE": "block_size", "argnum": "argnums",
    "in_dims": "in_axes", "out_dims": "out_axes", "batch_size": "size", "sample_shape": "shape", "size": "shape",
    "num_samples": "draws samples", "num_warmup": "warmup", "num_chains": "chains", "t_eval": "saveat", "ts": "saveat",
    "t_span": "span", "solver": "method", "method": "solver", "adjoint": "derivative", "mean": "loc", "mu": "loc",
    "sigma": "scale", "std": "scale", "stddev": "scale", "p": "probs", "n": "total_count", "cov": "covariance_matrix",
    "covariance": "covariance_matrix", "maxiter": "max_steps", "max_iter": "max_steps", "file": "path",
    "filename": "path", "ddof": "correction", "correction": "ddof", "rng": "key", "rng_key": "key", "generator": "key",
    "seed": "key", "reinterpreted_batch_ndims": "reinterpreted", "base_distribution": "base", "transforms": "bijector",
    "mixture_distribution": "weights", "component_distribution": "components",
}  # fmt: skip

#: What to do about keywords that have no counterpart.
_ADVICE = {
    "inplace": "Results are always new; leave it out",
    "validate_args": "Parameters are checked wherever their elements are known; leave it out",
    "args": "What the function takes besides is passed by position, after the other arguments",
    "enable_gqa": "Heads are grouped by their numbers; leave it out",
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
    return ArgumentTypeError(f"{what}: there is no argument {keyword!r}.\n  {advise_keyword(keyword, known)}.")


def advise_keyword(keyword: str, known: Iterable[str] | None) -> str:
    """What to write in place of a keyword that a function does not have."""
    names = list(_KEYWORDS.values()) if known is None else list(known)
    spellings = f"{_KEYWORDS.get(keyword, '')} {_OTHER_KEYWORDS.get(keyword, '')}".split()
    close = [ours for ours in (*spellings, *difflib.get_close_matches(keyword, names)) if ours in names]
    if close:
        return f"Here it is {close[0]}="
    if keyword in _ADVICE:
        return _ADVICE[keyword]
    return f"Its keywords are {', '.join(names)}" if known and names else "Arrays are passed by position"


_UNKNOWN_KEYWORD = re.compile(r"(?:[\w.<>]+\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'.*")


def read_unknown_keyword(error: Exception) -> tuple[str, str] | None:
    """The function and the keyword of Python's error for a keyword that a function does not have."""
    found = _UNKNOWN_KEYWORD.fullmatch(str(error))
    return None if found is None else (found[1], found[2])


def misfit_error(what: str, function: Callable[..., Any], error: Exception) -> ArgumentTypeError:
    """Python's error for a call with arguments that do not fit, as one that says which there are."""
    unknown = read_unknown_keyword(error)
    if unknown is not None:
        return unknown_keyword(what, unknown[1], keywords_of(function))
    said = str(error).partition("() ")[2]
    return ArgumentTypeError(f"{what}: {said}.\n  It is {what}{describe_parameters(function)}.")


def explains_arguments(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function or constructor that people know from elsewhere with other arguments: where those of a
    call do not fit, the error says which there are.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if is_misfit(function, error):
                    raise misfit_error(what, function, error) from None
                raise

        return checked

    return decorate


def is_misfit(function: Callable[..., Any], error: Exception) -> bool:
    """Whether an error is that of a call of this function, which did not begin since its arguments do not fit."""
    plain: Any = inspect.unwrap(function)
    if (
        type(error) is not TypeError
        or not inspect.isfunction(plain)
        or not str(error).startswith(f"{plain.__qualname__}() ")
    ):
        return False
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code is not plain.__code__:
        step = step.tb_next
    return step is None


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
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in kinds and p.name != "self"]
