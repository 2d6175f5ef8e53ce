"""What is switched on: one immutable record of modes in one context variable, behind one context manager."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "PLAIN",
    "Modes",
    "detect_anomaly",
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "modes",
    "no_grad",
    "set_grad_enabled",
]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Modes:
    """How ops behave in this context: whether they record, who decides what their nodes hold and who watches what a run
    does beside computing (both in `ops/keeping.py`), who watches the values themselves (`ops/observing.py`), and a
    symbol of the program that `jit` traces here, which takes in ops on tensors from outside (`ops/record.py`).
    """

    grad: bool = True
    inference: bool = False
    anomaly: bool = False
    nan_only: bool = False
    keeper: Any = None
    watcher: Any = None
    observer: Any = None
    tracing: Any = None


#: The modes nobody changed. Eager fast paths ask `modes() is PLAIN`, so an equal record is replaced by it.
PLAIN = Modes()
_current: ContextVar[Modes] = ContextVar("pullback_modes", default=PLAIN)
modes = _current.get


def switch_to(wanted: Modes) -> None:
    """Make `wanted` the modes of this context; restore by calling it with what was there before."""
    _current.set(PLAIN if wanted == PLAIN else wanted)


class switched:
    """Context manager and decorator that changes some modes and puts back what was there before."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._before: list[Modes] = []

    def __enter__(self) -> None:
        before = modes()
        self._before.append(before)
        switch_to(replace(before, **self._changes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        switch_to(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        changes = self._changes
        if inspect.isgeneratorfunction(function):
            return _switched_generator(function, changes)
        if inspect.iscoroutinefunction(function):
            return _switched_coroutine(function, changes)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with switched(**changes):
                return function(*args, **kwargs)

        return wrapped


def _switched_coroutine(function: Callable[P, Any], changes: dict[str, Any]) -> Callable[P, Any]:
    @functools.wraps(function)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        with switched(**changes):
            return await function(*args, **kwargs)

    return wrapped


def _switched_generator(function: Callable[P, Any], changes: dict[str, Any]) -> Callable[P, Any]:
    """A generator runs in pieces: the modes hold inside each piece and never leak to whoever resumes it."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
        with switched(**changes):
            generator = function(*args, **kwargs)
        reply: Any = None
        resume = generator.send
        while True:
            try:
                with switched(**changes):
                    item = resume(reply)
            except StopIteration as done:
                return done.value
            try:
                reply = yield item
                resume = generator.send
            except GeneratorExit:
                with switched(**changes):
                    generator.close()
                raise
            except BaseException as error:
                reply, resume = error, generator.throw

    return wrapped


def is_grad_enabled() -> bool:
    """Whether ops record what they do.

    >>> import pullback as pb
    >>> with pb.no_grad():
    ...     pb.is_grad_enabled()
    False
    """
    return modes().grad


def no_grad() -> switched:
    """Record nothing inside: results are constants. Context manager and decorator.

    >>> import pullback as pb
    >>> x = pb.tensor(2.0, requires_grad=True)
    >>> with pb.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """
    return switched(grad=False)


def enable_grad() -> switched:
    """Record inside, also within `no_grad`. Context manager and decorator.

    >>> import pullback as pb
    >>> x = pb.tensor(2.0, requires_grad=True)
    >>> with pb.no_grad(), pb.enable_grad():
    ...     y = x * x
    >>> y.requires_grad
    True
    """
    return switched(grad=True, inference=False)


class set_grad_enabled(switched):
    """Turn recording on or off at once, until the end of the `with` block if it is used as one.

    >>> import pullback as pb
    >>> with pb.set_grad_enabled(False):
    ...     pb.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._changes = {"grad": bool(enabled)}
        self._before = []
        self._outside = modes()
        switch_to(replace(self._outside, grad=bool(enabled)))

    def __enter__(self) -> None:
        self._before.append(modes() if self._before else self._outside)
        switch_to(replace(modes(), **self._changes))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        switch_to(self._outside)
        return switched(**self._changes)(function)


def inference_mode() -> switched:
    """`no_grad` whose results are constants for ever: they can never require a gradient later.

    >>> import pullback as pb
    >>> with pb.inference_mode():
    ...     y = pb.tensor([1.0, 2.0]) * 2
    >>> y.is_inference
    True
    """
    return switched(grad=False, inference=True)


def detect_anomaly(*, nan_only: bool = False) -> switched:
    """Stop at the first NaN or infinity of a backward pass, naming the op and the line that made it.

    >>> import pullback as pb
    >>> x = pb.tensor(0.0, requires_grad=True)
    >>> with pb.detect_anomaly():
    ...     pb.sqrt(x).backward()
    Traceback (most recent call last):
    pullback.errors.AnomalyError: backward: the rule of sqrt returned inf for argument x.
    ...
    """
    return switched(anomaly=True, nan_only=nan_only)
