"""Recipes: how a value was made, and which ops to run to recompute it from values that are alive.

A `ValueRecipe` knows an op, its statics and its inputs. It holds no array, unless it stands for one that cannot be
recomputed (a parameter, data, the result of a custom op). What a node saves is an `EvictableValue`: it owns the array
until the budget evicts it, and restores it when a rule needs it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.memory_ledger import owner_of
from ...arrays.spec import Spec, spec_of
from ...ops.op import Op
from ...ops.saved_values import SavedValue

if TYPE_CHECKING:
    from .memory_budget import Budget


class ValueRecipe:
    """One value: its `given_array` if it is never evicted, else how to make it; `array_ref` while it lives."""

    __slots__ = (
        "__weakref__",
        "array_ref",
        "cluster",
        "given_array",
        "holder_ref",
        "index",
        "inputs",
        "line",
        "op",
        "seconds",
        "spec",
        "static",
        "user_refs",
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
        self.given_array: Any = None
        self.array_ref: Any = None
        self.holder_ref: Any = None
        self.cluster: Cluster | None = None
        self.user_refs: list[weakref.ref[ValueRecipe]] = []

    def array(self) -> Any:
        """The array if it is alive anywhere, else None."""
        if self.given_array is not None:
            return self.given_array
        return None if self.array_ref is None else self.array_ref()

    def holder(self) -> EvictableValue | None:
        """The holder shared by the nodes that save this value, while there are any."""
        return None if self.holder_ref is None else self.holder_ref()

    def neighbors(self) -> Iterator[ValueRecipe]:
        """What it was computed from, and what was computed from it."""
        yield from (x for x in self.inputs if type(x) is ValueRecipe)
        yield from (user for reference in self.user_refs if (user := reference()) is not None)


class EvictableValue(SavedValue):
    """A saved value that the budget may evict: `array` is None while it is evicted."""

    __slots__ = ("__weakref__", "array", "budget", "recipe", "spec", "used")
    may_be_overwritten = False

    def __init__(self, recipe: ValueRecipe, array: Any, budget: Budget, now: float) -> None:
        self.recipe = recipe
        self.array = array
        self.budget = budget
        self.spec: Spec = recipe.spec
        self.used = now

    def value(self) -> Any:
        array = self.array
        if array is None:
            return self.budget.restore(self)
        self.used = perf_counter()
        return array


def is_missing(recipe: ValueRecipe) -> bool:
    """Whether no array of this value is alive."""
    return recipe.array() is None


class Cluster:
    """Evicted values that depend on each other: to recompute one, about all of them must be computed.

    The sum of their seconds estimates that cost. Clusters are merged as their members meet; a recomputed member only
    takes its own seconds out, which is near enough for choosing.
    """

    __slots__ = ("_into", "cost")

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self._into: Cluster | None = None

    def root(self) -> Cluster:
        # with path compression: clusters merge by the thousands
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


def recompute_cost(recipe: ValueRecipe) -> float:
    """Seconds to recompute a value once it is evicted: its own, and those of the clusters it would join."""
    clusters = {id(c): c for n in recipe.neighbors() if is_missing(n) and (c := cluster_of(n)) is not None}
    return recipe.seconds + sum(max(c.cost, 0.0) for c in clusters.values())


def cluster_of(recipe: ValueRecipe) -> Cluster:
    """The cluster of a missing value; one that was never saved joins those of its inputs at the first query."""
    if recipe.cluster is None:
        # from a list, not by recursion: chains may be thousands of values long
        joined = recipe.cluster = Cluster(recipe.seconds)
        waiting = [x for x in recipe.inputs if type(x) is ValueRecipe and is_missing(x)]
        while waiting:
            x = waiting.pop()
            if x.cluster is None:
                x.cluster = Cluster(x.seconds)
                waiting += [y for y in x.inputs if type(y) is ValueRecipe and is_missing(y)]
            joined.merge(x.cluster)
    return recipe.cluster.root()


def mark_evicted(recipe: ValueRecipe) -> None:
    """A value was evicted: it joins the clusters of its neighbours."""
    mine = recipe.cluster = Cluster(recipe.seconds)
    for neighbor in recipe.neighbors():
        if is_missing(neighbor):
            mine.merge(cluster_of(neighbor))


def mark_restored(recipe: ValueRecipe) -> None:
    """A value was restored."""
    if recipe.cluster is not None:
        # clusters are never split: an estimate is enough to choose by
        recipe.cluster.root().cost -= recipe.seconds
        recipe.cluster = None


def plan_recompute(recipe: ValueRecipe) -> tuple[list[ValueRecipe], dict[int, Any]]:
    """The missing values to compute, in order, for one that is missing; and the arrays they start from."""
    order: list[ValueRecipe] = []
    sources: dict[int, Any] = {}
    seen: set[int] = set()
    waiting = [(recipe, False)]
    while waiting:
        # depth first: an entry comes twice, and is ordered when its inputs are
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
        waiting += [(x, False) for x in m.inputs if type(x) is ValueRecipe]
    return order, sources


def evict_together(holders: list[EvictableValue]) -> int:
    """Evict the arrays of holders that share one piece of memory, if that frees it: the bytes, 0 if another
    reference holds it.
    """
    owner = owner_of(holders[0].array)
    # another reference would keep the memory, and the eviction would cost time for nothing
    if sys.getrefcount(owner) - _OWNER_REFERENCES != len(holders):
        return 0
    for held in holders:
        if held.array is not owner and sys.getrefcount(held.array) != _VIEW_REFERENCES:
            return 0
    for held in holders:
        held.array = None
    return int(owner.nbytes)


def _calibrate_refcounts() -> tuple[int, int]:
    """What `getrefcount` returns in `evict_together` besides the holders' references: interpreters differ in this."""
    held = EvictableValue.__new__(EvictableValue)
    held.array = np.empty(4)
    holders = [held]
    owner = owner_of(holders[0].array)
    alone = sys.getrefcount(owner) - 1
    held.array = owner[:2]
    for each in holders:
        return alone, sys.getrefcount(each.array)
    return alone, 0


_OWNER_REFERENCES, _VIEW_REFERENCES = _calibrate_refcounts()
