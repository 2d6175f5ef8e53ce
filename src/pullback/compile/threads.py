"""The number of threads that compiled code runs on."""

from __future__ import annotations

from .cpu.runtime.pool import POOL, check_thread_count


def set_num_threads(count: int) -> None:
    """Have compiled code run on up to this many threads, from now on and in the whole process. The results are the same
    to the last bit for any number.

    >>> import pullback as pb
    >>> before = pb.get_num_threads()
    >>> pb.set_num_threads(2)
    >>> pb.get_num_threads()
    2
    >>> pb.set_num_threads(before)
    """
    POOL.resize(check_thread_count(count, "set_num_threads"))


def get_num_threads() -> int:
    """How many threads compiled code may use: what `set_num_threads` set last, or the variable `PULLBACK_NUM_THREADS`
    when the process began, else the number of cores that the process may run on.

    >>> import pullback as pb
    >>> pb.get_num_threads() >= 1
    True
    """
    return POOL.wanted
