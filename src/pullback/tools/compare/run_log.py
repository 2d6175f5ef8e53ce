"""The instrument of `compare`: the ops of a run in their order, with what they computed and where they come from."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arrays.origin import Origin, find_origin
from ...arrays.value import Value
from ...instrument import Instrument, OpCall, ProgramCall
from ...ops.forms import Cast
from ...ops.op import Op
from ..observed_build import Observation, observe, observe_once, options_of


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One op of a run. A value that was not observed is None."""

    op: Op
    static: dict[str, Any]
    args: Sequence[Any]
    outs: Sequence[Any]
    origin: Origin | None

    @property
    def key(self) -> tuple[Any, ...]:
        """What a step of another run must have in common with it."""
        return self.op.name, tuple(getattr(x, "shape", None) for x in self.outs)

    @property
    def is_conversion(self) -> bool:
        """Whether it only converts: runs in two precisions, or on two devices, have different ones."""
        return isinstance(self.op.form, Cast) or "device" in self.static


class RunLog(Instrument):
    """Collects the steps of a run; `is_shallow`: not the ops that run inside of another, as in a loop or a solver."""

    measures = True
    chooses_ops = True

    def __init__(self, is_shallow: bool = False) -> None:
        self.steps: list[Step] = []
        self._is_shallow = is_shallow
        self._running = threading.local()

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        depth = getattr(self._running, "depth", 0)
        self._running.depth = depth + 1
        try:
            out = below()
        finally:
            self._running.depth = depth
        outs = out if type(out) is tuple else (out,)
        # an op on values of a transform is seen again, as ops on their arrays
        if not any(isinstance(x, Value) for x in (*call.values, *outs)) and not (depth and self._is_shallow):
            origin = find_origin(sys._getframe(1))
            self.steps.append(Step(call.op, call.static, tuple(call.values), outs, origin))
        return out


class ProgramLog(Instrument):
    """Observes the compiled programs that run: (form, arguments, values) of each."""

    measures = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any], Observation]] = []

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        form = call.form
        program, options = form.staged, options_of(form)
        given = [x.copy() if i in form.donated.values() else x for i, x in enumerate(call.arrays)]
        if program.effects.runs_once:  # the checked build runs in place of the program, since only one of them may
            seen = observe_once(program, given, options)
        else:
            seen = observe(program, given, options, below())
        self.calls.append((form, given, seen))
        return seen.outputs
