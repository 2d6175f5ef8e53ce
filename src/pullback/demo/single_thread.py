"""One thread for a block of code: matrices this small are slower on several.

A library that spins while it waits makes that worse: on a machine with other work to do, two threads of the BLAS can
take a hundred times as long for a product of a few kilobytes as one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pullback as pb
from pullback.compile.cpu.runtime.blas import blas_thread_functions, find_thread_functions


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled code and the BLAS of NumPy and SciPy on one thread each; afterwards the old counts are restored."""
    before = pb.get_num_threads()
    libraries = [found for found in (blas_thread_functions(), _numpy_blas_switches()) if found]
    counts = [ctypes.CFUNCTYPE(ctypes.c_int)(say)() for say, _ in libraries]
    try:
        pb.set_num_threads(1)
        _set_thread_counts([(to, 1) for _, to in libraries])
        yield
    finally:
        pb.set_num_threads(before)
        _set_thread_counts([(to, count) for (_, to), count in zip(libraries, counts, strict=True)])


def _numpy_blas_switches() -> tuple[int, int] | None:
    """The switches of NumPy's own BLAS, which its module of array functions is linked to."""
    module = sys.modules.get("numpy._core._multiarray_umath")
    return None if module is None or module.__file__ is None else find_thread_functions(ctypes.CDLL(module.__file__))


def _set_thread_counts(wanted: list[tuple[int, int]]) -> None:
    for to, count in wanted:
        ctypes.CFUNCTYPE(None, ctypes.c_int)(to)(count)
