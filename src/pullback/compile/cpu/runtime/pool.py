"""The thread pool that runs the blocks of long kernels, started when first needed.

The workers are threads of the system, not of Python: they never hold the interpreter's lock, and no signal is delivered
to them. They sleep when there is nothing to do, are stopped when the interpreter exits, and are restarted in a child of
`fork`, where they do not exist.
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

from ....arrays.process_memory import is_portable
from ....errors import ArgumentError
from ..program.parallel_call import PARALLEL, PRODUCTS
from .blas import blas_thread_functions
from .pool_code import MAX_BLOCKS, render_pool, render_serial_pool

#: The functions that the pool's code calls, and those that start and stop its threads.
_SYSTEM = {
    "pb_lock": "pthread_mutex_lock", "pb_unlock": "pthread_mutex_unlock", "pb_wait": "pthread_cond_wait",
    "pb_wake": "pthread_cond_broadcast", "pb_yield": "sched_yield",
}  # fmt: skip


#: The global variables of the pool's code.
_VARIABLES = (
    "pb_blas_say", "pb_blas_set", "pb_blas_users", "pb_blas_before", "pb_blas_mutex", "pb_tickets", "pb_job", "pb_done",
    "pb_owner", "pb_workers", "pb_stop", "pb_sleepers", "pb_waiting", "pb_mutex", "pb_work", "pb_back",
)  # fmt: skip
#: The environment variable with the number of threads a process starts with.
VARIABLE = "PULLBACK_NUM_THREADS"


def has_threads() -> bool:
    """Whether the system has POSIX threads, which the pool uses."""
    return os.name == "posix" and not is_portable()


def check_thread_count(count: Any, where: str) -> int:
    """A number of threads, checked."""
    try:
        number = operator.index(count)
    except TypeError:
        number = 0
    if number < 1 or isinstance(count, bool):
        raise ArgumentError(f"{where}: the number of threads is a whole number of at least 1, got {count!r}.")
    if number > 1 and not has_threads():
        raise ArgumentError(f"{where}: compiled code has one thread on this system, got {count!r}.")
    return number


def default_thread_count() -> int:
    """What the environment sets, else the cores that this process may run on."""
    setting = os.environ.get(VARIABLE, "").strip()
    if setting:
        return check_thread_count(int(setting) if setting.isdecimal() else setting, VARIABLE)
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, MAX_BLOCKS, _container_quota())) if has_threads() else 1


def _container_quota() -> int:
    """The cores' worth of time that a container grants: more threads would be throttled in the middle of their work."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            granted, period = file.read().split()
        return MAX_BLOCKS if granted == "max" else round(int(granted) / int(period))
    except (OSError, ValueError):
        return MAX_BLOCKS


class Pool:
    """The threads of this process. `idle`: there should be workers and are none; `start` makes them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.wanted = default_thread_count()
        self.workers: list[ctypes.c_void_p] = []
        self.code: Any = None
        self.places: dict[str, int] = {}
        self.idle = False
        self.closed = False

    def resize(self, count: int) -> None:
        """Set the number of threads, the caller's included."""
        with self.lock:
            self.wanted = count
            if len(self.workers) != min(count, MAX_BLOCKS) - 1:
                self._stop()
            self._update_idle()

    def _update_idle(self) -> None:
        self.idle = self.wanted > 1 and not self.workers and self.code is not None and not self.closed

    def symbols(self) -> dict[str, int]:
        """The system's functions that the pool's code refers to."""
        return {name: _libc_address(function) for name, function in _SYSTEM.items()} if has_threads() else {}

    def entries(self, link: Callable[[str, list[str]], Any]) -> dict[str, int]:
        """The addresses of the functions that programs call; the pool's code is compiled once."""
        with self.lock:
            if self.code is None and not has_threads():
                self.code = link(render_serial_pool((PARALLEL, PRODUCTS)), [PARALLEL, PRODUCTS])
            elif self.code is None:
                code = link(render_pool(), [PARALLEL, PRODUCTS, "pb_worker"])
                # looked up now: in a child of fork LLVM's lock may be held by a thread that does not exist there
                self.places = {name: code.engine.get_global_value_address(name) for name in _VARIABLES}
                self.code = code
                say, change = blas_thread_functions() or (0, 0)
                ctypes.c_void_p.from_address(self._variable_address("pb_blas_say").value or 0).value = say
                ctypes.c_void_p.from_address(self._variable_address("pb_blas_set").value or 0).value = change
                self._reset_state()
                self._update_idle()
            return {name: self.code.addresses[name] for name in (PARALLEL, PRODUCTS)}

    def start(self) -> None:
        """Start the workers with all signals blocked: those are for Python's threads."""
        with self.lock:
            if not self.idle:
                return
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                for number in range(1, min(self.wanted, MAX_BLOCKS)):
                    thread = ctypes.c_void_p()
                    worker = ctypes.c_void_p(self.code.addresses["pb_worker"])
                    if _libc().pthread_create(ctypes.byref(thread), None, worker, ctypes.c_void_p(number)):
                        break  # the system allows no more: those that started share the work
                    self.workers.append(thread)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._int_variable("pb_workers").value = len(self.workers)
            self.idle = False

    def _stop(self) -> None:
        """Stop the workers after their current block; a caller that waits for them runs the remaining blocks itself."""
        if not self.workers:
            return
        self._int_variable("pb_workers").value = 0
        self._int_variable("pb_stop").value = 1
        system, mutex = _libc(), self._variable_address("pb_mutex")
        system.pthread_mutex_lock(mutex)
        system.pthread_cond_broadcast(self._variable_address("pb_work"))
        system.pthread_mutex_unlock(mutex)
        for thread in self.workers:
            system.pthread_join(thread, None)
        self._int_variable("pb_stop").value = 0
        self.workers = []

    def close(self) -> None:
        """Stop at the interpreter's exit: no thread may run code that is about to be unloaded."""
        with self.lock:
            self.closed = True
            self._stop()
            self.idle = False

    def reset_after_fork(self) -> None:
        """In the child of a fork there are no workers, and locks held in the parent are free."""
        self.lock = threading.RLock()
        self.workers = []
        if self.code is not None:
            self._reset_state()
        self._update_idle()

    def _reset_state(self) -> None:
        users = self._int_variable("pb_blas_users")
        if users.value:  # a batch was running in the parent when it forked
            ctypes.CFUNCTYPE(None, ctypes.c_int)((blas_thread_functions() or (0, 0))[1])(
                self._int_variable("pb_blas_before").value
            )
            users.value = 0
        # drop a job unfinished in the parent: its arguments are on the stack of a thread that does not exist here
        for name, size in (("pb_tickets", 64 * MAX_BLOCKS), ("pb_job", 8), ("pb_done", 8)):
            ctypes.memset(self._variable_address(name), 0, size)
        for name in ("pb_owner", "pb_workers", "pb_stop", "pb_sleepers", "pb_waiting"):
            self._int_variable(name).value = 0
        for name, make in (("pb_mutex", "mutex"), ("pb_work", "cond"), ("pb_back", "cond"), ("pb_blas_mutex", "mutex")):
            ctypes.memset(self._variable_address(name), 0, 128)
            getattr(_libc(), f"pthread_{make}_init")(self._variable_address(name), None)

    def _variable_address(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.places[name])

    def _int_variable(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.from_address(self.places[name])


def _libc() -> Any:
    return ctypes.CDLL(None)


def _libc_address(function: str) -> int:
    return ctypes.cast(getattr(_libc(), function), ctypes.c_void_p).value or 0


POOL = Pool()
atexit.register(POOL.close)
if has_threads():
    os.register_at_fork(after_in_child=POOL.reset_after_fork)
