"""A function of an unknown, traced as a program with everything else that it depends on among its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...ops.dispatch import run
from ...ops.op import Op
from ...ops.specialize import Equation, Symbol, stage_equations
from ...transforms.boundary import unwrap_to_level
from ...transforms.custom.rules import is_tracked

#: Dtypes for which NumPy's own functions do what the ops do.
_UFUNC_DTYPES = frozenset(map(np.dtype, ("?", "f4", "f8")))


@dataclass(slots=True)
class _ProgramStep:
    """One equation: places of arguments and results, places that are unused from here on, and, for NumPy arrays, the
    function that computes it, with the place of an intermediate result whose memory the result may reuse.
    """

    op: Op
    args: list[int]
    static: dict[str, Any]
    results: list[int]
    over: list[int]
    direct: np.ufunc | None
    into: int | None


class ClosedProgram:
    """What a function did with its unknown, run on other values: `program(x, *found)`.

    What does not depend on the unknown is no part of it: that was computed once, when the function was traced.
    """

    __slots__ = ("_out", "_steps", "_values", "met_tensors")

    def __init__(self, unknown: Symbol, found: Sequence[Any], equations: Sequence[Equation], out: Any) -> None:
        places = {id(x): i for i, x in enumerate((unknown, *found))}
        self._values: list[Any] = [None] * len(places)

        def place(x: Any, value: Any = None) -> int:
            if id(x) not in places:
                places[id(x)] = len(self._values)
                self._values.append(value)
            return places[id(x)]

        #: Whether the function met a tensor, so that what it returned was one.
        self.met_tensors = any(type(x) is Tensor for e in equations for x in e.args)
        placed = [([place(x, _as_constant(x)) for x in e.args], [place(s) for s in e.results]) for e in equations]
        self._out = place(out, _as_constant(out))
        last = {i: n for n, (args, _) in enumerate(placed) for i in args}
        made = {i for _, results in placed for i in results} - {self._out}
        own: dict[int, Any] = {}  # results in owned memory, by their spec
        self._steps: list[_ProgramStep] = []
        for n, (e, (args, results)) in enumerate(zip(equations, placed, strict=True)):
            over = [i for i in {*args, *results} & made if last.get(i, n) == n]
            direct, spec = _find_ufunc(e), e.results[0].spec
            into = next((i for i in over if own.get(i) == spec), None) if direct is not None else None
            if direct is None:
                for i in args:  # the result may be a view of it
                    own.pop(i, None)
            if direct is not None or e.op.motion == "contract":
                own[results[0]] = spec
            self._steps.append(_ProgramStep(e.op, args, e.static, results, over, direct, into))

    def __call__(self, *values: Any) -> Any:
        held = self._values.copy()
        held[: len(values)] = values
        bare = all(type(x) is np.ndarray for x in values)
        for step in self._steps:
            args = [held[i] for i in step.args]
            if bare and step.direct is not None:
                free = None if step.into is None or held[step.into].base is not None else held[step.into]
                made = step.direct(*args, free)
                held[step.results[0]] = made if type(made) is np.ndarray else np.asarray(made)
            else:
                made = run(step.op, args, step.static)
                for i, value in zip(step.results, made if type(made) is tuple else (made,), strict=True):
                    held[i] = value
            for i in step.over:  # memory is freed as early as in a plain call
                held[i] = None
        return held[self._out]


def _find_ufunc(equation: Equation) -> np.ufunc | None:
    """The NumPy function of an equation, where it computes the same as the op."""
    if equation.static or equation.results[0].spec.dtype not in _UFUNC_DTYPES:
        return None
    found = getattr(np, equation.op.ufunc or "", None)
    return found if isinstance(found, np.ufunc) and found.nin == len(equation.args) else None


def stage_with_captures(
    function: Callable[[Any], Any], x: Any, shared: bool = False
) -> tuple[ClosedProgram, list[Any]] | None:
    """A function of x as a program of (x, *found), and what was found: all tracked values that it uses, given or
    closed over. None for a function that cannot be traced, since it branches on values; an op that runs the
    function itself refuses what it closes over, so no term is ever lost. `shared` is that of `stage`.
    """
    try:
        (unknown,), equations, out = stage_equations(
            lambda symbol: unwrap_to_level(function(symbol), symbol.scope), spec_of(x), shared=shared
        )
    except Exception:  # whatever is wrong is raised when the function runs on arrays
        return None
    own = {id(unknown), *(id(s) for e in equations for s in e.results)}
    used = [*(x for e in equations for x in e.args), out]
    found = list({id(x): x for x in used if is_tracked(x) and id(x) not in own}.values())
    return ClosedProgram(unknown, found, equations, out), found


def _as_constant(x: Any) -> Any:
    """A constant of a program: an untracked tensor counts as its array."""
    return x.value if isinstance(x, Tensor) and not is_tracked(x) else x
