"""The backward pass on several threads: independent branches run at once, bit for bit the same.

NumPy releases the interpreter lock in large work, so threads help where single pulls are long. Shares of a value are
added in the order in which one thread would have made them, whatever the order they arrive in.
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..arrays.backends import StreamPlace, current_place
from ..arrays.node import Node
from ..arrays.timing import is_on_gpu

if TYPE_CHECKING:
    from .sweep import Sweep

#: Handing a node to another thread costs some 50 microseconds, about what pulling this many elements takes.
_MIN_THREAD_ELEMENTS = 1 << 17


def is_large(node: Node) -> bool:
    """Whether a step is worth a thread."""
    spec = node.spec
    sizes = [s.size for s in spec] if isinstance(spec, tuple) else [spec.size]
    parents = [p.spec.size for p in node.parents if not isinstance(p.spec, tuple)]
    return bool(max(sizes + parents) >= _MIN_THREAD_ELEMENTS)


def run_threads(sweep: Sweep, workers: int) -> None:
    """Run alone up to the first large node, then with helpers."""
    # small nodes cost less than handing them over
    first = next((i for i, node in enumerate(sweep.order) if is_large(node)), len(sweep.order))
    sweep.run_nodes(sweep.order[:first])
    if first < len(sweep.order):
        _Workers(sweep, sweep.order[first:], workers).run_all()


class _Workers:
    """Threads over one ready queue. Everything shared is touched under one lock; pulls run outside it."""

    def __init__(self, sweep: Sweep, order: list[Node], workers: int) -> None:
        self._sweep = sweep
        self._position = {node: i for i, node in enumerate(order)}
        # how many children must still send their shares
        self._waiting = Counter(parent for node in order for parent in node.parents if parent in self._position)
        self._ready = [node for node in reversed(order) if not self._waiting[node]]
        self._shares: dict[Node, list[tuple[int, int, Any]]] = {}
        self._todo = len(order)
        self._workers = min(workers, self._todo)
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def run_all(self) -> None:
        # each thread has a current stream of its own, and work on two of them has no order
        place = current_place() if any(map(is_on_gpu, self._position)) else None
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._run_helper, place), daemon=True, name=f"pullback-{i}"
            )
            for i in range(1, self._workers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._run_worker()
        except BaseException as error:  # a keyboard interrupt while waiting must stop the helpers too
            self._fail(error)
        for thread in threads:
            thread.join()
        # an error in one thread ends all
        failure, self._error = self._error, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback leads back to this frame

    def _run_helper(self, place: StreamPlace | None) -> None:
        with nullcontext() if place is None else place.enter():
            self._run_worker()

    def _run_worker(self) -> None:
        while (node := self._take_ready()) is not None:
            try:
                # outside the lock: this is where NumPy works
                shares = self._pull(node)
            except BaseException as error:
                self._fail(error)
                return
            self._deliver(node, shares)

    def _take_ready(self) -> Node | None:
        with self._changed:
            while not self._ready and self._todo and self._error is None:
                self._changed.wait()
            if self._error is not None or not self._todo:
                return None
            return self._ready.pop()

    def _pull(self, node: Node) -> tuple[Any, ...]:
        with self._changed:
            bar = self._sweep.table.pop(node, None)
            # in the order of one thread, since floating-point sums depend on it
            for _, _, share in sorted(self._shares.pop(node, ()), key=lambda entry: entry[:2]):
                bar = share if bar is None else self._sweep.sum(bar, share)
            bar = self._sweep.arrive(node, bar)
        if bar is None or node.is_leaf:
            return ()
        return self._sweep.timed_shares(node, bar)

    def _deliver(self, node: Node, shares: tuple[Any, ...]) -> None:
        at = self._position[node]
        with self._changed:
            for i, share in enumerate(shares):
                if share is not None:
                    self._shares.setdefault(node.parents[i], []).append((at, i, share))
            for parent in node.parents:
                if parent in self._position:
                    self._waiting[parent] -= 1
                    if not self._waiting[parent]:
                        self._ready.append(parent)
            self._todo -= 1
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()
