"""What `explain()` and `kernels` show of a compiled program: its steps, their bytes and operations."""

from __future__ import annotations

import math

from ..arrays.text import format_bytes, text_table
from .loop_ir import Blocks, Buffer, Host, Kernel, Layout, Loop, Product, Step, Steps
from .pipeline import STEPS
from .schedule.cost import count_multiplications
from .target import Compilation


def explain(compilation: Compilation) -> str:
    """A table of the steps, and the pipeline that made them."""
    pipeline = ", ".join(step.__name__ for step in STEPS)
    library = "NumPy" if all(s.device == "cpu" for s in compilation.specs) else "CuPy"
    launch = f"\n{compilation.launch}" if compilation.launch else ""
    scope = f"code for {compilation.scope}{launch}\ncompiled for {compilation.target.name}: {pipeline}"
    return f"{explain_steps(compilation.steps, library)}\n{scope}"


def explain_steps(steps: Steps, library: str = "NumPy") -> str:
    """A line for each step: what runs in it, over which domain, how many bytes it moves and operations it does; for
    what is inside a loop, in one round. `library` executes ops without a native form.
    """
    rows = [("step", "domain", "moves", "operations", "runs"), *_table_rows(steps, "", library)]
    return text_table(rows)


def step_summaries(steps: Steps) -> list[tuple[Step, str, int]]:
    """Each step with what runs in it and the bytes it moves."""
    return [(step, summarize_step(step)[2], bytes_moved(step)) for step in steps.steps]


def _table_rows(steps: Steps, before: str, library: str) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for number, step in enumerate(steps.steps):
        domain, operations, runs = summarize_step(step)
        if isinstance(step, Host) and step.routine is None:
            runs = f"{step.name}, by {library}: it has no native form"
        kind = "routine" if isinstance(step, Host) and step.routine is not None else type(step).__name__.lower()
        name = f"{before}{number} {kind}"
        rows.append((name, domain, format_bytes(bytes_moved(step)), _format_count(operations), runs))
        if isinstance(step, Loop):
            for letter, program in zip("abcdefghijklmnopqrstuvwxyz", step.programs, strict=False):
                inner = f"  {before}{number}{letter if len(step.programs) > 1 else ''}."
                rows += _table_rows(program, inner, library)
    return rows


def bytes_moved(step: Step) -> int:
    """The bytes of the buffers that a step reads and writes; one that it reads twice is in the cache by then."""
    return sum(b.nbytes for b in {id(b): b for b in (*step.reads(), *step.writes())}.values())


def summarize_step(step: Step) -> tuple[str, int, str]:
    """The domain of a step, its operations, and what runs in it."""
    if isinstance(step, Kernel):
        points = math.prod(step.extents)
        used = step.live_lines()
        names = [line.label or line.word for line in used if line.kind in ("apply", "cast", "fold", "gather")]
        names += [f"{s.word} over an axis" for s in step.stores if s.word]
        # a fold that others wait for makes another pass over the row
        phases = 1 + max((line.phase for line in used), default=0)
        rows = f", {phases} passes over each row" if phases > 1 else ""
        work = sum(line.weight for line in used)
        return _format_shape(step.extents), points * work, (", ".join(n for n in names if n) or "copy") + rows
    if isinstance(step, Product):
        *_, rows_, columns = step.out.shape
        depth = step.depth
        beta = " added to what is there" if step.beta else ""
        shape = f"{rows_}x{depth} by {depth}x{columns}"
        return shape, 2 * step.out.size * depth, f"matrix product{beta}"
    if isinstance(step, Loop):
        work = sum(row for p in step.programs for row in (summarize_step(s)[1] for s in p.steps))
        if step.kind == "iterate":
            return f"{step.rounds} rounds", step.rounds * work, "a loop" + (", backwards" if step.reverse else "")
        if step.kind == "repeat":
            return "", work, "a loop while a condition (a) holds"
        return f"{len(step.programs)} ways", work, "a branch"
    if isinstance(step, Blocks):
        parts = [summarize_step(inner) for inner in step.steps]
        runs = f"{step.count} times: " + "; ".join(f"{what} ({domain})" for domain, _, what in parts)
        return f"{step.count} blocks", step.count * sum(n for _, n, _ in parts), runs
    if step.routine is not None:
        return _format_shape(step.args[0].shape), int(count_multiplications(step)), step.name
    return "", 0, step.name


def _format_shape(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents)) or "one point"


def _format_count(n: int) -> str:
    return f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.1f} k" if n >= 1e3 else str(n)


def format_steps(steps: Steps) -> str:
    """The steps as text: loops over domains, loads, values and stores."""
    lines: list[str] = []
    for number, step in enumerate(steps.steps):
        lines.append(f"step {number}: {type(step).__name__.lower()}")
        lines += _step_lines(step)
    return "\n".join(lines)


def _step_lines(step: Step) -> list[str]:
    if isinstance(step, Kernel):
        return _kernel_lines(step)
    if isinstance(step, Product):
        factors = f"alpha={step.alpha} beta={step.beta}"
        return [f"  {_format_layout(step.out)} = {_format_layout(step.left)} @ {_format_layout(step.right)}  {factors}"]
    if isinstance(step, Loop):
        places = f"{', '.join(map(_format_layout, step.inputs))}, to {', '.join(map(_format_layout, step.outputs))}"
        body = ["    " + line for p in step.programs for line in format_steps(p).split("\n")]
        return [f"  {step.kind} of {places}", *body]
    if isinstance(step, Blocks):
        moves = ", ".join(f"{_buffer_name(b)} by {n}" for b, n in step.moves.items())
        return [f"  {step.count} times, moving {moves}:", *(line for s in step.steps for line in _step_lines(s))]
    return [f"  {', '.join(map(_format_layout, step.outs))} = {step.name}(...)"]


def _kernel_lines(kernel: Kernel) -> list[str]:
    names = {id(line): f"v{i}" for i, line in enumerate(kernel.lines)}
    lines = [f"  for each point of {_format_shape(kernel.extents)}:"]
    for line in kernel.lines:
        args = ", ".join(names.get(id(a), str(a.number)) for a in line.args)
        what = line.name
        source = f" {_buffer_name(line.buffer)} {line.strides}+{line.offset}" if line.buffer is not None else ""
        lines.append(f"    {names[id(line)]}: {line.dtype} = {what}({args}){source}  phase {line.phase}")
    for store in kernel.stores:
        value = names.get(id(store.line), str(store.line.number))
        how = f"{store.word}= " if store.word else "= "
        lines.append(f"    {_buffer_name(store.buffer)} {store.strides}+{store.offset} {how}{value}")
    return lines


def _buffer_name(buffer: Buffer | None) -> str:
    return "" if buffer is None else f"arena+{buffer.offset}" if buffer.kind == "arena" else repr(buffer)


def _format_layout(layout: Layout) -> str:
    return f"{_buffer_name(layout.buffer)}{list(layout.shape)}"
