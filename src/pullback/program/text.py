"""Program in, its text out: a line for each equation, every value with its spec. `parse` reads it back.

    graph(x0: float64[3])
      t0: float64[3] = multiply(x0, array(float64[3], [1.0, 2.0, 3.0]))
      t1: float64[] = sum(t0, axis=(0,), keepdims=False)
      return t1

Where arguments are trees, `from` shows (args, kwargs) with the inputs in their places. Constants that are long or
used more than once stand in a table at the end, and after it the routines of loops and branches. What cannot be
written (a function, a tracked tensor) is shown in angle brackets, and such a text cannot be read back.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten
from ..arrays.value import Value
from ..ops.index.normalize import SLOT
from .encoding import OPAQUE, LeafMarker, as_contiguous, decode_array, is_constant, template_of, to_base64
from .ir import Equation, Program, Symbol, nested_programs

#: Constants of more elements than this stand in the table.
_MAX_INLINE_ELEMENTS = 8


def format_program(program: Program, data: bool = True) -> str:
    """The text; without `data` the long constants show only their spec, and it cannot be read back."""
    writer = _TextWriter(program, data)
    head = ", ".join(f"{writer.names[id(s)]}: {format_spec(s.spec)}" for s in program.inputs)
    lines = [f"graph({head}){writer.arguments(program)}"]
    lines += [f"  {writer.line(e)}" for e in program.equations]
    lines.append(f"  return {writer.results(program)}")
    if writer.table:
        lines += ["constants", *(f"  {name} = {writer.array(a)}" for name, a in writer.table)]
    if writer.routines:
        lines += ["routines", *(f"  {line}" for r in writer.routines for line in writer.routine(r))]
    return "\n".join(lines)


def value_names(program: Program) -> dict[int, str]:
    """The names that the text has for the values of a program, by their ids."""
    return _TextWriter(program, False).names


def format_spec(spec: Spec) -> str:
    """A spec as text says it: `float64[2, 3]`, a Python number as its type, `float`."""
    if spec.weak:
        return spec.weak.__name__
    place = "" if spec.device == "cpu" else f" on {spec.device}"
    return f"{spec.dtype.name}[{', '.join(map(str, spec.shape))}]{place}"


class _TextWriter:
    """Names for all values of a program, and the table of its long constants."""

    def __init__(self, program: Program, data: bool) -> None:
        self.data = data
        self.routines = list(nested_programs(program.equations))
        self.names = {id(r): f"r{i}" for i, r in enumerate(self.routines)}
        programs = (program, *self.routines)
        for p in programs:
            made = [s for e in p.equations for s in e.results]
            self.names |= {id(s): f"x{i}" for i, s in enumerate(p.inputs)}
            self.names |= {id(s): f"t{i}" for i, s in enumerate(made)}
        self.table: list[tuple[str, Any]] = []
        used = [a for p in programs for a in (*(a for e in p.equations for a in e.args), *p.outputs)]
        arrays = [a for a in used if is_array(a) and is_constant(a)]
        counts = Counter(map(id, arrays))
        for a in arrays:
            if id(a) not in self.names and (counts[id(a)] > 1 or a.size > _MAX_INLINE_ELEMENTS):
                self.names[id(a)] = f"c{len(self.table)}"
                self.table.append((self.names[id(a)], a))

    def line(self, e: Equation) -> str:
        """One equation."""
        args = [self.argument(a) for a in e.args]
        static = [f"{k}={self.value(v)}" for k, v in e.static.items()]
        results = ", ".join(f"{self.names[id(s)]}: {format_spec(s.spec)}" for s in e.results)
        name = e.op.name if e.op.name.isidentifier() else json.dumps(e.op.name)
        return f"{results} = {name}({', '.join([*args, *static])})"

    def routine(self, r: Program) -> list[str]:
        """The lines of a routine, which has names of its own."""
        head = ", ".join(f"{self.names[id(s)]}: {format_spec(s.spec)}" for s in r.inputs)
        ends = ", ".join(self.argument(o) for o in r.outputs)
        return [f"{self.names[id(r)]}({head})", *(f"  {self.line(e)}" for e in r.equations), f"  return {ends}"]

    def argument(self, a: Any) -> str:
        return self.names.get(id(a)) or self.value(a)

    def arguments(self, program: Program) -> str:
        """Nothing where each argument is an array, else (args, kwargs) with the inputs in their places."""
        count = len(program.inputs)
        if program.arguments is None or program.arguments == flatten(((0,) * count, {}))[1]:
            return ""
        template = template_of(program.arguments, [LeafMarker(self.names[id(s)]) for s in program.inputs])
        return f" from <{program.arguments}>" if template is OPAQUE else f" from {self.value(template)}"

    def results(self, program: Program) -> str:
        """The outputs in the structure of the result."""
        names = [self.argument(o) for o in program.outputs]
        several = len(names) > 1 and program.results in (None, flatten((0,) * len(names))[1])
        if several or (len(names) == 1 and program.results is None):
            return ", ".join(names)
        template = template_of(
            flatten(())[1] if program.results is None else program.results, [LeafMarker(n) for n in names]
        )
        return f"<{program.results}> {', '.join(names)}" if template is OPAQUE else self.value(template)

    def value(self, v: Any) -> str:
        """A static value, an array or a number as text."""
        if v is None or type(v) in (bool, int, float, LeafMarker):
            return repr(v)
        if isinstance(v, np.generic):
            return self.value(v.item()) if v.dtype.kind in "biufc" else f"<{type(v).__name__}>"
        if isinstance(v, str):
            return json.dumps(v)
        if isinstance(v, complex):
            return f"complex({v.real!r}, {v.imag!r})"
        if isinstance(v, np.dtype):
            return v.name
        if is_array(v):
            return self.array(v)
        return self.names[id(v)] if isinstance(v, Program) else self.container(v)

    def container(self, v: Any) -> str:
        if type(v) is tuple:
            return f"({', '.join(map(self.value, v))}{',' if len(v) == 1 else ''})"
        if type(v) is list:
            return f"[{', '.join(map(self.value, v))}]"
        if type(v) is dict:
            return "{" + ", ".join(f"{self.value(k)}: {self.value(x)}" for k, x in v.items()) + "}"
        if isinstance(v, slice):
            return f"slice({', '.join(map(self.value, (v.start, v.stop, v.step)))})"
        if v is SLOT or v is Ellipsis:
            return "SLOT" if v is SLOT else "..."
        shown = f" {v.spec}" if isinstance(v, Value) else ""
        return f"<{'outer value' if isinstance(v, Symbol) else type(v).__name__}{shown}>"

    def array(self, a: Any) -> str:
        spec = spec_of(a)
        if not is_constant(a):
            return f"<array {spec}>"
        if a.size <= _MAX_INLINE_ELEMENTS:
            numbers = (
                as_contiguous(a).astype(np.float32).ravel().tolist()
                if a.dtype.name == "bfloat16"
                else a.ravel().tolist()
            )
            decoded = decode_array(Spec(spec.shape, spec.dtype), numbers)
            if decoded.tobytes() == as_contiguous(a).tobytes():  # a NaN may carry bits that no number shows
                return f"array({format_spec(spec)}, {self.value(numbers)})"
        if not self.data:
            return f"array({format_spec(spec)}, ...)"
        return f'array({format_spec(spec)}, "{to_base64(a)}")'
