"""Ops of the array library inside native loops: native code calls Python with a step's number and its table."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..loops import Host, Layout

__all__ = ["CallsBack"]

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


class CallsBack:
    """The function that native code calls, bound to its module; an error in it waits until native code has returned."""

    def __init__(self, hosts: Sequence[tuple[Host, Any]], engine: Any) -> None:
        self._hosts = hosts
        self._errors: dict[int, BaseException] = {}  # by thread: several may call the program at once
        self._function = _FUNCTION(self._called)
        place = ctypes.c_void_p.from_address(engine.get_global_value_address("host"))
        place.value = ctypes.cast(self._function, ctypes.c_void_p).value

    def check(self) -> None:
        """Raise what was raised in a call."""
        error = self._errors.pop(threading.get_ident(), None)
        if error is not None:
            raise error

    def _called(self, number: int, table: int) -> None:
        step, writer = self._hosts[number]
        try:
            if threading.get_ident() not in self._errors:
                args = [_array(a, writer, table) if isinstance(a, Layout) else a for a in step.args]
                found = step.call(*args)
                for value, layout in zip(found if type(found) is tuple else (found,), step.outs, strict=True):
                    _array(layout, writer, table)[...] = value
        except BaseException as error:  # it must not pass through native code
            self._errors[threading.get_ident()] = error
            status = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[writer.base + 1]
            ctypes.c_int.from_address(status or 0).value = 2


def _array(layout: Layout, writer: Any, table: int) -> Any:
    """A layout as a NumPy array, by the pointers in the table of the program that has it."""
    buffer = layout.buffer
    if not layout.size:
        return np.empty(layout.shape, buffer.dtype)
    pointers = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    in_arena = buffer.kind == "arena"
    start = (pointers[writer.base if in_arena else writer.table[buffer]] or 0) + (buffer.offset if in_arena else 0)
    item = buffer.dtype.itemsize
    flat = np.frombuffer(memoryview((ctypes.c_char * buffer.nbytes).from_address(start)), buffer.dtype)
    strides = tuple(s * item for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.shape, strides)
