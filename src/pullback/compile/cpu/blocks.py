"""Blocks in, a loop around their steps out, with the pointers of some buffers moved along."""

from __future__ import annotations

from typing import Any

from ..loops import Blocks, Buffer
from .lanes import element_type
from .words import Words

__all__ = ["blocks_text"]


def blocks_text(writer: Any, step: Blocks, words: Words, known: dict[Buffer, str], slots: list[str]) -> None:
    tag = next(writer.counter)
    for buffer in (*step.reads(), *step.writes()):
        writer.pointer(words, known, buffer)
    slots.append(f"  %slot{tag} = alloca i64")
    words.say(f"store i64 0, ptr %slot{tag}")
    words.say(f"br label %P{tag}")
    words.lines.append(f"P{tag}:")
    words.say(f"%p{tag} = load i64, ptr %slot{tag}")
    inside = dict(known)
    for buffer, by in step.moves.items():
        moved = words.emit(f"mul nsw i64 %p{tag}, {by}")
        kind = element_type(buffer.dtype, True)
        inside[buffer] = words.emit(f"getelementptr inbounds {kind}, ptr {known[buffer]}, i64 {moved}")
    for inner in step.steps:
        writer.step(inner, words, inside, slots)
    words.say(f"%q{tag} = add nuw nsw i64 %p{tag}, 1")
    words.say(f"store i64 %q{tag}, ptr %slot{tag}")
    words.say(f"%r{tag} = icmp ult i64 %q{tag}, {step.count}")
    words.say(f"br i1 %r{tag}, label %P{tag}, label %Q{tag}")
    words.lines.append(f"Q{tag}:")
