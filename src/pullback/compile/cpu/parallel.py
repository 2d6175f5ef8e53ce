"""Kernel in blocks in, LLVM text out: the function that runs one block, and the call that has the threads run all."""

from __future__ import annotations

from collections.abc import Sequence

from ..loops import Buffer, Division
from .words import Words

__all__ = ["PARALLEL", "PRODUCTS", "block_text", "call_text"]

#: The pool's function: it runs `function(arguments, block, worker)` for every block, on all threads there are.
PARALLEL = "pb_parallel"
#: The same, while each call of the BLAS stays on the thread that makes it.
PRODUCTS = "pb_parallel_products"


def block_text(buffers: Sequence[Buffer], division: Division, scratch: int) -> str:
    """The function `@NAME.block(arguments, block, worker)`: the kernel's pointers stand in memory, buffers that blocks
    have pieces of are moved to the block's own, and row memory to the worker's own.
    """
    lines, given = ["  %own = alloca i32", "  store i32 0, ptr %own"], []
    for i, buffer in enumerate([*buffers, None, None]):
        lines += [f"  %p{i} = getelementptr ptr, ptr %given, i64 {i}", f"  %q{i} = load ptr, ptr %p{i}"]
        by = _moved(i, buffer, division, scratch if i == len(buffers) else 0)
        lines += by
        given.append(f"ptr %r{i}" if by else f"ptr %q{i}")
    status = given.pop()  # blocks that write it at once would lose each other's notes: each has its own
    lines += [
        f"  call void @NAME({', '.join([*given, 'ptr %own', 'i64 %block'])})",
        "  %note = load i32, ptr %own",
        "  %bad = icmp ne i32 %note, 0",
        "  br i1 %bad, label %outside, label %end",
        "outside:",
        f"  store atomic i32 %note, {status} monotonic, align 4",
        "  br label %end",
        "end:",
    ]
    head = "define internal void @NAME.block(ptr %given, i64 %block, i64 %worker) #0 {\nentry:"
    return "\n".join([head, *lines, "  ret void", "}"])


def _moved(i: int, buffer: Buffer | None, division: Division, scratch: int) -> list[str]:
    if buffer is None and scratch:
        count, size = "%worker", scratch
    elif buffer is not None and buffer in division.apart:
        count, size = "%block", division.apart[buffer] * buffer.dtype.itemsize
    else:
        return []
    return [
        f"  %m{i} = mul nuw nsw i64 {count}, {size}",
        f"  %r{i} = getelementptr inbounds i8, ptr %q{i}, i64 %m{i}",
    ]


def call_text(
    words: Words, name: str, pointers: Sequence[str], blocks: int, slot: str, runner: str = PARALLEL
) -> list[str]:
    """Have all blocks run by a function; the lines for the entry of the caller are answered, where `slot` is made."""
    for i, pointer in enumerate(pointers):
        place = words.emit(f"getelementptr ptr, ptr {slot}, i64 {i}")
        words.say(f"store ptr {pointer}, ptr {place}")
    words.declared.add(f"declare void @{runner}(ptr, ptr, i64)")
    words.say(f"call void @{runner}(ptr @{name}, ptr {slot}, i64 {blocks})")
    return [f"  {slot} = alloca [{len(pointers)} x ptr]"]
