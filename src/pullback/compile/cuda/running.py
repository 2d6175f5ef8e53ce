"""Running sums, products and recurrences along an axis as launches: a block has one line of a sum, else a thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...arrays.spec import Spec
from ..loop_ir import Host, Kernel, Layout, Routine, row_major_strides
from ..vocabulary import value_dtype
from .kernel.grid import Grid, count_blocks
from .kernel.writer import FunctionLaunch, FunctionWriter
from .words import C_TYPES, c_type

#: The most threads of a block, and the length up to which one thread has a line.
_THREADS, _SHORT = 256, 32
_LINES = 64


def has_running(routine: Routine, specs: Sequence[Spec]) -> bool:
    """Whether a launch can do what runs along an axis."""
    return routine.name == "running" and all(s.dtype.name in C_TYPES and s.size < 1 << 31 for s in specs)


def render_running(step: Host) -> FunctionLaunch:
    """The launch. A product, or a recurrence, is made one element after the other: in parts, it could overflow where
    the whole does not.
    """
    assert step.routine is not None
    word, axis = step.routine.static["word"], step.routine.static["axis"]
    (out,) = step.outs
    writer = FunctionWriter(Grid(Kernel((), 0), [], {}))
    writer.written.append(out.buffer)
    length, lines = out.shape[axis], math.prod(out.shape) // out.shape[axis]
    kind = c_type(value_dtype(out.buffer.dtype))
    given = [f"({kind}){_place(writer, x, axis)}" for x in step.args]
    made = _place(writer, out, axis)
    if word == "add" and length > _SHORT:
        threads = min(_THREADS, count_blocks(length, 32) * 32)
        body = ["const int line = blockIdx.x;", *_sum_text(kind, given[0], made, length, threads)]
        return writer.finish(body, (lines, 1), (threads, 1))
    return writer.finish(
        _line_text(word, kind, given, made, length, lines), (count_blocks(lines, _LINES), 1), (_LINES, 1)
    )


def _place(writer: FunctionWriter, x: Layout, axis: int) -> str:
    """The element i of a line."""
    others = [a for a in range(len(x.shape)) if a != axis]
    steps = row_major_strides(tuple(x.shape[a] for a in others))
    terms = [
        f"line / {by} % {x.shape[a]} * {x.strides[a]}" for a, by in zip(others, steps, strict=True) if x.strides[a]
    ]
    return f"{writer.pointer(x.buffer)}[{' + '.join([*terms, f'i * {x.strides[axis]}', str(x.offset)])}]"


def _line_text(word: str, kind: str, given: Sequence[str], made: str, length: int, lines: int) -> list[str]:
    now = {
        "add": "add_::of(y, {0})",
        "multiply": "multiply_::of(y, {0})",
        "recurrence": "i ? add_::of(multiply_::of({0}, y), {1}) : {1}",
    }[word].format(*given)
    return [
        f"const int line = blockIdx.x * {_LINES} + threadIdx.x;",
        f"if (line >= {lines}) return;",
        f"{kind} y = {1 if word == 'multiply' else 0};",
        "#pragma unroll 4",
        f"for (int i = 0; i < {length}; ++i) {{",
        f"  y = {now};",
        f"  {made} = y;",
        "}",
    ]


def _sum_text(kind: str, given: str, made: str, length: int, threads: int) -> list[str]:
    """Sums of a warp's elements, of those of the warps before, and of all before these."""
    return [
        f"__shared__ {kind} parts[{threads // 32}];",
        "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
        f"{kind} before = 0;",
        f"for (int first = 0; first < {length}; first += {threads}) {{",
        "  const int i = first + threadIdx.x;",
        f"  {kind} x = i < {length} ? {given} : ({kind})0;",
        "  for (int d = 1; d < 32; d *= 2) {",
        f"    const {kind} y = __shfl_up_sync(~0u, x, d);",
        "    if (lane >= d) x = add_::of(y, x);",
        "  }",
        "  if (lane == 31) parts[warp] = x;",
        "  __syncthreads();",
        f"  {kind} start = before;",
        f"  for (int w = 0; w < {threads // 32}; ++w) {{",
        "    if (w == warp) start = before;",
        "    before = add_::of(before, parts[w]);",
        "  }",
        f"  if (i < {length}) {made} = add_::of(start, x);",
        "  __syncthreads();",
        "}",
    ]
