"""Function of an unknown in, the same as a program out, with everything it depends on besides among its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..ops.dispatch import run
from ..ops.op import Op
from ..ops.specialise import Equation, Symbol, write_down
from ..transforms.border import brought_out
from ..transforms.rules import carries

__all__ = ["Program", "closed"]


#: Dtypes for which NumPy's own functions do what the ops do.
_NATIVE = frozenset(map(np.dtype, ("?", "f4", "f8")))


@dataclass(slots=True)
class _Line:
    """One equation: places of arguments and results, places that nobody reads any more, and, for NumPy arrays, the
    function that computes it, with the place of an intermediate result whose memory the result may take.
    """

    op: Op
    args: list[int]
    static: dict[str, Any]
    results: list[int]
    over: list[int]
    direct: np.ufunc | None
    into: int | None


class Program:
    """What a function did with its unknown, run on other values: `program(x, *found)`.

    What does not depend on the unknown is no part of it: that was computed once, when the function was written down.
    """

    __slots__ = ("_lines", "_out", "_values", "on_tensors")

    def __init__(self, unknown: Symbol, found: Sequence[Any], equations: Sequence[Equation], out: Any) -> None:
        places = {id(x): i for i, x in enumerate((unknown, *found))}
        self._values: list[Any] = [None] * len(places)

        def place(x: Any, value: Any = None) -> int:
            if id(x) not in places:
                places[id(x)] = len(self._values)
                self._values.append(value)
            return places[id(x)]

        #: Whether the function met a tensor, so that what it returned was one.
        self.on_tensors = any(type(x) is Tensor for e in equations for x in e.args)
        placed = [([place(x, _bare(x)) for x in e.args], [place(s) for s in e.results]) for e in equations]
        self._out = place(out, _bare(out))
        last = {i: n for n, (args, _) in enumerate(placed) for i in args}
        made = {i for _, results in placed for i in results} - {self._out}
        own: dict[int, Any] = {}  # results in memory of their own, by their spec
        self._lines: list[_Line] = []
        for n, (e, (args, results)) in enumerate(zip(equations, placed, strict=True)):
            over = [i for i in {*args, *results} & made if last.get(i, n) == n]
            direct, spec = _direct(e), e.results[0].spec
            into = next((i for i in over if own.get(i) == spec), None) if direct is not None else None
            if direct is None:
                for i in args:  # what comes out may be a view of it
                    own.pop(i, None)
            if direct is not None or e.op.motion == "contract":
                own[results[0]] = spec
            self._lines.append(_Line(e.op, args, e.static, results, over, direct, into))

    def __call__(self, *values: Any) -> Any:
        held = self._values.copy()
        held[: len(values)] = values
        bare = all(type(x) is np.ndarray for x in values)
        for line in self._lines:
            args = [held[i] for i in line.args]
            if bare and line.direct is not None:
                free = None if line.into is None or held[line.into].base is not None else held[line.into]
                made = line.direct(*args, free)
                held[line.results[0]] = made if type(made) is np.ndarray else np.asarray(made)
            else:
                made = run(line.op, args, line.static)
                for i, value in zip(line.results, made if type(made) is tuple else (made,), strict=True):
                    held[i] = value
            for i in line.over:  # memory is given back as early as a plain call would
                held[i] = None
        return held[self._out]


def _direct(equation: Equation) -> np.ufunc | None:
    """NumPy's function for an equation on its arrays, where that is all there is to it."""
    if equation.static or equation.results[0].spec.dtype not in _NATIVE:
        return None
    found = getattr(np, equation.op.ufunc or "", None)
    return found if isinstance(found, np.ufunc) and found.nin == len(equation.args) else None


def closed(function: Callable[[Any], Any], x: Any, shared: bool = False) -> tuple[Program, list[Any]] | None:
    """A function of x as a program of (x, *found), and what was found: all that it uses which carries derivatives, be
    it given to it or closed over. None for a function that cannot be written down, since it branches on values; an op
    that runs it as it stands refuses what it closes over, so no term is ever lost. `shared` is that of `write_down`.
    """
    try:
        (unknown,), equations, out = write_down(
            lambda symbol: brought_out(function(symbol), symbol.scope), spec_of(x), shared=shared
        )
    except Exception:  # whatever is wrong is said when the function runs on numbers
        return None
    own = {id(unknown), *(id(s) for e in equations for s in e.results)}
    used = [*(x for e in equations for x in e.args), out]
    found = list({id(x): x for x in used if carries(x) and id(x) not in own}.values())
    return Program(unknown, found, equations, out), found


def _bare(x: Any) -> Any:
    """A constant of a program: a tensor that carries nothing counts as its array."""
    return x.value if isinstance(x, Tensor) and not carries(x) else x
