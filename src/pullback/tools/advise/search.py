"""`advise`: every probe, and what each found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...arrays.argument_checks import check_functions, check_number
from .of_calls import (
    advise_call_overhead,
    advise_compiling,
    advise_donations,
    advise_dtypes,
    advise_fused_calls,
    advise_layout,
    advise_recompilations,
    advise_recomputed_ops,
)
from .of_programs import PROBES as PROGRAM_PROBES
from .report import Advice, AdviceReport
from .subject import Subject
from .timing import best_of

#: What is looked at, in this order.
PROBES: tuple[Callable[[Subject], Iterator[Advice]], ...] = (
    advise_compiling, advise_fused_calls, advise_layout, advise_dtypes, advise_recompilations, advise_donations,
    advise_call_overhead, advise_recomputed_ops, *PROGRAM_PROBES,
)  # fmt: skip


def advise(f: Callable[..., Any], *args: Any, seconds: float = 0.2, **kwargs: Any) -> AdviceReport:
    """Why `f(*args, **kwargs)` is slow: what NumPy executes and why, what was traced again and why, arguments and
    constants whose dtype or layout costs time, what checkpoints and budgets compute again, loops of Python, what a call
    costs besides its arithmetic. Changes that can be made from outside are tried: `before` and `after` are the best
    times of many calls made in turns, for about `seconds` each. Whatever cannot be tried is an observation.

    f is called many times, so it may not call ops that may run only once.

    >>> import numpy as np, pullback as pb
    >>> def f(x):
    ...     return pb.sum(pb.tanh(x * np.float64(0.5)))
    >>> report = pb.tools.advise(f, np.ones(1000, "float32"), seconds=0.01)
    >>> sorted({item.topic for item in (*report, *report.tried)})
    ['compile', 'float64']
    """
    check_functions("advise", f)
    check_number("advise: seconds", seconds, above=0)
    subject = Subject(f, args, kwargs, seconds)
    found = [item for probe in PROBES for item in probe(subject)]
    tried = [item for item in found if item.gain is not None]
    return AdviceReport(
        best_of(subject.call, seconds)[1],
        tuple(sorted((item for item in tried if item.is_worth_it), key=lambda item: -(item.gain or 0))),
        tuple(item for item in found if item.gain is None),
        tuple(item for item in tried if not item.is_worth_it),
    )
