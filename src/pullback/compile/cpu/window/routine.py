"""A convolution in a compiled program: the LLVM function that makes its job and calls the window function."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...loop_ir import Host
from ..builder.function_text import FunctionText
from ..builder.memory import emit_address, emit_load
from ..builder.vector_types import llvm_type
from ..program.parallel_call import PARALLEL
from ..runtime.link import add_symbol
from .convolution import plan_for
from .jobs import FIELDS, I64, NUMBER
from .library import can_run_natively, window_function
from .plans import Plan

#: How the names of window functions begin, under which programs are linked with them.
PREFIX = "pb_window_"
#: What a program's routine is called, before the letter of its result.
ROUTINE = "convolve_"


def find_plan(name: str, static: dict[str, Any], shapes: Any, dtype: np.dtype[Any]) -> Plan | None:
    """The plan of a routine, if there is one."""
    if not name.startswith(ROUTINE) or dtype.name not in ("float32", "float64") or not can_run_natively():
        return None
    return plan_for(name.removeprefix(ROUTINE), static, shapes, dtype)


def plan_of_step(step: Host) -> Plan:
    assert step.routine is not None
    plan = find_plan(
        step.routine.name, step.routine.static, tuple(a.shape for a in step.args), step.outs[0].buffer.dtype
    )
    assert plan is not None
    return plan


def plan_constant(plan: Plan) -> Any:
    """The job and its tables in one array of a program."""
    return np.concatenate([plan.template, *(np.ravel(t).view(np.int64) for t in plan.tables.values())])


def workspace_bytes(step: Host) -> int:
    plan = plan_of_step(step)
    return plan.size * plan.dtype.itemsize


def register_symbols(text: str) -> None:
    """Make the window functions known that a program's text names."""
    if PREFIX not in text:
        return
    for name in set(re.findall(rf"@({PREFIX}\w+)", text)):
        kind, char, function = name.removeprefix(PREFIX).rsplit("_", 2)
        code = window_function(kind.replace("_", " "), np.dtype(char)).code
        add_symbol(name, code.addresses[function])


def render_window_routine(step: Host, declared: set[str], vector_bytes: int) -> str:
    """The function `@NAME(arguments, result, plan, work, failed)`: it fails where zeros around a grid would be
    multiplied by infinity, though there is nothing.
    """
    plan, text = plan_of_step(step), FunctionText(vector_bytes, declared)
    one = text.builder(1)
    text.entry.append(f"  %job = alloca [{len(FIELDS)} x i64], align 64")
    declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    one.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr %job, ptr %plan, i64 {8 * len(FIELDS)}, i1 false)")
    addresses = {"out": "%p2", "left": "%p0", "right": "%p1"}
    offset = len(FIELDS)
    for name, table in plan.tables.items():
        addresses[name] = emit_address(one, I64, "%plan", offset=offset)
        offset += table.nbytes // 8
    for name, start in plan.memory.items():
        addresses[name] = emit_address(one, plan.dtype, "%work", offset=start)
    for name, address in addresses.items():
        one.emit(f"store ptr {address}, ptr {emit_address(one, I64, '%job', offset=NUMBER[name])}")
    frame = plan.template[NUMBER["panel_at"]] if plan.is_framed else 0
    one.emit(f"store i64 {frame}, ptr {emit_address(one, I64, '%job', offset=NUMBER['frame_size'])}")
    if plan.is_framed and step.routine is not None and step.routine.name == f"{ROUTINE}x":
        _fail_unless_finite(text, plan.dtype, step.args[1].size)
    _emit_calls(text, plan)
    pointers = ", ".join(f"ptr %{name}" for name in ("p0", "p1", "p2", "plan", "work", "failed"))
    return text.render(f"define internal void @NAME({pointers}) noinline")


def _emit_calls(text: FunctionText, plan: Plan) -> None:
    def name_of(function: str, given: str) -> str:
        name = f"{PREFIX}{plan.kind.replace(' ', '_')}_{plan.dtype.char}_{function}"
        text.declared.add(f"declare void @{name}({given})")
        return name

    one = text.builder(1)
    if plan.tasks == 1:
        one.emit(f"call void @{name_of('run', 'ptr')}(ptr %job)")
        return
    text.declared.add(f"declare void @{PARALLEL}(ptr, ptr, i64)")
    one.emit(f"call void @{name_of('before', 'ptr')}(ptr %job)")
    one.emit(f"call void @{PARALLEL}(ptr @{name_of('task', 'ptr, i64, i64')}, ptr %job, i64 {plan.tasks})")
    one.emit(f"call void @{name_of('after', 'ptr')}(ptr %job)")


def _fail_unless_finite(text: FunctionText, dtype: np.dtype[Any], size: int) -> None:
    """Zero times each number is zero, unless one is infinite or no number."""
    one = text.builder(1)
    one.dtype = dtype
    kind = llvm_type(dtype, 1)
    total = text.slot(kind, one.constant(0.0).name)
    loop = text.open(size)
    value = emit_load(one, emit_address(one, dtype, "%p1", (text.counters[-1], 1)), dtype)
    so_far = one.assign_value(f"load {kind}, ptr {total}", dtype)
    one.emit(f"store {kind} {one.add(so_far, one.multiply(value, one.constant(0.0))).name}, ptr {total}")
    text.close(loop, stays=True)
    bad = one.isnan(one.assign_value(f"load {kind}, ptr {total}", dtype))
    one.emit(f"store i32 {one.assign(f'zext i1 {bad.name} to i32')}, ptr %failed")
