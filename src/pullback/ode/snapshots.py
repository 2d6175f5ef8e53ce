"""Snapshots of a solve, held while the number of its steps is unknown, and the states found again from them.

Like the loop over steps this is written in ops on a carry: one rule for Python, batches and compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..checkpoint.loops.revolve import max_reversible_steps
from ..ops.elementwise import pointwise
from ..ops.elementwise.arithmetic import floor_divide
from ..ops.index.indexing import getitem
from ..ops.placement import move
from ..ops.reduce import reductions
from ..ops.shape.arrange import stack
from ..ops.shape.reshaping import reshape
from .loops import make_rows, run_loop, store

#: The level of the start, which never goes.
_START_LEVEL = 1 << 62


class Snapshots(NamedTuple):
    """`states` that are held, and in the columns of `held`, in the order of time: the step that each comes before (-1:
    none is held yet), the row of `states` where it is, and its level.
    """

    states: Any
    held: Any


def make_snapshots(room: int, first: Any) -> Snapshots:
    """Room for so many states like the first, of which none is held."""
    held = np.stack([np.full(room, -1), np.arange(room), np.zeros(room, np.int64)])
    return Snapshots(make_rows(room, first), move(held, spec_of(first).device))


def hold_snapshot(s: Snapshots, step: Any, y: Any, is_good: Any) -> Snapshots:
    """Hold the state before a step, if the step is good, in place of one that the schedule of an unknown number of
    steps lets go: that of `revolve.OnlineSchedule`, here on arrays.
    """
    room, columns = int(s.held.shape[1]), _count_columns(s)
    steps, rows, levels = (getitem(s.held, k) for k in range(3))
    if room == 1:  # for the start alone
        is_good = pointwise.logical_and(is_good, pointwise.equal(step, 0))
    count = reductions.sum(pointwise.greater_equal(steps, 0))
    is_full = pointwise.greater_equal(count, room)
    end = pointwise.minimum(count, room - 1)
    dropped = _find_dropped(levels, pointwise.logical_and(is_full, is_good))
    # if none may go, the newest moves on with the state at hand, one level up
    moves_on = pointwise.logical_and(is_full, pointwise.less(dropped, 0))
    level = pointwise.where(moves_on, getitem(levels, room - 1) + 1, np.int64(0))
    level = pointwise.where(pointwise.equal(step, 0), np.int64(_START_LEVEL), level)
    place = pointwise.where(is_full, pointwise.where(moves_on, np.int64(room - 1), dropped), end)
    row = getitem(rows, place)
    is_after = pointwise.logical_and(is_full, pointwise.greater_equal(columns, place))
    shifted = pointwise.where(is_after, pointwise.minimum(columns + 1, room - 1), columns)
    new = reshape(stack([step, row, level]), (3, 1))
    held = pointwise.where(pointwise.equal(columns, end), new, getitem(s.held, (slice(None), shifted)))
    states = store(s.states, row, pointwise.where(is_good, y, getitem(s.states, row)))
    return Snapshots(states, pointwise.where(is_good, held, s.held))


def _find_dropped(levels: Any, is_sought: Any) -> Any:
    """The newest that a later one of a higher level follows, or -1."""

    def goes_on(c: tuple[Any, ...]) -> Any:
        k, highest, is_sought = c
        stays = pointwise.greater_equal(getitem(levels, pointwise.maximum(k, 0)), highest)
        return pointwise.logical_and(pointwise.logical_and(is_sought, stays), pointwise.greater_equal(k, 0))

    def look_back(c: tuple[Any, ...]) -> tuple[Any, ...]:
        k, highest, is_sought = c
        return k - 1, pointwise.maximum(highest, getitem(levels, pointwise.maximum(k, 0))), is_sought

    last = move(np.asarray(int(levels.shape[0]) - 1), spec_of(levels).device)
    found: tuple[Any, ...] = run_loop(goes_on, look_back, (last, last * 0, is_sought))
    return found[0]


def find_latest(s: Snapshots, i: Any) -> tuple[Any, Any]:
    """The newest held state that comes before step i or an earlier one: the number of its step, and the state."""
    _, last = _count_before(s, i)
    return pointwise.maximum(getitem(s.held, (0, last)), 0), getitem(s.states, getitem(s.held, (1, last)))


def go_towards(s: Snapshots, i: Any, advance: Callable[[Any, Any], Any]) -> tuple[Snapshots, Any, Any]:
    """From the newest held state on by `advance(i, y)` to the next that the best schedule holds, or to that before step
    i: with what is held then, the number of its step, and the state. Later states are not asked for again, so their
    places are free.
    """
    room = int(s.held.shape[1])
    known, _ = _count_before(s, i)
    start, y = find_latest(s, i)
    is_free = pointwise.less(known, room)
    left = pointwise.maximum(pointwise.where(is_free, i + 1 - start, np.int64(1)), 1)
    stop = pointwise.where(is_free, pointwise.minimum(start + _next_distance(left, room + 1 - known), i), i)
    at, y = run_loop(lambda c: pointwise.less(c[0], stop), lambda c: (c[0] + 1, advance(c[0], c[1])), (start, y))
    is_new, place = pointwise.logical_and(is_free, pointwise.less(start, at)), pointwise.minimum(known, room - 1)
    row, steps = getitem(s.held, (1, place)), getitem(s.held, 0)
    is_here = pointwise.logical_and(pointwise.equal(_count_columns(s), place), is_new)
    held = stack([pointwise.where(is_here, at, steps), getitem(s.held, 1), getitem(s.held, 2)])
    states = store(s.states, row, pointwise.where(is_new, y, getitem(s.states, row)))
    return Snapshots(states, held), at, y


def _count_before(s: Snapshots, i: Any) -> tuple[Any, Any]:
    """How many are held of step i and earlier ones, and the place of the last."""
    steps = getitem(s.held, 0)
    is_before = pointwise.logical_and(pointwise.greater_equal(steps, 0), pointwise.less_equal(steps, i))
    known = reductions.sum(is_before)
    return known, pointwise.maximum(known - 1, 0)


def _next_distance(n: Any, s: Any) -> Any:
    """`revolve.next_snapshot_distance` on arrays: n steps, s snapshots; 1 for one step.

    b(s, r) = b(s, r - 1) (s + r) / r and b(s - 1, r - 1) = b(s, r - 1) s / (s + r - 1) are whole numbers.
    """

    def grow(c: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        r, _, most = c
        return r + 1, most, floor_divide(most * (s + r + 1), r + 1)

    one = pointwise.minimum(n, 1)
    r, before, _ = run_loop(lambda c: pointwise.less(c[2], n), grow, (one - 1, one, one))
    least = floor_divide(before * s, pointwise.maximum(s + r - 1, 1))
    return pointwise.maximum(pointwise.minimum(before, n - least), 1)


def _count_columns(s: Snapshots) -> Any:
    return move(np.arange(int(s.held.shape[1])), spec_of(s.held).device)


def count_snapshots(steps: int) -> int:
    """With so many, no step is taken more than twice again: about the square root of twice the steps."""
    count = 1
    while max_reversible_steps(count, 2) < steps:
        count += 1
    return count
