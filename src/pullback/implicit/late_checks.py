"""Checks of a solution in programs for a GPU: the device notes that one failed, and goes on; the next wait raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backends import namespace_on
from ..arrays.call_site import FailedCheck
from ..arrays.spec import spec_of
from ..errors import ConvergenceError
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..program.ir import Symbol
from .solve_report import Report

_LATER = (
    "  It was found when the GPU was done, after the call had returned: the residual is not known any more.\n"
    "  pb.implicit.solve returns a report instead, and so does the error without pb.jit."
)


def can_check_later(x: Any, strict: bool) -> bool:
    """Whether the outcome of a check is seen by the device alone, unless it fails."""
    return strict and type(x) is Symbol and spec_of(x).device != "cpu"


def check_later(x: Any, left: Any, what: str, report: Report) -> Any:
    """x where all residuals are within the report's tolerance; else NaN, and an error at the next wait."""
    error = _error_of(what, report)
    # an index out of range is what a launch can note
    index = pointwise.where(reductions.all(pointwise.less_equal(left, report.tolerance)), 0, 1)
    passed = getitem(namespace_on(spec_of(x).device).ones(1, bool), index)
    passed.site = FailedCheck(error)
    return pointwise.where(passed, x, np.nan)


def _error_of(what: str, report: Report) -> Callable[[], ConvergenceError]:
    def make_error() -> ConvergenceError:
        report.converged = False
        text = f"{what} (tolerance {report.tolerance:.1e}).\n{_LATER}"
        return ConvergenceError(text, report)

    return make_error
