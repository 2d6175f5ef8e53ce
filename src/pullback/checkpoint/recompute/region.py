"""The run of one checkpoint: the function's results, and promises to recompute the values it saved.

The function runs unchanged and its graph is the real one; only what the nodes hold is replaced by a `Promise`. The
first promise whose value is needed makes the region run the function again with the same arguments, and the i-th value
saved then is that of the i-th promise. Nothing else is special: hooks, closures, trees, every order and every
transform follow from the graph being real.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

from ...arrays.node import Node, format_line, user_line
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...errors import RecomputeError
from ...ops.op import OUT, Op
from ...ops.replay.reach import Reach
from ...ops.replay.snapshot import StateSnapshot
from ...ops.replay.streams import Streams
from ...ops.saved_values import Keeper, SavedValue
from ...program.ir import Symbol
from ...settings import modes, override_modes
from ...transforms.control.staging import is_staged
from .arguments import Arguments
from .fingerprint import Fingerprint, fingerprint_value
from .replay_watchers import RecordingWatcher, ReplayingWatcher, Saved
from .save_policies import SavePolicy


class Promise(SavedValue):
    """Stands for a value that the region recomputes. It holds the value itself during the first run, for a backward
    pass inside the function, and from a recomputation until a rule asks for it.

    As long as the value is alive elsewhere, nothing need be recomputed: a weak reference finds it. A symbol of a
    traced program is never found in this way: the program computes it again.
    """

    __slots__ = ("__weakref__", "_reference", "_region", "_staged", "held", "spec")
    may_be_overwritten = False

    def __init__(self, region: Region, value: Any, spec: Spec) -> None:
        self._region = region
        self.held = value
        self.spec = spec
        self._staged = is_staged(value)
        self._reference = None if region.verify is True else _weak_reference(value)

    def peek(self) -> Any:
        """The value if it can be had without computing, else None."""
        if self.held is not None or self._reference is None or self._staged:
            return self.held
        return self._reference()

    def fulfill(self, value: Any) -> None:
        self.held, self._reference = value, _weak_reference(value)

    def adopt(self, value: Any) -> None:
        """The value will die soon: hold it."""
        if self._reference is not None and self._reference() is value:
            self.held = value

    def value(self) -> Any:
        region = self._region
        with region.lock:
            found = self.peek()
            if found is None:
                region.recompute()
                found = self.peek()
            if not region.running:
                self.held = None
                region.hand_over_arguments()
            return found


def _weak_reference(value: Any) -> Any:
    if type(value) is Symbol:  # small, and part of a program that lives as long
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:  # duals and their like cannot be referred to in this way
        return None


class KeptEntry(NamedTuple):
    """One value that was saved: by which op, as what, on which line of the user. `leaf` and `value` tell whether a leaf
    was rebound since.
    """

    name: str
    args: tuple[str, ...]
    position: int
    spec: Spec
    line: tuple[CodeType, int]
    fingerprints: tuple[Fingerprint, ...]
    leaf: Node | None
    value: Any

    def agrees(self, op: Op, position: int, value: Any, leaf: Node | None) -> bool:
        """Whether a recomputation saves the same here, but for the values themselves."""
        spec = spec_of(value)
        return (
            (spec is self.spec or spec == self.spec)
            and op.name == self.name
            and position == self.position
            and (leaf is None or leaf is not self.leaf or self.value is None or self.value() is value)
        )

    def has_same_numbers(self, value: Any, exact: bool) -> bool:
        """Whether a recomputed value equals the first one."""
        if not self.fingerprints:
            return True
        return all(a.agrees(b, exact) for a, b in zip(self.fingerprints, fingerprint_value(value), strict=True))

    def __str__(self) -> str:
        name = self.args[min(self.position, len(self.args) - 1)].lstrip("*")
        what = "its result" if self.position == OUT else f"argument {name}"
        return f"{self.name} saves {what}, {self.spec}, at {format_line(*self.line)}"


def make_kept_entry(
    op: Op, position: int, value: Any, prints: tuple[Fingerprint, ...], leaf: Node | None = None
) -> KeptEntry:
    """The entry of a value that is saved. The frames between here and `record` are ours."""
    line = user_line(sys._getframe(4))
    return KeptEntry(
        op.name, op.args, position, spec_of(value), line, prints, leaf, None if leaf is None else _weak_reference(value)
    )


class Region:
    """One run of a checkpointed function, able to run it again."""

    __slots__ = (
        "_arguments",
        "_begun",
        "_context",
        "_decisions",
        "_function",
        "_handed",
        "_last",
        "_log",
        "_outer_keeper",
        "_promises",
        "_saved",
        "_scopes",
        "_start",
        "_streams",
        "argument_nodes",
        "lock",
        "running",
        "verify",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], arguments: Arguments, verify: bool | None) -> None:
        self._function = function
        self._arguments = arguments
        self._outer_keeper: Keeper | None = modes().keeper
        self._begun = self._handed = False
        self._context = contextvars.copy_context()
        self._scopes = arguments.scopes()
        reach = Reach((function,), arguments.leaves)
        self._streams = Streams(reach.generators, arguments.leaves)
        self._log: list[KeptEntry] = []
        self._promises: list[weakref.ref[Promise] | None] = []
        self._saved: Saved = {}
        self._decisions: list[bool] = []
        self._start = StateSnapshot()
        self._start.note_reached(reach)
        self._last: tuple[Any, tuple[Fingerprint, ...]] | None = None
        self.argument_nodes = arguments.nodes()
        self.lock = threading.RLock()
        self.running = True
        self.verify = verify

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], policy: SavePolicy) -> Any:
        """The first run: the function's own results, on its own graph."""
        watcher = RecordingWatcher(modes().watcher, policy, self._saved, self._decisions, self._start, self._log_length)
        try:
            with self._streams.record(), override_modes(keeper=_PromisingKeeper(self), watcher=watcher):
                out = self._function(*args, **kwargs)
        finally:
            self.running = False
            for promise in self._live_promises():
                promise.held = None
        watcher.finish(self._arguments.leaves, out)
        self._arguments.leaves = []
        return out

    def _log_length(self) -> int:
        return len(self._log)

    def _live_promises(self) -> Iterator[Promise]:
        for reference in self._promises:
            promise = None if reference is None else reference()
            if promise is not None:
                yield promise

    def add_promise(self, entry: KeptEntry, value: Any) -> Promise:
        """The first run saves a value."""
        self.keep_arguments()
        promise = Promise(self, value, entry.spec)
        self._log.append(entry)
        self._promises.append(weakref.ref(promise))
        return promise

    def fingerprints(self, value: Any) -> tuple[Fingerprint, ...]:
        """The fingerprint of a saved value; most are saved twice, by the op that made it and by the next."""
        if self.verify is False:
            return ()
        if self._last is None or self._last[0]() is not value:
            reference = _weak_reference(value)
            if reference is None:
                return fingerprint_value(value)
            self._last = reference, fingerprint_value(value)
        return self._last[1]

    def note_leaf(self, entry: KeptEntry) -> None:
        """The first run saves the value of a leaf; it lives on anyway, so the node may hold it."""
        self.keep_arguments()
        self._log.append(entry)
        self._promises.append(None)

    def keep_arguments(self) -> None:
        """Something is saved, so the arguments will be needed: the outer keeper decides how they are held."""
        if not self._begun:
            self._begun = True
            if self._outer_keeper is not None:
                self._arguments.keep(self._outer_keeper)

    def hand_over_arguments(self) -> None:
        """A backward pass reached this region and will release it. The producers of the arguments come next, and may
        need an argument that they saved as their result: they get it without recomputation.
        """
        if not self._handed:
            self._handed = True
            for node, value in self._arguments.find_producers():
                for kept in node.kept or ():
                    if type(kept) is Promise:
                        kept.adopt(value)

    def recompute(self) -> None:
        """Run the function again, up to the last value that is needed, and fulfil the promises."""
        wanted = [
            i for i, r in enumerate(self._promises) if r is not None and (p := r()) is not None and p.peek() is None
        ]
        second = ReplayingWatcher(self._saved, self._decisions, self._start)
        keeper = _FulfillingKeeper(
            self, len(self._log) if self.verify is True else wanted[-1], self._log, self._promises
        )
        with reopen_scopes(self._scopes):
            # an outer region may have to run again for the arguments, so they come before any stream is held
            args, kwargs = self._context.copy().run(self._arguments.rebuild)
            with self._streams.rewind():
                self._context.copy().run(self._rerun, args, kwargs, keeper, second)
        if keeper.count < len(self._log) and (self.verify is True or keeper.count <= keeper.last):
            raise self._early_end_error(keeper.count)

    def _rerun(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], keeper: _FulfillingKeeper, second: ReplayingWatcher
    ) -> None:
        with self._streams.replay(), override_modes(keeper=keeper, watcher=second), second:
            try:
                self._function(*args, **kwargs)
            except _RecomputeFinished:
                pass
            except Exception as error:
                error.add_note(f"  while a checkpoint recomputed {self.name} for the backward pass")
                raise

    @property
    def name(self) -> str:
        return getattr(self._function, "__qualname__", None) or type(self._function).__name__

    def difference_error(self, number: int, now: KeptEntry, other_numbers: bool) -> RecomputeError:
        """The recomputation saves other values than the first run."""
        first = self._log[number] if number < len(self._log) else None
        if first is None:
            then = f"nothing: it saved {len(self._log)} values"
        elif other_numbers:
            then = f"{first}, with other values"
        elif str(first) == str(now):
            then = f"{first}, when the tensor had another value"
        else:
            then = str(first)
        return RecomputeError(
            f"checkpoint: the recomputation of {self.name} differs from its first run, at saved value {number + 1}.\n"
            f"  first run: {then}\n  recomputed: {now}\n{_CAUSES}"
        )

    def _early_end_error(self, count: int) -> RecomputeError:
        return RecomputeError(
            f"checkpoint: the recomputation of {self.name} differs from its first run: it saved {count} values of "
            f"{len(self._log)}.\n  first run: {self._log[count]}\n  recomputed: ended before that\n{_CAUSES}"
        )


_CAUSES = (
    "  Likely causes: a global or closed-over variable changed in between, a parameter was updated before the backward "
    "pass,\n  an array was written to, random numbers from a generator that is not among the arguments, or an `if` on "
    "any of these.\n  Pass what the function depends on as arguments. If it is meant to differ from run to run, "
    "verify=False compares no values."
)


class _RecomputeFinished(BaseException):
    """All that is needed was computed; not an `Exception`, so that handlers in user code let it pass."""


class _PromisingKeeper(Keeper):
    """The keeper of the first run."""

    __slots__ = ("_region",)

    def __init__(self, region: Region) -> None:
        self._region = region

    def keep(self, op: Op, position: int, value: Any) -> Any:
        return self._region.add_promise(make_kept_entry(op, position, value, self._region.fingerprints(value)), value)

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        if leaf in self._region.argument_nodes:
            return self.keep(op, position, value)
        prints = self._region.fingerprints(value) if self._region.verify is True else ()  # else its identity is enough
        self._region.note_leaf(make_kept_entry(op, position, value, prints, leaf))
        return value


class _FulfillingKeeper(Keeper):
    """The keeper of a recomputation: compares with the first run, fulfils promises, stops after the last one needed."""

    __slots__ = ("_log", "_promises", "_region", "count", "last")

    def __init__(
        self, region: Region, last: int, log: list[KeptEntry], promises: list[weakref.ref[Promise] | None]
    ) -> None:
        self._region, self._log, self._promises = region, log, promises
        self.count = 0
        self.last = last

    def keep(self, op: Op, position: int, value: Any) -> Any:
        return self._check_and_fulfill(op, position, value, None)

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        return self._check_and_fulfill(op, position, value, leaf)

    def _check_and_fulfill(self, op: Op, position: int, value: Any, leaf: Node | None) -> Any:
        number = self.count
        if number > self.last:  # a user's handler caught the stop and went on
            raise _RecomputeFinished
        if number >= len(self._log) or not self._log[number].agrees(op, position, value, leaf):
            raise self._region.difference_error(number, make_kept_entry(op, position, value, (), leaf), False)
        self.count = number + 1
        reference = self._promises[number]
        promise = None if reference is None else reference()
        wanted, exact = promise is not None and promise.peek() is None, self._region.verify is True
        if (wanted or exact) and not self._log[number].has_same_numbers(value, exact):
            raise self._region.difference_error(number, make_kept_entry(op, position, value, (), leaf), True)
        if promise is not None and wanted:
            promise.fulfill(value)
        if number == self.last:
            raise _RecomputeFinished
        return value


_reopen_lock = threading.Lock()
_reopen_counts: dict[int, tuple[Scope, int]] = {}


@contextmanager
def reopen_scopes(scopes: Sequence[Scope]) -> Iterator[None]:
    """Reopen transforms that have finished for the time of a recomputation; several threads may need the same one."""
    ended: list[Scope] = []
    if scopes:
        with _reopen_lock:
            for scope in scopes:
                count = _reopen_counts[id(scope)][1] if id(scope) in _reopen_counts else 0
                if count or not scope.open:
                    ended.append(scope)
                    _reopen_counts[id(scope)] = scope, count + 1
                    scope.open = True
    try:
        yield
    finally:
        if ended:
            with _reopen_lock:
                for scope in ended:
                    count = _reopen_counts.pop(id(scope))[1] - 1
                    scope.open = count > 0
                    if count:
                        _reopen_counts[id(scope)] = scope, count
