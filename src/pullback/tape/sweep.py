"""The backward pass: roots and seeds in, cotangents of leaves and targets out; its order and its inner loop."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from operator import attrgetter
from typing import Any

import numpy as np

from ..arrays.node import Node, depends_on_running_call, propagate_call_site, user_line
from ..ops.specialize import plain_step
from ..settings import modes
from .cotangents import accumulate, strip_mask
from .hooks import HookRun
from .pull import check_finite, freed_graph_error, pull

_ndarray = np.ndarray
_claim_lock = threading.Lock()


class Sweep:
    """One backward pass: the nodes that take part, deepest first, and what to do at each.

    `sink(node, bar)` receives the whole cotangent of every leaf, or of every node in `targets` if there are any, and
    returns the tensors whose `.grad` received it.
    A pass claims its nodes and adds their cotangents up in `node.bar`, which holds the mark `waiting` until the
    first share arrives. If another pass (in another thread, or around a hook that started this one) has claimed
    one of them, or if `alone` is False, cotangents are added up in `table` instead, which is slower.
    With `create_graph` the cotangents can be differentiated again; None means: if a live leaf other than the targets
    takes part, whose owner may differentiate them.
    """

    __slots__ = (
        "_anomaly", "_line", "_nan_only", "_observer", "claimed", "create_graph", "hooks", "order", "retain",
        "retain_grad", "sink", "table", "targets", "waiting", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        seeds: Sequence[tuple[Node, Any]],
        targets: frozenset[Node] | None,
        sink: Callable[[Node, Any], Any],
        retain_grad: Callable[[Any, Any], None],
        *,
        retain: bool,
        create_graph: bool | None,
        alone: bool,
    ) -> None:
        self.targets, self.sink, self.retain_grad = targets, sink, retain_grad
        mode = modes()
        self._anomaly, self._nan_only, self._observer = mode.anomaly, mode.nan_only, mode.observer
        self.waiting = object()
        self.table: dict[Node, Any] = {}
        roots = [node for node, _ in seeds]
        floor = min((n.order for n in targets), default=0) if targets is not None and create_graph is None else 0
        mine = claim(roots, self.waiting, floor) if alone else None
        self.claimed = mine is not None
        order = order_deepest_first(roots, floor) if mine is None else mine
        if create_graph is None:
            create_graph = floor > 0 or has_foreign_leaves(order, targets or frozenset())
        self.create_graph = create_graph
        self.retain = retain or self.create_graph
        self._line = user_line(sys._getframe(1)) if self.create_graph else None
        try:
            self._prepare(seeds, order)
        except BaseException:
            if self.claimed:
                release(order)
            raise

    def _prepare(self, seeds: Sequence[tuple[Node, Any]], order: list[Node]) -> None:
        """Drop nodes without a path to a target, look up the hooks, store the seeds."""
        targets, create_graph = self.targets, self.create_graph
        self.wanted = None
        if targets is not None:
            self.wanted = nodes_leading_to(targets, order)
            for node in targets:
                node.leave_fast_path()
        if self.wanted is not None:
            if self.claimed:
                release(n for n in order if n not in self.wanted)
            order = [n for n in order if n in self.wanted]
        self.hooks = HookRun([n for n in order if n.call is not None and n.call.hooks is not None], create_graph)
        self.order = move_leaves_early(order, self.hooks) if self.hooks.entries else order
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
        """The plain case has its own loop, which is most of the cost of a small backward."""
        retain, waiting = self.retain, self.waiting
        plain = not self.create_graph and not self._anomaly and self.wanted is None and self._observer is None
        for node in order:
            bar = node.bar
            node.bar = None
            if plain and node.call is None and type(bar) is _ndarray:
                kept = node.kept
                if kept is None:
                    raise freed_graph_error(node)
                rule, kind = node.rule, node.spec.plain
                (rule.plain[kind] or _specialize(rule, kind))(kept, node.parents, bar, waiting)
                if not retain:
                    node.kept = None
            else:
                self.visit(node, None if bar is waiting else bar)

    def visit(self, node: Node, bar: Any) -> None:
        """One node, with hooks, checks and observers."""
        bar = self.arrive(node, bar)
        if bar is not None and node.rule is not None:
            for parent, share in zip(node.parents, self.shares(node, bar), strict=True):
                if share is not None:
                    self.add(parent, share)

    def add(self, node: Node, share: Any) -> None:
        """Add a share to the cotangent of a node."""
        if self.claimed:
            held = node.bar
            if held is not None:  # a node without a mark has no path to a target
                node.bar = share if held is self.waiting else self.sum(held, share)
        else:
            held = self.table.get(node)
            self.table[node] = share if held is None else self.sum(held, share)

    def sum(self, held: Any, share: Any) -> Any:
        """Two shares of one cotangent, added."""
        total = accumulate(held, share)
        self._set_call_site(total)
        if self._observer is not None:
            self._observer.after_pull(None, (total,))
        return total

    def _set_call_site(self, bar: Any) -> None:
        """Attribute the graph that a pass creates to the line that started it."""
        if self._line is not None:
            propagate_call_site(getattr(strip_mask(bar), "node", None), self._line)

    def arrive(self, node: Node, bar: Any) -> Any:
        """A node's cotangent is complete: hooks run on it, then the sink receives it."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.run_gradient_hooks(node, bar, self.retain_grad)
        if node.rule is None if self.targets is None else node in self.targets:
            took = self.sink(node, bar)
            if self._observer is not None:
                self._observer.on_grads_accumulated(took or ())
            for hook in self.hooks.hooks_of(node, "post_accumulate") if hooked else ():
                for tensor in took or ():
                    hook(tensor)
        return bar

    def shares(self, node: Node, bar: Any) -> tuple[Any, ...]:
        """One step of the chain rule: hooks before, the rule, checks, hooks after."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.run_pre_hooks(node, bar)
        if self._observer is not None:
            self._observer.before_pull(node, bar)
        wanted = None if self.wanted is None else self.wanted.__contains__
        try:
            shares = pull(node, bar, wanted, self.create_graph, self._observer is not None)
        except Exception as error:
            error.add_note(f"  in the backward of {node.name}, called at {node.where()}")
            raise
        if not self.retain:
            node.kept = None
        if self._observer is not None:
            self._observer.after_pull(node, shares)
        for share in shares:
            self._set_call_site(share)
        if self._anomaly:
            check_finite(node, shares, self._nan_only)
        return self.hooks.run_post_hooks(node, shares, bar) if hooked else shares


def _specialize(rule: Any, kind: int) -> Any:
    made = rule.plain[kind] = plain_step(rule, kind, accumulate)
    return made


def claim(roots: Sequence[Node], waiting: object, floor: int) -> list[Node] | None:
    """Every node of depth `floor` or more that the roots depend on, claimed by this pass, deepest first; None if
    another pass has claimed one.
    """
    source = Node()  # a child of all roots, so that they are visited like any parent
    source.parents = tuple(roots)
    found = [source]
    with _claim_lock:
        for node in found:  # grows during the loop
            for parent in filter_by_depth(floor, node.parents) if floor else node.parents:
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
    """Release nodes: no pass claims them."""
    for node in nodes:
        node.bar = None


def filter_by_depth(floor: int, nodes: Iterable[Node]) -> list[Node]:
    """A node depends only on nodes of lower depth: what is less deep than every target has no path to one."""
    return [node for node in nodes if node.order >= floor]


def order_deepest_first(roots: Iterable[Node], floor: int = 0) -> list[Node]:
    """Every node of depth `floor` or more that the roots depend on, deepest first: a node is always deeper than its
    parents, so this is a topological order.
    """
    found = list(dict.fromkeys(roots))  # in order: every run must visit them alike
    seen = set(found)
    for node in found:  # grows during the loop
        for parent in filter_by_depth(floor, node.parents) if floor else node.parents:
            if parent not in seen:
                seen.add(parent)
                found.append(parent)
    found.sort(key=attrgetter("order"), reverse=True)
    return found


def leaves_of(order: list[Node]) -> Iterator[Node]:
    """The leaves among nodes in order: they alone have depth zero, and so come last."""
    return itertools.takewhile(lambda node: node.order == 0, reversed(order))


def has_foreign_leaves(order: list[Node], except_for: Set[Node | None]) -> bool:
    """Whether another caller may still differentiate: there is a leaf not in `except_for`. It counts also when its
    tensor is dead, since values computed from it may live; a variable of a finished call does not count.
    """
    return replay_decision(any(node not in except_for and node.is_owned_leaf for node in leaves_of(order)))


def replay_decision(found: bool) -> bool:
    """A recomputation must decide as the first run did: calls that ran then may have finished."""
    watcher = modes().watcher
    return found if watcher is None else bool(watcher.resolve_decision(found))


def is_in_running_call(roots: Iterable[Node]) -> bool:
    """Whether a value depends on a variable of a running call, whose caller will differentiate the result."""
    return replay_decision(any(depends_on_running_call(node) for node in roots))


def nodes_leading_to(targets: frozenset[Node], order: list[Node]) -> set[Node] | None:
    """The nodes on a path to a target, in one pass from the leaves; None if all are."""
    if order and order[-1].order == 0 and all(n in targets for n in leaves_of(order)):
        return None
    wanted: set[Node] = set()
    for node in reversed(order):
        if node in targets or any(parent in wanted for parent in node.parents):
            wanted.add(node)
    return wanted


def move_leaves_early(order: list[Node], hooks: HookRun) -> list[Node]:
    """Leaves with hooks right after the last node that adds to them, so that a hook may use and drop a gradient."""
    waiting = {n for n in order if n.rule is None and n in hooks.entries}
    last = {parent: node for node in order for parent in node.parents if parent in waiting}
    after: dict[Node, list[Node]] = {}
    for leaf, node in last.items():
        after.setdefault(node, []).append(leaf)
    return [m for n in order if n not in last for m in (n, *after.get(n, ()))]
