"""Running sums, products and recurrences along an axis, and sorts, as launches: a block has one line, or a thread."""

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
#: The most elements that a block sorts, in shared memory.
_MAX_SORTED = 2048


def has_running(routine: Routine, specs: Sequence[Spec]) -> bool:
    """Whether a launch can do what runs along an axis."""
    if routine.name != "running" or not all(s.dtype.name in C_TYPES and s.size < 1 << 31 for s in specs):
        return False
    static = routine.static
    # a part that is sorted may be in any order, and is left as eager calls have it
    return static["word"] != "sort" or (specs[0].shape[static["axis"]] <= _MAX_SORTED and not static["kth"])


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
    if word == "sort":
        kind = c_type(value_dtype(step.args[0].buffer.dtype))
        size = 1 << (length - 1).bit_length()
        threads = max(32, min(_THREADS, size // 2))
        read = f"({kind}){_place(writer, step.args[0], axis)}"
        return writer.finish(_sort_text(kind, read, made, length, size, threads, step), (lines, 1), (threads, 1))
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


def _sort_text(kind: str, given: str, made: str, length: int, size: int, threads: int, step: Host) -> list[str]:
    """A network of comparisons, over a power of two: elements beyond the last come last, and NaN after all numbers."""
    assert step.routine is not None
    first = "y < x || (x == x) < (y == y)" if step.routine.static["descending"] else "x < y || (y == y) < (x == x)"
    return [
        "const int line = blockIdx.x;",
        f"__shared__ {kind} keys[{size}];",
        f"__shared__ int numbers[{size}];",
        "const auto is_before = [&](const int a, const int b) {",
        f"  const {kind} x = keys[a], y = keys[b];",
        "  const int i = numbers[a], j = numbers[b];",
        f"  if (i >= {length} || j >= {length}) return i < j;",
        f"  if ({first}) return true;",
        "  return (x == y || (x != x && y != y)) && i < j;",
        "};",
        f"for (int i = threadIdx.x; i < {size}; i += {threads}) {{",
        f"  keys[i] = i < {length} ? {given} : ({kind})0;",
        "  numbers[i] = i;",
        "}",
        "__syncthreads();",
        f"for (int part = 2; part <= {size}; part *= 2)",
        "  for (int by = part / 2; by; by /= 2) {",
        f"    for (int e = threadIdx.x; e < {size // 2}; e += {threads}) {{",
        "      const int low = 2 * e - (e & (by - 1)), high = low + by;",
        "      if (is_before(high, low) == ((low & part) == 0)) {",
        f"        const {kind} key = keys[low];",
        "        const int number = numbers[low];",
        "        keys[low] = keys[high], keys[high] = key;",
        "        numbers[low] = numbers[high], numbers[high] = number;",
        "      }",
        "    }",
        "    __syncthreads();",
        "  }",
        f"for (int i = threadIdx.x; i < {length}; i += {threads}) {made} = numbers[i];",
    ]
