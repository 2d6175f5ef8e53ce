"""The CPU as a target: every number that is about a CPU, and native code through LLVM."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from ...arrays.call_site import warn_at_user_line
from ...arrays.spec import Spec, spec_of
from ...program.ir import Program
from ..loop_ir import Host, Kernel, Routine
from ..schedule.row_plan import row_scratch_bytes
from ..target import Costs, Limits, Target
from ..vocabulary import HALF_DTYPES, MAX_RECOMPUTE_WEIGHT, VOCABULARY
from .linalg.routines import has_routine, scratch_bytes
from .matmul.bfloat16 import VECTOR_BYTES, can_multiply_pairs, multiplies_pairs
from .matmul.panels import is_paneled
from .program.render import render_program
from .runner import CpuRunner
from .runtime.blas import blas_thread_functions, has_narrow_kernels
from .runtime.entry import can_check, is_abi_supported
from .runtime.link import compile_assembly, converts_float16, has_llvm, multiplies_bfloat16, vector_bytes
from .runtime.pool_code import MAX_BLOCKS
from .window.routine import ROUTINE, find_plan, workspace_bytes

DTYPES = frozenset(
    (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
        *HALF_DTYPES,
    )
)
COSTS = Costs(operation_ns=0.025, byte_ns=0.015, multiplication_ns=0.012)


def cpu_limits(vector_bytes: int) -> Limits:
    return Limits(
        # registers run out, and LLVM slows down: on chains of tanh with gradients, 48 runs a fifth faster than 90 and
        # compiles in half the time; what is cut off from a kernel that folds rows has to iterate over them again
        max_kernel_weight=48,
        max_row_kernel_weight=90,
        max_recompute_weight=MAX_RECOMPUTE_WEIGHT,
        max_row_recompute_weight=6,
        costly_weight=12,
        near_bytes=1 << 17,  # larger values are loaded from a far cache
        patch_bytes=1 << 19,  # half of the L2 cache
        max_window_places=64,
        alignment=64,
        cache_line_bytes=64,
        vector_bytes=vector_bytes,
        max_unroll=4,
        # waking threads up takes some microseconds
        min_program_ns=40_000,
        min_step_ns=8_000,
        min_block_ns=4_000,
        max_blocks=MAX_BLOCKS,
        max_product_parts=4,
        product_part_multiple=32,
        max_batch_product_ns=500_000,  # larger products are left to several threads of the BLAS
        gil_release_ns=100_000,
        max_scattered_weight=4,
        max_batch_axes=2,
    )


def make_cpu_target(limits: Limits) -> Target:
    return Target(
        "cpu",
        DTYPES if converts_float16() else DTYPES - {"float16"},
        frozenset(VOCABULARY),
        COSTS,
        limits,
        render=lambda steps, fast: render_program(steps, fast, limits),
        link=CpuRunner,
        disassemble=compile_assembly,
        scratch_bytes=lambda step: _scratch_bytes(step, limits),
        has_routine=lambda routine, specs: _has_routine(routine, specs, limits),
        can_cut_product=lambda product: (
            multiplies_pairs(product) or is_paneled(product, limits.vector_bytes, limits.is_wider_than_blas)
        ),
        can_divide_batches=lambda: blas_thread_functions() is not None,
        takes_half_factors=lambda dtype, rows, columns, depth: (
            dtype.name == "bfloat16"
            and limits.vector_bytes == VECTOR_BYTES
            and multiplies_bfloat16()
            and can_multiply_pairs(rows, columns, depth)
        ),
        takes_varying_sizes=True,
    )


def _scratch_bytes(step: Kernel | Host, limits: Limits) -> int:
    if isinstance(step, Kernel):
        return row_scratch_bytes(step, limits)
    if step.routine is not None and step.routine.name.startswith(ROUTINE):
        return workspace_bytes(step)
    return scratch_bytes(step, limits.vector_bytes)


def _has_routine(routine: Routine, specs: Sequence[Spec], limits: Limits) -> bool:
    if routine.name.startswith(ROUTINE):
        return find_plan(routine.name, routine.static, tuple(s.shape for s in specs[:-1]), specs[-1].dtype) is not None
    return has_routine(routine, specs, limits.vector_bytes)


@functools.cache
def cpu_target() -> Target:
    """This machine."""
    width = vector_bytes()
    return make_cpu_target(replace(cpu_limits(width), is_wider_than_blas=width == 64 and has_narrow_kernels()))


def find_cpu_target(program: Program) -> Target | None:
    """This machine, if it has a compiler and native code can check arrays of the program's specs."""
    if not has_llvm():
        warn_without_llvm()
        return None
    specs = [spec_of(x) for x in (*program.inputs, *program.outputs)]
    return cpu_target() if can_check(specs) and is_abi_supported() else None


@functools.cache
def warn_without_llvm() -> None:
    """Warn once that there is no compiler: the results are the same, the speed is not."""
    warn_at_user_line(
        "jit: llvmlite is not installed, so compiled functions run on NumPy, op by op, and slower than the functions "
        'themselves.\n  Install it: pip install "pullback[jit]".'
    )
