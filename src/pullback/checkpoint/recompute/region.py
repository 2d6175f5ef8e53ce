"""The run of one checkpoint: the function's results, and promises to recompute the values it saved.

The function runs unchanged and its graph is the real one; only what the nodes hold is replaced by a `Promise`. The
first promise whose value is needed makes the region run the function again with the same arguments, and the i-th value
saved then is that of the i-th promise. Nothing else is special: hooks, closures, trees, every order and every
transform follow from the graph being real.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...arrays.call_site import user_line
from ...arrays.scope import reopen_scopes
from ...arrays.timing import RECOMPUTE, span
from ...arrays.trees import flatten
from ...instrument import Instruments, OpCall
from ...ops.replay.reach import Reach
from ...ops.replay.rehearsal import UndoSideEffects
from ...ops.replay.snapshot import StateSnapshot
from ...ops.replay.streams import Streams
from ...ops.user_calls import call_function
from ...settings import installed, override_modes
from .arguments import Arguments
from .runs import FirstRun, Promise, RecomputeFinished, SavedEntry, SavedResult, SecondRun
from .save_policies import SavePolicy


class Region:
    """One run of a checkpointed function, able to run it again.

    `log` says which values it saved, `promises` what the nodes hold for them (None for a leaf's own), `saved` the
    results that are supplied by the number of the op, `decisions` what the engine decided, `branches`
    which way Python branches on traced values went, `start` the state to begin from.
    """

    __slots__ = (
        "_arguments", "_begun", "_context", "_function", "_handed", "_outer", "_scopes", "_streams", "argument_nodes",
        "branches", "counts_every_op", "decisions", "lock", "log", "promises", "running", "saved", "start", "verify",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], arguments: Arguments, verify: bool | None) -> None:
        self._function = function
        self._arguments = arguments
        # the instruments around the call: they see the second run, and hold the arguments
        self._outer = installed()
        self._begun = self._handed = self.counts_every_op = False
        # modes, scopes and the user's own variables are those of the call
        self._context = contextvars.copy_context()
        self._scopes = arguments.scopes()
        # before the first run: it may change what it reaches
        reach = Reach((function,), arguments.leaves)
        self._streams = Streams(reach.generators, arguments.leaves)
        self.log: list[SavedEntry] = []
        self.promises: list[weakref.ref[Promise] | None] = []
        self.saved: dict[int, SavedResult] = {}
        self.decisions: list[bool] = []
        self.branches: list[bool] = []
        self.start = StateSnapshot()
        self.start.note_reached(reach)
        self.argument_nodes = arguments.nodes()
        # a value may be asked for by several workers; a recomputation may ask for values of this very region
        self.lock = threading.RLock()
        self.running = True
        self.verify = verify

    @property
    def name(self) -> str:
        return getattr(self._function, "__qualname__", None) or type(self._function).__name__

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], policy: SavePolicy) -> Any:
        """The first run: the function's own results, on its own graph."""
        try:
            with self._streams.record(), override_modes(FirstRun(self, policy)):
                out = call_function(self._function, args, kwargs)
        finally:
            self.running = False
            for promise in self._live_promises():
                promise.held = None
        # the variables that live on are restored before a second run, except arguments and results
        self.start.finish({id(x) for x in (*self._arguments.leaves, *flatten(out)[0])})
        # the leaves themselves may be freed now
        self._arguments.leaves = []
        return out

    def counts(self, call: OpCall) -> bool:
        """Whether both runs give a call a number, by which the first one's result is found again."""
        return bool(call.effects.runs_once or (self.counts_every_op and call.level))

    def _live_promises(self) -> Iterator[Promise]:
        for reference in self.promises:
            promise = None if reference is None else reference()
            if promise is not None:
                yield promise

    def save_arguments(self) -> None:
        """Something is saved, so the arguments will be needed: the instruments around decide how they are held."""
        if not self._begun:
            self._begun = True
            self._arguments.save(self._outer, user_line(sys._getframe(1)))

    def hand_over_arguments(self) -> None:
        """A backward pass reached this region and will release it. The producers of the arguments come next, and may
        need an argument that they saved as their result: they get it without recomputation.
        """
        if not self._handed:
            self._handed = True
            for node, value in self._arguments.find_producers():
                for kept in node.kept or ():
                    if type(kept) is Promise:
                        kept.adopt(value)

    def recompute(self) -> None:
        """Run the function again, up to the last value that is needed, and fulfill the promises."""
        wanted = [i for i, r in enumerate(self.promises) if r is not None and (p := r()) and p.peek() is None]
        second = SecondRun(self, len(self.log) if self.verify is True else wanted[-1])
        with span(RECOMPUTE, self.name), reopen_scopes(self._scopes):
            # an outer region may have to run again for the arguments, so they come before any stream is held
            args, kwargs = self._context.copy().run(self._arguments.rebuild)
            with self._streams.rewind():
                self._context.copy().run(self._rerun, args, kwargs, second, installed())
        second.check_complete()

    def _rerun(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], second: SecondRun, instruments: Instruments
    ) -> None:
        # state as at the first run; what it was until now comes back in the end
        undo = UndoSideEffects(self.start.restore())
        with self._streams.replay(), override_modes(instruments=self._outer.isolate(undo, second, beside=instruments)):
            try:
                call_function(self._function, args, kwargs)
            except RecomputeFinished:
                pass
            except Exception as error:
                error.add_note(f"  while a checkpoint recomputed {self.name} for the backward pass")
                raise
            finally:
                undo.undo()
