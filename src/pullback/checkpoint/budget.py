"""A number of bytes in, eager work that stays inside it out: kept values are taken away and computed again.

Whenever room is needed, the values that cost least to have again go first (`eviction.py`). That is dynamic tensor
rematerialisation: no plan is made beforehand, so any program will do, with control flow, in any order of derivatives.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from types import CodeType, TracebackType
from typing import Any

import numpy as np

from ..arrays import pages
from ..arrays.backends import is_array
from ..arrays.ledger import Ledger
from ..arrays.node import Node, user_line
from ..errors import MemoryBudgetError
from ..ops.dispatch import compute
from ..ops.keeping import Keeper
from ..ops.observing import Observer, watched_by
from ..ops.op import Op
from ..settings import Modes, modes, switch_to
from ..tape.cotangents import arrays_in
from .eviction import Eviction
from .recipes import Held, Made, back, plan
from .registry import Registry, make_steady, may_run_again, size_of_result, workspace
from .report import BudgetReport, Pinned, bytes_of, mebibytes

__all__ = ["Budget", "memory_budget"]

#: Values below this are kept as they are: a recipe is as large.
_TINY = 1 << 10


def memory_budget(limit: int | str) -> Budget:
    """Keep the arrays of everything computed inside within `limit` bytes, such as `"512 MiB"`: values that backward
    needs are taken away and computed again, with the same bits. `report()` says what was done.

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
    return Budget(bytes_of(limit))


class Budget(Observer, Keeper):
    """A running budget: watches ops, holds what they keep, takes away and computes again. Made by `memory_budget`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._ledger = Ledger()
        self._guard = threading.RLock()
        self._registry = Registry()
        self._eviction = Eviction()
        self._reserved: dict[int, int] = {}
        self._before: dict[int, list[Modes]] = {}
        self._watch = pages.Watch()
        self._given_bytes = 0
        self._recomputations = 0
        self._seconds = 0.0

    def __enter__(self) -> Budget:
        before = modes()
        self._before.setdefault(threading.get_ident(), []).append(before)
        mine = before.keeper is None or isinstance(before.keeper, Budget)  # who packs values himself goes on doing so
        observer = watched_by(before.observer, self)
        switch_to(replace(before, observer=observer, keeper=self if mine else before.keeper))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        switch_to(self._before[threading.get_ident()].pop())
        pages.release()

    def report(self) -> BudgetReport:
        """What was done so far, and what can never be taken away, largest first."""
        with self._guard:
            live = self._ledger.settle()
            return BudgetReport(
                limit=self.limit, live=live, peak=self._ledger.peak, evictions=self._eviction.count,
                evicted=self._eviction.nbytes, recomputations=self._recomputations, seconds=self._seconds,
                pinned=self._pinned(),
            )  # fmt: skip

    def computed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        """Make room, run the op, note how its results were made."""
        line = user_line(sys._getframe(2))
        with self._guard:
            inside = threading.get_ident() in self._reserved  # of a rule, whose values are gone when it is done
            recipe = tracked or (modes().grad and not inside and self._registry.know_any(values))
            recipe = recipe and may_run_again(op, static)
            if recipe:
                make_steady(args, values)
            inputs = tuple([self._find(v, line) if is_array(v) else v for v in values])
            size = size_of_result(op, args, static)
            self._room(0 if op.family == "linear" else size, size + workspace(op, values))
        start = perf_counter()
        out = compute()
        seconds = perf_counter() - start
        with self._guard:
            for index, array in enumerate(out) if type(out) is tuple else ((None, out),):
                self._ledger.see(array, line)
                if recipe and not any(array is v for v in values):
                    self._registry.enter(array, Made(array, line, op, static, inputs, index, seconds))
            self._room(0)
        return out

    def keep(self, op: Op, position: int, value: Any) -> Any:
        """What a node holds for a value: the value itself where it cannot be made again."""
        if not is_array(value):
            with self._guard:
                for array in arrays_in(value):
                    self._ledger.see(array, user_line(sys._getframe(1)))
            return value
        with self._guard:
            self._ledger.see(value, user_line(sys._getframe(1)))
            made = self._registry.derived(value)
            if made is None or value.nbytes < _TINY:
                return value
            held = made.holder()
            if held is None:
                held = Held(made, value, self, perf_counter())
                self._eviction.enter(held)
            elif held.array is None:
                held.array = value
            return held

    def noted(self, node: Node, out: Any) -> None:
        """What a node keeps went through `keep`."""

    def ran(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        """A program is compiled to stay within the budget by itself; its results on a tape are seen as an op's."""

    def began(self) -> None:
        """Nothing changes when a pass begins."""

    def pulling(self, node: Node, bar: Any) -> None:
        """Make room for the sums of the shares with others; the ops of the rule make their own."""
        specs = [p.spec for p in node.parents]
        nbytes = sum(s.nbytes for spec in specs for s in (spec if isinstance(spec, tuple) else (spec,)))
        with self._guard:
            self._reserved[threading.get_ident()] = nbytes
            self._room(0)

    def pulled(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        with self._guard:
            if node is not None:
                self._reserved.pop(threading.get_ident(), None)
            self._see_all(shares)

    def delivered(self, tensors: Iterable[Any]) -> None:
        with self._guard:
            self._see_all([t.grad for t in tensors])

    def ended(self, released: bool) -> None:
        """What outlives its graph is a value like any other: it must not keep the whole past alive as its recipe."""
        with self._guard:
            self._reserved.clear()
            if released:
                self._registry.cut()
            self._check_pages()

    def restored(self, held: Held) -> Any:
        """The array of a value that was taken away, computed again from what there is."""
        with self._guard, np.errstate(all="ignore"):
            array = held.made.array()
            if array is None:
                array = self._rebuilt(held.made)
            held.array = array
            held.used = perf_counter()
            return array

    def _rebuilt(self, wanted: Made) -> Any:
        order, arrays = plan(wanted)
        last_use = {id(x): i for i, m in enumerate(order) for x in m.inputs if type(x) is Made}
        for i, m in enumerate(order):
            if m.op is None:
                raise AssertionError("a value without a recipe is never taken away")
            self._room(0 if m.op.family == "linear" else m.spec.nbytes, m.spec.nbytes)
            start = perf_counter()
            out = compute(m.op, [arrays[id(x)] if type(x) is Made else x for x in m.inputs], m.static)
            self._seconds += perf_counter() - start
            self._recomputations += 1
            array = arrays[id(m)] = out if m.index is None else out[m.index]
            self._again(m, array)
            del out, array
            for x in m.inputs:
                if type(x) is Made and last_use[id(x)] == i:
                    arrays.pop(id(x), None)
        return arrays[id(wanted)]

    def _again(self, made: Made, array: Any) -> None:
        self._ledger.see(array, made.line)
        self._registry.know(array, made)
        back(made)
        held = made.holder()
        if held is not None:
            held.array, held.used = array, perf_counter()

    def _room(self, hard: int, soft: int = 0) -> None:
        """Take values away until `soft` bytes more fit beside what is reserved; raise if `hard` do not."""
        ledger = self._ledger
        wanted = ledger.settle() + max(hard, soft) + sum(self._reserved.values()) - self.limit
        if wanted > 0:
            self._eviction.free(wanted)
            if ledger.settle() + hard > self.limit:
                raise self._cannot(hard)
            self._check_pages()

    def _see_all(self, values: Any) -> None:
        for array in arrays_in(values):
            self._ledger.see(array, None)
        self._room(0)

    def _find(self, array: Any, line: tuple[CodeType, int]) -> Made:
        made, new = self._registry.find(array, line)
        if new:
            block, first = self._ledger.see(array, line)
            self._given_bytes += block.nbytes if first else 0
        return made

    def _check_pages(self) -> None:
        self._watch.check(max(self._ledger.settle() - self._given_bytes, 0))

    def _pinned(self) -> tuple[Pinned, ...]:
        """What lives and cannot be taken away, largest first."""
        ours = set(self._eviction.memories())
        rest = [block for key, block in self._ledger.blocks.items() if key not in ours]
        rest.sort(key=lambda block: -block.nbytes)
        return tuple(Pinned.of(block) for block in rest[:8])

    def _cannot(self, hard: int) -> MemoryBudgetError:
        live = self._ledger.live
        named = "".join(f"\n    {pinned}" for pinned in self._pinned())
        return MemoryBudgetError(
            f"memory_budget: {mebibytes(live)} must be in memory at once"
            + (f" and {mebibytes(hard)} more are needed" if hard else "")
            + f", the budget is {mebibytes(self.limit)}.\n"
            f"  The largest that cannot be computed again, or are in use:{named}\n"
            "  Raise the budget, work in smaller pieces, or drop tensors that you hold."
        )
