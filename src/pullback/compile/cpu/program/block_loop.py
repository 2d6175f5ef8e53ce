"""Blocks in, LLVM text out: a loop around their steps that advances the pointers of some buffers."""

from __future__ import annotations

from typing import Any

from ...loop_ir import Blocks, Buffer
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import llvm_element_type


def emit_blocks(writer: Any, step: Blocks, builder: IRBuilder, known: dict[Buffer, str], slots: list[str]) -> None:
    tag = next(writer.counter)
    for buffer in (*step.reads(), *step.writes()):
        writer.pointer(builder, known, buffer)
    slots.append(f"  %slot{tag} = alloca i64")
    builder.emit(f"store i64 0, ptr %slot{tag}")
    builder.emit(f"br label %P{tag}")
    builder.lines.append(f"P{tag}:")
    builder.emit(f"%p{tag} = load i64, ptr %slot{tag}")
    inside = dict(known)
    for buffer, by in step.moves.items():
        moved = builder.assign(f"mul nsw i64 %p{tag}, {by}")
        kind = llvm_element_type(buffer.dtype, True)
        inside[buffer] = builder.assign(f"getelementptr inbounds {kind}, ptr {known[buffer]}, i64 {moved}")
    for inner in step.steps:
        writer.emit_step(inner, builder, inside, slots)
    builder.emit(f"%q{tag} = add nuw nsw i64 %p{tag}, 1")
    builder.emit(f"store i64 %q{tag}, ptr %slot{tag}")
    builder.emit(f"%r{tag} = icmp ult i64 %q{tag}, {step.count}")
    builder.emit(f"br i1 %r{tag}, label %P{tag}, label %Q{tag}")
    builder.lines.append(f"Q{tag}:")
