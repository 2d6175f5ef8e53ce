"""Which loops run in registers: those whose programs are a few kernels over a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, KernelLine, Loop, Steps
from ...target import Limits

#: The most points of a kernel, vectors of a row, lines of all kernels together, and bytes that a program works in.
_POINTS, _LINES, _BYTES = 16, 400, 2048


def runs_in_registers(step: Loop) -> bool:
    """Whether a loop's programs are small enough to be emitted where they run, their memory on the stack."""
    carried = sum(layout.size * layout.buffer.dtype.itemsize for layout in step.inputs[: step.carried])
    programs = list(_programs_in(step))
    return (
        step.kind != "branch"
        and carried <= _BYTES
        and all(_is_small(p) for p in programs)
        and sum(len(_lines_of(p)) for p in programs) <= _LINES
    )


def _programs_in(step: Loop) -> Iterator[Steps]:
    for program in step.programs:
        yield program
        for inner in program.steps:
            if isinstance(inner, Loop):
                yield from _programs_in(inner)


def _is_small(program: Steps) -> bool:
    if program.workspace > _BYTES:
        return False
    kernels = [s for s in program.steps if isinstance(s, Kernel)]
    loops = [s for s in program.steps if isinstance(s, Loop) and s.kind != "branch"]
    points = all(math.prod(k.extents) <= _POINTS and k.division is None for k in kernels)
    return len(kernels) + len(loops) == len(program.steps) and points


def _lines_of(program: Steps) -> list[KernelLine]:
    return [line for step in program.steps if isinstance(step, Kernel) for line in step.live_lines()]


def find_constants(step: Loop) -> list[Buffer]:
    """The constants that a loop's programs read."""
    found = {b: None for p in _programs_in(step) for s in p.steps for b in s.reads() if b.kind == "constant"}
    return list(found)


def limits_without_masks(kernel: Kernel, limits: Limits) -> Limits:
    """Limits with vectors so short that none is masked: memory that is only read and written whole can be registers."""
    dtypes = [d for line in kernel.live_lines() for d in (line.dtype, line.compute_dtype or line.dtype)]
    sizes = [d.itemsize for d in (*dtypes, *(s.buffer.dtype for s in kernel.stores)) if d.itemsize >= 4] or [8]
    lanes = math.gcd(kernel.extents[-1] if kernel.extents else 1, limits.vector_bytes)
    return replace(limits, vector_bytes=min(limits.vector_bytes, max(lanes * min(sizes), max(sizes))))
