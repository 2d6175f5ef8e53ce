"""Op records in, test cases out: what the generated tests run on, and the certification with them."""

from __future__ import annotations

from collections.abc import Callable

from pullback.ops import Op, load_all_ops
from pullback.tools.certify.cases import (
    Case,
    cases_of,
    drop_free_phases,
    flat_vector,
    random_like,
    real_inner_product,
    weighted_real_sum,
)

__all__ = [
    "Case",
    "cases",
    "random_like",
    "flat_vector",
    "real_inner_product",
    "name",
    "drop_free_phases",
    "weighted_real_sum",
]


def cases(wanted: Callable[[Op], bool] = lambda op: True) -> list[Case]:
    """Every sample of every op that is wanted, the same ones each time."""
    return [case for op in load_all_ops().values() if wanted(op) for case in cases_of(op)]


def name(case: Case) -> str:
    return case.name
