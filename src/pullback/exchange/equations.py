"""Program in, a graph of another system out: each equation is written by the kernel or the form of its op.

Nothing here asks for an op's name. What an op's record says for the compiler (its kernel in the scalar vocabulary, its
form, that its value is a view) is what it needs to be written in another format; an op that says nothing is refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..arrays.backends import is_array, to_host
from ..arrays.call_site import format_line
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..compile.loop_ir import Layout, row_major_strides
from ..compile.lower.views import is_view, view_layouts
from ..compile.vocabulary import computation_dtype, is_narrow, value_dtype
from ..errors import ExportError
from ..ops.families import result_dtype
from ..ops.forms import (
    Cast,
    Contract,
    Convolve,
    Expand,
    Flow,
    Fourier,
    Gather,
    Join,
    Matrix,
    Name,
    Recompute,
    Reduce,
    Running,
    ScatterAdd,
    ScatterExtreme,
    Window,
    Write,
)
from ..ops.op import Op
from ..program.ir import Equation, Program, Symbol
from ..program.passes import expand_equation, expand_equation_anywhere
from ..program.stage import stage
from .complex_words import real_dtype
from .control_flow import write_flow
from .graph_writer import GraphWriter, NoEquivalent, Ref
from .indexing import write_gather, write_scatter
from .matrix_expansions import expand_matrix
from .moves import write_view
from .window_expansions import expand_convolution, expand_recurrence, expand_window
from .words import GraphWords


class ProgramWriter:
    """Writes programs through a `GraphWriter`; values are found by the id of their symbol."""

    def __init__(self, writer: GraphWriter) -> None:
        self.w = writer
        self._values: list[Op] = []

    def write(self, program: Program, inputs: Sequence[Ref]) -> list[Ref]:
        """The outputs of a program for references to its inputs."""
        known = {id(s): x for s, x in zip(program.inputs, inputs, strict=True)}
        for e in program.equations:
            try:
                self._check_exportable(e)
                found = self._write_equation(e, [self._ref(known, a) for a in e.args])
            except NoEquivalent as error:
                raise _refusal(e, self.w.format, str(error)) from None
            for symbol, x in zip(e.results, found, strict=True):
                spec = symbol.spec
                assert x.shape == spec.shape, f"{e.op.name}: wrote {x.shape}, wanted {spec.shape}"
                known[id(symbol)] = x if x.dtype == spec.dtype else self.w.cast(x, spec.dtype)
        return [self._ref(known, o) for o in program.outputs]

    def _check_exportable(self, e: Equation) -> None:
        if not e.effects.drop:
            raise NoEquivalent("its calls have an effect (they print, count, check, or meet other ranks)")

    def _ref(self, known: dict[int, Ref], x: Any) -> Ref:
        return known[id(x)] if isinstance(x, Symbol) else self.w.constant(_as_array(x))

    def _write_equation(self, e: Equation, args: list[Ref]) -> Sequence[Ref]:
        rule = RULES.get(type(e.op.form))
        if e.op.kernel is not None:
            return (self._write_elementwise(e, args),)
        if rule is not None:
            return rule(self, e, args)
        if is_view(e):
            return self._write_views(e, args[0])
        return self._write_value(e, args)

    def _write_elementwise(self, e: Equation, args: list[Ref]) -> Ref:
        out = e.results[0].spec
        specs = [spec_of(a) for a in e.args]
        dtype = computation_dtype(specs, out)
        if dtype.kind != "c" and any(s.dtype.kind == "c" for s in specs):  # parts of complex numbers
            dtype = result_dtype(specs)
        k = GraphWords(self.w, dtype)
        given = [k.constant(a) if type(a) in (int, float, bool) else x for a, x in zip(e.args, args, strict=True)]
        assert e.op.kernel is not None
        found: Ref = e.op.kernel(k, *given)
        return found if found.shape == out.shape else self.w.expand(found, out.shape)

    def _write_views(self, e: Equation, x: Ref) -> list[Ref]:
        source: Any = Layout(None, x.shape, row_major_strides(x.shape))  # type: ignore[arg-type]
        layouts = view_layouts(e.op, source, e.static)
        assert layouts is not None
        return [write_view(self.w, x, layout) for layout in layouts]

    def _write_value(self, e: Equation, args: list[Ref]) -> Sequence[Ref]:
        """An equation as the ops that its value is made of: values are written for any namespace of arrays, and that of
        tensors is one.
        """
        program = None
        if e.effects.repeat:  # else the one value of the trace would stand for those of all calls
            with suppress(Exception):  # whatever a library says of values that are not there yet
                program = stage(functools.partial(_run_value, e), *(spec_of(x) for x in e.args))
        if program is None or any(inner.op in (e.op, *self._values) for inner in program.equations):
            raise NoEquivalent("its record has no kernel and no form, and its value is not made of other ops")
        self._values.append(e.op)
        try:
            return self.write(program, args)
        finally:
            self._values.pop()

    def write_staged(self, function: Callable[..., Any], e: Equation, args: list[Ref]) -> Sequence[Ref]:
        """An equation as the ops that a function of its arguments calls."""
        return self.write(stage(function, *(spec_of(a) for a in e.args)), args)


def _run_value(e: Equation, *xs: Any) -> Any:
    """The value of an op on symbols, by our own functions."""
    found = e.op.value(xs[0].__array_namespace__(), *xs, **e.static)
    return tuple(map(_unwrap, found)) if isinstance(found, (tuple, list)) else _unwrap(found)


def _unwrap(x: Any) -> Any:
    return x.value if type(x) is Tensor else x


def _as_array(x: Any) -> Any:
    x = _unwrap(x)
    return np.asarray(to_host(x) if is_array(x) else x)


def _refusal(e: Equation, target: str, why: str) -> ExportError:
    site = e.site
    where = f"\n  at {format_line(site[0], site[1])}" if isinstance(site, tuple) else ""
    return ExportError(f"{target}: {e.op.name} cannot be exported: {why}.{where}", e.op.name, why)


def _write_cast(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    return (p.w.cast(args[0], e.results[0].spec.dtype),)


def _write_same(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    return (args[0],)


def _write_reduce(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    (x,), out, word = args, e.results[0].spec, e.op.form.word
    dtype = np.dtype(bool) if word.startswith("logical") else value_dtype(out.dtype)
    x = GraphWords(p.w, dtype).coerce(x)
    axes = tuple(sorted(a % x.ndim for a in e.static["axis"])) if x.ndim else ()
    found = p.w.reduce(word, x, axes) if axes else x
    return (found if found.shape == out.shape else p.w.reshape(found, out.shape),)


def _write_contract(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    specs = [spec_of(a) for a in e.args]
    labels, result = e.op.form.equation(specs, e.static)
    k = GraphWords(p.w, value_dtype(e.results[0].spec.dtype))
    sizes = {c: n for s, x in zip(labels, args, strict=True) for c, n in zip(s, x.shape, strict=True) if n != 1}
    given, letters = [], []
    for x, label in zip(args, labels, strict=True):
        # an axis of one element that broadcasts has no part in the sum
        kept = [i for i, (c, n) in enumerate(zip(label, x.shape, strict=True)) if sizes.get(c, 1) == n]
        short = x if len(kept) == x.ndim else p.w.reshape(x, tuple(x.shape[i] for i in kept))
        given.append(k.coerce(short))
        letters.append("".join(label[i] for i in kept))
    return (p.w.contract(letters, result, given),)


def _write_join(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    k = GraphWords(p.w, e.results[0].spec.dtype)
    return (p.w.concat([k.coerce(x) for x in args], e.static["axis"]),)


def _write_gather(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    return (write_gather(p.w, args[0], e.static["index"], args[1:]),)


def _write_scatter_add(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    out = e.results[0].spec
    dtype = np.dtype(np.float32) if is_narrow(out.dtype) else out.dtype
    zeros = p.w.expand(p.w.constant(np.zeros((), dtype)), out.shape)
    return (write_scatter(p.w, zeros, args[0], e.static["index"], args[1:], "add" if len(args) > 1 else None),)


def _write_write(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    x = GraphWords(p.w, e.results[0].spec.dtype).coerce(args[0])
    return (write_scatter(p.w, x, args[1], e.static["index"], args[2:], None),)


def _write_scatter_extreme(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    x = GraphWords(p.w, value_dtype(e.results[0].spec.dtype)).coerce(args[0])
    word = "minimum" if e.static["least"] else "maximum"
    return (write_scatter(p.w, x, args[1], e.static["index"], args[2:], word),)


def _write_convolve(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    out, how = e.results[0].spec, e.static
    if e.op.form.result != "y" or not math.prod(out.shape):
        return p.write_staged(expand_convolution(e.op.form.result, out, how), e, args)
    k = GraphWords(p.w, value_dtype(out.dtype))
    x, w = k.coerce(args[0]), k.coerce(args[1])
    return (p.w.convolve(x, w, how["stride"], how["padding"], how["dilation"], how["groups"]),)


def _write_window(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    return p.write_staged(expand_window(e.op.form.kind, e.results[0].spec, e.static), e, args)


def _write_running(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    word, axis, out = e.op.form.word, e.static["axis"], e.results[0].spec
    axis %= max(1, out.ndim)
    if word == "sort":
        # of a partial order, which may be one of many, the whole one is an instance
        return (p.w.sort_places(args[0], axis, e.static["descending"]),)
    if word == "recurrence":
        return p.write_staged(lambda a, b: expand_recurrence(a, b, axis), e, args)
    return (p.w.accumulate(word, GraphWords(p.w, value_dtype(out.dtype)).coerce(args[0]), axis),)


def _write_matrix(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    routine, made = e.op.form.routine, [s.spec for s in e.results]
    if p.w.has_routine(routine, made[0].dtype):
        k = GraphWords(p.w, made[0].dtype)
        return p.w.matrix(routine, [k.coerce(x) for x in args], e.static, made)
    expansion = expand_matrix(routine, made, e.static)
    if expansion is None:
        raise NoEquivalent(f"{p.w.format} has no operation for the routine {routine!r}")
    return p.write_staged(expansion, e, args)


def _write_fourier(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    """The transform of the last axes, with the factor that the norm asks for."""
    out, how, kind = e.results[0].spec, e.static, e.op.form.kind
    axes = how["axes"] if kind == "fft" else (how["axis"],)
    if not math.prod(out.shape):
        return (p.w.expand(p.w.constant(np.zeros((), out.dtype)), out.shape),)
    inverse = how.get("inverse", kind == "irfft")
    dtype = np.dtype(f"c{2 * out.dtype.itemsize}") if kind == "irfft" else out.dtype
    k = GraphWords(p.w, real_dtype(out.dtype) if kind == "rfft" else dtype)
    x = k.coerce(args[0])
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    x = x if order == tuple(range(x.ndim)) else p.w.transpose(x, order)
    sizes = (how["n"],) if kind == "irfft" else x.shape[x.ndim - len(axes) :]
    found = p.w.fourier(x, "ifft" if kind == "fft" and inverse else kind, sizes)
    count = math.prod(sizes)
    power = {"backward": -1.0 if inverse else 0.0, "forward": 0.0 if inverse else -1.0, "ortho": -0.5}[how["norm"]]
    k = GraphWords(p.w, out.dtype)
    found = k.multiply(found, k.constant(float(count) ** power)) if power else found
    return (p.w.transpose(found, tuple(order.index(i) for i in range(found.ndim))),)


def _write_expansion(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    expansion = expand_equation(e) if e.op.form.anywhere is None else expand_equation_anywhere(e)
    if expansion is None:
        raise NoEquivalent("it cannot be expressed in other ops for these arguments")
    symbols = [x for a, x in zip(e.args, args, strict=True) if isinstance(a, Symbol)]
    return p.write(expansion, symbols)


def _write_flow(p: ProgramWriter, e: Equation, args: list[Ref]) -> Sequence[Ref]:
    return write_flow(p.w, p.write, e, args)


#: How an equation without a kernel is written, by the form of its op.
RULES: dict[type, Callable[[ProgramWriter, Equation, list[Ref]], Sequence[Ref]]] = {
    Cast: _write_cast,
    Name: _write_same,
    Recompute: _write_same,
    Reduce: _write_reduce,
    Contract: _write_contract,
    Join: _write_join,
    Gather: _write_gather,
    ScatterAdd: _write_scatter_add,
    ScatterExtreme: _write_scatter_extreme,
    Write: _write_write,
    Convolve: _write_convolve,
    Window: _write_window,
    Running: _write_running,
    Matrix: _write_matrix,
    Expand: _write_expansion,
    Flow: _write_flow,
    Fourier: _write_fourier,
}
