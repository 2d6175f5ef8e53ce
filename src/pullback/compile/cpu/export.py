"""Programs in, an object file out: native code for other processes, which needs no Python, NumPy or BLAS to run.

Each function takes the pointers of its arguments and results. What it works in is on the stack or from `malloc`, so
calls of several threads do not meet; constants are in the object.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...arrays.spec import Spec, spec_of
from ...errors import ArgumentError, ExportError
from ...program.ir import Equation, Program
from ..loop_ir import Host, Loop, Routine, Steps
from ..pipeline import plan_program
from ..target import Compilation, Options, Target
from .linalg.unrolled import is_unrolled
from .program.render import OUT_OF_RANGE, RenderedProgram, render_program
from .runtime.link import converts_float16, make_export_machine, native_processor, optimize_modules, vector_bytes
from .target import DTYPES, cpu_limits, make_cpu_target

#: What an exported function returns: `NO_MEMORY` besides the bits of the status word, of which it reports the lowest.
NO_MEMORY = 4
#: A call that works in no more bytes has them on the stack.
STACK_BYTES = 4096
#: Levels of x86-64 by LLVM's names, with the bytes of their vectors.
LEVELS = {"x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64}


class Processor(NamedTuple):
    """A kind of processor that code is for: LLVM's name and features of it, the bytes of its vectors, and whether it
    converts float16.
    """

    name: str
    features: str
    vector_bytes: int
    has_float16: bool


def find_processor(cpu: str | None) -> Processor:
    """A processor by its name; None is one that most machines of this kind have."""
    name, features = native_processor()
    if cpu == "native":
        return Processor(name, features, vector_bytes(), converts_float16())
    is_x86 = "x86_64" in make_export_machine("", "").triple
    if is_x86 and (cpu is None or cpu in LEVELS):
        level = cpu or "x86-64-v3"
        return Processor(level, "", LEVELS[level], LEVELS[level] > 16)
    if cpu is None:
        return Processor("generic", "", 16, converts_float16())
    raise ArgumentError(f"to_c_library: cpu is {', '.join(LEVELS) if is_x86 else 'None'} or native, got {cpu!r}.")


def make_export_target(processor: Processor) -> Target:
    """The CPU without what only a process with Python has: the BLAS, LAPACK, threads of the pool, ops of NumPy."""
    limits = replace(cpu_limits(processor.vector_bytes), min_program_ns=math.inf, is_freestanding=True)
    return replace(
        make_cpu_target(limits),
        dtypes=DTYPES if processor.has_float16 else DTYPES - {"float16"},
        has_routine=lambda routine, specs: _has_own_routine(routine, specs, processor.vector_bytes),
        can_divide_batches=lambda: False,
        takes_half_factors=lambda dtype, rows, columns, depth: False,
        takes_varying_sizes=False,
    )


def _has_own_routine(routine: Routine, specs: Sequence[Spec], vector_bytes: int) -> bool:
    """Whether a routine is written out: others call LAPACK."""
    if routine.name == "check":
        return True
    dtype, shapes = specs[-1].dtype, [s.shape for s in specs]
    if dtype.name not in ("float32", "float64") or any(0 in shape for shape in shapes):
        return False
    square = routine.name != "solve" or shapes[0][-1] == shapes[0][-2]
    return square and is_unrolled(routine.name, shapes, vector_bytes // dtype.itemsize)


def is_written_out(e: Equation, processor: Processor) -> bool:
    """Whether there is code of our own for an op of linear algebra on matrices of these sizes."""
    specs = [spec_of(x) for x in (*e.args, *e.results)]
    return _has_own_routine(Routine(e.op.form.routine, e.static, e.op.form.weight), specs, processor.vector_bytes)


def compile_to_object(programs: dict[str, Program], processor: Processor) -> bytes:
    """An object file with a function for each program, by its name."""
    target = make_export_target(processor)
    texts = [_render_function(name, plan_program(p, target, Options()), target) for name, p in programs.items()]
    machine = make_export_machine(processor.name, processor.features)
    code: bytes = machine.emit_object(optimize_modules(texts, machine))
    return code


def _render_function(name: str, c: Compilation, target: Target) -> str:
    _refuse_hosts(c.planned)
    code = render_program(c.planned, False, target.limits)
    text = code.text
    if f"@{name}(" in text:
        raise ArgumentError(f"to_c_library: the name {name} is taken by a function of the code.\n  Take another.")
    for piece in code.pieces:
        text = text.replace(f"define void @{piece}(", f"define internal void @{piece}(")
    return "\n".join([text, *_render_constants(code), _render_entry(name, c.planned, code)])


def _refuse_hosts(steps: Steps) -> None:
    for host in _find_hosts(steps):
        why = "NumPy or SciPy executes it, or a routine of LAPACK, and code without Python has neither"
        raise ExportError(f"to_c_library: {host.name} cannot be exported: {why}.", host.name, why)


def _find_hosts(steps: Steps) -> Iterator[Host]:
    for step in steps.steps:
        if isinstance(step, Host) and step.routine is None:
            yield step
        elif isinstance(step, Loop):
            for program in step.programs:
                yield from _find_hosts(program)


def _render_constants(code: RenderedProgram) -> Iterator[str]:
    for i, constant in enumerate(code.constants):
        data = np.ascontiguousarray(constant).tobytes() or b"\0"
        text = data.hex("\\")
        yield f'@constant{i} = internal constant [{len(data)} x i8] c"\\{text}", align 64'


_ON_STACK = """\
  %own = alloca [$SIZE x i8], align 64
  br label %run
run:
  %arena = phi ptr [ %own, %entry ]"""
_ON_HEAP = """\
  %own = call ptr @malloc(i64 $SIZE)
  %none = icmp eq ptr %own, null
  br i1 %none, label %failed, label %run
failed:
  ret i32 $NO_MEMORY
run:
  %address = ptrtoint ptr %own to i64
  %above = add i64 %address, 63
  %aligned = and i64 %above, -64
  %arena = inttoptr i64 %aligned to ptr"""


def _render_entry(name: str, steps: Steps, code: RenderedProgram) -> str:
    """The exported function: it fills in the table of pointers that the pieces take, and returns the status."""
    buffers = [*steps.inputs, *steps.new_outputs]
    heap = steps.workspace > STACK_BYTES
    arena = (_ON_HEAP if heap else _ON_STACK).replace("$NO_MEMORY", str(NO_MEMORY))
    arena = arena.replace("$SIZE", str(steps.workspace + 64 if heap else max(steps.workspace, 1)))
    entries = {code.table[buffer]: f"%p{i}" for i, buffer in enumerate(buffers)}
    entries |= {len(buffers): "%arena", len(buffers) + 1: "%status"}
    entries |= {len(buffers) + 2 + i: f"@constant{i}" for i in range(len(code.constants))}
    lines = []
    for place, pointer in sorted(entries.items()):
        lines += [f"  %e{place} = getelementptr ptr, ptr %table, i64 {place}", f"  store ptr {pointer}, ptr %e{place}"]
    lines += [f"  call void @{piece}(ptr %table)" for piece in code.pieces]
    return "\n".join([
        *(["declare ptr @malloc(i64)", "declare void @free(ptr)"] if heap else []),
        f"define i32 @{name}({', '.join(f'ptr %p{i}' for i in range(len(buffers)))}) nounwind {{\nentry:",
        f"  %status = alloca i32\n  store i32 0, ptr %status\n  %table = alloca [{len(entries)} x ptr]",
        arena, *lines, *(["  call void @free(ptr %own)"] if heap else []),
        f"  %found = load i32, ptr %status\n  %low = and i32 %found, {OUT_OF_RANGE}\n  %first = icmp ne i32 %low, 0",
        f"  %code = select i1 %first, i32 {OUT_OF_RANGE}, i32 %found\n  ret i32 %code\n}}",
    ])  # fmt: skip
