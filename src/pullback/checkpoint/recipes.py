"""How a value was made in, what to run to have it again out: recipes that reach back to values that are there.

A `Made` knows an op, its statics and what it was computed from. It holds no array, unless it stands for one that cannot
be computed again (a parameter, data, what a user's own op returned). What a node keeps is a `Held`: it owns the
array until the budget takes it away, and asks for it again when a rule wants it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.ledger import owner_of
from ..arrays.node import show_line
from ..arrays.spec import Spec, spec_of
from ..ops.keeping import Kept
from ..ops.op import Op

if TYPE_CHECKING:
    from .budget import Budget

__all__ = ["Held", "Made", "drop_together", "missing", "plan"]


class Made:
    """One value: `fixed` if it is there for good, else how to make it. `seen` is the array while anybody has it."""

    __slots__ = (
        "__weakref__", "cluster", "fixed", "held", "index", "inputs", "line", "op", "seconds", "seen", "spec", "static",
        "users",
    )  # fmt: skip

    def __init__(
        self,
        array: Any,
        line: tuple[CodeType, int],
        op: Op | None = None,
        static: dict[str, Any] | None = None,
        inputs: tuple[Any, ...] = (),
        index: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.spec = spec_of(array)
        self.line = line
        self.op, self.static, self.inputs, self.index = op, static or {}, inputs, index
        self.seconds = seconds
        self.fixed: Any = None
        self.seen: Any = None
        self.held: Any = None
        self.cluster: Cluster | None = None
        self.users: list[weakref.ref[Made]] = []

    def array(self) -> Any:
        """The value if it is anywhere, else None."""
        if self.fixed is not None:
            return self.fixed
        return None if self.seen is None else self.seen()

    def holder(self) -> Held | None:
        """What the nodes that keep this value hold, while there are any."""
        return None if self.held is None else self.held()

    def neighbours(self) -> Iterator[Made]:
        """What it was computed from, and what was computed from it."""
        yield from (x for x in self.inputs if type(x) is Made)
        yield from (user for reference in self.users if (user := reference()) is not None)

    def where(self) -> str:
        return show_line(*self.line)


class Held(Kept):
    """A kept value that the budget may take away: `array` is None while it is gone."""

    __slots__ = ("__weakref__", "array", "budget", "made", "spec", "used")
    lends = False

    def __init__(self, made: Made, array: Any, budget: Budget, now: float) -> None:
        self.made = made
        self.array = array
        self.budget = budget
        self.spec: Spec = made.spec
        self.used = now

    def value(self) -> Any:
        array = self.array
        if array is None:
            return self.budget.restored(self)
        self.used = perf_counter()
        return array


def missing(made: Made) -> bool:
    """Whether nobody has this value now."""
    return made.array() is None


class Cluster:
    """Values that are gone and hang together: to have one of them again, about all of them must be computed.

    The sum of their seconds stands in for the cost of that. Clusters are merged as their members meet; a member that is
    computed again only takes its own seconds out, which is near enough for choosing.
    """

    __slots__ = ("_into", "cost")

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self._into: Cluster | None = None

    def root(self) -> Cluster:
        found = self
        while found._into is not None:
            found = found._into
        if found is not self:
            self._into = found
        return found

    def merge(self, other: Cluster) -> None:
        mine, theirs = self.root(), other.root()
        if mine is not theirs:
            theirs._into = mine
            mine.cost += theirs.cost


def cost(made: Made) -> float:
    """Seconds to have a value again once it is gone: its own, and those of the clusters it would join."""
    clusters = {id(c): c for n in made.neighbours() if missing(n) and (c := cluster_of(n)) is not None}
    return made.seconds + sum(max(c.cost, 0.0) for c in clusters.values())


def cluster_of(made: Made) -> Cluster:
    """The cluster of a missing value; what was never kept joins those it was computed from when it is first asked."""
    if made.cluster is None:
        joined = made.cluster = Cluster(made.seconds)
        waiting = [x for x in made.inputs if type(x) is Made and missing(x)]
        while waiting:
            x = waiting.pop()
            if x.cluster is None:
                x.cluster = Cluster(x.seconds)
                waiting += [y for y in x.inputs if type(y) is Made and missing(y)]
            joined.merge(x.cluster)
    return made.cluster.root()


def gone(made: Made) -> None:
    """A value was taken away: it joins the clusters of its neighbours."""
    mine = made.cluster = Cluster(made.seconds)
    for neighbour in made.neighbours():
        if missing(neighbour):
            mine.merge(cluster_of(neighbour))


def back(made: Made) -> None:
    """A value is there again."""
    if made.cluster is not None:
        made.cluster.root().cost -= made.seconds
        made.cluster = None


def plan(made: Made) -> tuple[list[Made], dict[int, Any]]:
    """The missing values to compute, in order, for one that is missing; and the arrays they start from."""
    order: list[Made] = []
    sources: dict[int, Any] = {}
    seen: set[int] = set()
    waiting = [(made, False)]
    while waiting:
        m, ready = waiting.pop()
        if ready:
            order.append(m)
            continue
        if id(m) in seen:
            continue
        seen.add(id(m))
        array = m.array()
        if array is not None:
            sources[id(m)] = array
            continue
        waiting.append((m, True))
        waiting += [(x, False) for x in m.inputs if type(x) is Made]
    return order, sources


def drop_together(holders: list[Held]) -> int:
    """Take away the arrays of holders that share one piece of memory, if that frees it: the bytes, 0 if somebody else
    holds on to it.
    """
    owner = owner_of(holders[0].array)
    if sys.getrefcount(owner) - _NOBODY_ELSE != len(holders):
        return 0
    for held in holders:
        if held.array is not owner and sys.getrefcount(held.array) != _A_VIEW:
            return 0
    for held in holders:
        held.array = None
    return int(owner.nbytes)


def _counted() -> tuple[int, int]:
    """What `getrefcount` says in `drop_together`, beside the holders' references: interpreters differ in this."""
    held = Held.__new__(Held)
    held.array = np.empty(4)
    holders = [held]
    owner = owner_of(holders[0].array)
    alone = sys.getrefcount(owner) - 1
    held.array = owner[:2]
    for each in holders:
        return alone, sys.getrefcount(each.array)
    return alone, 0


_NOBODY_ELSE, _A_VIEW = _counted()
