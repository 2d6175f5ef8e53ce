"""The native entry: one Python callable that checks its arguments and runs a program's pieces, all in native code.

The function takes arrays alone: the inputs, then the results to write to. It reads the fields of NumPy's array
objects (pointer, shape, dtype, flags), which are part of NumPy's binary interface, and returns False if an argument is
not exactly what the program was compiled for; the caller then takes the slow path.
"""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....arrays.spec import Spec
from ...varying import Operand

# Offsets of the fields of NumPy's array object, on a 64-bit machine with the reference count in front.
_TYPE, _DATA, _RANK, _SHAPE, _DESCR, _FLAGS = 8, 16, 24, 32, 56, 64
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_FASTCALL = 0x80
#: Up to so many pairs of arrays are compared by unrolled code, which LLVM compiles faster than a loop; more of them
#: in a loop, or LLVM would take seconds.
MAX_UNROLLED_PAIRS = 100


def is_abi_supported() -> bool:
    """Whether objects have the expected binary layout: 64 bits, and a Python with the GIL."""
    return ctypes.sizeof(ctypes.c_void_p) == 8 and not sysconfig.get_config_var("Py_GIL_DISABLED")


@functools.cache
def entry_symbols() -> dict[str, int]:
    """The symbols that the generated text refers to, with their addresses."""
    api = ctypes.pythonapi
    found = {f"pb_dtype_{d.name}": id(d) for d in _checkable_dtypes()}
    found |= {"pb_array_type": id(np.ndarray), "pb_true": id(True), "pb_false": id(False), "pb_none": id(None)}
    found["pb_ellipsis"] = id(...)
    functions = {"incref": api.Py_IncRef, "give_lock": api.PyEval_SaveThread, "take_lock": api.PyEval_RestoreThread}
    found |= {f"pb_{name}": ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in functions.items()}
    return found


def _checkable_dtypes() -> list[np.dtype[Any]]:
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 float16 complex64 complex128"
    return [np.dtype(name) for name in names.split()]


def can_check(specs: Sequence[Spec]) -> bool:
    """Whether arrays of these specs can be checked: dtypes of other packages have no stable address."""
    names = {d.name for d in _checkable_dtypes()}
    return all(s.dtype.name in names for s in specs)


def render_entry(
    specs: Sequence[Spec], written: set[int], entries: Sequence[int], size: int, pieces: list[str], long: int
) -> str:
    """The function `call(self, arrays, count)`. `entries` are the places of the arrays' pointers in the table; the rest
    of the table is in the global `@rest`, filled when the program is linked. A `long` program releases the GIL while it
    runs; a concurrent call finds the arena taken and returns Ellipsis.
    """
    running = [f"  call void @{piece}(ptr %table)" for piece in pieces]
    lines = [
        f"  %table = alloca [{size} x ptr]",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr @rest, i64 {8 * size}, i1 false)",
        "  %status = alloca i32", "  store i32 0, ptr %status",
        f"  %statusp = getelementptr ptr, ptr %table, i64 {len(specs) + 1}", "  store ptr %status, ptr %statusp",
        f"  %enough = icmp eq i64 %count, {len(specs)}", "  br i1 %enough, label %arg0, label %no",
        *(line for i, spec in enumerate(specs) for line in _check_argument(i, spec, i in written, entries[i])),
        f"arg{len(specs)}:", *_check_apart(specs, written), *_run_pieces(running, long),
        "  %after = load i32, ptr %status", "  %good = icmp eq i32 %after, 0",
        "  br i1 %good, label %yes, label %outside",
    ]  # fmt: skip
    for label, found in (("outside", "none"), ("yes", "true"), ("no", "false"), ("taken", "ellipsis")):
        lines += [f"{label}:", f"  call void @pb_incref(ptr @pb_{found})", f"  ret ptr @pb_{found}"]
    constants = {"pb_array_type", "pb_true", "pb_false", "pb_none", "pb_ellipsis"}
    names = sorted({f"pb_dtype_{s.dtype.name}" for s in specs} | constants)
    declared = [f"@{name} = external global i8" for name in names]
    declared += ["declare void @pb_incref(ptr)", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
    declared += ["declare ptr @pb_give_lock()", "declare void @pb_take_lock(ptr)", "@taken = global i32 0"]
    declared += [f"@rest = global [{size} x ptr] zeroinitializer"]
    body = "\n".join(lines)
    return "\n".join([*declared, f"define ptr @call(ptr %self, ptr %arrays, i64 %count) {{\nentry:\n{body}\n}}"])


def _run_pieces(running: list[str], long: int) -> list[str]:
    if not isinstance(long, Operand):
        return _without_gil(running) if long else running
    return [
        f"  %gives = icmp ne i64 {long}, 0", "  br i1 %gives, label %gil, label %keep", "keep:", *running,
        "  br label %ran", "gil:", *_without_gil(running), "  br label %ran", "ran:",
    ]  # fmt: skip


def _without_gil(running: list[str]) -> list[str]:
    """Run without the GIL. Whether the arena is taken is read and written while holding it."""
    return [
        "  %other = load i32, ptr @taken", "  %free = icmp eq i32 %other, 0",
        "  br i1 %free, label %run, label %taken", "run:", "  store i32 1, ptr @taken",
        "  %state = call ptr @pb_give_lock()", *running, "  call void @pb_take_lock(ptr %state)",
        "  store i32 0, ptr @taken",
    ]  # fmt: skip


def _check_apart(specs: Sequence[Spec], written: set[int]) -> list[str]:
    """Memory that is written must not overlap another array: one's end is not after the other's start."""
    lines: list[str] = []
    pairs = [(i, j) for i in sorted(written) for j in range(len(specs)) if j not in written or i < j]
    if len(pairs) > MAX_UNROLLED_PAIRS:
        return _check_apart_in_loop(specs, written)
    for n, (i, j) in enumerate(pairs):
        if specs[i].nbytes and specs[j].nbytes:
            for a, b in ((i, j), (j, i)):
                lines.append(f"  %e{n}a{a} = getelementptr i8, ptr %o{a}data, i64 {specs[a].nbytes}")
                lines.append(f"  %e{n}b{a} = icmp ule ptr %e{n}a{a}, %o{b}data")
            lines.append(f"  %e{n}o = or i1 %e{n}b{i}, %e{n}b{j}")
            lines += [f"  br i1 %e{n}o, label %apart{n}, label %no", f"apart{n}:"]
    return lines


def _check_apart_in_loop(specs: Sequence[Spec], written: set[int]) -> list[str]:
    """The same for many arrays: their starts and ends go into two tables, those that are written first."""
    order = [i for i in (*sorted(written), *(j for j in range(len(specs)) if j not in written)) if specs[i].nbytes]
    count, first = len(order), sum(i in written for i in order)
    lines = [f"  %starts = alloca [{count} x i64]", f"  %ends = alloca [{count} x i64]"]
    for k, i in enumerate(order):
        lines += [
            f"  %s{k} = ptrtoint ptr %o{i}data to i64", f"  %e{k} = add i64 %s{k}, {specs[i].nbytes}",
            f"  %s{k}p = getelementptr i64, ptr %starts, i64 {k}", f"  store i64 %s{k}, ptr %s{k}p",
            f"  %e{k}p = getelementptr i64, ptr %ends, i64 {k}", f"  store i64 %e{k}, ptr %e{k}p",
        ]  # fmt: skip
    return [*lines, *_APART_LOOP.format(before=f"arg{len(specs)}", count=count, first=first).splitlines()]


_APART_LOOP = """  br label %one
one:
  %i = phi i64 [ 0, %{before} ], [ %next, %done ]
  %next = add i64 %i, 1
  %all = icmp eq i64 %i, {first}
  br i1 %all, label %apart, label %with
with:
  %ip = getelementptr i64, ptr %starts, i64 %i
  %iq = getelementptr i64, ptr %ends, i64 %i
  %is = load i64, ptr %ip
  %ie = load i64, ptr %iq
  br label %other.one
other.one:
  %j = phi i64 [ %next, %with ], [ %further, %fine ]
  %last = icmp eq i64 %j, {count}
  br i1 %last, label %done, label %test
test:
  %jp = getelementptr i64, ptr %starts, i64 %j
  %jq = getelementptr i64, ptr %ends, i64 %j
  %js = load i64, ptr %jp
  %je = load i64, ptr %jq
  %below = icmp ule i64 %ie, %js
  %above = icmp ule i64 %je, %is
  %either = or i1 %below, %above
  br i1 %either, label %fine, label %no
fine:
  %further = add i64 %j, 1
  br label %other.one
done:
  br label %one
apart:"""


def _check_argument(i: int, spec: Spec, written: bool, entry: int) -> list[str]:
    """The checks of one argument, and its pointer into the table."""
    wanted = _CONTIGUOUS | _ALIGNED | (_WRITEABLE if written else 0)
    tests = [
        f"icmp eq i32 %o{i}rank, {spec.ndim}", f"icmp eq ptr %o{i}descr, @pb_dtype_{spec.dtype.name}",
        f"icmp eq i32 %o{i}f, {wanted}",
    ]  # fmt: skip
    sizes = []
    for axis in range(spec.ndim):
        place = f"%o{i}d{axis}"
        sizes += [f"  {place}p = getelementptr i64, ptr %o{i}dims, i64 {axis}", f"  {place} = load i64, ptr {place}p"]
    return [
        f"arg{i}:", f"  %o{i}p = getelementptr ptr, ptr %arrays, i64 {i}", f"  %o{i} = load ptr, ptr %o{i}p",
        # the fields of anything that is no array must not be read, so the type is checked first
        *_load_field(i, "type", _TYPE, "ptr"), f"  %o{i}a = icmp eq ptr %o{i}type, @pb_array_type",
        f"  br i1 %o{i}a, label %body{i}, label %no", f"body{i}:",
        *_load_field(i, "rank", _RANK, "i32"), *_load_field(i, "descr", _DESCR, "ptr"),
        *_load_field(i, "flags", _FLAGS, "i32"), f"  %o{i}f = and i32 %o{i}flags, {wanted}",
        *_require_all(i, "k", tests, f"shape{i}"),
        # the rank is right, so there are as many sizes
        f"shape{i}:", *_load_field(i, "dims", _SHAPE, "ptr"), *sizes,
        *_require_all(i, "s", [f"icmp eq i64 %o{i}d{a}, {n}" for a, n in enumerate(spec.shape)], f"good{i}"),
        f"good{i}:", *_load_field(i, "data", _DATA, "ptr"),
        f"  %o{i}t = getelementptr ptr, ptr %table, i64 {entry}", f"  store ptr %o{i}data, ptr %o{i}t",
        f"  br label %arg{i + 1}",
    ]  # fmt: skip


def _load_field(i: int, name: str, offset: int, kind: str) -> list[str]:
    return [
        f"  %o{i}{name}p = getelementptr i8, ptr %o{i}, i64 {offset}",
        f"  %o{i}{name} = load {kind}, ptr %o{i}{name}p",
    ]


def _require_all(i: int, tag: str, tests: list[str], then: str) -> list[str]:
    if not tests:
        return [f"  br label %{then}"]
    lines = [f"  %o{i}{tag}0 = {tests[0]}"]
    so_far = f"%o{i}{tag}0"
    for n, test in enumerate(tests[1:], 1):
        lines += [f"  %o{i}{tag}{n} = {test}", f"  %o{i}{tag}all{n} = and i1 {so_far}, %o{i}{tag}{n}"]
        so_far = f"%o{i}{tag}all{n}"
    return [*lines, f"  br i1 {so_far}, label %{then}, label %no"]


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def make_python_function(address: int, name: str) -> tuple[Any, Any]:
    """A native address as a Python function of any number of arguments; and what must outlive the function."""
    method = _MethodDef(name.encode(), address, _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(ctypes.addressof(method), None, None), method
