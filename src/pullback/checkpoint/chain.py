"""One step on flat leaves in, the chain of many out, and the chains that derivatives and batches of it are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..arrays.spec import spec_of, zeros
from ..ops import elementwise as pointwise
from ..ops import reducing
from ..settings import Modes
from ..transforms.batching import vmap
from ..transforms.border import at_places
from ..transforms.captures import Unchanged
from ..transforms.forward import jvp
from .randomness import Replay
from .snapshots import Tiers
from .trail import Trail, Trails

__all__ = ["Chain"]


@dataclass(frozen=True, eq=False)
class Chain:
    """`state = step(i, *state, *params)`: the first `states` of the `width` leaves are the state.

    `moving` are the places of leaves that derivatives go through: floating-point states, and parameters that carry any.
    `until` answers whether to stop before step i; `n` is the number of steps, or the most with `until`. `streams` are
    the random ones it may draw from, `modes` what was switched on, `tracked` whether anybody may want to go back,
    `watched` the arrays that the step closes over, `trails` the states it went through (of the tangent chain, its first
    ones, which are the same), `primal` picks the leaves that these followed from, `batches` the
    sizes of the batches around it, `objects` those that a step may set attributes of. What a step does beside computing
    it did when the loop ran, so a chain that runs its steps `again`, for a derivative, leaves no trace.
    """

    step: Callable[..., tuple[Any, ...]]
    until: Callable[..., Any] | None
    n: int | None
    states: int
    width: int
    moving: tuple[int, ...]
    tiers: Tiers
    streams: Replay
    modes: Modes
    tracked: bool
    watched: Unchanged
    trails: Trails
    batches: tuple[int, ...] = ()
    primal: Callable[[Sequence[Any]], Sequence[Any]] = list
    objects: Sequence[Any] = ()
    again: bool = False

    @property
    def moving_states(self) -> tuple[int, ...]:
        return tuple(k for k in self.moving if k < self.states)

    @property
    def moving_params(self) -> tuple[int, ...]:
        return tuple(k for k in self.moving if k >= self.states)

    def goes_on(self, i: int, state: Sequence[Any], params: Sequence[Any]) -> bool:
        """Whether there is a step i."""
        if self.n is not None and i >= self.n:
            return False
        return self.until is None or not bool(self.until(i, *state, *params))

    def trail(self, leaves: Sequence[Any]) -> Trail | None:
        """Of the run from these leaves, where a backward pass may follow."""
        return self.trails.of(self.primal(leaves)) if self.tracked else None

    def tangent(self) -> Chain:
        """The chain that carries tangents along: leaves are (states, their tangents, parameters, their tangents)."""
        count, moved = self.states, len(self.moving_states)
        first = count + moved  # of the parameters

        def apart(leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            last = self.width + moved
            return [*leaves[:count], *leaves[first:last]], [*leaves[count:first], *leaves[last:]]

        def step(i: int, *leaves: Any) -> tuple[Any, ...]:
            primals, tangents = apart(leaves)
            of_moving = at_places(functools.partial(self.step, i), primals, self.moving)
            values, changes = jvp(of_moving, [primals[k] for k in self.moving], tangents)
            return (*values, *(changes[k] for k in self.moving_states))

        def until(i: int, *leaves: Any) -> Any:
            return self.until(i, *apart(leaves)[0])  # type: ignore[misc]

        return replace(
            self, step=step, until=None if self.until is None else until, states=first,
            width=self.width + len(self.moving), moving=self._doubled(), again=True,
            primal=lambda xs: self.primal(apart(xs)[0]),
        )  # fmt: skip

    def _doubled(self) -> tuple[int, ...]:
        """Where what moves, and its tangents, stand among the leaves of the tangent chain."""
        shift = len(self.moving_states)
        params = [k + shift for k in self.moving_params]
        last = self.width + shift
        of_states = range(self.states, self.states + shift)
        return (*self.moving_states, *of_states, *params, *range(last, last + len(params)))

    def with_tangents(self, leaves: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The leaves of the tangent chain; a tangent that is not there is zero."""
        of = {k: zeros(spec_of(leaves[k])) if tangents[k] is None else tangents[k] for k in self.moving}
        return [
            *leaves[: self.states], *(of[k] for k in self.moving_states),
            *leaves[self.states :], *(of[k] for k in self.moving_params),
        ]  # fmt: skip

    def of_primals(self, found: Sequence[Any]) -> list[Any]:
        """Of the cotangents of what moves in the tangent chain, those of what moves here."""
        states, params = len(self.moving_states), len(self.moving_params)
        return [*found[:states], *found[2 * states : 2 * states + params]]

    def in_batch(self, axes: tuple[int | None, ...], size: int) -> Chain:
        """The chain of a batch, with its elements along `axes` of the leaves; one that is done stays as it is."""
        run, done = self.step, self.until
        batches, trails = (size, *self.batches), Trails(self.states)
        if done is None:
            whole = lambda i, *leaves: vmap(functools.partial(run, i), axes)(*leaves)  # noqa: E731
            return replace(self, step=whole, batches=batches, trails=trails, primal=list)

        def one(i: int, *leaves: Any) -> tuple[Any, ...]:
            over = done(i, *leaves)
            return tuple(pointwise.where(over, x, y) for x, y in zip(leaves, run(i, *leaves), strict=False))

        def step(i: int, *leaves: Any) -> tuple[Any, ...]:
            found: tuple[Any, ...] = vmap(functools.partial(one, i), axes)(*leaves)
            return found

        def until(i: int, *leaves: Any) -> Any:
            return reducing.all(vmap(functools.partial(done, i), axes)(*leaves))

        return replace(self, step=step, until=until, batches=batches, trails=trails, primal=list)
