"""Which target compiles a program: a table by the device of its arguments. NumPy runs what no target takes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..arrays.spec import Spec, spec_of
from ..errors import MemoryBudgetError
from ..ops.lazy import lazy_function
from ..program.ir import Program
from .cpu.runtime.link import has_llvm
from .cpu.target import DTYPES, find_cpu_target
from .cuda.words import C_TYPES
from .numpy_runner import NumpyRunner
from .pipeline import compile_program
from .reference.checked_runner import CheckedRunner
from .target import Options, Runner, Target, UnlinkableCodeError
from .vocabulary import FLOAT8_DTYPES

_why_no_cuda = lazy_function("cuda.runtime.link", "why_unavailable", "compile")
#: By the kind of device: the target of a program whose arguments are there; None if it cannot take this program.
TARGETS: dict[str, Callable[[Program], Target | None]] = {
    "cpu": find_cpu_target,
    "cuda": lazy_function("cuda.runtime.link", "find_cuda_target", "compile"),
}

#: Arguments of the host that take no more, such as keys of random draws, are copied to a device in each call.
SMALL_ARGUMENT_BYTES = 64
#: By the kind of device, the dtypes of arrays that native code takes.
NATIVE_DTYPES: dict[str, Collection[str]] = {"cpu": DTYPES, "cuda": frozenset(C_TYPES) - FLOAT8_DTYPES}


def takes_arrays_of(spec: Spec) -> bool:
    """Whether native code takes arrays of a spec."""
    return spec.dtype.name in NATIVE_DTYPES.get(spec.device.partition(":")[0], ()) and spec.dtype.isnative


def find_target(program: Program) -> Target | None:
    devices = _devices_of(program)
    find = TARGETS.get(devices[0].partition(":")[0])
    return None if len(devices) > 1 or find is None else find(program)  # moves between devices are left to ops


def _devices_of(program: Program) -> list[str]:
    """Where the arrays of a program lie; numbers and small arguments of the host go where the arrays are."""
    moved = [r for e in program.equations if "device" in e.static for r in e.results]
    specs = [symbol.spec for symbol in (*program.inputs, *moved)]
    devices = sorted({spec.device for spec in specs}) or ["cpu"]
    outs = [spec_of(o) for o in program.outputs]
    are_small = all(s.device != "cpu" or s.nbytes <= SMALL_ARGUMENT_BYTES for s in specs)
    if len(devices) > 1 and are_small and all(s.device != "cpu" or not s.shape for s in outs):
        devices = [device for device in devices if device != "cpu"]
    return devices


def explain_fallback(program: Program) -> str:
    """Why no target takes a program."""
    if any(s.spec.device != "cpu" for s in program.inputs):
        return str(_why_no_cuda()) or "its arrays are on several devices"
    if not has_llvm():
        return 'llvmlite is not installed (pip install "pullback[jit]")'
    return "no target takes its devices or the layout of its arrays"


def make_runner(program: Program, options: Options, lines: dict[int, Any] | None = None) -> Runner:
    """The fastest runner of a program on its device; with the user's `lines` of its equations, one that is checked
    against the reference.
    """
    target = find_target(program)
    why = explain_fallback(program) if target is None else ""
    if target is not None:
        try:
            runner = compile_program(program, target, options)
            return runner if lines is None else CheckedRunner(runner, lines)
        except UnlinkableCodeError as error:
            why = str(error)
    if options.limit is not None:
        raise MemoryBudgetError(
            f"jit: this program falls back to {library_of(program)}, whose memory is not planned, so no budget can be "
            "kept.\n  Leave memory_budget out, or run the function itself under pb.memory_budget, without jit."
        )
    return NumpyRunner(program, options.donated, why)


def library_of(program: Program) -> str:
    """The library that executes a program op by op."""
    return "CuPy" if any(s.spec.device != "cpu" for s in program.inputs) else "NumPy"
