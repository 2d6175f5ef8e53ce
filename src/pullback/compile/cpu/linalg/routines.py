"""Step in, the text of its routine out: a loop over the stack around an unrolled routine or calls of LAPACK."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....arrays.spec import Spec
from ...loop_ir import Host, Layout, Routine
from ..builder.memory import emit_address
from ..builder.vector_types import IRValue
from ..matmul.gemm import BlasConstants
from . import lapack
from .matrix_text import MatrixRef, RoutineText
from .unrolled import ROUTINES as UNROLLED
from .unrolled import Stack, Unrolled, is_unrolled, solve_with_inverse

#: Matrices of a larger condition may be singular to working precision.
MAX_CONDITION = 1e10
#: Random vectors that an inverse is probed with.
_PROBES = 3
Emit = Callable[[RoutineText, Sequence[MatrixRef], Sequence[MatrixRef]], None]


def emit_check(t: RoutineText, flags: Layout, outcome: MatrixRef) -> None:
    """Flags of which none may be set: where one is, NumPy runs the op, which looks at the values too and may raise."""
    t.one.emit(f"store i8 0, ptr {outcome.pointer}")
    # flags without gaps are looked at eight at a time
    wide, rest = (flags.size // 8, flags.size % 8) if flags.is_whole else (0, flags.size)
    if wide:
        _fail_at_bits(t, "i64", [wide], [8])
    if wide and rest:
        _fail_at_bits(t, "i8", [rest], [1], 8 * wide)
    elif rest:
        _fail_at_bits(t, "i8", flags.shape, flags.strides)


def _fail_at_bits(t: RoutineText, kind: str, sizes: Sequence[int], steps: Sequence[int], start: int = 0) -> None:
    """Fail if a bit is set in integers of a type, at so many bytes from each other."""
    bits = t.text.slot(kind, "0")
    with ExitStack() as loops:
        terms = [(loops.enter_context(t.loop(n)), by) for n, by in zip(sizes, steps, strict=True) if by]
        place = emit_address(t.one, np.dtype(bool), "%p1", *terms, offset=start)
        found = t.one.assign(f"load {kind}, ptr {place}, align 1")
        before = t.one.assign(f"load {kind}, ptr {bits}")
        t.one.emit(f"store {kind} {t.one.assign(f'or {kind} {found}, {before}')}, ptr {bits}")
    t.fail_if(t.one.assign(f"icmp ne {kind} {t.one.assign(f'load {kind}, ptr {bits}')}, 0"))


def emit_lift(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """Zeros where the matrix is regular by a wide margin, which its inverse shows; else NumPy decides."""
    (a,), (out,) = args, outs
    n = a.rows
    found = t.take_columns(n, n)
    inverse: Emit = lapack.emit_inverse if not is_unrolled("inverse", [(n, n)], 1) else _unrolled_inverse
    inverse(t, args, [found])
    reach = t.one.multiply(_largest_row_sum(t, a), _largest_row_sum(t, found))
    regular = t.one.less(reach, t.number(0.5 / n / math.sqrt(float(np.finfo(t.dtype).eps))))
    t.fail_if(t.one.logical_not(regular).name)
    with t.loop(out.rows) as i, t.loop(out.columns) as j:
        t.store(t.number(0.0), out, i, j)


def emit_guarded_solve(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """The solution for one right side where the matrix is regular by a wide margin; else NumPy decides. A small matrix
    is inverted to tell; of others the inverse is only probed, which shows its size but for a factor of some sqrt(n).
    """
    (a, b), (out,) = args, outs
    n = a.rows
    is_inverted = is_unrolled("inverse", [(n, n)], 1)
    found = t.take_columns(n, 1 + (n if is_inverted else _PROBES))
    inverse = replace(found, pointer=t.address(found, 0, 1), columns=found.columns - 1)
    if is_inverted:
        u = Unrolled(t, 1)
        solve_with_inverse(u, Stack(a, 0), Stack(b, 0), Stack(found, 0))
        u.finish()
    else:
        t.copy(b, replace(found, columns=1))
        t.fill_random(inverse)
        lapack.solve_in_place(t, a, found)
    t.copy(replace(found, columns=1), out)
    reach = t.one.multiply(_largest_row_sum(t, a), _largest_row_sum(t, inverse))
    t.fail_if(t.one.logical_not(t.one.less(reach, t.number(MAX_CONDITION))).name)


def _unrolled_inverse(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    u = Unrolled(t, 1)
    UNROLLED["inverse"](u, [Stack(args[0], 0)], [Stack(outs[0].transposed, 0)])  # sums of columns serve as well
    u.finish()


def _largest_row_sum(t: RoutineText, m: MatrixRef) -> IRValue:
    most, total = t.variable(t.number(0.0)), t.variable(t.number(0.0))
    with t.loop(m.rows) as i:
        total.set(t.number(0.0))
        with t.loop(m.columns) as j:
            total.set(t.one.add(total.value, t.one.abs(t.load(m, i, j))))
        most.set(t.one.maximum(total.value, most.value))
    return most.value


#: How a routine is emitted for one matrix, and how many axes of each argument and result are not the stack's. Those
#: without an emitter are unrolled, or take factors.
ROUTINES: dict[str, tuple[Emit | None, tuple[int, ...], tuple[int, ...]]] = {
    "cholesky": (lapack.emit_cholesky, (2,), (2,)),
    "solve": (None, (2, 2), (2,)),
    "inverse": (None, (2,), (2,)),
    "determinant": (None, (2,), (0,)),
    "log_determinant": (None, (2,), (0, 0)),
    "factor": (lapack.emit_factor, (2,), (2, 1, 1)),
    "solve_by_factors": (lapack.emit_solve_by_factors, (2, 2, 2, 1, 1), (2,)),
    "inverse_by_factors": (lapack.emit_inverse_by_factors, (2, 2, 1, 1), (2,)),
    "determinant_by_factors": (lapack.emit_determinant_by_factors, (2, 2, 1, 1), (0,)),
    "log_determinant_by_factors": (lapack.emit_log_determinant_by_factors, (2, 2, 1, 1), (0, 0)),
    "triangular_solve": (lapack.emit_triangular_solve, (2, 2), (2,)),
    "lu": (lapack.emit_lu, (2,), (1, 1, 2, 2)),
    "qr": (lapack.emit_qr, (2,), (2, 2)),
    "eigh": (lapack.emit_eigh, (2,), (1, 2)),
    "svd": (lapack.emit_svd, (2,), (2, 1, 2)),
    "lift": (emit_lift, (2,), (2,)),
    "guarded_solve": (emit_guarded_solve, (2, 1), (1,)),
}


@dataclass(frozen=True, slots=True)
class RenderedRoutine:
    """A function's text (with `@NAME` for its name), the bytes of scratch memory it needs, and the functions of the
    mathematics that it calls.
    """

    text: str
    scratch: int
    functions: dict[str, str]


def has_routine(routine: Routine, specs: Sequence[Spec], vector_bytes: int) -> bool:
    """Whether there is a routine for arguments and results of these specs; a small system needs no factors."""
    if routine.name == "check":
        return True
    if routine.name not in ROUTINES or specs[-1].dtype.name not in ("float32", "float64"):
        return False
    if routine.name == "guarded_solve":
        return routine.static["kind"] == "lu" and specs[0].ndim == specs[1].ndim + 1 and _are_double(specs)
    of = routine.name.removesuffix("_by_factors")
    if of == "solve" and specs[0].shape[-1] != specs[0].shape[-2]:
        return False
    return of == routine.name or not is_unrolled(of, [s.shape for s in specs], vector_bytes // 8)


def _are_double(specs: Sequence[Spec]) -> bool:
    return all(s.dtype.name == "float64" for s in specs)


def render_routine(step: Host, constants: BlasConstants, declared: set[str], vector_bytes: int) -> RenderedRoutine:
    """The function `@NAME(arguments, results, work, failed)`."""
    assert step.routine is not None
    t = RoutineText(step, constants, declared, vector_bytes)
    if step.routine.name == "check":
        emit_check(t, step.args[1], MatrixRef(f"%p{len(step.args)}", step.outs[0].buffer.dtype, 1, 1, 0, 0))
    else:
        _emit_stack(t, step, step.routine.name)
    return RenderedRoutine(t.render(), t.scratch, t.text.functions)


def scratch_bytes(step: Host, vector_bytes: int) -> int:
    """What the routine of a step needs beside its arguments and results."""
    return render_routine(step, BlasConstants(), set(), vector_bytes).scratch


def _emit_stack(t: RoutineText, step: Host, name: str) -> None:
    emit, *cores = ROUTINES[name]
    layouts, axes = [*step.args, *step.outs], [*cores[0], *cores[1]]
    stack = step.outs[0].shape[: len(step.outs[0].shape) - cores[1][0]]
    if not is_unrolled(name, [x.shape for x in layouts], t.lanes):
        assert emit is not None
        _emit_each(t, layouts, axes, stack, lambda found: emit(t, found[: len(step.args)], found[len(step.args) :]))
        return
    apart = [_stack_stride(x, core, stack) for x, core in zip(layouts, axes, strict=True)]
    whole = math.prod(stack)
    if whole < t.lanes or t.lanes < 2 or any(by is None for by in apart):
        _emit_each(t, layouts, axes, stack, lambda found: _emit_unrolled(t, name, found, [0] * len(found), 1))
        return
    merged = [_merge_stack(x, core, whole, by or 0) for x, core, by in zip(layouts, axes, apart, strict=True)]
    steps = [by or 0 for by in apart]
    with t.loop(whole - whole % t.lanes, 0, t.lanes) as at:
        found = [t.matrix(x, i, (whole,), [at], core) for i, (x, core) in enumerate(zip(merged, axes, strict=True))]
        _emit_unrolled(t, name, found, steps, t.lanes)
    if whole % t.lanes:
        with t.loop(whole, whole - whole % t.lanes) as at:
            found = [t.matrix(x, i, (whole,), [at], core) for i, (x, core) in enumerate(zip(merged, axes, strict=True))]
            _emit_unrolled(t, name, found, steps, 1)


def _emit_each(
    t: RoutineText, layouts: Sequence[Layout], axes: Sequence[int], stack: tuple[int, ...],
    emit: Callable[[list[MatrixRef]], None],
) -> None:  # fmt: skip
    """The routine on each matrix of a stack, one after the other."""
    with ExitStack() as loops:
        counters: list[Any] = [loops.enter_context(t.loop(n)) if n > 1 else 0 for n in stack]
        pairs = enumerate(zip(layouts, axes, strict=True))
        emit([t.matrix(x, i, stack, counters, core) for i, (x, core) in pairs])


def _emit_unrolled(t: RoutineText, name: str, found: Sequence[MatrixRef], apart: Sequence[int], lanes: int) -> None:
    u, count = Unrolled(t, lanes), len(t.step.args)
    stacks = [Stack(m, by) for m, by in zip(found, apart, strict=True)]
    UNROLLED[name](u, stacks[:count], stacks[count:])
    u.finish()


def _stack_stride(layout: Layout, core: int, stack: tuple[int, ...]) -> int | None:
    """The elements from one matrix to the next where one counter goes over the whole stack; None where none does."""
    own = list(zip(layout.shape, layout.strides, strict=True))[: len(layout.shape) - core]
    if all(n == 1 for n, _ in own):
        return 0
    if tuple(n for n, _ in own) != stack:
        return None
    found, span = None, 1
    for n, stride in reversed(own):
        if n == 1:
            continue
        if found is None:
            found = stride
        elif stride != found * span:
            return None
        span *= n
    return found


def _merge_stack(layout: Layout, core: int, whole: int, by: int) -> Layout:
    """The layout with one axis for the whole stack."""
    axes = len(layout.shape) - core
    return Layout(layout.buffer, (whole, *layout.shape[axes:]), (by, *layout.strides[axes:]), layout.offset)
