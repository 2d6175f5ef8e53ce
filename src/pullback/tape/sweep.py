"""Roots and seeds in, cotangents of leaves and targets out: the order of a backward pass and its inner loop."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from operator import attrgetter
from typing import Any

import numpy as np

from ..arrays.node import Node, call_of, depends_on_running_call, sign_back, user_line
from ..ops.specialise import plain_step
from ..settings import modes
from .cotangents import accumulate, plain_bar
from .hooks import HookRun
from .pull import check_finite, freed, pull

__all__ = ["Sweep", "deepest_first"]

_ndarray = np.ndarray
_claiming = threading.Lock()


class Sweep:
    """One backward pass: the nodes that take part, deepest first, and what to do at each.

    `sink(node, bar)` receives the whole cotangent of every leaf, or of every node in `targets` if there are any, and
    answers the tensors whose `.grad` took it.
    A pass claims its nodes and adds their cotangents up in `node.bar`, where the mark `waiting` stands until the
    first share comes. If another pass (in another thread, or around a hook that started this one) has claimed
    one of them, or if `alone` is False, cotangents are added up in `table` instead, which is slower.
    With `linked` the cotangents can be differentiated again; None leaves that to whether a living leaf other than the
    targets takes part, whose owner may want to.
    """

    __slots__ = (
        "_anomaly", "_line", "_nan_only", "_observer", "claimed", "hooks", "linked", "order", "retain", "retain_grad",
        "sink", "table", "targets", "waiting", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        seeds: Sequence[tuple[Node, Any]],
        targets: frozenset[Node] | None,
        sink: Callable[[Node, Any], Any],
        retain_grad: Callable[[Any, Any], None],
        *,
        retain: bool,
        linked: bool | None,
        alone: bool,
    ) -> None:
        self.targets, self.sink, self.retain_grad = targets, sink, retain_grad
        mode = modes()
        self._anomaly, self._nan_only, self._observer = mode.anomaly, mode.nan_only, mode.observer
        self.waiting = object()
        self.table: dict[Node, Any] = {}
        roots = [node for node, _ in seeds]
        floor = min((n.order for n in targets), default=0) if targets is not None and linked is None else 0
        mine = claim(roots, self.waiting, floor) if alone else None
        self.claimed = mine is not None
        order = deepest_first(roots, floor) if mine is None else mine
        if linked is None:
            linked = floor > 0 or others(order, targets or frozenset())
        self.linked = linked
        self.retain = retain or self.linked
        self._line = user_line(sys._getframe(1)) if self.linked else None
        try:
            self._prepare(seeds, order)
        except BaseException:
            if self.claimed:
                release(order)
            raise

    def _prepare(self, seeds: Sequence[tuple[Node, Any]], order: list[Node]) -> None:
        """Leave out what leads to no target, look up the hooks, put the seeds in place."""
        targets, linked = self.targets, self.linked
        self.wanted = None
        if targets is not None:
            self.wanted = leading_to(targets, order)
            for node in targets:
                node.leave_fast_path()
        if self.wanted is not None:
            if self.claimed:
                release(n for n in order if n not in self.wanted)
            order = [n for n in order if n in self.wanted]
        self.hooks = HookRun([n for n in order if n.call is not None and n.call.hooks is not None], linked)
        self.order = early_leaves(order, self.hooks) if self.hooks.entries else order
        for node, seed in seeds:
            if self.wanted is None or node in self.wanted:
                self.add(node, seed)

    def run(self, order: Sequence[Node]) -> None:
        """For each node: take its cotangent, pull it back, add the shares to its parents'."""
        if not self.claimed:
            for node in order:
                self.visit(node, self.table.pop(node, None))
            return
        try:
            self._run_claimed(order)
        except BaseException:
            release(order)
            raise

    def _run_claimed(self, order: Sequence[Node]) -> None:
        """The plain case stands here by itself, since this loop is most of what a small backward costs."""
        retain, waiting = self.retain, self.waiting
        plain = not self.linked and not self._anomaly and self.wanted is None and self._observer is None
        for node in order:
            bar = node.bar
            node.bar = None
            if plain and node.call is None and type(bar) is _ndarray:
                kept = node.kept
                if kept is None:
                    raise freed(node)
                rule, kind = node.rule, node.spec.plain
                (rule.plain[kind] or _specialised(rule, kind))(kept, node.parents, bar, waiting)
                if not retain:
                    node.kept = None
            else:
                self.visit(node, None if bar is waiting else bar)

    def visit(self, node: Node, bar: Any) -> None:
        """One node, with everything that may go with it."""
        bar = self.arrive(node, bar)
        if bar is not None and node.rule is not None:
            for parent, share in zip(node.parents, self.shares(node, bar), strict=True):
                if share is not None:
                    self.add(parent, share)

    def add(self, node: Node, share: Any) -> None:
        """One more share of a node's cotangent."""
        if self.claimed:
            held = node.bar
            if held is not None:  # a node without a mark leads to no target
                node.bar = share if held is self.waiting else self.sum(held, share)
        else:
            held = self.table.get(node)
            self.table[node] = share if held is None else self.sum(held, share)

    def sum(self, held: Any, share: Any) -> Any:
        """Two shares of one cotangent, added."""
        total = accumulate(held, share)
        self._sign(total)
        if self._observer is not None:
            self._observer.pulled(None, (total,))
        return total

    def _sign(self, bar: Any) -> None:
        """What a linked pass makes was made on the line that asked for it."""
        if self._line is not None:
            sign_back(getattr(plain_bar(bar), "node", None), self._line)

    def arrive(self, node: Node, bar: Any) -> Any:
        """A node's cotangent is complete: hooks see it, then whoever asked for it gets it."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.on_gradient(node, bar, self.retain_grad)
        if node.rule is None if self.targets is None else node in self.targets:
            took = self.sink(node, bar)
            if self._observer is not None:
                self._observer.delivered(took or ())
            for hook in self.hooks.of(node, "post_accumulate") if hooked else ():
                for tensor in took or ():
                    hook(tensor)
        return bar

    def shares(self, node: Node, bar: Any) -> tuple[Any, ...]:
        """One step of the chain rule: hooks before, the rule, checks, hooks after."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.before(node, bar)
        if self._observer is not None:
            self._observer.pulling(node, bar)
        wanted = None if self.wanted is None else self.wanted.__contains__
        try:
            shares = pull(node, bar, wanted, self.linked, self._observer is not None)
        except Exception as error:
            error.add_note(f"  while going back through {node.name}, made at {node.where()}")
            raise
        if not self.retain:
            node.kept = None
        if self._observer is not None:
            self._observer.pulled(node, shares)
        for share in shares:
            self._sign(share)
        if self._anomaly:
            check_finite(node, shares, self._nan_only)
        return self.hooks.after(node, shares, bar) if hooked else shares


def _specialised(rule: Any, kind: int) -> Any:
    made = rule.plain[kind] = plain_step(rule, kind, accumulate)
    return made


def claim(roots: Sequence[Node], waiting: object, floor: int) -> list[Node] | None:
    """Every node of depth `floor` or more that leads to the roots, marked as this pass's own, deepest first; None if
    another holds one.
    """
    source = Node()  # above all roots, so that they are met like any parent
    source.parents = tuple(roots)
    found = [source]
    with _claiming:
        for node in found:  # grows as it goes
            for parent in above(floor, node.parents) if floor else node.parents:
                bar = parent.bar
                if bar is None:
                    parent.bar = waiting
                    found.append(parent)
                elif bar is not waiting:
                    release(found)
                    return None
    del found[0]
    found.sort(key=attrgetter("order"), reverse=True)
    return found


def release(nodes: Iterable[Node]) -> None:
    """Give nodes back: no pass holds them."""
    for node in nodes:
        node.bar = None


def above(floor: int, nodes: Iterable[Node]) -> list[Node]:
    """A node leads only to nodes less deep than itself: what is less deep than every target leads to none."""
    return [node for node in nodes if node.order >= floor]


def deepest_first(roots: Iterable[Node], floor: int = 0) -> list[Node]:
    """Every node of depth `floor` or more that leads to the roots. A node is always deeper than its parents, so this is
    the order to go in.
    """
    found = list(dict.fromkeys(roots))  # in their order: the same function must go the same way at each run
    seen = set(found)
    for node in found:  # grows as it goes
        for parent in above(floor, node.parents) if floor else node.parents:
            if parent not in seen:
                seen.add(parent)
                found.append(parent)
    found.sort(key=attrgetter("order"), reverse=True)
    return found


def leaves_of(order: list[Node]) -> Iterator[Node]:
    """The leaves among nodes in order: they alone have depth zero, and so come last."""
    return itertools.takewhile(lambda node: node.order == 0, reversed(order))


def others(order: list[Node], but: Set[Node | None]) -> bool:
    """Whether somebody else may still want a derivative: there is a leaf that is not one of `but`. It counts also when
    its tensor is gone, since what was computed from it may live; a variable of a call that is over does not.
    """
    return _told(any(node not in but and call_of(node) != "over" for node in leaves_of(order)))


def _told(found: bool) -> bool:
    """A recomputation must answer as the first run did: by now, calls that ran then may be over."""
    watcher = modes().watcher
    return found if watcher is None else bool(watcher.deciding(found))


def in_running_call(roots: Iterable[Node]) -> bool:
    """Whether a value depends on a variable of a running call, whose caller will differentiate the answer."""
    return _told(any(depends_on_running_call(node) for node in roots))


def leading_to(targets: frozenset[Node], order: list[Node]) -> set[Node] | None:
    """The nodes on a way to a target, in one pass from the leaves; None if all are."""
    if order and order[-1].order == 0 and all(n in targets for n in leaves_of(order)):
        return None
    wanted: set[Node] = set()
    for node in reversed(order):
        if node in targets or any(parent in wanted for parent in node.parents):
            wanted.add(node)
    return wanted


def early_leaves(order: list[Node], hooks: HookRun) -> list[Node]:
    """Leaves with hooks right after the last node that adds to them, so that a hook may use and drop a gradient."""
    waiting = {n for n in order if n.rule is None and n in hooks.entries}
    last = {parent: node for node in order for parent in node.parents if parent in waiting}
    after: dict[Node, list[Node]] = {}
    for leaf, node in last.items():
        after.setdefault(node, []).append(leaf)
    return [m for n in order if n not in last for m in (n, *after.get(n, ()))]
