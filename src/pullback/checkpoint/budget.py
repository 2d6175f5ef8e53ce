"""A number of bytes in, eager work that stays inside it out: kept values are taken away and computed again.

Whenever room is needed, the values that cost least to have again go first: seconds (their own, and those of what is
gone around them), divided by bytes and by how long nobody has asked for them. That is dynamic tensor
rematerialisation: no plan is made beforehand, so any program will do, with control flow and in any order of derivatives.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from types import CodeType, TracebackType
from typing import Any

import numpy as np

from ..arrays import pages
from ..arrays.backends import is_array
from ..arrays.ledger import Ledger, arrays_in, owner_of
from ..arrays.node import Node, user_line
from ..arrays.protect import locked
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..errors import ArgumentError, MemoryBudgetError
from ..ops.dispatch import compute
from ..ops.keeping import Keeper
from ..ops.observing import Observer, watched_by
from ..ops.op import OPS, Op
from ..settings import Modes, modes, switch_to
from .recipes import Held, Made, back, cost, drop_together, gone, plan
from .report import BudgetReport, Pinned, mebibytes

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
    return Budget(_bytes(limit))


def _bytes(limit: int | str) -> int:
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(limit))
    if isinstance(limit, bool) or found is None or found[2].upper() not in units or float(found[1]) <= 0:
        raise ArgumentError(f'memory_budget: wants a number of bytes or a text like "512 MiB", got {limit!r}.')
    return int(float(found[1]) * units[found[2].upper()])


class Budget(Observer, Keeper):
    """A running budget: watches ops, holds what they keep, takes away and computes again. Made by `memory_budget`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._ledger = Ledger()
        self._guard = threading.RLock()
        self._known: dict[int, tuple[Any, Made]] = {}
        self._given: weakref.WeakValueDictionary[int, Made] = weakref.WeakValueDictionary()
        self._holders: dict[int, weakref.ref[Held]] = {}
        self._reserved: dict[int, int] = {}
        self._before: list[Modes] = []
        self._watch = pages.Watch()
        self._given_bytes = 0
        self._ranking: list[list[Any]] = []
        self._ranking_serves = 0
        self._counts = {"evictions": 0, "evicted": 0, "recomputations": 0}
        self._seconds = 0.0

    def __enter__(self) -> Budget:
        before = modes()
        self._before.append(before)
        mine = before.keeper is None or isinstance(before.keeper, Budget)  # who packs values himself goes on doing so
        observer = watched_by(before.observer, self)
        switch_to(replace(before, observer=observer, keeper=self if mine else before.keeper))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        switch_to(self._before.pop())
        pages.release()

    def report(self) -> BudgetReport:
        """What was done so far, and what can never be taken away, largest first."""
        with self._guard:
            live = self._ledger.settle()
            return BudgetReport(
                limit=self.limit, live=live, peak=self._ledger.peak, seconds=self._seconds, pinned=self._pinned(),
                **self._counts,
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
            recipe = tracked or (modes().grad and not inside and any(self._is_derived(v) for v in values))
            recipe = recipe and OPS.get(op.name) is op and not any(map(callable, static.values()))
            if recipe:
                _make_steady(args, values)
            inputs = tuple([self._find(v, line) if is_array(v) else v for v in values])
            size = _size(op, args, static)
            self._room(0 if op.family == "linear" else size, size + _workspace(op, values))
        start = perf_counter()
        out = compute()
        seconds = perf_counter() - start
        with self._guard:
            for index, array in enumerate(out) if type(out) is tuple else ((None, out),):
                self._ledger.see(array, line)
                if recipe and not any(array is v for v in values):
                    made = _derived(array, line, op, static, inputs, index, seconds)
                    self._know(array, made)
                    for x in {id(x): x for x in inputs if type(x) is Made}.values():
                        x.users.append(weakref.ref(made))
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
            made = self._derived(value)
            if made is None or value.nbytes < _TINY:
                return value
            held = made.holder()
            if held is None:
                held = Held(made, value, self, perf_counter())
                made.held = weakref.ref(held)
                self._holders[id(held)] = made.held
            elif held.array is None:
                held.array = value
            return held

    def noted(self, node: Node, out: Any) -> None:
        """What a node keeps went through `keep`."""

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
            for key, (reference, made) in self._known.copy().items() if released else ():
                if made.holder() is None:
                    made.fixed, made.inputs, made.op = reference(), (), None
                    del self._known[key]
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
            self._room(m.spec.nbytes, m.spec.nbytes)
            start = perf_counter()
            out = compute(m.op, [arrays[id(x)] if type(x) is Made else x for x in m.inputs], m.static)
            self._seconds += perf_counter() - start
            self._counts["recomputations"] += 1
            array = arrays[id(m)] = out if m.index is None else out[m.index]
            self._again(m, array)
            del out, array
            for x in m.inputs:
                if type(x) is Made and last_use[id(x)] == i:
                    arrays.pop(id(x), None)
        return arrays[id(wanted)]

    def _again(self, made: Made, array: Any) -> None:
        self._ledger.see(array, made.line)
        self._know(array, made)
        back(made)
        held = made.holder()
        if held is not None:
            held.array, held.used = array, perf_counter()

    def _room(self, hard: int, soft: int = 0) -> None:
        """Take values away until `soft` bytes more fit beside what is reserved; raise if `hard` do not."""
        ledger = self._ledger
        wanted = ledger.settle() + max(hard, soft) + sum(self._reserved.values()) - self.limit
        if wanted > 0:
            self._evict(wanted)
            if ledger.settle() + hard > self.limit:
                raise self._cannot(hard)
            self._check_pages()

    def _evict(self, wanted: int) -> None:
        """Take away the cheapest until so many bytes are free. The ranking serves for a sixteenth of what it ranks, since
        making it costs more than to compute a small value again.
        """
        progress = True
        while wanted > 0:
            if not self._ranking or self._ranking_serves <= 0:
                if not progress:
                    return
                self._rank()
                progress = False
            freed = self._take_away(self._ranking.pop()) if self._ranking else 0
            progress = progress or freed > 0
            wanted -= freed

    def _rank(self) -> None:
        now = perf_counter()
        ranked = [(self._score(holders, now), holders) for holders in self._memories().values()]
        ranked.sort(key=lambda entry: -entry[0])
        self._ranking = [[held.made.held for held in holders] for _, holders in ranked]
        self._ranking_serves = len(ranked) // 16 + 1

    def _take_away(self, ranked: list[Any]) -> int:
        holders = [held for reference in ranked if (held := reference()) is not None and held.array is not None]
        freed = drop_together(holders) if holders else 0
        if freed:
            self._ranking_serves -= 1
            self._counts["evictions"] += len(holders)
            self._counts["evicted"] += freed
            for held in holders:
                gone(held.made)
        return freed

    def _memories(self) -> dict[int, list[Held]]:
        """The values that are held now, those in one piece of memory together."""
        found: dict[int, list[Held]] = {}
        for key, reference in list(self._holders.items()):
            held = reference()
            if held is None:
                del self._holders[key]
            elif held.array is not None:
                found.setdefault(id(owner_of(held.array)), []).append(held)
        return found

    def _score(self, holders: list[Held], now: float) -> float:
        idle = now - max(held.used for held in holders)
        nbytes = owner_of(holders[0].array).nbytes
        return sum(cost(held.made) for held in holders) / (nbytes * (idle + 1e-6))

    def _see_all(self, values: Any) -> None:
        for array in arrays_in(values):
            self._ledger.see(array, None)
        self._room(0)

    def _derived(self, array: Any) -> Made | None:
        entry = self._known.get(id(array))
        return entry[1] if entry is not None and entry[0]() is array else None

    def _is_derived(self, value: Any) -> bool:
        return is_array(value) and self._derived(value) is not None

    def _find(self, array: Any, line: tuple[CodeType, int]) -> Made:
        """How an array was made; one that came from elsewhere is there for good."""
        made = self._derived(array) or self._given.get(id(array))
        if made is None:
            made = self._given[id(array)] = Made(array, line)
            made.fixed = array
            block, new = self._ledger.see(array, line)
            self._given_bytes += block.nbytes if new else 0
        return made

    def _know(self, array: Any, made: Made) -> None:
        key, known = id(array), self._known

        def forget(dead: Any) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is dead:
                known.pop(key, None)

        made.seen = weakref.ref(array, forget)
        known[key] = made.seen, made

    def _check_pages(self) -> None:
        self._watch.check(max(self._ledger.settle() - self._given_bytes, 0))

    def _pinned(self) -> tuple[Pinned, ...]:
        """What lives and cannot be taken away, largest first."""
        ours = set(self._memories())
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


def _derived(
    array: Any,
    line: tuple[CodeType, int],
    op: Op,
    static: dict[str, Any],
    inputs: tuple[Any, ...],
    index: int | None,
    seconds: float,
) -> Made:
    made = Made(array, line)
    made.op, made.static, made.inputs, made.index, made.seconds = op, static, inputs, index, seconds
    return made


def _make_steady(args: Sequence[Any], values: list[Any]) -> None:
    """A recipe may be run later, so what a user can write to becomes a copy, or is locked if it was shared."""
    for i, (arg, value) in enumerate(zip(args, values, strict=True)):
        if type(arg) is Tensor:
            if arg.spec.plain is None and arg.status == "shared" and is_array(value):
                values[i] = locked(value)
        elif is_array(value) and getattr(value.flags, "writeable", True):
            values[i] = value.copy()
            if type(value) is np.ndarray:
                values[i].flags.writeable = False


def _size(op: Op, args: Sequence[Any], static: dict[str, Any]) -> int:
    """The bytes of the result, 0 if that is not known before."""
    if op.spec is None:
        return 0
    try:
        found = op.spec_of([spec_of(x) for x in args], static)
    except Exception:  # the call itself will say what is wrong with it
        return 0
    return sum(s.nbytes for s in (found if type(found) is tuple else (found,)))


def _workspace(op: Op, values: Sequence[Any]) -> int:
    """Bytes that an op may need beside its result: ufuncs and products none, others about their largest argument."""
    if op.ufunc or op.family in ("contraction", "linear"):
        return 0
    return max((int(v.nbytes) for v in values if is_array(v)), default=0)
