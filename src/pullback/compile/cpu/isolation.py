"""Which step native code gets wrong: each one compiled alone, on the memory that the reference has at that point."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fuse import Step, Steps
from ..loops import Buffer, Host
from ..recipes import renamed
from ..reference.check import alone, differs
from ..reference.memory import Memory, region_of
from ..reference.steps import Machine, describe
from .link import link, vector_bytes
from .program import render_program

__all__ = ["first_wrong_step"]


def first_wrong_step(steps: Steps, given: Sequence[Any], fast: bool) -> str:
    """A sentence on the first step whose native code differs from the reference."""
    machine, memory = Machine(alone), Memory(None)
    for buffer, array in zip(steps.inputs, given, strict=True):
        memory.bind(buffer, region_of(array, "an argument"))
    for number, step in enumerate(steps.steps):
        arrays = {b: _numbers(memory, b) for b in (*step.reads(), *step.writes()) if b.kind != "constant"}
        machine.step(step, memory.__getitem__)
        ran = not isinstance(step, Host) and _run(step, arrays, fast)
        if ran and any(_differs(memory, b, found) for b, found in arrays.items()):
            return f"Its native code is wrong first in step {number} ({describe(step)}), compiled alone."
    return "Each step compiled alone is right, so it is their order, or memory that they share."


def _numbers(memory: Memory, buffer: Buffer) -> Any:
    region = memory[buffer]
    return region.bytes.data[region.start : region.start + buffer.nbytes].copy().view(buffer.dtype)


def _differs(memory: Memory, buffer: Buffer, found: Any) -> bool:
    """Whether numbers are not those in a buffer, where it holds any."""
    region = memory[buffer]
    begin = slice(region.start, region.start + buffer.nbytes, buffer.dtype.itemsize)
    there = region.bytes.writer[begin] == region.writer
    return bool((differs(found, _numbers(memory, buffer), region.bytes.noise[begin]) & there).any())


def _run(step: Step, arrays: dict[Buffer, Any], fast: bool) -> bool:
    """A step in native code, on arrays that stand for its buffers and are written to; False if it calls Python."""
    names = {b: Buffer("input", b.size, b.dtype, i) for i, b in enumerate(arrays)}
    rendered = render_program(Steps([renamed(step, names)], list(names.values()), []), vector_bytes(), fast)
    if rendered.hosts:
        return False
    pieces = [p for p in rendered.pieces if isinstance(p, str)]
    linked = link(rendered.text, pieces)
    arena, status = np.empty(rendered.arena + 64, np.uint8), ctypes.c_int(0)
    start = -(-arena.ctypes.data // 64) * 64
    pointers = [*(a.ctypes.data for a in arrays.values()), start, ctypes.addressof(status)]
    pointers += [c.ctypes.data for c in rendered.constants]
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    for name in pieces:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.addresses[name])(ctypes.addressof(table))
    return True
