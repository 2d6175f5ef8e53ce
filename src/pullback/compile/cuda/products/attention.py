"""Attention whose scores stay on the chip (`attention.cuh`): launches for its routines, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....arrays.spec import Spec
from ...loop_ir import Buffer, Host, Layout, Routine, row_major_strides
from ..kernel.writer import FunctionLaunch
from .choose import MULTIPROCESSORS

#: Widths of rows whose sums fit into registers.
WIDTHS = (32, 64)
_ROWS, _THREADS, _PIECE = 64, 128, 32


def is_attention(routine: Routine) -> bool:
    return routine.name in ("attend", "attend_back")


def has_attention(routine: Routine, specs: Sequence[Spec]) -> bool:
    """Whether there is code for a routine on arrays of these specs."""
    return is_attention(routine) and all(s.dtype.name == "float32" and s.shape[-1] in WIDTHS for s in specs)


def render_attention(step: Host, digits: int) -> list[FunctionLaunch]:
    assert step.routine is not None
    return _render_forward(step, digits) if step.routine.name == "attend" else _render_backward(step, digits)


@dataclass
class _Text:
    """The text of one function: its pointers, and the sizes that all of them share."""

    step: Host
    digits: int
    pointers: dict[Buffer, str] = field(default_factory=dict)
    written: list[Buffer] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Matrices, queries, keys, and the width."""
        q, k, _ = _inputs_of(self.step)
        return math.prod(q.shape[:-2]), q.shape[-2], k.shape[-2], q.shape[-1]

    def pointer(self, buffer: Buffer) -> str:
        return self.pointers.setdefault(buffer, f"b{len(self.pointers)}")

    def read(self, x: Layout) -> str:
        """Where the matrix z of an argument begins, and the distance of its rows."""
        return f"{self.pointer(x.buffer)} + {_start_of(x)}, {x.strides[-2]}"

    def write(self, x: Layout, size: int) -> str:
        """Where part z of a result begins, which has `size` elements."""
        self.written.append(x.buffer)
        return f"{self.pointer(x.buffer)} + {x.offset} + (long long)z * {size}"

    def finish(self, call: str, rows: int, pieces: int, panels: int, at_once: int, heavy_last: bool) -> FunctionLaunch:
        """A function whose blocks have rows; those with the most to do come first."""
        count, queries, keys, width = self.sizes
        assert self.step.routine is not None
        static = self.step.routine.static
        down = -(-rows // _ROWS)
        causal = "true" if static["is_causal"] else "false"
        total = down * count
        number = f"{down - 1} - item / {count}" if heavy_last else f"item / {count}"
        scale = f"{np.float32(static['scale']).item()!r}f"
        text = [
            f"using A = AttendShape<{queries}, {keys}, {width}, {causal}, {self.digits}>;",
            f"const int item = {_item_text(total)}, z = item % {count}, first = ({number}) * {_ROWS};",
            "extern __shared__ GroupMemory groups[];",
            call.replace("HEAD", f"groups[0].v, first, {scale}") + ";",
        ]
        parts = 2 if self.digits == 3 else 1
        shared = 4 * width * (pieces * parts * _PIECE + panels * _ROWS)
        found = self.launch(text, total)
        return replace(found, at_once=at_once, shared_bytes=shared)

    def launch(self, text: Sequence[str], blocks: int) -> FunctionLaunch:
        given = [
            f"{'' if b in self.written else 'const '}float* __restrict__ {name}" for b, name in self.pointers.items()
        ]
        body = "\n  ".join(text)
        return FunctionLaunch(tuple(given), body, tuple(self.pointers), (blocks, 1, 1), (_THREADS, 1, 1))


def _item_text(total: int) -> str:
    """Which of `total` items a block has, of which the first take longest: if all run at once, two to a
    multiprocessor, the longest with the shortest.
    """
    if not MULTIPROCESSORS < total <= 2 * MULTIPROCESSORS:
        return "blockIdx.x"
    return f"blockIdx.x < {MULTIPROCESSORS} ? blockIdx.x : {total + MULTIPROCESSORS - 1} - blockIdx.x"


def _inputs_of(step: Host) -> tuple[Layout, Layout, Layout]:
    """Queries, keys and values."""
    q, k, v = step.args[:3] if len(step.args) == 3 else step.args[1:4]
    return q, k, v


def _start_of(x: Layout) -> str:
    """The place of the first element of matrix z."""
    sizes = x.shape[:-2]
    terms = [
        f"(long long)(z / {step} % {n}) * {stride}"
        for n, step, stride in zip(sizes, row_major_strides(sizes), x.strides, strict=False)
        if n > 1 and stride
    ]
    return " + ".join([*terms, str(x.offset)])


def _render_forward(step: Host, digits: int) -> list[FunctionLaunch]:
    text = _Text(step, digits)
    q, k, v = step.args
    out, logs = step.outs
    _, queries, _, width = text.sizes
    arguments = ", ".join(
        [text.read(q), text.read(k), text.read(v), text.write(out, queries * width), text.write(logs, queries)]
    )
    return [text.finish(f"attend_<A>(HEAD, {arguments})", queries, 2, 1, 2, heavy_last=True)]


def _render_backward(step: Host, digits: int) -> list[FunctionLaunch]:
    bar, q, k, v, out, logs = step.args
    q_bar, k_bar, v_bar = step.outs
    count, queries, keys, width = _Text(step, digits).sizes
    deltas = Buffer("scratch", count * queries, np.dtype(np.float32))

    def common(text: _Text) -> list[str]:
        sums = [f"{text.pointer(b)} + (long long)z * {queries}" for b in (logs.buffer, deltas)]
        return [*map(text.read, (q, k, v, bar)), *sums]

    sums = _Text(step, digits)
    rows = _THREADS // (width // 4)
    total = count * queries
    sums.written.append(deltas)
    given = f"{sums.pointer(out.buffer)} + (long long)z * {queries * width}, {sums.read(bar)}"
    text = [
        f"const int z = (blockIdx.x * {rows} + threadIdx.x / {width // 4}) / {queries};",
        f"if (z < {count})",
        f"  sum_rows_<{width}, {queries}>({given}, {sums.pointer(deltas)} + (long long)z * {queries});",
    ]
    first = sums.launch(text, -(-total // rows))
    of_queries, of_keys = _Text(step, digits), _Text(step, digits)
    given_queries = ", ".join([*common(of_queries), of_queries.write(q_bar, queries * width)])
    given_keys = ", ".join([*common(of_keys), of_keys.write(k_bar, keys * width), of_keys.write(v_bar, keys * width)])
    return [
        first,
        of_keys.finish(f"attend_back_keys_<A>(HEAD, {given_keys})", keys, 4, 2, 2, heavy_last=False),
        of_queries.finish(f"attend_back_queries_<A>(HEAD, {given_queries})", queries, 3, 2, 2, heavy_last=True),
    ]
