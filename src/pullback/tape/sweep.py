"""The backward pass: roots and seeds in, cotangents of leaves and targets out; its order and its inner loop."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence, Set
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from ..arrays.backends import array_class_of_gpus, passes
from ..arrays.call_site import propagate_call_site, user_line
from ..arrays.node import DifferentiatedCall, Hooks, Node, NodeCall, PlannedCall, depends_on_running_call
from ..arrays.tensor import Tensor
from ..arrays.timing import time_pulls
from ..errors import ArgumentError
from ..ops.lazy import lazy_function
from ..ops.saved_values import SavedValue
from ..settings import installed, modes, override_modes
from .cotangents import ResultCotangents, accumulate, strip_mask
from .hooks import HookRun
from .pull import freed_graph_error, pull
from .threads import run_threads

_ndarray = np.ndarray
#: With the programs that steps are generated from, loaded by the first backward pass.
_plain_step = lazy_function("codegen", "plain_step", "tape")
_planned_step = lazy_function("codegen", "planned_step", "tape")
_VISITS_BEFORE_STEP = 2
_claim_lock = threading.Lock()


class Receiver(Protocol):
    """What takes the gradients of a pass."""

    def receive(self, node: Node, bar: Any) -> Sequence[Tensor]:
        """The whole cotangent of a leaf or target, None for zero; returns the tensors whose `.grad` received it."""

    def retain(self, tensor: Tensor, bar: Any) -> None:
        """The gradient of an intermediate tensor that is to be retained."""


class Sweep:
    """One backward pass: the nodes that take part, deepest first, and what to do at each.

    The receiver gets the whole cotangent of every leaf, or of every node in `targets` if there are any.
    With `create_graph` the cotangents can be differentiated again; None means: if a live leaf other than the targets
    takes part, whose owner may differentiate them.

    A pass claims its nodes and adds their cotangents up in `node.bar`, which holds the mark `waiting` until the
    first share arrives. If another pass (in another thread, or around a hook that started this one) has claimed
    one of them, or if there are several workers, cotangents are added up in `table` instead, which is slower.
    """

    __slots__ = (
        "_instruments", "_line", "_watched", "_workers", "claimed", "create_graph", "hooks", "order", "receiver",
        "retain", "table", "targets", "waiting", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        receiver: Receiver,
        targets: frozenset[Node] | None = None,
        *,
        retain: bool = False,
        create_graph: bool | None = None,
        workers: int = 1,
    ) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise ArgumentError(f"workers must be a positive integer, got {workers!r}.")
        self.receiver, self.targets, self._workers = receiver, targets, workers
        self.retain, self.create_graph = retain, create_graph
        self.waiting = object()
        self.table: dict[Node, Any] = {}
        self._instruments = installed()
        self._watched = self._instruments.sees_pulls

    def run(self, seeds: Sequence[tuple[Node, Any]]) -> bool:
        """The whole pass, from the cotangents of the roots; whether it created a graph of itself."""
        released = False
        # before anything is claimed, so that what fails below is still reported as ended
        self._instruments.backward_begins()
        try:
            with np.errstate(all="ignore"):  # infinite gradients are valid; detect_anomaly finds them
                self._prepare(seeds)
                # a rule computes in the dtypes of the op it belongs to, whatever is cast here
                if self.create_graph:
                    with override_modes(grad=True, autocast=None):
                        self._run_order()
                elif modes().autocast is not None:
                    with override_modes(autocast=None):
                        self._run_order()
                else:
                    self._run_order()
            released = not self.retain
        finally:
            self._instruments.backward_ends(released)
        return bool(self.create_graph)

    def _run_order(self) -> None:
        if self._workers == 1:
            self.run_nodes(self.order)
        else:
            run_threads(self, self._workers)

    def _prepare(self, seeds: Sequence[tuple[Node, Any]]) -> None:
        """Claim the nodes and order them, decide whether to create a graph, store the seeds."""
        roots, targets = [node for node, _ in seeds], self.targets
        # where the pass decides itself, nodes less deep than every target are not even visited
        floor = min((n.order for n in targets), default=0) if targets is not None and self.create_graph is None else 0
        mine = claim(roots, self.waiting, floor) if self._workers == 1 else None
        self.claimed = mine is not None
        self.order = order_deepest_first(roots, floor) if mine is None else mine
        # whatever raises before the first visit, claimed nodes must not stay claimed
        try:
            if self.create_graph is None:
                self.create_graph = floor > 0 or has_foreign_leaves(self.order, targets or frozenset())
            self.retain = self.retain or self.create_graph
            self._line = user_line(sys._getframe(1)) if self.create_graph else None
            self.wanted = None if targets is None else self._drop_unwanted(targets)
            # a node of the fast path has no call, and so no hooks
            hooked = [n for n in self.order if n.call is not None and n.call.hooks is not None] if Hooks.exist else []
            self.hooks = HookRun(hooked, self.create_graph)
            if self.hooks.entries:
                self.order = move_leaves_early(self.order, self.hooks)
            for node, seed in seeds:
                if self.wanted is None or node in self.wanted:
                    self.add(node, seed)
        except BaseException:
            if self.claimed:
                release(self.order)
            raise

    def _drop_unwanted(self, targets: frozenset[Node]) -> set[Node] | None:
        """Drop nodes without a path to a target; those with one, None if all have."""
        # their cotangents are delivered, which the generated steps would not do
        for node in targets:
            node.leave_fast_path()
        wanted = nodes_leading_to(targets, self.order)
        if wanted is not None:
            if self.claimed:
                release(n for n in self.order if n not in wanted)
            self.order = [n for n in self.order if n in wanted]
        return wanted

    def run_nodes(self, order: Sequence[Node]) -> None:
        """For each node: take its cotangent, pull it back, add the shares to its parents'."""
        # another pass holds some of the nodes, so cotangents lie in the table
        if not self.claimed:
            for node in self._timed(order):
                self.visit(node, self.table.pop(node, None))
            return
        try:
            self._run_claimed(order)
        except BaseException:
            release(order)
            raise

    def _run_claimed(self, order: Sequence[Node]) -> None:
        if not self.create_graph and not self._watched:
            self._run_plain(self._timed(order))
            return
        waiting = self.waiting
        for node in self._timed(order):
            bar = node.bar
            node.bar = None
            self.visit(node, None if bar is waiting else bar)

    def _timed(self, order: Sequence[Node]) -> Iterable[Node]:
        """The nodes, and a timer that looks on as they are asked for."""
        timer = self._instruments.timer
        return order if timer is None else time_pulls(order, timer)

    def _run_plain(self, order: Iterable[Node]) -> None:
        """The plain case has its own loop, which is most of the cost of a small backward."""
        # read once: the loop below runs a few hundred nanoseconds a node
        retain, waiting, array = self.retain, self.waiting, _ndarray
        other = array_class_of_gpus() or array
        receive = self.receiver.receive if self.targets is None and not self.hooks.entries else None
        wanted = self.wanted
        for node in order:
            bar = node.bar
            node.bar = None
            kind = type(bar)
            whole = kind is array or kind is other or (kind is ResultCotangents and not bar.is_masked)
            # another pass may hold a parent that is not wanted
            if whole and (wanted is None or wanted.issuperset(node.parents)):
                # one generated function a rule and its specs: pull and accumulation in a few NumPy calls
                call = node.call
                if call is None:
                    rule = node.rule
                    step = rule.plain[node.spec.plain] or _specialize(rule, node.spec.plain)
                elif node.rule is None and receive is not None:
                    receive(node, bar)
                    continue
                else:
                    step = call.step or _generate(call)
                if step is not None:
                    kept = node.kept
                    if kept is None:
                        raise freed_graph_error(node)
                    try:
                        step(kept, node.parents, bar, waiting)
                    except Exception as error:
                        raise locate_error(error, node)  # noqa: B904 - it is the same error
                    if not retain:
                        node.kept = None
                    continue
            self.visit(node, None if bar is waiting else bar)
        if other is not array:
            passes.count += 1

    def visit(self, node: Node, bar: Any) -> None:
        """One node whose cotangent is complete."""
        bar = self.arrive(node, bar)
        if bar is not None and node.rule is not None:
            for parent, share in zip(node.parents, self.shares(node, bar), strict=True):
                if share is not None:
                    self.add(parent, share)
        elif bar is None:
            for saved in node.kept if type(node.kept) is tuple else ():
                if isinstance(saved, SavedValue):
                    saved.pass_over()

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
        # never in place: a share may be a saved value, or another parent's cotangent
        total = accumulate(held, share)
        self._attribute(total)
        if self._watched:
            self._instruments.summed(total)
        return total

    def _attribute(self, bar: Any) -> None:
        """The graph that a pass creates belongs to the line that started it."""
        if self._line is not None:
            propagate_call_site(getattr(strip_mask(bar), "node", None), self._line)

    def arrive(self, node: Node, bar: Any) -> Any:
        """A node's cotangent is complete: hooks run on it, then it is delivered."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.run_gradient_hooks(node, bar, self.receiver.retain)
        if node.rule is None if self.targets is None else node in self.targets:
            for hook in self.hooks.hooks_of(node, "pre_accumulate") if hooked else ():
                hook(bar)
            tensors = self.receiver.receive(node, bar)
            if self._watched:
                self._instruments.delivered(tensors)
            for hook in self.hooks.hooks_of(node, "post_accumulate") if hooked else ():
                for tensor in tensors:
                    hook(tensor)
        return bar

    def shares(self, node: Node, bar: Any) -> tuple[Any, ...]:
        """One step of the chain rule, with the hooks and instruments beside it."""
        hooked = node in self.hooks.entries
        if hooked:
            bar = self.hooks.run_pre_hooks(node, bar)
        if self._watched:
            self._instruments.pull_begins(node, bar)
        try:
            wanted = None if self.wanted is None else self.wanted.__contains__
            # for `.grad` of leaves; hooks and instruments look at arrays
            seen = self._watched or self.hooks.entries
            takes_rows = self.targets is None and not self.create_graph and not seen
            shares = pull(node, bar, wanted, bool(self.create_graph), takes_rows)
        except Exception as error:
            raise locate_error(error, node)  # noqa: B904 - it is the same error
        if not self.retain:
            node.kept = None
        if self.create_graph:
            for share in shares:
                self._attribute(share)
        if self._watched:
            self._instruments.pulled(node, shares)
        return self.hooks.run_post_hooks(node, shares, bar) if hooked else shares

    def timed_shares(self, node: Node, bar: Any) -> tuple[Any, ...]:
        """`shares`, in one of several threads."""
        timer = self._instruments.timer
        if timer is None:
            return self.shares(node, bar)
        (shares,) = (self.shares(each, bar) for each in time_pulls((node,), timer))
        return shares


def _specialize(rule: Any, kind: int) -> Any:
    made = rule.plain[kind] = _plain_step(rule, kind, accumulate)
    return made


def _generate(call: NodeCall | PlannedCall) -> Any:
    """The step of a planned call, once it was missed a few times: to make one costs as much as a hundred visits."""
    # a share that is rows alone is no array, which generated code would add up
    if type(call) is not PlannedCall or call.rule.op.picks_rows:
        return None
    call.uses += 1
    if call.uses > _VISITS_BEFORE_STEP:
        call.step = _planned_step(call, accumulate)
    return call.step


def locate_error(error: Exception, node: Node) -> Exception:
    """The error with the user's line, of which NumPy's own message says nothing."""
    error.add_note(f"  in the backward of {node.name}, called at {node.where()}")
    return error


def claim(roots: Sequence[Node], waiting: object, floor: int) -> list[Node] | None:
    """Every node of depth `floor` or more that the roots depend on, claimed by this pass, deepest first; None if
    another pass has claimed one.
    """
    source = Node()  # a child of all roots, so that they are visited like any parent
    source.parents = tuple(roots)
    found = [source]
    # two passes that claim at once would each get a part
    append = found.append
    with _claim_lock:
        for node in found:  # grows during the loop
            for parent in node.parents if not floor else filter_by_depth(floor, node.parents):
                bar = parent.bar
                if bar is None:
                    parent.bar = waiting
                    append(parent)
                # claimed by another pass: leave all to it
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
    return installed().decide(found)


def is_in_running_call(roots: Iterable[Node]) -> bool:
    """Whether a value depends on a variable of a running call, whose caller will differentiate the result."""
    if not DifferentiatedCall.is_any_running() and modes().instruments is None:  # the usual case
        return False
    return replay_decision(any(depends_on_running_call(node) for node in roots))


def nodes_leading_to(targets: frozenset[Node], order: list[Node]) -> set[Node] | None:
    """The nodes on a path to a target, in one pass from the leaves; None if all are."""
    if order and order[-1].order == 0 and all(n in targets for n in leaves_of(order)):
        return None
    # from the leaves up, a node is wanted if one of its parents is
    wanted: set[Node] = set()
    for node in reversed(order):
        if node in targets or any(parent in wanted for parent in node.parents):
            wanted.add(node)
    return wanted


def move_leaves_early(order: list[Node], hooks: HookRun) -> list[Node]:
    """Leaves with hooks right after the last node that adds to them, so that a hook may use and drop a gradient."""
    # leaves come last otherwise, when all gradients are in memory at once
    waiting = {n for n in order if n.rule is None and n in hooks.entries}
    last = {parent: node for node in order for parent in node.parents if parent in waiting}
    after: dict[Node, list[Node]] = {}
    for leaf, node in last.items():
        after.setdefault(node, []).append(leaf)
    return [m for n in order if n not in last for m in (n, *after.get(n, ()))]
