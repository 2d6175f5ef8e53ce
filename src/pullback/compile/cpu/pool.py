"""How many threads in, threads out: the pool that runs the blocks of long kernels, started when first needed.

The workers are threads of the system, not of Python: they never hold the interpreter's lock, and no signal is delivered
to them. They sleep when there is nothing to do, are stopped when the interpreter exits, and are started anew in a child
of `fork`, where they do not exist.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from ...errors import ArgumentError
from .blas import blas_threads
from .parallel import PARALLEL, PRODUCTS
from .pool_text import MOST, pool_text

__all__ = ["POOL", "checked", "has_threads"]

#: What the pool's code calls, and what is called to make and end it.
_SYSTEM = {
    "pb_lock": "pthread_mutex_lock", "pb_unlock": "pthread_mutex_unlock", "pb_wait": "pthread_cond_wait",
    "pb_wake": "pthread_cond_broadcast", "pb_yield": "sched_yield",
}  # fmt: skip


#: The global variables of the pool's code.
_VARIABLES = (
    "pb_blas_say", "pb_blas_set", "pb_blas_users", "pb_blas_before", "pb_blas_mutex", "pb_tickets", "pb_job", "pb_done",
    "pb_owner", "pb_workers", "pb_stop", "pb_sleepers", "pb_waiting", "pb_mutex", "pb_work", "pb_back",
)  # fmt: skip
#: The variable of the environment that says how many threads a process starts with.
VARIABLE = "PULLBACK_NUM_THREADS"


def has_threads() -> bool:
    """Whether the system has the threads that the pool is made of."""
    return os.name == "posix"


def checked(count: Any, where: str) -> int:
    """A number of threads that can be had."""
    try:
        number = operator.index(count)
    except TypeError:
        number = 0
    if number < 1 or isinstance(count, bool):
        raise ArgumentError(f"{where}: the number of threads is a whole number of at least 1, got {count!r}.")
    if number > 1 and not has_threads():
        raise ArgumentError(f"{where}: compiled code has one thread on this system, got {count!r}.")
    return number


def by_default() -> int:
    """What the environment says, else the cores that this process may run on."""
    said = os.environ.get(VARIABLE, "").strip()
    if said:
        return checked(int(said) if said.isdecimal() else said, VARIABLE)
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, MOST, _quota())) if has_threads() else 1


def _quota() -> int:
    """The cores' worth of time that a container grants: more threads would be stopped in the middle of their work."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            granted, period = file.read().split()
        return MOST if granted == "max" else round(int(granted) / int(period))
    except (OSError, ValueError):
        return MOST


class Pool:
    """The threads of this process. `idle` says that there should be workers and are none: `start` makes them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.wanted = by_default()
        self.workers: list[ctypes.c_void_p] = []
        self.code: Any = None
        self.places: dict[str, int] = {}
        self.idle = False
        self.closed = False

    def resize(self, count: int) -> None:
        """Have this many threads from now on, the caller's included."""
        with self.lock:
            self.wanted = count
            if len(self.workers) != min(count, MOST) - 1:
                self._stop()
            self._note()

    def _note(self) -> None:
        self.idle = self.wanted > 1 and not self.workers and self.code is not None and not self.closed

    def symbols(self) -> dict[str, int]:
        """The system's functions that the pool's code refers to."""
        return {name: _address(function) for name, function in _SYSTEM.items()} if has_threads() else {}

    def entries(self, link: Callable[[str, list[str]], Any]) -> dict[str, int]:
        """The addresses of the functions that programs call; the pool's code is made once."""
        with self.lock:
            if self.code is None:
                code = link(pool_text(), [PARALLEL, PRODUCTS, "pb_worker"])
                # asked once: a child of fork may not ask LLVM, whose lock a thread may hold that is not there
                self.places = {name: code.engine.get_global_value_address(name) for name in _VARIABLES}
                self.code = code
                say, change = blas_threads() or (0, 0)
                ctypes.c_void_p.from_address(self._place("pb_blas_say").value or 0).value = say
                ctypes.c_void_p.from_address(self._place("pb_blas_set").value or 0).value = change
                self._clear()
                self._note()
            return {name: self.code.addresses[name] for name in (PARALLEL, PRODUCTS)}

    def start(self) -> None:
        """Make the workers, deaf to signals: those are for Python's threads."""
        with self.lock:
            if not self.idle:
                return
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                for number in range(1, min(self.wanted, MOST)):
                    thread = ctypes.c_void_p()
                    worker = ctypes.c_void_p(self.code.addresses["pb_worker"])
                    if _system().pthread_create(ctypes.byref(thread), None, worker, ctypes.c_void_p(number)):
                        break  # the system gives no more: those there are share the work
                    self.workers.append(thread)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._word("pb_workers").value = len(self.workers)
            self.idle = False

    def _stop(self) -> None:
        """End the workers after the block they are at; a caller who waits for the others runs what is left itself."""
        if not self.workers:
            return
        self._word("pb_workers").value = 0
        self._word("pb_stop").value = 1
        system, mutex = _system(), self._place("pb_mutex")
        system.pthread_mutex_lock(mutex)
        system.pthread_cond_broadcast(self._place("pb_work"))
        system.pthread_mutex_unlock(mutex)
        for thread in self.workers:
            system.pthread_join(thread, None)
        self._word("pb_stop").value = 0
        self.workers = []

    def close(self) -> None:
        """At the interpreter's end: no thread may run code that is about to go away."""
        with self.lock:
            self.closed = True
            self._stop()
            self.idle = False

    def forked(self) -> None:
        """In the child of a fork there are no workers, and nobody holds what somebody held in the parent."""
        self.lock = threading.RLock()
        self.workers = []
        if self.code is not None:
            self._clear()
        self._note()

    def _clear(self) -> None:
        users = self._word("pb_blas_users")
        if users.value:  # a batch was at work in the parent when it forked
            ctypes.CFUNCTYPE(None, ctypes.c_int)((blas_threads() or (0, 0))[1])(self._word("pb_blas_before").value)
            users.value = 0
        # a job that was unfinished in the parent: its arguments lie on the stack of a thread that is not here
        for name, size in (("pb_tickets", 64 * MOST), ("pb_job", 8), ("pb_done", 8)):
            ctypes.memset(self._place(name), 0, size)
        for name in ("pb_owner", "pb_workers", "pb_stop", "pb_sleepers", "pb_waiting"):
            self._word(name).value = 0
        for name, make in (("pb_mutex", "mutex"), ("pb_work", "cond"), ("pb_back", "cond"), ("pb_blas_mutex", "mutex")):
            ctypes.memset(self._place(name), 0, 128)
            getattr(_system(), f"pthread_{make}_init")(self._place(name), None)

    def _place(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.places[name])

    def _word(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.from_address(self.places[name])


def _system() -> Any:
    return ctypes.CDLL(None)


def _address(function: str) -> int:
    return ctypes.cast(getattr(_system(), function), ctypes.c_void_p).value or 0


POOL = Pool()
atexit.register(POOL.close)
if has_threads():
    os.register_at_fork(after_in_child=POOL.forked)
