"""`detect_anomaly` in compiled code: a program whose results are not finite is searched, and its first fault raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import AnomalyError
from ...instrument import ProgramCall
from .compiled import search_program
from .watch import NanWatch


def run_checked(call: ProgramCall, below: Callable[[], Any], nan_only: bool) -> Any:
    """The results of a compiled program, if it made no NaN (or infinity, unless `nan_only`) of numbers. What arguments
    brought is no fault of the program.
    """
    watch = NanWatch(search_program)
    outs = search_program(watch, call, below)
    for fault in watch.faults:
        if fault.kind == "nan" or not nan_only:
            raise AnomalyError(f"{call.name}: {fault}")
    return outs
