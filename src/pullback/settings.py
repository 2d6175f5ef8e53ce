"""The modes of a context (recording, inference, instruments): one immutable record in one context variable; and the
switch of native code and the precision of products, which the fast path of ops need not look at.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .errors import ArgumentError, ArgumentTypeError
from .instrument import NO_INSTRUMENTS, Instrument, Instruments, Timer

P = ParamSpec("P")
R = TypeVar("R")


class Modes(NamedTuple):
    """How ops behave in this context: whether they record, the installed instruments, a symbol of the program that
    `jit` is tracing, which records ops on captured tensors (`ops/record.py`), what `pb.autocast` casts, and the rank
    that this is among ranks of one process; a symbol of the innermost program that `jit` is tracing; and whether
    programs and nodes note the origin of each op (`arrays/origin.py`).
    """

    grad: bool = True
    inference: bool = False
    instruments: Instruments | None = None
    tracing: Any = None
    autocast: Any = None
    rank: Any = None
    staging: Any = None
    locates: bool = False


#: Called when a setting of the whole process changes (the precision of products, the world that it is a rank of): what
#: was compiled for the other one is not the next call's.
setting_listeners: list[Callable[[], None]] = []
#: The world that this process is a rank of, where ranks are processes (`pb.distributed.init`).
_process_rank: Any = None


def _notify_listeners() -> None:
    for listener in setting_listeners:
        listener()


def set_process_rank(world: Any) -> None:
    """Make this process a rank of a world; None: it is alone."""
    global _process_rank
    _process_rank = world
    _notify_listeners()


def current_rank() -> Any:
    """The world that this thread is a rank of: one of threads (`Modes.rank`), or the process's; None: it is alone."""
    found = modes().rank
    return _process_rank if found is None else found


def context_key(mode: Modes) -> Any:
    """What a traced program depends on besides arguments: the dtypes that `pb.autocast` chooses, and the world that
    this is a rank of; None where there is neither.
    """
    if mode.autocast is None and mode.rank is None:
        return _process_rank
    return (None if mode.autocast is None else mode.autocast.key), mode.rank or _process_rank


#: The default modes, and those of `no_grad` and `inference_mode`. Eager fast paths test `modes() is PLAIN`, so an equal
#: record is replaced by the one here.
PLAIN = Modes()
UNRECORDED = Modes(grad=False)
INFERENCE = Modes(grad=False, inference=True)
_TURNS_OFF = {"grad": False}
COMMON_MODES = (PLAIN, UNRECORDED, INFERENCE)
_current: ContextVar[Modes] = ContextVar("pullback_modes", default=PLAIN)
modes = _current.get
#: Sets the modes of this context without looking for an equal record among the common ones.
put_modes = _current.set


def installed() -> Instruments:
    """The instruments of this context."""
    return modes().instruments or NO_INSTRUMENTS


def as_common(wanted: Modes) -> Modes:
    """The record among the common ones that equals `wanted`, or among those that only time besides; else `wanted`."""
    if wanted.instruments is not None and (timer := wanted.instruments.timer) is not None:
        return _as_timed(wanted, timer)
    return next((known for known in COMMON_MODES if wanted == known), wanted)


def _as_timed(wanted: Modes, timer: Timer) -> Modes:
    below = wanted._replace(instruments=None)
    for name, common in (("plain", PLAIN), ("unrecorded", UNRECORDED), ("inference", INFERENCE)):
        if below == common:
            known: Modes | None = getattr(timer, name)
            if known is None:
                setattr(timer, name, known := wanted)
            return known
    return wanted


def modes_below_timer(mode: Modes) -> Modes | None:
    """The common modes that these are but for a timer; None if they are no such modes."""
    if mode.instruments is None or (timer := mode.instruments.timer) is None:
        return None
    if mode is timer.plain:
        return PLAIN
    return UNRECORDED if mode is timer.unrecorded else INFERENCE if mode is timer.inference else None


def looks_at_values(mode: Modes) -> bool:
    """Whether an instrument may look at values: then what happens to them goes step by step."""
    return mode.instruments is not None and mode.instruments.timer is None


def set_modes(wanted: Modes) -> None:
    """Make `wanted` the modes of this context; restore by calling it with the previous modes."""
    _current.set(as_common(wanted))


class override_modes:
    """Context manager and decorator that installs instruments, changes some modes, and restores the previous ones."""

    def __init__(self, *instruments: Instrument, **changes: Any) -> None:
        self._instruments = instruments
        self._changes = changes
        self._before: list[Modes] = []

    def __enter__(self) -> None:
        before, changes = modes(), self._changes
        self._before.append(before)
        if self._instruments:
            changes = {**changes, "instruments": installed().push(*self._instruments)}
        elif changes == _TURNS_OFF and before in COMMON_MODES:
            # what `no_grad` does in every step of a training loop: a new record takes longer than an op
            _current.set(INFERENCE if before is INFERENCE else UNRECORDED)
            return
        # often nothing changes, as where `grad` turns recording on
        if any(getattr(before, name) is not wanted for name, wanted in changes.items()):
            set_modes(before._replace(**changes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.set(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return run_inside(functools.partial(override_modes, *self._instruments, **self._changes), function)


def run_inside(fresh: Callable[[], AbstractContextManager[Any]], function: Callable[P, R]) -> Callable[P, R]:
    """A function whose calls each run inside a context manager of their own: calls may overlap."""
    if not callable(function):
        raise ArgumentTypeError(f"as a decorator it wants a function, got a {type(function).__name__}.")
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, fresh)
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, fresh)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, fresh)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with fresh():
            return function(*args, **kwargs)

    return wrapped


def _wrap_coroutine(function: Callable[P, Any], fresh: Callable[[], AbstractContextManager[Any]]) -> Callable[P, Any]:
    @functools.wraps(function)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        with fresh():
            return await function(*args, **kwargs)

    return wrapped


def _wrap_generator(function: Callable[P, Any], fresh: Callable[[], AbstractContextManager[Any]]) -> Callable[P, Any]:
    """A generator runs in pieces: the modes hold inside each piece and never leak to the code that resumes it."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
        with fresh():
            generator = function(*args, **kwargs)
        reply: Any = None
        resume = generator.send
        while True:
            try:
                with fresh():
                    item = resume(reply)
            except StopIteration as done:
                return done.value
            try:
                reply = yield item
                resume = generator.send
            except GeneratorExit:
                with fresh():
                    generator.close()
                raise
            except BaseException as error:
                reply, resume = error, generator.throw

    return wrapped


def _wrap_async_generator(
    function: Callable[P, Any], fresh: Callable[[], AbstractContextManager[Any]]
) -> Callable[P, Any]:
    """The same for a generator that awaits; its caller runs in the same context."""

    @functools.wraps(function)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Any, Any]:
        with fresh():
            generator = function(*args, **kwargs)
        reply: Any = None
        resume = generator.asend
        while True:
            try:
                with fresh():
                    item = await resume(reply)
            except StopAsyncIteration:
                return
            try:
                reply = yield item
                resume = generator.asend
            except GeneratorExit:
                with fresh():
                    await generator.aclose()
                raise
            except BaseException as error:
                reply, resume = error, generator.athrow

    return wrapped


def is_grad_enabled() -> bool:
    """Whether ops record what they do.

    >>> import pullback as pb
    >>> with pb.no_grad():
    ...     pb.is_grad_enabled()
    False
    """
    return modes().grad


def no_grad() -> override_modes:
    """Record nothing inside: results are constants. Context manager and decorator.

    >>> import pullback as pb
    >>> x = pb.tensor(2.0, requires_grad=True)
    >>> with pb.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """
    return override_modes(grad=False)


def enable_grad() -> override_modes:
    """Record inside, also within `no_grad`. Context manager and decorator.

    >>> import pullback as pb
    >>> x = pb.tensor(2.0, requires_grad=True)
    >>> with pb.no_grad(), pb.enable_grad():
    ...     y = x * x
    >>> y.requires_grad
    True
    """
    return override_modes(grad=True, inference=False)


class set_grad_enabled(override_modes):
    """Turn recording on or off immediately, until the end of the `with` block if it is used as one.

    >>> import pullback as pb
    >>> with pb.set_grad_enabled(False):
    ...     pb.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._instruments = ()
        self._changes = {"grad": bool(enabled)}
        self._before = []
        self._outside = modes()
        set_modes(self._outside._replace(grad=bool(enabled)))

    def __enter__(self) -> None:
        self._before.append(modes() if self._before else self._outside)
        set_modes(modes()._replace(**self._changes))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        set_modes(self._outside)
        return override_modes(**self._changes)(function)


def inference_mode() -> override_modes:
    """`no_grad` whose results stay constants: they can never require a gradient later.

    >>> import pullback as pb
    >>> with pb.inference_mode():
    ...     y = pb.tensor([1.0, 2.0]) * 2
    >>> y.is_inference
    True
    """
    return override_modes(grad=False, inference=True)


#: The environment variable that turns native code off for a whole process, with the value 0.
NATIVE = "PULLBACK_NATIVE"
# no field of Modes: without native code, ops must still take the fast path, which asks for the default modes
_native: ContextVar[Any] = ContextVar("pullback_native", default=os.environ.get(NATIVE, "1") != "0")
#: True, False, or what makes the calls of fused functions instead, as `pb.explain` does.
uses_native_code = _native.get


@contextmanager
def override_native(switch: Any) -> Generator[None, None, None]:
    """Another switch of native code inside."""
    token = _native.set(switch)
    try:
        yield
    finally:
        _native.reset(token)


class native:
    """Whether functions made by `pb.fuse`, as those of `pb.nn` are, and the ops of convolutions and pooling may run as
    native code: `pb.native(False)` makes NumPy run them, op by op, from now on or until the end of the `with` block.
    Also a decorator. `pb.jit` is not affected.

    >>> import numpy as np, pullback as pb
    >>> with pb.native(False):
    ...     print(pb.explain(pb.nn.gelu, np.ones(3)))
    gelu runs op by op: pb.native(False) is on
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = bool(enabled)
        self._outside = _native.get()
        self._before: list[Any] = []
        _native.set(self._enabled)

    def __enter__(self) -> None:
        self._before.append(_native.get() if self._before else self._outside)
        _native.set(self._enabled)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _native.set(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        _native.set(self._outside)
        return run_inside(functools.partial(native, self._enabled), function)


_matmul_precision = "float32"


def get_matmul_precision() -> str:
    """The precision of float32 matrix products on a GPU; see `set_matmul_precision`.

    >>> import pullback as pb
    >>> pb.get_matmul_precision()
    'float32'
    """
    return _matmul_precision


def set_matmul_precision(precision: str) -> None:
    """Choose how float32 matrices are multiplied on a GPU, for all threads and calls from now on. With "float32",
    the default, results are as accurate as float32 arithmetic; with "tf32" the factors are rounded to ten bits of
    mantissa, which is several times faster for large matrices. Sums are float32 either way. Products of other dtypes,
    and everything on the CPU, are not affected.

    >>> import pullback as pb
    >>> pb.set_matmul_precision("tf32")
    >>> pb.get_matmul_precision()
    'tf32'
    >>> pb.set_matmul_precision("float32")
    """
    global _matmul_precision
    if precision not in ("float32", "tf32"):
        raise ArgumentError(f'set_matmul_precision: the precision is "float32" or "tf32", got {precision!r}.')
    _matmul_precision = precision
    _notify_listeners()


_deterministic = False


def is_deterministic() -> bool:
    """Whether `use_deterministic` is on.

    >>> import pullback as pb
    >>> pb.is_deterministic()
    False
    """
    return _deterministic


class use_deterministic:
    """Whether what may return other bits when it runs again raises `DeterminismError`, in all threads, from now on or
    until the end of the `with` block: draws of the default generator before `pb.random.seed`, and, on a GPU, functions
    of `pb.jit(deterministic=False)` and the few scatters that are added atomically. Which way a GPU takes for a product
    is then decided by a rule instead of a clock. Everything else is deterministic as it is.

    >>> import pullback as pb
    >>> with pb.use_deterministic(True):
    ...     pb.random.seed(0)
    ...     noise = pb.random.normal(size=2)
    """

    def __init__(self, enabled: bool = True) -> None:
        if not isinstance(enabled, bool):
            raise ArgumentTypeError(f"use_deterministic: wants True or False, got a {type(enabled).__name__}.")
        self._enabled, self._before = enabled, _deterministic
        _set_deterministic(enabled)

    def __enter__(self) -> None:
        _set_deterministic(self._enabled)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_deterministic(self._before)


def _set_deterministic(enabled: bool) -> None:
    global _deterministic
    changes, _deterministic = enabled is not _deterministic, enabled
    if changes:
        _notify_listeners()
