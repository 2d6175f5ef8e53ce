"""Chain and arrays in, its last state out, or cotangents of what it was computed from: the sweeps forth and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.protect import settled
from ..arrays.spec import spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..errors import GraphError
from ..ops.rehearsing import Undoing, undone
from ..settings import modes, switch_to
from ..transforms.reverse import Pullback
from ..transforms.rules import carries
from .chain import Chain
from .schedules import Levels, fastest, first_snapshots, split, touches
from .snapshots import NO_TICKET, Run, Shelf, Snapshot, found_run
from .trail import Trail

__all__ = ["back", "forth", "repeating"]


def forth(chain: Chain, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The state after all steps, and the ticket of what was left for the way back."""
    with (
        _as_at_first(chain),
        chain.streams.from_start(),
        undone(chain.objects, Undoing()) if chain.again else contextlib.nullcontext(),
    ):
        state, run = _Forth(chain, leaves).all()
        chain.watched.check()
        return (*state, np.broadcast_to(NO_TICKET if run is None else run.ticket(), chain.batches))


def back(chain: Chain, ticket: Any, rest: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents of what moves, from those of the last state."""
    leaves, bars = rest[: chain.width], rest[chain.width :]
    chain.watched.check()
    with repeating(chain):
        left = found_run(ticket)
        if left is None:
            left = _Forth(chain, leaves).all_but_value()
        return _Back(chain, leaves, left).all(bars)


@contextlib.contextmanager
def repeating(chain: Chain) -> Iterator[None]:
    """Steps that ran before run as they did then, and leave no trace."""
    with _as_at_first(chain), chain.streams.from_start(), undone(chain.objects, Undoing()):
        yield


@contextlib.contextmanager
def _as_at_first(chain: Chain) -> Iterator[None]:
    """With what was switched on when the loop was called, so that a step does again what it did."""
    now = modes()
    switch_to(replace(chain.modes, keeper=None, inference=False, anomaly=now.anomaly, nan_only=now.nan_only))
    try:
        yield
    finally:
        switch_to(now)


def _advanced(
    chain: Chain, trail: Trail | None, i: int, state: Sequence[Any], params: Sequence[Any]
) -> tuple[Any, ...]:
    """The state after step i, as bare arrays."""
    outs = tuple(_bare(x) for x in chain.step(i, *(wrap(x, spec_of(x)) for x in (*state, *params))))
    if trail is not None:
        trail.see(i, outs)
    return outs


def _bare(x: Any) -> Any:
    if carries(x):
        raise GraphError(
            "checkpoint_loop: the step uses a value that carries derivatives and was not found in its closure, "
            "so its gradient would be lost.\n  Pass it as one of the params: checkpoint_loop(step, x0, n, *params)."
        )
    if type(x) is Tensor:
        return settled(x.value) if x.status else x.value
    return settled(x)


class _Forth:
    """The sweep to the end, which takes the first snapshots."""

    def __init__(self, chain: Chain, leaves: Sequence[Any]) -> None:
        self._chain, self._trail = chain, chain.trail(leaves)
        self._state, self._params = tuple(leaves[: chain.states]), leaves[chain.states :]
        self._shelf = Shelf(chain.tiers)
        self._at_hand: Snapshot | None = None

    def all(self) -> tuple[tuple[Any, ...], Run | None]:
        """The last state, and what is left for the way back if somebody may want to go it."""
        chain = self._chain
        if not (chain.tracked and chain.modes.grad):
            return self._through(), None
        if chain.until is not None:
            steps = self._by_levels()
        else:
            steps = chain.n or 0
            self._by_revolve(steps, steps)
        return self._state, Run(self._shelf, self._at_hand, steps)

    def all_but_value(self) -> tuple[Shelf, Snapshot | None, int]:
        """What is left for the way back; the last state is not computed where nothing depends on it."""
        if self._chain.until is not None:
            steps = self._by_levels()
        else:
            steps = self._chain.n or 0
            self._by_revolve(steps, steps - 1)
        return self._shelf, self._at_hand, steps

    def _through(self) -> tuple[Any, ...]:
        i = 0
        while self._goes_on(i):
            self._advance(i)
            i += 1
        return self._state

    def _by_revolve(self, steps: int, stop: int) -> None:
        """Where the best schedule for so many steps takes its first snapshots."""
        chain = self._chain
        depths = {step: depth for depth, step in enumerate((0, *first_snapshots(steps, chain.tiers.count)))}
        quick = quick_depths(chain, steps)
        for i in range(steps):
            if i == steps - 1:
                self._at_hand = self._snapshot(i)
            if i in depths:
                self._shelf.put(i, self._state, chain.streams.states(), depths[i] in quick)
            if i < stop:
                self._advance(i)

    def _by_levels(self) -> int:
        """Where snapshots of an unknown number of steps stay; one that is new waits at hand until the next is."""
        levels, i = Levels(self._chain.tiers.count), 0
        while self._goes_on(i):
            dropped, waiting = levels.reach(i), self._at_hand
            if dropped is not None and (waiting is None or dropped != waiting.step):
                self._shelf.drop(dropped)
            if waiting is not None and dropped != waiting.step:
                self._shelf.put(waiting.step, waiting.leaves(), waiting.states, True)
            self._at_hand = self._snapshot(i)
            self._advance(i)
            i += 1
        if i == 1:
            self._shelf.put(0, self._at_hand.leaves(), self._at_hand.states, True)  # type: ignore[union-attr]
        return i

    def _goes_on(self, i: int) -> bool:
        chain = self._chain
        state, params = ([wrap(x, spec_of(x)) for x in row] for row in (self._state, self._params))
        return chain.goes_on(i, state, params)

    def _advance(self, i: int) -> None:
        self._state = _advanced(self._chain, self._trail, i, self._state, self._params)

    def _snapshot(self, i: int) -> Snapshot:
        return Snapshot(i, self._state, self._chain.streams.states(), None)


def quick_depths(chain: Chain, steps: int) -> frozenset[int]:
    """Which snapshots, counted from the start, are in memory; all where there is no disk."""
    tiers = chain.tiers
    if not tiers.disk or not steps:
        return frozenset(range(tiers.count))
    return fastest(touches(steps, tiers.count), tiers.ram)


class _Back:
    """The sweep from the end to the start: one step with a tape at a time, and steps forward to where it is."""

    def __init__(self, chain: Chain, leaves: Sequence[Any], left: tuple[Shelf, Snapshot | None, int]) -> None:
        self._chain, self._trail = chain, chain.trail(leaves)
        self._leaves = leaves
        self._params = leaves[chain.states :]
        self._shelf, self._at_hand, self._end = left
        self._quick = quick_depths(chain, self._end)

    def all(self, bars: Sequence[Any]) -> tuple[Any, ...]:
        """The cotangents of the first state and, summed over the steps, of the parameters."""
        states = len(self._chain.moving_states)
        bars = list(bars)
        totals: list[Any] = [zeros(spec_of(self._leaves[k])) for k in self._chain.moving_params]
        while self._end:
            here = self._reached(self._end - 1)
            self._at_hand = None
            self._end -= 1
            if self._shelf.last.step == self._end:
                self._shelf.drop(self._end)
            found = self._pulled(here, bars)
            del here
            bars, shares = found[:states], found[states:]
            for total, share in zip(totals, shares, strict=True):
                total += share
        return (*bars, *totals)

    def _reached(self, step: int) -> Snapshot:
        """The state before a step, after taking the snapshots on the way that the best schedule takes."""
        while True:
            last = self._shelf.last
            here = self._at_hand if self._at_hand is not None and self._at_hand.step >= last.step else last
            if here.step == step:
                return here
            free = self._chain.tiers.count - len(self._shelf)
            if not free:
                return self._moved(here, step)
            here = self._at_hand = self._moved(here, last.step + split(step + 1 - last.step, free + 1))
            self._shelf.put(here.step, here.leaves(), here.states, len(self._shelf) in self._quick)

    def _moved(self, start: Snapshot, step: int) -> Snapshot:
        """The state before a later step."""
        state = start.leaves()
        self._chain.streams.rewind(start.states)
        for i in range(start.step, step):
            state = _advanced(self._chain, self._trail, i, state, self._params)
        return Snapshot(step, state, self._chain.streams.states(), None)

    def _pulled(self, here: Snapshot, bars: list[Any]) -> list[Any]:
        """One step's cotangents of what moves."""
        chain = self._chain
        leaves = [wrap(x, spec_of(x)) for x in (*here.leaves(), *self._params)]
        chain.streams.rewind(here.states)

        def step(*moving: Any) -> list[Any]:
            filled = list(leaves)
            for k, x in zip(chain.moving, moving, strict=True):
                filled[k] = x
            outs = chain.step(here.step, *filled)
            if self._trail is not None:
                self._trail.see(here.step, [x.value if isinstance(x, Tensor) else x for x in outs])
            return [outs[k] for k in chain.moving_states]

        pullback = Pullback(step, [leaves[k] for k in chain.moving], None)
        return [x.value for x in pullback.pull(bars, linked=False)]
