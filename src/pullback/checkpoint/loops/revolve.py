"""Where to take snapshots: Revolve for a known number of steps, levels for an unknown one.

To reverse n steps, each state x_i is needed, last first. With s snapshots, one of them of x_0, and the state at hand,
let t(n, s) be the fewest steps forward that this takes. The next snapshot goes to some m: m steps lead there, then
n - m steps are reversed with s - 1 snapshots, then the first m with all s:

    t(n, s) = min over m of  m + t(n - m, s - 1) + t(m, s),    t(1, s) = 0,    t(n, 1) = n (n - 1) / 2.

Let r be the most often that any step is repeated and b(s, r) the longest chain that this allows. The recursion gives
b(s, r) = b(s, r - 1) + b(s - 1, r), so b(s, r) = binomial(s + r, s). Counting the steps by how often they are taken
(b(s - 1, k) more steps with each k up to r), one has

    t(n, s) = r n - b(s + 1, r - 1)     for the r with  b(s, r - 1) < n <= b(s, r)

(Griewank and Walther 2000), and the minimum is taken at every m with b(s, r - 2) <= m <= b(s, r - 1) and
b(s - 1, r - 1) <= n - m <= b(s - 1, r); see `next_snapshot_distance`.

Here the value x_n is wanted before any cotangent is there, which is one step more, and each step runs once more with a
tape. So a gradient takes t(n, s) + 1 + n evaluations of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def max_reversible_steps(snapshots: int, repeated: int) -> int:
    """b(s, r): how many steps can be reversed if each may be taken forward so often."""
    return math.comb(snapshots + repeated, snapshots) if repeated >= 0 else 0


def min_repetitions(steps: int, snapshots: int) -> int:
    """r: how often some step must be taken forward, at the least."""
    found = 0
    while max_reversible_steps(snapshots, found) < steps:
        found += 1
    return found


def fewest_advances(steps: int, snapshots: int) -> int:
    """t(n, s): the fewest steps forward that reversing n steps takes, besides those with a tape."""
    if steps < 2:
        return 0
    r = min_repetitions(steps, snapshots)
    return r * steps - max_reversible_steps(snapshots + 1, r - 1)


def next_snapshot_distance(steps: int, snapshots: int) -> int:
    """How far to go to the next snapshot, for two steps or more and two snapshots or more, counting the one at hand.

    The furthest m that the conditions above allow: they hold since b(s, r - 1) < n <= b(s, r).
    """
    r = min_repetitions(steps, snapshots)
    return min(max_reversible_steps(snapshots, r - 1), steps - max_reversible_steps(snapshots - 1, r - 1))


def first_snapshots(steps: int, snapshots: int) -> list[int]:
    """Where snapshots are taken in the forward pass, besides the start."""
    found, at = [], 0
    while steps - at > 1 and snapshots > 1:
        at += next_snapshot_distance(steps - at, snapshots)
        snapshots -= 1
        found.append(at)
    return found


def count_touches(steps: int, snapshots: int) -> list[int]:
    """How often each snapshot, counted from the start, is written or read while all steps are reversed.

    Slow storage is best for those that are touched least.
    """
    counts = [0] * snapshots
    held, end = [0], steps
    while held:
        # the schedule played through: the last snapshot is read, and a new one taken while there is room
        at, free = held[-1], snapshots - len(held)
        counts[len(held) - 1] += 1
        if end - at > 1 and free:
            held.append(at + next_snapshot_distance(end - at, free + 1))
            counts[len(held) - 1] += 1
        else:
            end -= 1
            if end == at:
                held.pop()
    return counts


class OnlineSchedule:
    """Which snapshots to hold while the number of steps is unknown: the start, and `count` more, one of which is the
    state at hand.

    Each has a level, 0 when it is new. One that a later snapshot of a higher level follows may go. If none may, the
    newest moves on with the state at hand, one level up. So the gaps between the snapshots that stay shrink as those
    of the best schedule do, and after n <= b(s, r) steps reversing takes no step more than r times, which is the least
    that any schedule achieves (Wang, Moin and Iaccarino 2009).
    """

    __slots__ = ("_count", "_levels")

    def __init__(self, count: int) -> None:
        self._count = count
        self._levels: dict[int, float] = {}

    def reach(self, step: int) -> int | None:
        """The state before this step is at hand and held: the snapshot to drop for it, if one must go."""
        if step == 0:
            self._levels[0] = math.inf
            return None
        dropped, level = self._choose_dropped()
        if dropped is not None:
            del self._levels[dropped]
        self._levels[step] = level
        return dropped

    def _choose_dropped(self) -> tuple[int | None, float]:
        """Which snapshot goes, and the level of the new one."""
        if len(self._levels) <= self._count:
            return None, 0
        steps = list(self._levels)
        highest = -1.0
        # from the newest to the start, whose level is infinite
        for step in reversed(steps):
            if self._levels[step] < highest:
                return step, 0
            highest = max(highest, self._levels[step])
        return steps[-1], self._levels[steps[-1]] + 1


def most_touched(counts: Sequence[int], room: int) -> frozenset[int]:
    """The snapshots that are touched most, as many as there is room for; the start is the caller's anyway."""
    order = sorted(range(1, len(counts)), key=lambda k: -counts[k])
    return frozenset({0, *order[: max(room - 1, 0)]})
