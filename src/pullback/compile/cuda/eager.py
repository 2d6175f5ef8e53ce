"""Elementwise programs on a GPU, one kernel each, for the eager path: an op's value, or a whole rule of its derivative.

Sizes are parameters of the kernel, so one kernel serves all shapes. Arguments are of one shape, or repeat along its
leading axes, as numbers and biases do; CuPy runs the program op by op where they are not. Arguments with gaps, or in
another order, are copied first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.backends import is_device_array
from ...arrays.spec import Spec, spec_of
from ...ops.dispatch import apply
from ...ops.forms import Cast
from ...ops.op import Op
from ...ops.plans import new_table
from ...ops.shape.reshaping import reshape_op
from ...program.ir import Equation, Program, Symbol
from ...program.stage import stage
from ..loop_ir import Buffer, Layout
from ..lower.views import view_layouts
from ..target import UnlinkableCodeError
from ..vocabulary import operation_dtype, value_dtype
from .preamble import PREAMBLE
from .runtime import copies, link
from .runtime.eager_launch import KernelLaunch, make_launch
from .words import CudaValue, CudaWords, c_type

Function = Callable[..., Any]
_FUNCTION = "elementwise"
#: Kernels that were asked for outside of plans, by op and specs.
_kernels: Any = new_table()
_MAX_KERNELS = 1 << 12
_LOG = logging.getLogger("pullback")


def bind_kernel(op: Op, specs: Sequence[Spec], static: dict[str, Any]) -> Function | None:
    """An elementwise op as a function of arrays that launches one kernel; None if it has none for these specs."""
    if op.kernel is None or static or any(s.weak is not None for s in specs):
        return None
    program = stage(lambda *args: apply(op, *args), *specs)
    launch = _find_launch(program)
    return None if launch is None else launch.compute


def bind_concat(specs: Sequence[Spec], axis: int) -> Function | None:
    """Arrays of these specs joined along an axis by one kernel; None if it is left to CuPy."""
    return None if link.why_unavailable() else copies.bind_concat(specs, axis)


def bind_reshape(x: Spec, shape: tuple[int, ...]) -> Function | None:
    """Arrays of a spec in another shape: views, or where they lie otherwise, copies by one kernel."""
    if link.why_unavailable():
        return None
    are_views: dict[tuple[int, ...], bool] = {}

    def reshape(array: Any) -> Any:
        if not array._c_contiguous:
            strides = array.strides
            if strides not in are_views:
                steps = tuple(s // x.dtype.itemsize for s in strides)
                probe = Layout(Buffer("input", x.size, x.dtype), x.shape, steps)
                are_views[strides] = view_layouts(reshape_op, probe, {"shape": shape}) is not None
            array = array if are_views[strides] else copies.copy_contiguous(array)
        return array.reshape(shape)

    return reshape


def log_failure(op: Op, error: Exception) -> None:
    """Say that a planned call of an op failed where CuPy's own did not."""
    _LOG.warning("%s: its planned call failed, CuPy ran it: %s", op.name, error)


def compute_kernel(op: Op, arrays: Sequence[Any]) -> Any:
    """The value of an elementwise op on arrays of a GPU by its kernel; None if it has none for them."""
    if not all(map(is_device_array, arrays)):
        return None
    specs = [spec_of(x) for x in arrays]
    key = op.name, *specs
    if key not in _kernels:
        if len(_kernels) >= _MAX_KERNELS:
            _kernels.clear()
        _kernels[key] = bind_kernel(op, specs, {})
    found = _kernels[key]
    try:
        return None if found is None else found(*arrays)
    except Exception as error:  # CuPy is asked, as where a plan fails
        log_failure(op, error)
        return None


def bind_program(program: Program) -> Function | None:
    """A program of elementwise ops as a function of arrays that launches one kernel and returns its results, the first
    in memory that may be given as `out`; None if it is more than that.
    """
    launch = _find_launch(program)
    return None if launch is None else launch.run


def _find_launch(program: Program) -> KernelLaunch | None:
    shape = _common_shape(program)
    if shape is None or link.why_unavailable() or not all(map(is_elementwise, program.equations)):
        return None
    specs, size = [s.spec for s in program.inputs], math.prod(shape)
    # after how many elements an argument repeats itself
    periods = [s.size if s.size < size else 0 for s in specs]
    results = [(shape, spec_of(o).dtype) for o in program.outputs]
    device = int(specs[0].device.partition(":")[2])
    text = _render_text(program, periods, "unsigned" if size < 1 << 31 else "unsigned long long")
    sizes = (size, *(p for p in periods if p > 1))
    try:
        return make_launch(text, _FUNCTION, device, sizes, len(specs), results, lay_out=copies.copy_contiguous)
    except UnlinkableCodeError as error:
        _LOG.warning("a kernel of eager ops cannot be compiled, CuPy runs them: %s", error)
        return None


def _common_shape(program: Program) -> tuple[int, ...] | None:
    """The shape of all results, if every argument has it too or its last axes."""
    results = [s.spec for e in program.equations for s in e.results]
    if not results or not all(isinstance(o, Symbol) for o in program.outputs):
        return None
    shape = max((s.shape for s in results), key=len)
    outs = {spec_of(o).shape for o in program.outputs}
    if outs != {shape} or 0 in shape or any(s.shape not in ((), shape) for s in results):
        return None
    given = [s.spec.shape for s in program.inputs]
    return shape if all(shape[len(shape) - len(other) :] == other for other in given) else None


def is_elementwise(e: Equation) -> bool:
    """Whether the equation is one line of a kernel."""
    target, given = link.cuda_target(), [spec_of(a) for a in e.args]
    if len(e.results) != 1 or not all(isinstance(a, Symbol) or _is_number(a) for a in e.args):
        return False
    dtypes = [e.results[0].spec.dtype, *(s.dtype for s in given)]
    if not all(map(target.computes_in, dtypes)):
        return False
    if isinstance(e.op.form, Cast):
        return True
    known = e.op.family == "elementwise" and not e.static and e.op.kernel is not None
    return known and target.supports(e.op, tuple(given), e.results[0].spec)


def _is_number(x: Any) -> bool:
    """Whether a constant is one number, or an array of one."""
    return type(x) in (bool, int, float) or (isinstance(x, np.ndarray) and x.size > 0 and bool(np.all(x == x.flat[0])))


def _render_text(program: Program, periods: Sequence[int], index: str) -> str:
    """The kernel: each thread computes elements a grid apart."""
    words = CudaWords()
    known: dict[int, CudaValue] = {}
    given, sizes = [], [f"{index} n"]
    for i, (symbol, period) in enumerate(zip(program.inputs, periods, strict=True)):
        dtype = symbol.spec.dtype
        given.append(f"const {c_type(dtype)}* a{i}")
        place = "0" if period == 1 else f"i % p{i}" if period else "i"
        known[id(symbol)] = words.assign(f"a{i}[{place}]", dtype)
        sizes += [f"{index} p{i}"] if period > 1 else []
    for e in program.equations:
        known[id(e.results[0])] = render_equation(words, e, known)
    stores = []
    for i, out in enumerate(program.outputs):
        given.append(f"{c_type(out.spec.dtype)}* r{i}")
        stores.append(f"r{i}[i] = {known[id(out)].name};")
    body = "\n    ".join([*words.lines, *stores])
    parameters = ", ".join([*given, *sizes])
    return (
        f'{PREAMBLE}\nextern "C" __global__ void __launch_bounds__(256) {_FUNCTION}({parameters}) {{\n'
        f"  const {index} step = ({index})gridDim.x * blockDim.x;\n"
        f"  for ({index} i = ({index})blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{\n"
        f"    {body}\n  }}\n}}\n"
    )


def render_equation(words: CudaWords, e: Equation, known: dict[int, CudaValue]) -> CudaValue:
    out = e.results[0].spec.dtype
    if isinstance(e.op.form, Cast):
        return words.cast(known[id(e.args[0])], out)
    dtype = operation_dtype([spec_of(a) for a in e.args], e.results[0].spec)
    words.dtype = value_dtype(dtype)
    args = [known[id(a)] if isinstance(a, Symbol) else words.number(np.asarray(a).flat[0], dtype) for a in e.args]
    assert e.op.kernel is not None
    return words.cast(e.op.kernel(words, *args), out)
