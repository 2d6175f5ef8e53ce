"""Items of an iterator computed ahead in a thread."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Generator
from typing import Any

_END = object()
#: How long closing waits between looks at the thread, which may be blocked by a full queue.
_PAUSE = 0.005


def prefetch_items(items: Generator[Any, None, None], count: int) -> Generator[Any, None, None]:
    """The same items, up to `count` of them computed before they are asked for. An error in the thread is raised where
    its item would have come; closing this generator, as leaving a loop does, ends the thread.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=count)
    is_closed = threading.Event()

    def work() -> None:
        try:
            for item in items:
                ready.put((item, None))
                if is_closed.is_set():
                    return
            ready.put((_END, None))
        except BaseException as error:
            ready.put((None, error))
        finally:
            items.close()

    # a copy of the context, so that modes such as no_grad hold in the thread too
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="pullback batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        is_closed.set()
        while thread.is_alive():
            _empty(ready)
            thread.join(_PAUSE)


def _empty(waiting: queue.Queue[Any]) -> None:
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            return
