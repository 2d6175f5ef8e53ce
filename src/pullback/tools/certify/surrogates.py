"""Ops whose derivative is by definition that of another function: the function that is differentiated instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .cases import Case


def _constant(case: Case) -> Callable[..., Any]:
    return lambda x: np.asarray(case.floats[0])


def _identity(case: Case) -> Callable[..., Any]:
    return lambda x: np.asarray(x)


def _at_fixed_probability(case: Case) -> Callable[..., Any]:
    """The logarithm of a gamma variable as its parameter moves and its probability, given by the sample, does not."""
    from scipy.special import gammainc, gammaincinv

    probability = gammainc(case.floats[0], np.exp(case.call(*case.args)))
    return lambda a: np.log(gammaincinv(a, probability))


#: By the op's name, how the function of its derivatives is made from a case.
SURROGATES: dict[str, Callable[[Case], Callable[..., Any]]] = {
    "stop_gradient": _constant,
    "straight_through_round": _identity,
    "log_gamma_draw": _at_fixed_probability,
}
