"""Op records in, test cases out: what the generated tests run on, and the certification with them."""

from __future__ import annotations

from collections.abc import Callable

from pullback.ops import Op, everything
from pullback.tools.certify.cases import Case, cases_of, drawn, flat, inner, phaseless, weighted

__all__ = ["Case", "cases", "drawn", "flat", "inner", "name", "phaseless", "weighted"]


def cases(wanted: Callable[[Op], bool] = lambda op: True) -> list[Case]:
    """Every sample of every op that is wanted, the same ones each time."""
    return [case for op in everything().values() if wanted(op) for case in cases_of(op)]


def name(case: Case) -> str:
    return case.name
