"""A loop as a chain of steps on flat leaves, and the chains of its tangents and batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arrays.spec import spec_of, zeros
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...settings import Modes
from ...transforms.boundary import restrict_arguments
from ...transforms.control.captures import UnchangedArrays
from ...transforms.forward import jvp
from ...transforms.vectorize import vmap
from .snapshots import Tiers
from .stream_replay import StreamReplay
from .trail import Trail, TrailCache


@dataclass(frozen=True, eq=False)
class Chain:
    """`state = step(i, *state, *params)`: the first `states` of the `width` leaves are the state.

    `active` are the places of leaves with derivatives: floating-point states, and tracked parameters.
    `until` returns whether to stop before step i; `n` is the number of steps, or the most with `until`. `streams` are
    the random ones it may draw from, `modes` those set at the call, `tracked` whether a backward pass may follow,
    `watched` the arrays that the step closes over, `trails` its states (of the tangent chain, the first of its
    states, which are the same), `primal` picks the leaves that these depend on, `batches` the sizes of the
    batches around it, `objects` those that a step may set attributes of. The side effects of a step happened when the
    loop ran, so a chain that runs its steps for a derivative (`is_replay`) has none.
    """

    step: Callable[..., tuple[Any, ...]]
    until: Callable[..., Any] | None
    n: int | None
    states: int
    width: int
    active: tuple[int, ...]
    tiers: Tiers
    streams: StreamReplay
    modes: Modes
    tracked: bool
    watched: UnchangedArrays
    trails: TrailCache
    batches: tuple[int, ...] = ()
    primal: Callable[[Sequence[Any]], Sequence[Any]] = list
    objects: Sequence[Any] = ()
    is_replay: bool = False

    @property
    def active_states(self) -> tuple[int, ...]:
        return tuple(k for k in self.active if k < self.states)

    @property
    def active_params(self) -> tuple[int, ...]:
        return tuple(k for k in self.active if k >= self.states)

    def has_step(self, i: int, state: Sequence[Any], params: Sequence[Any]) -> bool:
        """Whether there is a step i."""
        if self.n is not None and i >= self.n:
            return False
        return self.until is None or not bool(self.until(i, *state, *params))

    def trail_from(self, leaves: Sequence[Any]) -> Trail | None:
        """The trail of the run from these leaves, None where no backward pass may follow."""
        return self.trails.trail_from(self.primal(leaves)) if self.tracked else None

    def tangent_chain(self) -> Chain:
        """The chain that carries tangents along: leaves are (states, their tangents, parameters, their tangents)."""
        count, tangent_count = self.states, len(self.active_states)
        first = count + tangent_count  # of the parameters

        def split_leaves(leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            last = self.width + tangent_count
            return [*leaves[:count], *leaves[first:last]], [*leaves[count:first], *leaves[last:]]

        def step(i: int, *leaves: Any) -> tuple[Any, ...]:
            primals, tangents = split_leaves(leaves)
            # integers and untracked parameters have no tangents to carry
            of_active = restrict_arguments(functools.partial(self.step, i), primals, self.active)
            values, changes = jvp(of_active, [primals[k] for k in self.active], tangents)
            return (*values, *(changes[k] for k in self.active_states))

        def until(i: int, *leaves: Any) -> Any:
            return self.until(i, *split_leaves(leaves)[0])  # type: ignore[misc]

        return replace(
            self, step=step, until=None if self.until is None else until, states=first,
            width=self.width + len(self.active), active=self._active_with_tangents(), is_replay=True,
            primal=lambda xs: self.primal(split_leaves(xs)[0]),
        )  # fmt: skip

    def _active_with_tangents(self) -> tuple[int, ...]:
        """The places of active leaves and their tangents among the leaves of the tangent chain."""
        # states, their tangents, parameters, their tangents: places behind the states move up
        shift = len(self.active_states)
        params = [k + shift for k in self.active_params]
        last = self.width + shift
        of_states = range(self.states, self.states + shift)
        return (*self.active_states, *of_states, *params, *range(last, last + len(params)))

    def with_tangents(self, leaves: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The leaves of the tangent chain; a missing tangent is zero."""
        of = {k: zeros(spec_of(leaves[k])) if tangents[k] is None else tangents[k] for k in self.active}
        return [
            *leaves[: self.states], *(of[k] for k in self.active_states),
            *leaves[self.states :], *(of[k] for k in self.active_params),
        ]  # fmt: skip

    def select_primals(self, found: Sequence[Any]) -> list[Any]:
        """Of the cotangents of the active leaves of the tangent chain, those of the active leaves here."""
        states, params = len(self.active_states), len(self.active_params)
        return [*found[:states], *found[2 * states : 2 * states + params]]

    def batch(self, axes: tuple[int | None, ...], size: int) -> Chain:
        """The chain of a batch, with its elements along `axes` of the leaves; a finished element stays unchanged."""
        run, done = self.step, self.until
        batches, trails = (size, *self.batches), TrailCache(self.states)
        if done is None:
            run_batch = lambda i, *leaves: vmap(functools.partial(run, i), axes)(*leaves)  # noqa: E731
            return replace(self, step=run_batch, batches=batches, trails=trails, primal=list)

        def run_unless_done(i: int, *leaves: Any) -> tuple[Any, ...]:
            # computed for all, kept for those that still run
            over = done(i, *leaves)
            return tuple(pointwise.where(over, x, y) for x, y in zip(leaves, run(i, *leaves), strict=False))

        def step(i: int, *leaves: Any) -> tuple[Any, ...]:
            found: tuple[Any, ...] = vmap(functools.partial(run_unless_done, i), axes)(*leaves)
            return found

        def until(i: int, *leaves: Any) -> Any:
            return reductions.all(vmap(functools.partial(done, i), axes)(*leaves))

        return replace(self, step=step, until=until, batches=batches, trails=trails, primal=list)
