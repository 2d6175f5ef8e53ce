"""Timed events: what fast paths and stretches of work report to instruments that listen (`pb.profile`).

An event is a tuple (kind, what, start, end, code, lasti, size, node, thread). Times are those of `clock`, in
nanoseconds; `code` and `lasti` are the user's line; `size` is the result's bytes, or a spec or array that has them;
`node` is the `id` of the node that was made or pulled, 0 if there is none. Nesting is not written: an event lies inside
those of its thread that contain it. Writing one takes a few tenths of a microsecond, and so nothing is formatted here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, NamedTuple

from ..instrument import Timer
from ..settings import modes
from .call_site import user_line

#: Kinds of events: a call of an op; the pull of a node, and the pass around it; a node was made.
OP, PULL, BACKWARD, NODE = "op", "pull", "backward", "node"
#: Stretches of work: the call of a module, of a compiled program; a second run of what was not saved; a step of a
#: solver, and of an optimizer; a stage of the compiler; a meeting of ranks, and waiting for one that was started; what
#: runs beside the thread that started it.
MODULE, PROGRAM, RECOMPUTE, ITERATION = "module", "program", "recompute", "iteration"
OPTIMIZER, COMPILE, MEETING, BESIDE = "optimizer", "compile", "collective", "beside"
#: A step of a compiled program, and work on a GPU.
STEP, GPU = "step", "gpu"
#: The length of an event.
WIDTH: Final = 9

_getframe = sys._getframe
#: Nanoseconds, from some start.
clock = perf_counter_ns


class GpuWork(NamedTuple):
    """What ran on a stream of a GPU between two events."""

    name: str
    before: Any
    after: Any

    @property
    def stream(self) -> int:
        return int(self.before.stream)


class span:
    """Reports what happens inside as one event of a kind, where an instrument listens. `what` is its name or the
    object it has one from.
    """

    __slots__ = ("_kind", "_start", "_what", "_write")

    def __init__(self, kind: str, what: Any) -> None:
        self._kind, self._what = kind, what

    def __enter__(self) -> None:
        instruments = modes().instruments
        self._write = None if instruments is None else instruments.write
        if self._write is not None:
            self._start = clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._write is not None:
            end = clock()
            code, lasti = user_line(_getframe(1))
            self._write((self._kind, self._what, self._start, end, code, lasti, 0, 0, get_ident()))


def time_pulls(order: Iterable[Any], timer: Timer) -> Iterator[Any]:
    """The nodes of a backward pass: what happens to each until the next is asked for is its pull."""
    thread, write, mark = get_ident(), timer.write, timer.mark
    before = None if mark is None else mark()
    start = clock()
    for node in order:
        yield node
        end = clock()
        call = node.call
        # a rule and what it is for, rather than the node, which is about to be freed
        size = node.spec if call is None else call.specs
        write((PULL, node.rule, start, end, node.code, node.lasti, size, id(node), thread))
        if mark is not None:
            after = mark()
            if node.rule is not None and is_on_gpu(node):
                work = GpuWork(f"pull of {node.name}", before, after)
                write((GPU, work, end, end, node.code, node.lasti, 0, 0, thread))
            before = after
        start = clock()


def is_on_gpu(node: Any) -> bool:
    """Whether the result of a node is on a GPU."""
    spec = node.spec
    return any(s.device != "cpu" for s in (spec if isinstance(spec, tuple) else (spec,)))
