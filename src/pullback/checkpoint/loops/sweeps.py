"""The two sweeps over a chain: forward to its last state, backward to the cotangents of its leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.protect import as_immutable
from ...arrays.spec import spec_of, zeros
from ...arrays.tensor import Tensor, wrap
from ...arrays.timing import RECOMPUTE, span
from ...errors import GraphError
from ...ops.replay.rehearsal import undo_on_exit
from ...settings import modes, set_modes
from ...transforms.custom.rules import is_tracked
from ...transforms.reverse import Pullback
from .chain import Chain
from .revolve import OnlineSchedule, count_touches, first_snapshots, most_touched, next_snapshot_distance
from .snapshots import NO_TICKET, LoopRun, Snapshot, SnapshotStore, take_run
from .trail import Trail


def sweep_forward(chain: Chain, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The state after all steps, and the ticket of what was saved for the backward pass."""
    with (
        _in_original_modes(chain),
        chain.streams.replay_from_start(),
        undo_on_exit(chain.objects) if chain.is_replay else contextlib.nullcontext(),
    ):
        state, run = _ForwardSweep(chain, leaves).run()
        chain.watched.check()
        return (*state, np.broadcast_to(NO_TICKET if run is None else run.ticket(), chain.batches))


def sweep_backward(chain: Chain, ticket: Any, rest: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents of the active leaves, from those of the last state."""
    leaves, bars = rest[: chain.width], rest[chain.width :]
    chain.watched.check()
    with repeating(chain):
        # a second backward pass finds the snapshots used up, and starts over
        left = take_run(ticket)
        if left is None:
            left = _ForwardSweep(chain, leaves).run_without_value()
        return _BackwardSweep(chain, leaves, left).run(bars)


@contextlib.contextmanager
def repeating(chain: Chain) -> Iterator[None]:
    """Steps that ran before run as they did then, and leave no trace."""
    with (
        span(RECOMPUTE, "checkpoint_loop"), _in_original_modes(chain), chain.streams.replay_from_start(),
        undo_on_exit(chain.objects),
    ):  # fmt: skip
        yield


@contextlib.contextmanager
def _in_original_modes(chain: Chain) -> Iterator[None]:
    """Run with the modes of the loop's call, so that a repeated step does the same."""
    now = modes()
    instruments = None if now.instruments is None else now.instruments.without_saving()
    set_modes(chain.modes._replace(inference=False, instruments=instruments))
    try:
        yield
    finally:
        set_modes(now)


def _run_step(
    chain: Chain, trail: Trail | None, i: int, state: Sequence[Any], params: Sequence[Any]
) -> tuple[Any, ...]:
    """The state after step i, as bare arrays."""
    outs = tuple(_as_bare_array(x) for x in chain.step(i, *(wrap(x, spec_of(x)) for x in (*state, *params))))
    if trail is not None:
        trail.check_state(i, outs)
    return outs


def _as_bare_array(x: Any) -> Any:
    if is_tracked(x):
        raise GraphError(
            "checkpoint_loop: the step uses a tracked value that was not found in its closure, "
            "so its gradient would be lost.\n  Pass it as one of the params: checkpoint_loop(step, x0, n, *params)."
        )
    if type(x) is Tensor:
        return as_immutable(x.value) if x.status else x.value
    return as_immutable(x)


class _ForwardSweep:
    """The forward sweep, which takes the first snapshots."""

    def __init__(self, chain: Chain, leaves: Sequence[Any]) -> None:
        self._chain, self._trail = chain, chain.trail_from(leaves)
        self._state, self._params = tuple(leaves[: chain.states]), leaves[chain.states :]
        self._shelf = SnapshotStore(chain.tiers)
        self._at_hand: Snapshot | None = None

    def run(self) -> tuple[tuple[Any, ...], LoopRun | None]:
        """The last state, and what is saved for the backward pass if one may follow."""
        chain = self._chain
        if not (chain.tracked and chain.modes.grad):
            return self._run_without_snapshots(), None
        if chain.until is not None:
            steps = self._run_online()
        else:
            steps = chain.n or 0
            self._run_revolve(steps, steps)
        return self._state, LoopRun(self._shelf, self._at_hand, steps)

    def run_without_value(self) -> tuple[SnapshotStore, Snapshot | None, int]:
        """What is saved for the backward pass; the last state is not computed where it is unused."""
        if self._chain.until is not None:
            steps = self._run_online()
        else:
            steps = self._chain.n or 0
            self._run_revolve(steps, steps - 1)
        return self._shelf, self._at_hand, steps

    def _run_without_snapshots(self) -> tuple[Any, ...]:
        i = 0
        while self._has_step(i):
            self._advance(i)
            i += 1
        return self._state

    def _run_revolve(self, steps: int, stop: int) -> None:
        """Where the optimal schedule for so many steps takes its first snapshots."""
        chain = self._chain
        depths = {step: depth for depth, step in enumerate((0, *first_snapshots(steps, chain.tiers.count)))}
        fast = in_memory_depths(chain, steps)
        for i in range(steps):
            # the backward pass begins there
            if i == steps - 1:
                self._at_hand = self._take_snapshot(i)
            if i in depths:
                self._shelf.put(i, self._state, chain.streams.states(), depths[i] in fast)
            if i < stop:
                self._advance(i)

    def _run_online(self) -> int:
        """Take snapshots of an unknown number of steps; a new one stays at hand until the next is taken."""
        levels, i = OnlineSchedule(self._chain.tiers.count), 0
        while self._has_step(i):
            dropped, waiting = levels.reach(i), self._at_hand
            # the one at hand was never on the shelf
            if dropped is not None and (waiting is None or dropped != waiting.step):
                self._shelf.drop(dropped)
            if waiting is not None and dropped != waiting.step:
                self._shelf.put(waiting.step, waiting.leaves(), waiting.states, True)
            self._at_hand = self._take_snapshot(i)
            self._advance(i)
            i += 1
        if i == 1:
            self._shelf.put(0, self._at_hand.leaves(), self._at_hand.states, True)  # type: ignore[union-attr]
        return i

    def _has_step(self, i: int) -> bool:
        chain = self._chain
        state, params = ([wrap(x, spec_of(x)) for x in row] for row in (self._state, self._params))
        return chain.has_step(i, state, params)

    def _advance(self, i: int) -> None:
        self._state = _run_step(self._chain, self._trail, i, self._state, self._params)

    def _take_snapshot(self, i: int) -> Snapshot:
        return Snapshot(i, self._state, self._chain.streams.states(), None)


def in_memory_depths(chain: Chain, steps: int) -> frozenset[int]:
    """Which snapshots, counted from the start, are in memory; all where there is no disk."""
    tiers = chain.tiers
    if not tiers.disk or not steps:
        return frozenset(range(tiers.count))
    return most_touched(count_touches(steps, tiers.count), tiers.ram)


class _BackwardSweep:
    """The backward sweep: one step with a tape at a time, and steps forward to reach its state."""

    def __init__(self, chain: Chain, leaves: Sequence[Any], left: tuple[SnapshotStore, Snapshot | None, int]) -> None:
        self._chain, self._trail = chain, chain.trail_from(leaves)
        self._leaves = leaves
        self._params = leaves[chain.states :]
        self._shelf, self._at_hand, self._end = left
        self._in_memory = in_memory_depths(chain, self._end)

    def run(self, bars: Sequence[Any]) -> tuple[Any, ...]:
        """The cotangents of the first state and, summed over the steps, of the parameters."""
        states = len(self._chain.active_states)
        bars = list(bars)
        totals: list[Any] = [zeros(spec_of(self._leaves[k])) for k in self._chain.active_params]
        while self._end:
            here = self._reach(self._end - 1)
            self._at_hand = None
            self._end -= 1
            # its state is at hand now, and no earlier step starts from there
            if self._shelf.last.step == self._end:
                self._shelf.drop(self._end)
            found = self._pull_step(here, bars)
            # the state may be large, and is not needed while the cotangents are added up
            del here
            bars, shares = found[:states], found[states:]
            for total, share in zip(totals, shares, strict=True):
                total += share
        return (*bars, *totals)

    def _reach(self, step: int) -> Snapshot:
        """The state before a step; takes the snapshots of the optimal schedule in between."""
        while True:
            last = self._shelf.last
            here = self._at_hand if self._at_hand is not None and self._at_hand.step >= last.step else last
            if here.step == step:
                return here
            # without room for more, the steps in between are repeated each time
            free = self._chain.tiers.count - len(self._shelf)
            if not free:
                return self._advance_to(here, step)
            here = self._at_hand = self._advance_to(
                here, last.step + next_snapshot_distance(step + 1 - last.step, free + 1)
            )
            self._shelf.put(here.step, here.leaves(), here.states, len(self._shelf) in self._in_memory)

    def _advance_to(self, start: Snapshot, step: int) -> Snapshot:
        """The state before a later step."""
        state = start.leaves()
        self._chain.streams.rewind(start.states)
        for i in range(start.step, step):
            state = _run_step(self._chain, self._trail, i, state, self._params)
        return Snapshot(step, state, self._chain.streams.states(), None)

    def _pull_step(self, here: Snapshot, bars: list[Any]) -> list[Any]:
        """The cotangents of the active leaves of one step."""
        chain = self._chain
        leaves = [wrap(x, spec_of(x)) for x in (*here.leaves(), *self._params)]
        # the step draws what it drew then
        chain.streams.rewind(here.states)

        def step(*moving: Any) -> list[Any]:
            filled = list(leaves)
            for k, x in zip(chain.active, moving, strict=True):
                filled[k] = x
            outs = chain.step(here.step, *filled)
            if self._trail is not None:
                self._trail.check_state(here.step, [x.value if isinstance(x, Tensor) else x for x in outs])
            return [outs[k] for k in chain.active_states]

        # a tape of one step: that is all the memory the backward pass takes
        pullback = Pullback(step, [leaves[k] for k in chain.active], None)
        return [x.value for x in pullback.pull(bars, create_graph=False)]
