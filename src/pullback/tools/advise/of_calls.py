"""Advice on calls: what compiling gains, arguments that are copied or mixed in dtype, compiled functions' histories."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arrays.backends import is_array, is_device_array
from ...arrays.origin import find_origin
from ...arrays.text import format_seconds
from ...arrays.trees import flatten, leaf_paths, map_tree
from ...arrays.value import unwrap_array
from ...checkpoint.recompute.runs import SecondRun
from ...compile.explain import CallLog
from ...compile.jit import jit
from ...compile.recompilation import describe_change
from ...instrument import Instrument, OpCall
from ...settings import installed, override_modes, override_native, uses_native_code
from .report import Advice
from .subject import Subject
from .timing import best_of

#: Calls shorter than this are worth looking at for what they cost besides their arithmetic.
_SHORT = 1e-3
#: A call of a few arrays takes about two microseconds.
_LEAST_OVERHEAD = 4e-6


def advise_compiling(subject: Subject) -> Iterator[Advice]:
    """A function that runs op by op, compiled."""
    if subject.is_compiled:
        return
    if subject.form is None:
        first, _, rest = subject.why_not_traced.partition("\n")
        where = next((line.strip()[3:] for line in rest.split("\n") if line.strip().startswith("at ")), "")
        yield Advice("compile", f"it cannot be traced: {first}", "pb.jit, once it can be traced", where)
        return
    compiled = jit(subject.f)
    count = len(subject.form.staged.equations)
    yield subject.try_change(
        "compile", f"it runs op by op: {count} ops", "pb.jit(f)", subject.where,
        lambda: compiled(*subject.args, **subject.kwargs),
    )  # fmt: skip


def advise_fused_calls(subject: Subject) -> Iterator[Advice]:
    """Functions of `pb.nn` and of `pb.fuse` that ran op by op, and why."""
    if subject.is_compiled:
        return
    log = CallLog(uses_native_code())
    with override_native(log):
        subject.call()
    for name, count, specs, how in log.rows():
        if how.startswith("op by op"):
            yield Advice("fallback", f"{name}({specs}), called {count} times, runs {how}", "", subject.where)


def advise_layout(subject: Subject) -> Iterator[Advice]:
    """Arguments that are not contiguous: native code copies them at each call, NumPy reads them slowly."""
    paths = _paths_where(subject, lambda x: not x.flags.c_contiguous)
    if paths:
        args, kwargs = map_tree(_as_contiguous, (subject.args, subject.kwargs))
        yield subject.try_change(
            "layout", f"arguments {', '.join(paths)} are not contiguous", "np.ascontiguousarray, once, before the call",
            subject.where, lambda: subject.twin(*subject.given(args), **kwargs),
        )  # fmt: skip


def advise_dtypes(subject: Subject) -> Iterator[Advice]:
    """float64 arguments beside float32 ones: what meets them becomes float64."""
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    if not _paths_where(subject, lambda x: x.dtype == single):
        return
    paths = _paths_where(subject, lambda x: x.dtype == double)
    if paths:
        args, kwargs = map_tree(_as_single, (subject.args, subject.kwargs))
        yield subject.try_change(
            "float64", f"arguments {', '.join(paths)} are float64, others float32",
            "convert them to float32, once, before the call", subject.where,
            lambda: subject.twin(*subject.given(args), **kwargs),
        )  # fmt: skip


def advise_recompilations(subject: Subject) -> Iterator[Advice]:
    """Kinds of arguments that a compiled function was traced for before."""
    if subject.traces < 2 or not subject.kinds:
        return
    what, change = describe_change(subject.kinds)
    count = f"traced {subject.traces} times ({format_seconds(subject.spent)} for the forms it has): {what}"
    yield Advice("recompilation", count, change, subject.where)


def advise_donations(subject: Subject) -> Iterator[Advice]:
    """Donated arguments that no result overwrites."""
    form = subject.form
    if not subject.is_compiled or form is None:
        return
    used = set(form.donated.values())
    unused = [i for i in form.donated_inputs if i not in used]
    if unused:
        specs = ", ".join(str(form.specs[i]) for i in unused)
        yield Advice(
            "donation", f"donated, but overwritten by no result: {specs}",
            "donate arguments whose shape and dtype a result has", subject.where,
        )  # fmt: skip


def advise_call_overhead(subject: Subject) -> Iterator[Advice]:
    """Of a short compiled call, what passes before and after native code; on a GPU, what the host takes."""
    form = subject.form
    if not subject.is_compiled or form is None or form.code.compilation is None or form.states:
        return
    host, done = best_of(subject.call, subject.seconds)
    if any(is_device_array(unwrap_array(x)) for x in flatten(subject.args)[0]):
        if host > 0.8 * done:
            what = f"the host takes {format_seconds(host)} of {format_seconds(done)}: the device waits for it"
            yield Advice("overhead", what, "do more in one call: several steps in a pb.scan", subject.where)
        return
    leaves = [np.asarray(unwrap_array(x)) for x in flatten((subject.args, subject.kwargs))[0]]
    every = [*leaves, *map(unwrap_array, form.captured)]
    is_copied = any(not x.flags.c_contiguous for x in leaves)  # which is advice of its own
    if done > _SHORT or is_copied or len(every) != len(form.specs) or form.donated:
        return
    arrays = [np.ascontiguousarray(x, s.dtype) for x, s in zip(every, form.specs, strict=True)]
    native = best_of(functools.partial(form.code.run, arrays), subject.seconds)[1]
    if done > 1.5 * native and done - native > _LEAST_OVERHEAD:
        what = f"{format_seconds(native)} of {format_seconds(done)} are native code, the rest is the call"
        change = f"fewer leaves in the arguments ({len(leaves)}), or several steps in one call by pb.scan"
        yield Advice("overhead", what, change, subject.where)


def _paths_where(subject: Subject, holds: Any) -> list[str]:
    """The paths of NumPy arrays among the arguments for which something holds."""
    leaves, structure = flatten((subject.args, subject.kwargs))
    arrays = map(unwrap_array, leaves)
    return [p[3:] for x, p in zip(arrays, leaf_paths(structure), strict=True) if type(x) is np.ndarray and holds(x)]


def _as_contiguous(x: Any) -> Any:
    return _map_array(x, np.ascontiguousarray)


def _as_single(x: Any) -> Any:
    return _map_array(x, lambda a: a.astype(np.float32) if a.dtype == np.float64 else a)


def _map_array(x: Any, change: Any) -> Any:
    """A leaf with its array changed; of a tensor, a tensor that requires what it did."""
    if is_array(x):
        return change(x) if type(x) is np.ndarray else x
    found = unwrap_array(x)
    return x.with_parts(change(found)) if type(found) is np.ndarray and found is not x else x


class _RecomputeClock(Instrument):
    """The number and the time of ops that checkpoints compute again, by the first line."""

    measures = True

    def __init__(self) -> None:
        self.count, self.seconds, self.where = 0, 0.0, ""

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        if call.level > 1 or installed().innermost(SecondRun) is None:
            return below()
        start = time.perf_counter()
        out = below()
        self.seconds += time.perf_counter() - start
        self.count += 1
        origin = None if self.where else find_origin(sys._getframe(1))
        self.where = self.where if origin is None else origin.line
        return out


def advise_recomputed_ops(subject: Subject) -> Iterator[Advice]:
    """What checkpoints of the eager loop compute again."""
    if subject.is_compiled:
        return
    clock = _RecomputeClock()
    with override_modes(clock):
        subject.call()
    if clock.count:
        what = f"checkpoints compute {clock.count} ops again, {format_seconds(clock.seconds)} of a call"
        yield Advice("checkpoint", what, "a policy that saves more, or no checkpoint", clock.where)
