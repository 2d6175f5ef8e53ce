"""Sums over ranks in memory that is given: the same tree of additions as `add_up`, so the same bits; natively, in one
pass that also sees whether all sums are finite.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.spec import HALF_CODES
from ...compile.cpu.runtime.link import has_llvm, link
from ...ops.dispatch import cast_array

#: Elements that NumPy adds at a time: terms and sum stay in the nearest caches.
_BLOCK = 16384
#: Sums of fewer bytes are NumPy's: a native call takes longer to make than such a sum.
_LEAST_NATIVE = 1 << 14
#: Bytes that native code adds at a time.
_WIDTH = 64
#: LLVM's names of the numbers that are added natively; complex ones are pairs of them.
_NATIVE = {"f": "float", "d": "double", "F": "float", "D": "double"}
#: Keeps machine code alive.
_codes: list[Any] = []


def add_up_into(terms: Sequence[Any], out: Any, *more: Any) -> bool | None:
    """The sum of flat arrays into others, by the binary tree of `add_up`. Whether it is finite; None if that was not
    looked at.
    """
    if out.nbytes >= _LEAST_NATIVE and (call := native_sum(terms, [out, *more])) is not None:
        return call()
    _add_up_by_numpy(terms, out)
    for other in more:
        other[...] = out
    return None


def _add_up_by_numpy(terms: Sequence[Any], out: Any) -> None:
    if out.dtype.char in HALF_CODES:
        sums = np.empty(out.shape, np.float32)
        _add_up_by_numpy([cast_array(t, np.dtype(np.float32)) for t in terms], sums)
        out[...] = cast_array(sums, out.dtype)
    elif len(terms) <= 2:
        _add_tree(terms, out)
    elif any(np.may_share_memory(t, out) for t in terms):  # in place: it must not change before it is read
        sums = np.empty_like(out)
        _add_up_by_numpy(terms, sums)
        out[...] = sums
    else:
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            _add_tree([t[block] for t in terms], out[block])


def _add_tree(terms: Sequence[Any], out: Any) -> None:
    if len(terms) == 1:
        out[...] = terms[0]
    elif len(terms) == 2:
        np.add(terms[0], terms[1], out=out)
    else:
        # pairs of pairs: the left branch has the largest power of two of the terms
        left = 1 << (len(terms) - 1).bit_length() - 1
        _add_tree(terms[:left], out)
        if len(terms) == left + 1:
            right = terms[left]
        else:
            right = np.empty_like(out)
            _add_tree(terms[left:], right)
        np.add(out, right, out=out)


def are_finite(arrays: Sequence[Any]) -> bool:
    """Whether all numbers of flat arrays are finite; few of one dtype are looked at together."""
    for dtype in dict.fromkeys(x.dtype for x in arrays):
        own = [x for x in arrays if x.dtype == dtype]
        if dtype.kind in "fcV" and not np.isfinite(np.concatenate(own) if len(own) > 1 else own[0]).all():
            return False
    return True


def native_sum(terms: Sequence[Any], outs: Sequence[Any]) -> Callable[[], bool] | None:
    """What adds up flat arrays natively and stores the sum in each of some others; it returns whether it is finite.
    None without a compiler, or for other dtypes.
    """
    kind = _NATIVE.get(outs[0].dtype.char)
    if kind is None or not has_llvm():
        return None
    addresses = [x.__array_interface__["data"][0] for x in (*terms, *outs)]
    return native_sum_at(addresses, len(terms), outs[0].dtype, len(outs[0]))


def native_sum_at(addresses: Sequence[int], terms: int, dtype: Any, count: int) -> Callable[[], bool] | None:
    """The same by addresses: those of so many terms, then of results."""
    kind = _NATIVE.get(dtype.char)
    if kind is None or not has_llvm():
        return None
    function = _native_function(kind, terms, len(addresses) - terms)
    return functools.partial(function, *addresses, count * (2 if dtype.kind == "c" else 1))


@functools.cache
def _native_function(kind: str, terms: int, outs: int) -> Callable[..., bool]:
    code = link(_render_sum(kind, terms, outs), ["sum_terms"])
    _codes.append(code)
    pointers = [ctypes.c_void_p] * (terms + outs)
    return ctypes.CFUNCTYPE(ctypes.c_bool, *pointers, ctypes.c_int64)(code.addresses["sum_terms"])


def _render_sum(kind: str, terms: int, outs: int) -> str:
    """A loop over vectors, and one over what is left. A sum times zero is zero if it is finite, and NaN otherwise:
    these are added up too.
    """
    lanes = _WIDTH // (4 if kind == "float" else 8)
    fold = f"@llvm.vector.reduce.fadd.v{lanes}f{_WIDTH * 8 // lanes}"
    pointers = ", ".join(f"ptr %p{i}" for i in range(terms + outs))
    vector = f"<{lanes} x {kind}>"
    return "\n".join([
        f"declare {kind} {fold}({kind}, {vector})",
        f"define zeroext i1 @sum_terms({pointers}, i64 %count) nounwind {{",
        "entry:",
        f"  %whole = and i64 %count, {-lanes}",
        *_render_loop("v", vector, lanes, terms, outs, "entry", "0", "%whole", "middle", "zeroinitializer"),
        "middle:",
        f"  %folded = call {kind} {fold}({kind} 0.0, {vector} %v_seen)",
        *_render_loop("s", kind, 1, terms, outs, "middle", "%whole", "%count", "end", "%folded"),
        "end:",
        f"  %is_finite = fcmp ord {kind} %s_seen, 0.0",
        "  ret i1 %is_finite",
        "}",
    ])  # fmt: skip


def _render_loop(
    name: str, value: str, step: int, terms: int, outs: int, before: str, start: str, stop: str, after: str, seen: str
) -> list[str]:
    """A loop that adds up values of a type, from one place to another."""
    align = 8 if "double" in value else 4
    lines, loads = [], []
    for i in range(terms):
        lines += [
            f"  %{name}_a{i} = getelementptr {_scalar(value)}, ptr %p{i}, i64 %{name}_at",
            f"  %{name}_x{i} = load {value}, ptr %{name}_a{i}, align {align}",
        ]
        loads.append(f"%{name}_x{i}")
    total = _render_tree(name, value, loads, lines)
    for i in range(terms, terms + outs):
        lines += [
            f"  %{name}_a{i} = getelementptr {_scalar(value)}, ptr %p{i}, i64 %{name}_at",
            f"  store {value} {total}, ptr %{name}_a{i}, align {align}",
        ]
    zero = "zeroinitializer" if value.startswith("<") else "0.0"
    return [
        f"  br label %{name}_test",
        f"{name}_test:",
        f"  %{name}_at = phi i64 [ {start}, %{before} ], [ %{name}_next, %{name}_body ]",
        f"  %{name}_seen = phi {value} [ {seen}, %{before} ], [ %{name}_sum, %{name}_body ]",
        f"  %{name}_more = icmp slt i64 %{name}_at, {stop}",
        f"  br i1 %{name}_more, label %{name}_body, label %{after}",
        f"{name}_body:",
        *lines,
        f"  %{name}_zero = fmul {value} {total}, {zero}",
        f"  %{name}_sum = fadd {value} %{name}_seen, %{name}_zero",
        f"  %{name}_next = add nsw i64 %{name}_at, {step}",
        f"  br label %{name}_test",
    ]


def _scalar(value: str) -> str:
    return value.split()[-1].rstrip(">")


def _render_tree(name: str, value: str, values: list[str], lines: list[str]) -> str:
    """Adds by pairs, as `add_up` does, to the lines; the name of the sum."""
    level = 0
    while len(values) > 1:
        pairs = []
        for i in range(0, len(values) - 1, 2):
            pairs.append(f"%{name}_t{level}_{i}")
            lines.append(f"  {pairs[-1]} = fadd {value} {values[i]}, {values[i + 1]}")
        values, level = pairs + values[2 * len(pairs) :], level + 1
    return values[0]
