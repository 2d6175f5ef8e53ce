"""`memory_budget`: eager work within a number of bytes; saved values are evicted and recomputed.

Whenever memory is needed, the values that cost least to recompute are evicted first (`eviction.py`). That is dynamic
tensor rematerialisation: no plan is made beforehand, so any program works, with control flow and any derivatives.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from types import CodeType, TracebackType
from typing import Any

import numpy as np

from ...arrays import process_memory
from ...arrays.backends import is_array
from ...arrays.call_site import user_line
from ...arrays.memory_ledger import Ledger
from ...arrays.node import Node
from ...arrays.text import format_bytes, parse_bytes
from ...arrays.timing import RECOMPUTE, span
from ...errors import MemoryBudgetError
from ...instrument import Instrument, OpCall, SavedSlot
from ...ops.dispatch import compute
from ...settings import Modes, installed, modes, set_modes
from ...tape.cotangents import arrays_in
from .budget_report import BudgetReport, PinnedMemory
from .eviction import EvictionQueue
from .recipe_registry import RecipeRegistry, protect_inputs, result_nbytes, workspace_nbytes
from .value_recipes import EvictableValue, ValueRecipe, mark_restored, plan_recompute

#: Values below this are never evicted: a recipe is as large.
_MIN_EVICTABLE_BYTES = 1 << 10


def memory_budget(limit: int | str) -> Budget:
    """Keep the arrays of everything computed inside within `limit` bytes, such as `"512 MiB"`: values that backward
    needs are evicted and recomputed, with the same bits. `report()` says what was done.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(100_000), requires_grad=True)
    >>> with pb.memory_budget("6 MiB") as budget:
    ...     y = x
    ...     for _ in range(20):
    ...         y = pb.sin(y)
    ...     pb.sum(y).backward()
    >>> report = budget.report()
    >>> report.peak <= report.limit, report.evictions > 0
    (True, True)
    """
    return Budget(parse_bytes(limit, "memory_budget: limit"))


class Budget(Instrument):
    """A running budget: sees ops, holds what they save, evicts and recomputes. Made by `memory_budget`. What another
    instrument packs is not its to evict, so it is asked last.
    """

    measures = holds_last = True

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._ledger = Ledger()
        self._guard = threading.RLock()
        self._registry = RecipeRegistry()
        self._eviction = EvictionQueue()
        self._reserved: dict[int, int] = {}
        self._before: dict[int, list[Modes]] = {}
        self._watch = process_memory.ResidentMemoryWatch()
        self._foreign_bytes = 0
        self._recomputations = 0
        self._seconds = 0.0

    def __enter__(self) -> Budget:
        before = modes()
        self._before.setdefault(threading.get_ident(), []).append(before)
        set_modes(before._replace(instruments=installed().push(self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_modes(self._before[threading.get_ident()].pop())
        process_memory.release()

    def report(self) -> BudgetReport:
        """What was done so far, and what can never be evicted, largest first."""
        with self._guard:
            live = self._ledger.remove_freed()
            return BudgetReport(
                limit=self.limit, live=live, peak=self._ledger.peak, evictions=self._eviction.count,
                evicted=self._eviction.nbytes, recomputations=self._recomputations, seconds=self._seconds,
                pinned=self._find_pinned(),
            )  # fmt: skip

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        """Make room, run the op, record the recipes of its results."""
        if call.level > 1:
            return below()
        op, args, values, static = call.op, call.args, call.values, call.static
        line = user_line(sys._getframe(1))
        with self._guard:
            inside = threading.get_ident() in self._reserved  # of a rule, whose values die with it
            recipe = call.tracked or (modes().grad and not inside and self._registry.has_any_recipe(values))
            # a recipe runs the op again
            recipe = recipe and op.is_repeatable(static)
            if recipe:
                protect_inputs(args, values)
            inputs = tuple([self._recipe_of(v, line) if is_array(v) else v for v in values])
            # room is made before the op runs, when nothing of it can be evicted yet
            size = result_nbytes(op, args, static)
            self._make_room(0 if op.family == "linear" else size, size + workspace_nbytes(op, values))
        start = perf_counter()
        out = below()
        seconds = perf_counter() - start
        with self._guard:
            for index, array in enumerate(out) if type(out) is tuple else ((None, out),):
                self._ledger.track(array, line)
                if recipe and not any(array is v for v in values):
                    self._registry.register(array, ValueRecipe(array, line, op, static, inputs, index, seconds))
            self._make_room(0)
        return out

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        """What a node holds for a value: the value itself where it cannot be recomputed."""
        with self._guard:
            for array in arrays_in(value):
                self._ledger.track(array, slot.line)
            recipe = self._registry.recipe_of(value)
            if recipe is None or value.nbytes < _MIN_EVICTABLE_BYTES:
                return value
            held = recipe.holder()
            if held is None:
                held = EvictableValue(recipe, value, self, perf_counter())
                self._eviction.register(held)
            elif held.array is None:
                held.array = value
            return held

    def pull_begins(self, node: Node, bar: Any) -> None:
        """Make room for the sums of shares; the ops of the rule make their own."""
        specs = [p.spec for p in node.parents]
        nbytes = sum(s.nbytes for spec in specs for s in (spec if isinstance(spec, tuple) else (spec,)))
        with self._guard:
            self._reserved[threading.get_ident()] = nbytes
            self._make_room(0)

    def pulled(self, node: Node, shares: tuple[Any, ...]) -> None:
        with self._guard:
            self._reserved.pop(threading.get_ident(), None)
            self._account_for(shares)

    def summed(self, total: Any) -> None:
        with self._guard:
            self._account_for(total)

    def delivered(self, tensors: Sequence[Any]) -> None:
        with self._guard:
            self._account_for([t.grad for t in tensors])

    def backward_ends(self, released: bool) -> None:
        """Drop the recipes of values that outlive their graph, lest they keep the whole past alive."""
        with self._guard:
            self._reserved.clear()
            if released:
                self._registry.forget_unheld()
            self._check_pages()

    def restore(self, held: EvictableValue) -> Any:
        """The array of an evicted value, recomputed from the arrays that are alive."""
        with self._guard, np.errstate(all="ignore"):
            array = held.recipe.array()
            if array is None:
                array = self._recompute(held.recipe)
            held.array = array
            held.used = perf_counter()
            return array

    def _recompute(self, wanted: ValueRecipe) -> Any:
        with span(RECOMPUTE, "memory_budget"):
            return self._run_recipes(wanted)

    def _run_recipes(self, wanted: ValueRecipe) -> Any:
        order, arrays = plan_recompute(wanted)
        # a profile sees what is computed again; the budget itself does its own accounting
        others = installed().without(Budget)
        # values in between are freed as soon as the last op has read them
        last_use = {id(x): i for i, m in enumerate(order) for x in m.inputs if type(x) is ValueRecipe}
        for i, m in enumerate(order):
            if m.op is None:
                raise AssertionError("a value without a recipe is never evicted")
            self._make_room(0 if m.op.family == "linear" else m.spec.nbytes, m.spec.nbytes)
            start = perf_counter()
            values = [arrays[id(x)] if type(x) is ValueRecipe else x for x in m.inputs]
            out = others.compute(OpCall(m.op, values, values, m.static, 0, False), compute)
            self._seconds += perf_counter() - start
            self._recomputations += 1
            array = arrays[id(m)] = out if m.index is None else out[m.index]
            self._note_restored(m, array)
            del out, array, values
            for x in m.inputs:
                if type(x) is ValueRecipe and last_use[id(x)] == i:
                    arrays.pop(id(x), None)
        return arrays[id(wanted)]

    def _note_restored(self, recipe: ValueRecipe, array: Any) -> None:
        self._ledger.track(array, recipe.line)
        self._registry.remember(array, recipe)
        mark_restored(recipe)
        held = recipe.holder()
        if held is not None:
            held.array, held.used = array, perf_counter()

    def _make_room(self, hard: int, soft: int = 0) -> None:
        """Evict values until `soft` bytes more fit besides what is reserved; raise if `hard` do not."""
        ledger = self._ledger
        # what a running rule will return is not allocated yet, but will be
        wanted = ledger.remove_freed() + max(hard, soft) + sum(self._reserved.values()) - self.limit
        if wanted > 0:
            self._eviction.free(wanted)
            # what an op needs inside is a wish; its result is not
            if ledger.remove_freed() + hard > self.limit:
                raise self._budget_error(hard)
            self._check_pages()

    def _account_for(self, values: Any) -> None:
        for array in arrays_in(values):
            self._ledger.track(array, None)
        self._make_room(0)

    def _recipe_of(self, array: Any, line: tuple[CodeType, int]) -> ValueRecipe:
        recipe, new = self._registry.find_or_add(array, line)
        if new:
            block, first = self._ledger.track(array, line)
            # made outside, so the process had it before
            self._foreign_bytes += block.nbytes if first else 0
        return recipe

    def _check_pages(self) -> None:
        self._watch.check(max(self._ledger.remove_freed() - self._foreign_bytes, 0))

    def _find_pinned(self) -> tuple[PinnedMemory, ...]:
        """Live memory that cannot be evicted, largest first."""
        # memory of evictable values, also where only a part of it is theirs
        ours = set(self._eviction.held_by_memory())
        rest = [block for key, block in self._ledger.blocks.items() if key not in ours]
        rest.sort(key=lambda block: -block.nbytes)
        return tuple(PinnedMemory.from_block(block) for block in rest[:8])

    def _budget_error(self, hard: int) -> MemoryBudgetError:
        live = self._ledger.live
        named = "".join(f"\n    {pinned}" for pinned in self._find_pinned())
        return MemoryBudgetError(
            f"memory_budget: {format_bytes(live)} must be in memory at once"
            + (f" and {format_bytes(hard)} more are needed" if hard else "")
            + f", the budget is {format_bytes(self.limit)}.\n"
            f"  The largest that cannot be recomputed, or are in use:{named}\n"
            "  Raise the budget, work in smaller pieces, or drop tensors that you hold."
        )
