"""Ops that NumPy executes inside native loops: native code calls Python with a step's number and its table."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...loop_ir import Buffer, Host

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


class HostCallbacks:
    """The function that native code calls, bound to its module; errors in it are raised after native code returned."""

    def __init__(self, hosts: Sequence[tuple[Host, Any]], engine: Any) -> None:
        self._hosts = hosts
        self._errors: dict[int, BaseException] = {}  # by thread: several may call the program concurrently
        self._function = _FUNCTION(self._run_host)
        place = ctypes.c_void_p.from_address(engine.get_global_value_address("host"))
        place.value = ctypes.cast(self._function, ctypes.c_void_p).value

    def check(self) -> None:
        """Raise an error that was raised in a callback."""
        error = self._errors.pop(threading.get_ident(), None)
        if error is not None:
            raise error

    def _run_host(self, number: int, table: int) -> None:
        step, writer = self._hosts[number]
        try:
            # after an error native code may call once more before it sees the status
            if threading.get_ident() not in self._errors:
                step.run(lambda buffer: _flat_array(buffer, writer, table))
        except BaseException as error:  # it must not pass through native code
            self._errors[threading.get_ident()] = error
            status = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[writer.base + 1]
            ctypes.c_int.from_address(status or 0).value = 2


def _flat_array(buffer: Buffer, writer: Any, table: int) -> Any:
    """A buffer as a flat array, by the pointers in its program's table."""
    pointers = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    in_arena = buffer.kind == "arena"
    start = (pointers[writer.base if in_arena else writer.table[buffer]] or 0) + (buffer.offset if in_arena else 0)
    return np.frombuffer(memoryview((ctypes.c_char * buffer.nbytes).from_address(start)), buffer.dtype)
