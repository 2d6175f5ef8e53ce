"""Divided kernel in, LLVM text out: the function that runs one block, and the call that runs all on the pool."""

from __future__ import annotations

from collections.abc import Sequence

from ...loop_ir import Buffer, Division, Kernel, Loop, Product, Steps
from ...varying import Operand
from ..builder.function_text import FunctionText

#: The pool's function: it runs `function(arguments, block, worker)` for every block, on all threads.
PARALLEL = "pb_parallel"
#: The same, while each call of the BLAS stays on the thread that makes it.
PRODUCTS = "pb_parallel_products"


def has_blocks(steps: Steps) -> bool:
    """Whether something runs in several blocks."""
    for step in steps.steps:
        inner = step.programs if isinstance(step, Loop) else ()
        if any(map(has_blocks, inner)) or (isinstance(step, Product) and step.blocks > 1):
            return True
        if isinstance(step, Kernel) and step.division is not None and step.division.blocks > 1:
            return True
    return False


def render_block(buffers: Sequence[Buffer], division: Division, scratch: int) -> str:
    """The function `@NAME.block(arguments, block, worker)`: it loads the kernel's pointers from memory, offset to the
    block's own piece where it has one, and row scratch to the worker's own.
    """
    lines, given = ["  %own = alloca i32", "  store i32 0, ptr %own"], []
    for i, buffer in enumerate([*buffers, None, None]):
        lines += [f"  %p{i} = getelementptr ptr, ptr %given, i64 {i}", f"  %q{i} = load ptr, ptr %p{i}"]
        by = _offset_lines(i, buffer, division, scratch if i == len(buffers) else 0)
        lines += by
        given.append(f"ptr %r{i}" if by else f"ptr %q{i}")
    status = given.pop()  # concurrent writes would race, so each block has its own status
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
    # the pool calls every block with the same three arguments
    head = "define internal void @NAME.block(ptr %given, i64 %block, i64 %worker) #0 {\nentry:"
    return "\n".join([head, *lines, "  ret void", "}"])


def _offset_lines(i: int, buffer: Buffer | None, division: Division, scratch: int) -> list[str]:
    if buffer is None and scratch:
        count, size = "%worker", scratch
    elif buffer is not None and buffer in division.piece_strides:
        count, size = "%block", division.piece_strides[buffer] * buffer.dtype.itemsize
    else:
        return []
    return [
        f"  %m{i} = mul nuw nsw i64 {count}, {size}",
        f"  %r{i} = getelementptr inbounds i8, ptr %q{i}, i64 %m{i}",
    ]


def emit_parallel_call(
    text: FunctionText, name: str, pointers: Sequence[str], blocks: int, runner: str = PARALLEL
) -> None:
    """Run all blocks by a function of the pool, which takes the pointers in a table on the stack; a single block at
    once, if their number varies.
    """
    builder, slot = text.builder(1), f"%given{next(text.counter)}"
    text.entry.append(f"  {slot} = alloca [{len(pointers)} x ptr]")
    for i, pointer in enumerate(pointers):
        place = builder.assign(f"getelementptr ptr, ptr {slot}, i64 {i}")
        builder.emit(f"store ptr {pointer}, ptr {place}")
    builder.declared.add(f"declare void @{runner}(ptr, ptr, i64)")
    if not isinstance(blocks, Operand):
        builder.emit(f"call void @{runner}(ptr @{name}, ptr {slot}, i64 {blocks})")
        return
    count = text.operand(blocks)
    several = text.begin_if_less("1", count)
    builder.emit(f"call void @{runner}(ptr @{name}, ptr {slot}, i64 {count})")
    one = text.begin_else(several)
    builder.emit(f"call void @{name}(ptr {slot}, i64 0, i64 0)")
    text.end_if(one)
