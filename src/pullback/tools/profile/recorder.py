"""The instruments of a time profile: what they hear is written to one log, as it comes, and read afterwards."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple, final

from ...arrays.call_site import user_line
from ...arrays.timing import BACKWARD, COMPILE, NODE, OP, PROGRAM, PULL, STEP, WIDTH, clock, span
from ...compile.cpu.program.step_clock import ClockedBuild
from ...compile.cpu.runner import CpuRunner
from ...compile.loop_ir import Step
from ...instrument import Instrument, OpCall, ProgramCall
from ...ops.timed_calls import new_bytes

_getframe = sys._getframe


def new_log(limit: int) -> deque[Any]:
    """A log of the last `limit` events, flat: objects that Python's collector looks at would slow down what is
    measured.
    """
    return deque(maxlen=WIDTH * limit)


@final
class OpTimer(Instrument):
    """Writes an event for each op, pull, program and stretch of work.

    Where it is alone, fast paths write theirs themselves (`ops/timed_calls.py`), and `compute` is for the others.
    """

    measures = True
    only_times = True

    def __init__(self, log: deque[Any]) -> None:
        # the log's own method: one call less for each event
        self.write = log.extend  # type: ignore[method-assign, assignment]
        #: What has begun in each thread: when, and what it is.
        self._begun: dict[int, list[int]] = {}

    def write(self, event: tuple[Any, ...]) -> None:
        """Replaced by the log's own method."""

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        if call.level > 1:  # it is seen again below
            return below()
        start = clock()
        out = below()
        end = clock()
        self.write((OP, call.op, start, end, *user_line(_getframe(1)), new_bytes(out), 0, get_ident()))
        return out

    def node_made(self, node: Any) -> None:
        now = clock()
        self.write((NODE, None, now, now, None, 0, 0, id(node), get_ident()))

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        start = clock()
        outs = below()
        end = clock()
        size = new_bytes(tuple(outs))
        self.write((PROGRAM, call.name, start, end, *user_line(_getframe(1)), size, 0, get_ident()))
        return outs

    def backward_begins(self) -> None:
        begun = self._begun.setdefault(get_ident(), [])
        begun += (clock(), -1)

    def backward_ends(self, released: bool) -> None:
        begun, thread = self._begun[get_ident()], get_ident()
        # a pull that raised has begun and not ended
        while begun.pop() != -1:
            begun.pop()
        self.write((BACKWARD, "backward", begun.pop(), clock(), *user_line(_getframe(1)), 0, 0, thread))

    def pull_begins(self, node: Any, bar: Any) -> None:
        begun = self._begun.setdefault(get_ident(), [])
        begun += (clock(), id(node))

    def pulled(self, node: Any, shares: tuple[Any, ...]) -> None:
        begun = self._begun[get_ident()]
        while begun.pop() != id(node):
            begun.pop()
        start, size = begun.pop(), new_bytes(tuple(s for s in shares if s is not None))
        self.write((PULL, node.rule, start, clock(), node.code, node.lasti, size, id(node), get_ident()))


class ProgramStep(NamedTuple):
    """A step of a program, and how often it ran in one call."""

    program: str
    number: int
    step: Step
    runs: int


@final
class StepTimer(Instrument):
    """Has compiled programs run in a build that reads a clock after each step, and writes an event for each."""

    measures = True
    sees_every_op = False

    def __init__(self, log: deque[Any]) -> None:
        self._log = log

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        runner = call.form.code
        if type(runner) is not CpuRunner:
            return below()
        with span(COMPILE, "build with a clock"):
            build = runner.clocked
        if build is None:
            return below()
        call.clocked = build.runner
        before, start = build.read(), clock()
        out = below()
        self._write_steps(call.name, build, (build.read() - before).tolist(), start, user_line(_getframe(1)))
        return out

    def _write_steps(
        self, name: str, build: ClockedBuild, spent: list[list[int]], start: int, line: tuple[Any, int]
    ) -> None:
        """An event for each step: one after the other, those inside of a loop within it."""
        begins: dict[int | None, int] = {None: start}
        for number, (ns, runs) in enumerate(spent):
            outer = build.steps[number].outer
            at = begins[number] = begins.get(outer, start)
            begins[outer] = at + ns
            what = ProgramStep(name, number, build.steps[number].step, runs)
            self._log.extend((STEP, what, at, at + ns, *line, 0, 0, get_ident()))


@final
class RangeMarker(Instrument):
    """Marks ops, pulls and programs as ranges of NVTX, for NVIDIA's tools."""

    measures = True

    def __init__(self, push: Callable[[str], None], pop: Callable[[], None]) -> None:
        self._push, self._pop = push, pop

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        return below() if call.level > 1 else self._mark(call.op.name, below)

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        return self._mark(call.name, below)

    def pull_begins(self, node: Any, bar: Any) -> None:
        self._push(f"pull of {node.name}")

    def pulled(self, node: Any, shares: tuple[Any, ...]) -> None:
        self._pop()

    def _mark(self, name: str, below: Callable[[], Any]) -> Any:
        self._push(name)
        try:
            return below()
        finally:
            self._pop()
