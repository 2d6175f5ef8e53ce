"""A call in, its results out, and the promise to compute what it kept again: the run of one checkpoint.

The function runs as it stands and its graph is the real one; only what the nodes hold is replaced by a `Promise`. The
first promise that is called in makes the region run the function again with the same arguments, and the i-th value kept
then is what the i-th promise stands for. Nothing else is special: hooks, closures, trees, every order and every
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

from ..arrays.node import Node, show_line, user_line
from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..errors import RecomputeError
from ..ops.keeping import Keeper, Kept
from ..ops.op import OUT, Op
from ..ops.reach import Reach
from ..ops.specialise import Symbol
from ..ops.standing import Standing
from ..ops.streams import Streams
from ..settings import modes, switched
from ..transforms.staged import is_staged
from .arguments import Arguments
from .fingerprint import Fingerprint, fingerprint
from .policies import Policy
from .watching import FirstRun, Saved, SecondRun

__all__ = ["Region"]


class Promise(Kept):
    """Stands for a value that the region computes again. It holds the value itself during the first run, for a backward
    pass inside the function, and from a recomputation until a rule asks for it.

    As long as somebody else keeps the value alive, nothing need be recomputed: `_seen` finds it then. A value without
    numbers (`_staged`) is never found in this way: the program that is written down computes it again.
    """

    __slots__ = ("__weakref__", "_region", "_seen", "_staged", "held", "spec")
    lends = False

    def __init__(self, region: Region, value: Any, spec: Spec) -> None:
        self._region = region
        self.held = value
        self.spec = spec
        self._staged = is_staged(value)
        self._seen = None if region.verify is True else _weak(value)

    def at_hand(self) -> Any:
        """The value if it can be had without computing, else None."""
        if self.held is not None or self._seen is None or self._staged:
            return self.held
        return self._seen()

    def fulfil(self, value: Any) -> None:
        self.held, self._seen = value, _weak(value)

    def take_over(self, value: Any) -> None:
        """Whoever kept the value alive will let go of it soon."""
        if self._seen is not None and self._seen() is value:
            self.held = value

    def value(self) -> Any:
        region = self._region
        with region.lock:
            found = self.at_hand()
            if found is None:
                region.recompute()
                found = self.at_hand()
            if not region.running:
                self.held = None
                region.hand_over()
            return found


def _weak(value: Any) -> Any:
    if type(value) is Symbol:  # small, and part of a program that lives as long
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:  # duals and their like cannot be referred to in this way
        return None


class Entry(NamedTuple):
    """One value that was kept: by which op, as what, on which line of the user's. `leaf` and `value` tell whether a
    leaf points elsewhere by now.
    """

    name: str
    args: tuple[str, ...]
    position: int
    spec: Spec
    line: tuple[CodeType, int]
    prints: tuple[Fingerprint, ...]
    leaf: Node | None
    value: Any

    def agrees(self, op: Op, position: int, value: Any, leaf: Node | None) -> bool:
        """Whether a recomputation keeps the same here, but for the numbers."""
        spec = spec_of(value)
        return (
            (spec is self.spec or spec == self.spec)
            and op.name == self.name
            and position == self.position
            and (leaf is None or leaf is not self.leaf or self.value is None or self.value() is value)
        )

    def has_numbers_of(self, value: Any, exact: bool) -> bool:
        """Whether a recomputed value has the first one's numbers."""
        if not self.prints:
            return True
        return all(a.agrees(b, exact) for a, b in zip(self.prints, fingerprint(value), strict=True))

    def __str__(self) -> str:
        name = self.args[min(self.position, len(self.args) - 1)].lstrip("*")
        what = "its result" if self.position == OUT else f"argument {name}"
        return f"{self.name} keeps {what}, {self.spec}, at {show_line(*self.line)}"


def entry_of(op: Op, position: int, value: Any, prints: tuple[Fingerprint, ...], leaf: Node | None = None) -> Entry:
    """What is noted of a value that is kept. The frames between here and `record` are ours."""
    line = user_line(sys._getframe(4))
    return Entry(op.name, op.args, position, spec_of(value), line, prints, leaf, None if leaf is None else _weak(value))


class Region:
    """One run of a checkpointed function, able to run it again."""

    __slots__ = (
        "_arguments", "_around", "_begun", "_context", "_decisions", "_function", "_handed", "_last", "_log",
        "_promises", "_saved", "_scopes", "_start", "_streams", "given", "lock", "running", "verify",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], arguments: Arguments, verify: bool | None) -> None:
        self._function = function
        self._arguments = arguments
        self._around: Keeper | None = modes().keeper
        self._begun = self._handed = False
        self._context = contextvars.copy_context()
        self._scopes = arguments.scopes()
        reach = Reach((function,), arguments.leaves)
        self._streams = Streams(reach.generators, arguments.leaves)
        self._log: list[Entry] = []
        self._promises: list[weakref.ref[Promise] | None] = []
        self._saved: Saved = {}
        self._decisions: list[bool] = []
        self._start = Standing()
        self._start.note_reached(reach)
        self._last: tuple[Any, tuple[Fingerprint, ...]] | None = None
        self.given = arguments.nodes()
        self.lock = threading.RLock()
        self.running = True
        self.verify = verify

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], policy: Policy) -> Any:
        """The first run: the function's own results, on its own graph."""
        watcher = FirstRun(modes().watcher, policy, self._saved, self._decisions, self._start, self._kept_so_far)
        try:
            with self._streams.recorded(), switched(keeper=_Promising(self), watcher=watcher):
                out = self._function(*args, **kwargs)
        finally:
            self.running = False
            for promise in self._living():
                promise.held = None
        watcher.settle(self._arguments.leaves, out)
        self._arguments.leaves = []
        return out

    def _kept_so_far(self) -> int:
        return len(self._log)

    def _living(self) -> Iterator[Promise]:
        for reference in self._promises:
            promise = None if reference is None else reference()
            if promise is not None:
                yield promise

    def promise(self, entry: Entry, value: Any) -> Promise:
        """The first run keeps a value."""
        self.begin()
        promise = Promise(self, value, entry.spec)
        self._log.append(entry)
        self._promises.append(weakref.ref(promise))
        return promise

    def prints(self, value: Any) -> tuple[Fingerprint, ...]:
        """The fingerprint of a value that is kept; most are kept twice, by the op that made it and by the next."""
        if self.verify is False:
            return ()
        if self._last is None or self._last[0]() is not value:
            reference = _weak(value)
            if reference is None:
                return fingerprint(value)
            self._last = reference, fingerprint(value)
        return self._last[1]

    def note_leaf(self, entry: Entry) -> None:
        """The first run keeps the value of a leaf; it lives on anyway, so the node may hold it."""
        self.begin()
        self._log.append(entry)
        self._promises.append(None)

    def begin(self) -> None:
        """Something is kept, so the arguments will be needed: whoever keeps for the run around decides how."""
        if not self._begun:
            self._begun = True
            if self._around is not None:
                self._arguments.keep(self._around)

    def hand_over(self) -> None:
        """A pass goes back through here and will let this region go. What made the arguments comes next, and may need
        one of them that it kept as its result: it can have it without computing.
        """
        if not self._handed:
            self._handed = True
            for node, value in self._arguments.linked():
                for kept in node.kept or ():
                    if type(kept) is Promise:
                        kept.take_over(value)

    def recompute(self) -> None:
        """Run the function again, up to the last value that somebody needs, and fulfil the promises."""
        wanted = [
            i for i, r in enumerate(self._promises) if r is not None and (p := r()) is not None and p.at_hand() is None
        ]
        second = SecondRun(self._saved, self._decisions, self._start)
        keeper = _Fulfilling(self, len(self._log) if self.verify is True else wanted[-1], self._log, self._promises)
        with reopened(self._scopes):
            # a region around may have to run again for the arguments, so they come before any stream is held
            args, kwargs = self._context.copy().run(self._arguments.again)
            with self._streams.rewound():
                self._context.copy().run(self._again, args, kwargs, keeper, second)
        if keeper.count < len(self._log) and (self.verify is True or keeper.count <= keeper.last):
            raise self._ended_early(keeper.count)

    def _again(self, args: Sequence[Any], kwargs: Mapping[str, Any], keeper: _Fulfilling, second: SecondRun) -> None:
        with self._streams.replayed(), switched(keeper=keeper, watcher=second), second:
            try:
                self._function(*args, **kwargs)
            except _Enough:
                pass
            except Exception as error:
                error.add_note(f"  while a checkpoint computed {self.name} again for the way back")
                raise

    @property
    def name(self) -> str:
        return getattr(self._function, "__qualname__", None) or type(self._function).__name__

    def difference(self, number: int, now: Entry, other_numbers: bool) -> RecomputeError:
        """What the recomputation keeps is not what the first run kept."""
        first = self._log[number] if number < len(self._log) else None
        if first is None:
            then = f"nothing: it kept {len(self._log)} values"
        elif other_numbers:
            then = f"{first}, with other numbers"
        elif str(first) == str(now):
            then = f"{first}, when the tensor pointed at another value"
        else:
            then = str(first)
        return RecomputeError(
            f"checkpoint: the recomputation of {self.name} differs from its first run, at kept value {number + 1}.\n"
            f"  first run: {then}\n  recomputed: {now}\n{_CAUSES}"
        )

    def _ended_early(self, count: int) -> RecomputeError:
        return RecomputeError(
            f"checkpoint: the recomputation of {self.name} differs from its first run: it kept {count} values of "
            f"{len(self._log)}.\n  first run: {self._log[count]}\n  recomputed: ended before that\n{_CAUSES}"
        )


_CAUSES = (
    "  Likely causes: a global or closed-over variable changed in between, a parameter was updated before the backward "
    "pass,\n  an array was written to, random numbers from a generator that is not among the arguments, or an `if` on "
    "any of these.\n  Pass what the function depends on as arguments. If it is meant to differ from run to run, "
    "verify=False compares no numbers."
)


class _Enough(BaseException):
    """All that is needed was computed; not an `Exception`, so that the user's own handlers let it pass."""


class _Promising(Keeper):
    """Keeps for the first run."""

    __slots__ = ("_region",)

    def __init__(self, region: Region) -> None:
        self._region = region

    def keep(self, op: Op, position: int, value: Any) -> Any:
        return self._region.promise(entry_of(op, position, value, self._region.prints(value)), value)

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        if leaf in self._region.given:
            return self.keep(op, position, value)
        prints = self._region.prints(value) if self._region.verify is True else ()  # else its identity will do
        self._region.note_leaf(entry_of(op, position, value, prints, leaf))
        return value


class _Fulfilling(Keeper):
    """Keeps for a recomputation: compares with the first run, fulfils promises, stops after the last that counts."""

    __slots__ = ("_log", "_promises", "_region", "count", "last")

    def __init__(
        self, region: Region, last: int, log: list[Entry], promises: list[weakref.ref[Promise] | None]
    ) -> None:
        self._region, self._log, self._promises = region, log, promises
        self.count = 0
        self.last = last

    def keep(self, op: Op, position: int, value: Any) -> Any:
        return self._fulfil(op, position, value, None)

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        return self._fulfil(op, position, value, leaf)

    def _fulfil(self, op: Op, position: int, value: Any, leaf: Node | None) -> Any:
        number = self.count
        if number > self.last:  # a handler of the user's that catches everything let it go on
            raise _Enough
        if number >= len(self._log) or not self._log[number].agrees(op, position, value, leaf):
            raise self._region.difference(number, entry_of(op, position, value, (), leaf), False)
        self.count = number + 1
        reference = self._promises[number]
        promise = None if reference is None else reference()
        wanted, exact = promise is not None and promise.at_hand() is None, self._region.verify is True
        if (wanted or exact) and not self._log[number].has_numbers_of(value, exact):
            raise self._region.difference(number, entry_of(op, position, value, (), leaf), True)
        if promise is not None and wanted:
            promise.fulfil(value)
        if number == self.last:
            raise _Enough
        return value


_reopening = threading.Lock()
_reopened: dict[int, tuple[Scope, int]] = {}


@contextmanager
def reopened(scopes: Sequence[Scope]) -> Iterator[None]:
    """Transforms that are over meanwhile run again for a while; several threads may need the same one."""
    ended: list[Scope] = []
    if scopes:
        with _reopening:
            for scope in scopes:
                count = _reopened[id(scope)][1] if id(scope) in _reopened else 0
                if count or not scope.open:
                    ended.append(scope)
                    _reopened[id(scope)] = scope, count + 1
                    scope.open = True
    try:
        yield
    finally:
        if ended:
            with _reopening:
                for scope in ended:
                    count = _reopened.pop(id(scope))[1] - 1
                    scope.open = count > 0
                    if count:
                        _reopened[id(scope)] = scope, count
