"""`disable_jit`: compiled functions run as Python, to step through them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..ops.user_calls import call_function
from ..settings import override_native
from .jit import Jitted

_disabled: ContextVar[bool] = ContextVar("pullback_jit_disabled", default=False)
_lock = threading.Lock()
#: How many contexts are open, in all threads.
_open_contexts = 0
_compiled_call = Jitted.__call__


def _call_as_chosen(self: Jitted[..., Any], *args: Any, **kwargs: Any) -> Any:
    return call_function(self.f, args, kwargs) if _disabled.get() else _compiled_call(self, *args, **kwargs)


def _count_contexts(change: int) -> None:
    """While some context is open, every call asks; otherwise calls do not pay for the question."""
    global _open_contexts
    with _lock:
        _open_contexts += change
        Jitted.__call__ = _call_as_chosen if _open_contexts else _compiled_call  # type: ignore[method-assign]


@contextmanager
def disable_jit(disable: bool = True) -> Generator[None, None, None]:
    """Inside, functions made by `pb.jit` and `pb.fuse` run op by op as they are written: `print`, breakpoints and `if`
    on values work in them. Context manager and decorator.

    >>> import pullback as pb
    >>> @pb.jit
    ... def f(x):
    ...     print("at", x)
    ...     return x * 2
    >>> with pb.disable_jit():
    ...     _ = f(3.0), f(4.0)
    at 3.0
    at 4.0
    """
    token = _disabled.set(bool(disable))
    _count_contexts(1)
    try:
        with override_native(not disable):
            yield
    finally:
        _count_contexts(-1)
        _disabled.reset(token)
