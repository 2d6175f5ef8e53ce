"""One run of a transform: its level, how it lifts a value from below, and whether it still runs.

Values carry the scope they belong to; nothing else about a transform is ambient. The innermost running scope is kept
in a context variable for one purpose: a tape that starts inside a transform must lie above that transform's values, so
its leaves are lifted to the transform's level first.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import LeakError, raise_masked

_levels = itertools.count(2, 2)


def new_level() -> int:
    """A level above all existing ones. Raw arrays are at 0, a transform that starts now gets an even number, and
    tensors over values of level k are at k + 1, so that between any two transforms lies exactly one tape.
    """
    return next(_levels)


class Scope:
    """A run of the transform `name`. `lift(scope, value)` returns a constant at this level, `lower(value)` what a
    constant of this level stands for, or the value itself if it is none.

    `size` counts the elements of a batch, which may ask for values of all of them by its `axis_name`; `places` are the
    numbers of the elements by device, made once, so that a program traced again is the same; `directions` is the batch
    that tangents run over where one dual has several; `rebindings`, if it is a list, records the old values of
    variables that are rebound; `decisions`, if it is there, says which way Python branches go that depend on a traced
    value.

    Used as a context manager around the user's function. When it ends, its values become invalid: an
    op on a leaked one raises `LeakError`.
    """

    __slots__ = (
        "_before", "_leaves", "_reopened", "axis_name", "decisions", "directions", "level", "lift", "lower", "name",
        "open", "places", "rebindings", "size",
    )  # fmt: skip

    def __init__(
        self, name: str, lift: Callable[[Scope, Any], Any], lower: Callable[[Any], Any], size: int = 0
    ) -> None:
        self.name = name
        self.level = new_level()
        self.lift = lift
        self.lower = lower
        self.open = True
        self.size = size
        self.axis_name: str | None = None
        self.places: dict[str, Any] = {}
        self.directions: Scope | None = None
        self.rebindings: list[tuple[Any, ...]] | None = None
        self.decisions: Any = None
        self._before: Scope | None = None
        self._reopened = 0
        self._leaves: list[weakref.ref[Any]] = []

    def __enter__(self) -> Scope:
        self._before = current_scope()
        _running.set(self)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.open = False
        self.places = {}
        if _running.get() is self:  # a generator may leave a scope while another one runs
            _running.set(self._before)
        for reference in self._leaves:
            leaf = reference()
            if leaf is not None:
                leaf.leave_scope(self)
        if error is not None:
            raise_masked(error)

    def and_enclosing(self) -> Iterator[Scope]:
        """This scope and the scopes it started in, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope._before

    def lift_leaf(self, leaf: Any) -> Any:
        """The value of a new leaf at this level; when the scope ends, the leaf is lowered to the value itself."""
        self._leaves.append(weakref.ref(leaf))
        return self.lift(self, leaf.value)

    def has_made(self, variable: Any, value: Any) -> bool:
        """Whether a variable, which held this value before it was rebound, was made by the function that is traced: no
        state outside of it, though a cycle of references may keep it alive.
        """
        if getattr(value, "level", 0) >= self.level:
            return True
        return self.decisions is not None and bool(self.decisions.was_made(variable))

    def check(self) -> None:
        """Raise if the transform has ended."""
        if not self.open:
            raise LeakError(
                f"this value belongs to a {self.name} that is over.\n"
                f"  Values of a transform live only while it runs: return what you need from the function."
            )


_reopen_lock = threading.Lock()


@contextmanager
def reopen_scopes(scopes: Iterable[Scope]) -> Iterator[None]:
    """Reopen transforms that have finished for the time of a recomputation; several threads may need the same one."""
    with _reopen_lock:
        # one that is open without having been reopened still runs, and is not ours to close
        ended = [scope for scope in scopes if scope._reopened or not scope.open]
        for scope in ended:
            scope._reopened += 1
            scope.open = True
    try:
        yield
    finally:
        with _reopen_lock:
            for scope in ended:
                scope._reopened -= 1
                scope.open = scope._reopened > 0


_running: ContextVar[Scope | None] = ContextVar("pullback_running", default=None)


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Run code on bare arrays alone, independent of the enclosing transforms."""
    before = _running.get()
    _running.set(None)
    try:
        yield
    finally:
        _running.set(before)


def enclosing_scopes() -> Iterable[Scope]:
    """The running scopes of this context, innermost first."""
    scope = current_scope()
    return () if scope is None else scope.and_enclosing()


def forget_rebindings_since_now() -> Callable[[], None]:
    """A function that takes back what enclosing scopes note of rebindings from now on: of a run that does not count."""
    notes = [(s.rebindings, len(s.rebindings)) for s in enclosing_scopes() if s.rebindings is not None]

    def forget() -> None:
        for found, count in notes:
            del found[count:]

    return forget


def current_scope() -> Scope | None:
    """The innermost running scope. Ended ones are skipped: scopes need not end in order."""
    scope = _running.get()
    while scope is not None and not scope.open:
        scope = scope._before
    return scope
