"""Elementwise programs on a GPU, one kernel each, for the eager path: an op's value, or a whole rule of its derivative.

The size is a parameter of the kernel, so one kernel serves all shapes. Arguments are contiguous and of one shape, or
single numbers; the array library runs the program op by op where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.spec import Spec, spec_of
from ...ops.dispatch import apply
from ...ops.forms import Cast
from ...ops.op import Op
from ...program.ir import Equation, Program, Symbol
from ...program.run import run
from ...program.stage import stage
from ..vocabulary import computation_dtype
from .preamble import PREAMBLE
from .runtime import link
from .runtime.eager_launch import make_launch
from .words import CudaValue, CudaWords, c_type

Function = Callable[..., Any]
_FUNCTION = "elementwise"


def bind_kernel(op: Op, specs: Sequence[Spec], static: dict[str, Any]) -> Function | None:
    """An elementwise op as a function of arrays that launches one kernel; None if it has none for these specs."""
    if op.kernel is None or static or any(s.weak is not None for s in specs):
        return None
    bound = bind_program(stage(lambda *args: apply(op, *args), *specs))
    return None if bound is None else lambda *arrays: bound(*arrays)[0]


def bind_program(program: Program) -> Function | None:
    """A program of elementwise ops as a function of arrays that launches one kernel and returns its results; None if
    it is more than that.
    """
    shape = _common_shape(program)
    if shape is None or link.why_unavailable() or not all(_is_elementwise(e) for e in program.equations):
        return None
    specs = [s.spec for s in program.inputs]
    text = _render_text(program, [s.shape == shape for s in specs])
    results = [(shape, spec_of(o).dtype) for o in program.outputs]
    device = int(specs[0].device.partition(":")[2])
    launch = make_launch(text, _FUNCTION, device, math.prod(shape), len(specs), results)

    def call(*arrays: Any) -> Any:
        found = launch(arrays)
        return run(program, arrays) if found is None else found

    return call


def _common_shape(program: Program) -> tuple[int, ...] | None:
    """The shape of all results, if every argument has it too or is a single number."""
    results = [s.spec for e in program.equations for s in e.results]
    if not results or not all(isinstance(o, Symbol) for o in program.outputs):
        return None
    shape = max((s.shape for s in results), key=len)
    outs = {spec_of(o).shape for o in program.outputs}
    others = {s.shape for s in (*results, *(s.spec for s in program.inputs))}
    return shape if outs == {shape} and others <= {shape, ()} and 0 not in shape else None


def _is_elementwise(e: Equation) -> bool:
    """Whether the equation is one line of a kernel."""
    target, given = link.cuda_target(), [spec_of(a) for a in e.args]
    if len(e.results) != 1 or not all(isinstance(a, Symbol) or type(a) in (bool, int, float) for a in e.args):
        return False
    dtypes = [e.results[0].spec.dtype, *(s.dtype for s in given)]
    if not all(map(target.computes_in, dtypes)):
        return False
    if isinstance(e.op.form, Cast):
        return True
    known = e.op.family == "elementwise" and not e.static and e.op.kernel is not None
    return known and target.supports(e.op, tuple(given), e.results[0].spec)


def _render_text(program: Program, whole: Sequence[bool]) -> str:
    """The kernel: each thread computes elements a grid apart."""
    words = CudaWords()
    known: dict[int, CudaValue] = {}
    given = []
    for i, (symbol, is_whole) in enumerate(zip(program.inputs, whole, strict=True)):
        dtype = symbol.spec.dtype
        given.append(f"const {c_type(dtype)}* a{i}")
        known[id(symbol)] = words.assign(f"a{i}[{'i' if is_whole else '0'}]", dtype)
    for e in program.equations:
        known[id(e.results[0])] = _render_equation(words, e, known)
    stores = []
    for i, out in enumerate(program.outputs):
        given.append(f"{c_type(out.spec.dtype)}* r{i}")
        stores.append(f"r{i}[i] = {known[id(out)].name};")
    body = "\n    ".join([*words.lines, *stores])
    parameters = ", ".join([*given, "long long n"])
    return (
        f'{PREAMBLE}\nextern "C" __global__ void __launch_bounds__(256) {_FUNCTION}({parameters}) {{\n'
        "  const long long step = (long long)gridDim.x * blockDim.x;\n"
        "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {\n"
        f"    {body}\n  }}\n}}\n"
    )


def _render_equation(words: CudaWords, e: Equation, known: dict[int, CudaValue]) -> CudaValue:
    out = e.results[0].spec.dtype
    if isinstance(e.op.form, Cast):
        return words.cast(known[id(e.args[0])], out)
    dtype = computation_dtype([spec_of(a) for a in e.args], e.results[0].spec)
    words.dtype = dtype
    args = [known[id(a)] if isinstance(a, Symbol) else words.number(a, dtype) for a in e.args]
    assert e.op.kernel is not None
    return words.cast(e.op.kernel(words, *args), out)
