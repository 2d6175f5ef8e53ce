"""Function and specs in, a program out: the same ops, written down instead of computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.specialise import Equation, Symbol, replay, write_down

__all__ = ["Program", "stage"]


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs, equations in order, outputs. `run` replays it, `text` prints it."""

    inputs: tuple[Symbol, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]

    def run(self, *arrays: Any) -> Any:
        """Replay the program on arrays, or on anything else ops take."""
        if len(arrays) != len(self.inputs):
            raise ArgumentError(f"this program wants {len(self.inputs)} inputs, got {len(arrays)}.")
        for symbol, array in zip(self.inputs, arrays, strict=True):
            if spec_of(array).shape != symbol.spec.shape or spec_of(array).dtype != symbol.spec.dtype:
                raise ShapeError(f"this program was staged for {symbol.spec}, got {spec_of(array)}.")
        found = tuple(replay(self.inputs, self.equations, self.outputs, arrays))
        return found[0] if len(found) == 1 else found

    def text(self) -> str:
        """The program, a line for each equation."""
        names = {id(s): f"x{i}" for i, s in enumerate(self.inputs)}
        made = (s for e in self.equations for s in e.results)
        names |= {id(s): f"t{i}" for i, s in enumerate(made)}

        def show(a: Any) -> str:
            return names.get(id(a)) or (repr(a) if spec_of(a).weak else f"constant {spec_of(a)}")

        head = ", ".join(f"{names[id(s)]}: {s.spec}" for s in self.inputs)
        lines = [f"program({head})"]
        for e in self.equations:
            static = [f"{k}={v}" for k, v in e.static.items()]
            results = ", ".join(f"{names[id(s)]}: {s.spec}" for s in e.results)
            lines.append(f"  {results} = {e.op.name}({', '.join([*map(show, e.args), *static])})")
        return "\n".join([*lines, f"  return {', '.join(map(show, self.outputs))}"])


def stage(f: Callable[..., Any], *examples: Any) -> Program:
    """Run f on symbols with the specs of the examples (arrays or specs) and keep what it did as a program.

    >>> import numpy as np, pullback as pb
    >>> from pullback.graph import stage
    >>> print(stage(lambda x: pb.sum(pb.sin(x) * 2.0), np.zeros(3)).text())
    program(x0: float64[3])
      t0: float64[3] = sin(x0)
      t1: float64[3] = multiply(t0, 2.0)
      t2: float64[] = sum(t1, axis=(0,), keepdims=False)
      return t2
    """
    specs = [x if isinstance(x, Spec) else spec_of(x) for x in examples]
    inputs, equations, out = write_down(f, *specs)
    outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    return Program(tuple(inputs), tuple(equations), outputs)
