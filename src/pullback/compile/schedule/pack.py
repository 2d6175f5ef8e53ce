"""Steps in, steps out: what kernels read several times against the order of memory is first copied in their order.

Where neighbors of a row lie on different cache lines, each element costs a line, and lines a power of two apart
displace each other. A copy pays that once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..loop_ir import Buffer, Kernel, KernelLine, Step, Steps, Store, load_line, map_lines, row_major_strides
from ..target import Limits

#: The elements that a load visits: buffer, offset, and the sizes and strides of the axes along which it moves.
_Visit = tuple[Buffer, int, tuple[tuple[int, int], ...]]


def pack_steps(program: Steps, limits: Limits) -> Steps:
    found: list[Step] = []
    copies: dict[_Visit, Buffer] = {}
    for step in program.steps:
        packed = _pack_kernel(step, limits, copies, found) if isinstance(step, Kernel) else step
        found.append(packed)
        written = set(packed.writes())
        copies = {visit: copy for visit, copy in copies.items() if visit[0] not in written}
    return replace(program, steps=found)


def _pack_kernel(kernel: Kernel, limits: Limits, copies: dict[_Visit, Buffer], before: list[Step]) -> Kernel:
    """The kernel reading copies where that is worthwhile; those that no earlier kernel made go to `before`."""
    loads = [line for line in kernel.live_lines() if _is_worth_packing(line, kernel, limits)]
    if not loads:
        return kernel
    packed = {}
    for line in loads:
        visit = _visited_elements(line, kernel)
        if visit not in copies:
            before.append(_copying_kernel(visit, copies))
        packed[id(line)] = _load_of_copy(line, kernel, copies[visit])
    return map_lines(kernel, lambda line: packed.get(id(line), line))


def _is_worth_packing(line: KernelLine, kernel: Kernel, limits: Limits) -> bool:
    if line.kind != "load" or line.buffer is None or line.buffer in kernel.writes():
        return False
    wide = [i for i, n in enumerate(kernel.extents) if n != 1]
    itemsize = line.buffer.dtype.itemsize
    step = abs(line.strides[wide[-1]]) * itemsize if wide else 0
    count = math.prod(kernel.extents[i] for i in wide if line.strides[i])
    is_far = limits.near_bytes < count * itemsize <= line.buffer.nbytes
    return step >= limits.cache_line_bytes and is_far and math.prod(kernel.extents) >= 2 * count


def _visited_elements(line: KernelLine, kernel: Kernel) -> _Visit:
    assert line.buffer is not None
    axes = [(n, s) for n, s in zip(kernel.extents, line.strides, strict=True) if n != 1 and s]
    return line.buffer, line.offset, tuple(axes)


def _copying_kernel(visit: _Visit, copies: dict[_Visit, Buffer]) -> Kernel:
    source, offset, axes = visit
    extents = tuple(n for n, _ in axes)
    copy = copies[visit] = Buffer("arena", math.prod(extents), source.dtype)
    line = load_line(source, tuple(s for _, s in axes), offset)
    return Kernel(extents, 0, [line], [Store(line, copy, row_major_strides(extents))])


def _load_of_copy(line: KernelLine, kernel: Kernel, copy: Buffer) -> KernelLine:
    moves = [n != 1 and s != 0 for n, s in zip(kernel.extents, line.strides, strict=True)]
    sizes = tuple(n for n, m in zip(kernel.extents, moves, strict=True) if m)
    along = iter(row_major_strides(sizes))
    return replace(line, buffer=copy, strides=tuple(next(along) if m else 0 for m in moves), offset=0)
