"""Copies into memory that another process reads next: the stores bypass the caches.

An ordinary store first fetches its cache line, which the reader of the last meeting still has: on some machines that
takes ten times as long as the copy itself.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
from typing import Any

from ...compile.cpu.runtime.link import has_llvm, link

#: Copies of fewer bytes stay in the caches, and bytes that are stored at a time.
LEAST_BYTES = 1 << 14
_WIDTH = 64

_TEXT = """
FENCE_DECLARATION
define void @stream_copy(ptr %to, ptr %from, i64 %bytes) nounwind {
entry:
  %some = icmp ugt i64 %bytes, 0
  br i1 %some, label %loop, label %end
loop:
  %at = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr i8, ptr %from, i64 %at
  %target = getelementptr i8, ptr %to, i64 %at
  %value = load <16 x float>, ptr %source, align 1
  store <16 x float> %value, ptr %target, align 64, !nontemporal !0
  %next = add nuw nsw i64 %at, 64
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %loop, label %end
end:
  FENCE
  ret void
}
!0 = !{i32 1}
"""


#: Keeps the machine code alive.
_codes: list[Any] = []


@functools.cache
def _native_copy() -> Callable[[int, int, int], None] | None:
    if not has_llvm():
        return None
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    declaration = "declare void @llvm.x86.sse.sfence()" if is_x86 else ""
    fence = "call void @llvm.x86.sse.sfence()" if is_x86 else "fence seq_cst"
    text = _TEXT.replace("FENCE_DECLARATION", declaration).replace("FENCE", fence)
    code = link(text, ["stream_copy"])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    _codes.append(code)
    return kind(code.addresses["stream_copy"])


class StreamTarget:
    """A part of memory, a flat array that begins at a multiple of 64 bytes, that copies go to again and again."""

    __slots__ = ("_address", "_copy", "_rest", "_whole", "view")

    def __init__(self, view: Any, streams: bool = True) -> None:
        self.view = view
        self._address = view.ctypes.data
        is_long = streams and view.nbytes >= LEAST_BYTES and self._address % _WIDTH == 0
        self._copy = _native_copy() if is_long else None
        self._whole = view.nbytes // _WIDTH * _WIDTH
        self._rest = self._whole // view.itemsize

    def fill(self, source: Any) -> None:
        """Copy a flat contiguous array of the same dtype and length."""
        if self._copy is None:
            self.view[...] = source
            return
        self._copy(self._address, source.__array_interface__["data"][0], self._whole)
        if self._rest < len(source):
            self.view[self._rest :] = source[self._rest :]
