"""Finds the step that native code gets wrong: each is compiled alone, on the reference's memory at that point."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..loop_ir import Buffer, Host, Step, Steps
from ..reference.check import difference_mask, without_arena
from ..reference.interpreter import Interpreter, describe
from ..reference.poisoned_memory import PoisonedMemory, region_of
from ..schedule.recompute_recipes import rename_buffers
from .program.render import render_program
from .runtime.link import link, vector_bytes


def find_first_wrong_step(steps: Steps, given: Sequence[Any], fast: bool) -> str:
    """A sentence that names the first step whose native code differs from the reference."""
    machine, memory = Interpreter(without_arena), PoisonedMemory(None)
    for buffer, array in zip(steps.inputs, given, strict=True):
        memory.bind(buffer, region_of(array, "an argument"))
    for number, step in enumerate(steps.steps):
        arrays = {b: _read_buffer(memory, b) for b in (*step.reads(), *step.writes()) if b.kind != "constant"}
        machine.run_step(step, memory.__getitem__)
        ran = not isinstance(step, Host) and _run_native(step, arrays, fast)
        if ran and any(_is_wrong(memory, b, found) for b, found in arrays.items()):
            return f"Its native code is wrong first in step {number} ({describe(step)}), compiled alone."
    return "Each step compiled alone is right, so it is their order, or memory that they share."


def _read_buffer(memory: PoisonedMemory, buffer: Buffer) -> Any:
    region = memory[buffer]
    return region.bytes.data[region.start : region.start + buffer.nbytes].copy().view(buffer.dtype)


def _is_wrong(memory: PoisonedMemory, buffer: Buffer, found: Any) -> bool:
    """Whether values differ from those in a buffer, where it has been written."""
    region = memory[buffer]
    begin = slice(region.start, region.start + buffer.nbytes, buffer.dtype.itemsize)
    there = region.bytes.writer[begin] == region.writer
    return bool((difference_mask(found, _read_buffer(memory, buffer), region.bytes.noise[begin]) & there).any())


def _run_native(step: Step, arrays: dict[Buffer, Any], fast: bool) -> bool:
    """Run a step in native code, in place on arrays for its buffers; False if it calls Python."""
    names = {b: Buffer("input", b.size, b.dtype, i) for i, b in enumerate(arrays)}
    rendered = render_program(Steps([rename_buffers(step, names)], list(names.values()), []), vector_bytes(), fast)
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
