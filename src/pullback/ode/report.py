"""What a solve returns: the solution, and a report of how it went."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays.backends import to_host
from ..arrays.value import unwrap_array
from ..errors import (
    ArgumentError,
    IntegrationError,
    NonFiniteStateError,
    StepUnderflowError,
    TooManyStepsError,
)
from ..public_names import explain_missing_attributes
from .dense import DenseOutput
from .events import EventRecord
from .problem import Status


class Report(NamedTuple):
    """How a solve went: accepted `steps`, `rejected` ones, `evaluations` of f (without those for saved times), the
    largest `error` that an accepted step was estimated to make, in units of the tolerance (0 for fixed steps), why it
    stopped (`status`: 0 is the end) and the time that it reached. In a `vmap` and inside of `pb.jit` each is a value of
    the program.
    """

    steps: Any
    rejected: Any
    evaluations: Any
    error: Any
    status: Any
    t: Any

    def __str__(self) -> str:
        return (
            f"solve: {_say_status(self.status)}\n"
            f"  steps           {self.steps} accepted, {self.rejected} rejected\n"
            f"  evaluations     {self.evaluations} of f\n"
            f"  error of a step at most {float(np.max(to_host(unwrap_array(self.error)))):.3g} of the tolerance"
        )


class Solution(NamedTuple):
    """The state `y` at the time `t`: at the end, or stacked at the times of `saveat`; the `report`; an
    `EventRecord` for each event; and with `dense=True` the solution as a function, which calling this calls.
    """

    t: Any
    y: Any
    report: Report
    events: tuple[EventRecord, ...] = ()
    dense: DenseOutput | None = None

    def __call__(self, t: Any) -> Any:
        """The state at a time of the span, or at each of an array of times."""
        if self.dense is None:
            raise ArgumentError("ode.solve: the solution is known at its end alone.\n  Solve with dense=True.")
        return self.dense(t)


_SAID = {
    Status.DONE: "reached the end",
    Status.TOO_MANY_STEPS: "too many steps",
    Status.STEP_UNDERFLOW: "the step became too small",
    Status.NOT_FINITE: "not finite",
    Status.STOPPED: "stopped by an event",
    Status.NO_CONDITION: "the condition of an event is not a number",
    Status.OUTSIDE: "a time of saveat lies outside, or out of order",
    Status.LOST: "came to another state than the solution was in",
}


def _say_status(status: Any) -> str:
    found = np.unique(to_host(unwrap_array(status)))
    return ", ".join(_SAID[Status(int(s))] for s in found)


def check_outcome(counts: Any, numbers: Any, purpose: str) -> None:
    """Raise the error of the first element that did not reach the end, from these parts of an `Outcome`."""
    counts = to_host(unwrap_array(counts)).reshape(-1, 3)
    failed = np.flatnonzero((counts[:, 2] != Status.DONE) & (counts[:, 2] != Status.STOPPED))
    if not failed.size:
        return
    steps, rejected, status = (int(x) for x in counts[failed[0]])
    t, _worst = (float(x) for x in to_host(unwrap_array(numbers)).reshape(-1, 2)[failed[0]])
    where = f"at t = {t:.9g}, after {steps} steps and {rejected} rejected ones"
    if len(counts) > 1:
        where += f", in element {failed[0]} of the batch ({failed.size} of {len(counts)} failed)"
    if status == Status.OUTSIDE:
        raise ArgumentError(f"ode.solve: {_SAID[Status.OUTSIDE]}.\n  Times go from t0 to t1, in the order of time.")
    kind, advice = _ERRORS[Status(status)]
    what = f"ode.solve: {purpose}: " if purpose else "ode.solve: "
    raise kind(f"{what}{_SAID[Status(status)]} {where}.\n  {advice}", t, steps, rejected)


_ERRORS: dict[Status, tuple[type, str]] = {
    Status.TOO_MANY_STEPS: (
        TooManyStepsError,
        "Pass a larger max_steps or tolerance; if the system is stiff, method=pb.ode.Kvaerno5().",
    ),
    Status.STEP_UNDERFLOW: (
        StepUnderflowError,
        "The solution has a singularity there, or rtol and atol ask for more than the dtype holds.",
    ),
    Status.NOT_FINITE: (
        NonFiniteStateError,
        "f returned NaN or an infinity there however small the step, or the state itself is not finite.",
    ),
    Status.NO_CONDITION: (NonFiniteStateError, "The condition must be a number at every state of the solution."),
    Status.LOST: (
        IntegrationError,
        "The system forgets where it came from, so the gradient would be wrong: use another policy, or a tighter rtol.",
    ),
}


explain_missing_attributes(
    Solution, "Solution", "evaluate message nfev sol stats status success ts y_events ys t_events"
)
