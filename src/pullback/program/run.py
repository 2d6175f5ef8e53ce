"""`run`: a program on values of any kind, each freed after its last use; a fast form of it for NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.origin import register_reader
from ..arrays.spec import Spec
from ..arrays.value import Value
from ..errors import ArgumentError
from ..ops.dispatch import run as run_op
from ..settings import PLAIN, modes, override_modes

if TYPE_CHECKING:
    from .ir import Equation, Program

#: Dtypes for which NumPy's own functions do what the ops do.
_UFUNC_DTYPES = frozenset(map(np.dtype, ("?", "f4", "f8")))
_ndarray = np.ndarray
_ARRAY = {_ndarray}


def run(program: Program, values: Sequence[Any]) -> list[Any]:
    """The outputs of a program for values of its inputs, which are not checked."""
    if len(values) != len(program.inputs):
        raise ArgumentError(f"this program has {len(program.inputs)} inputs, got {len(values)}.")
    if (mode := modes()) is not PLAIN and mode.autocast is not None:  # its dtypes were chosen when it was staged
        with override_modes(autocast=None):
            return run(program, values)
    # instruments see ops, so with one installed every equation runs as an op
    if mode is PLAIN and {*map(type, values)} <= _ARRAY:
        if "run" in program.derived:
            plan = program.derived["run"]
            plan = prepare(program) if plan is None else plan
            if plan:
                found: list[Any] = plan.run(values)
                return found
        else:
            program.derived["run"] = None  # many programs run only once: the second run prepares it
    known = {id(s): x if s.spec.weak is None else _as_number(x) for s, x in zip(program.inputs, values, strict=True)}
    last = {id(a): e for e in program.equations for a in e.args}
    for o in program.outputs:
        last.pop(id(o), None)
    for e in program.equations:
        args = [known.get(id(a), a) for a in e.args]
        if e.op.meet is not None:
            e.op.meet(*args, **e.static)
        made = run_op(e.op, args, e.static)
        for s, value in zip(e.results, made if type(made) is tuple else (made,), strict=True):
            known[id(s)] = value
        for a in e.args:
            if last.get(id(a)) is e:
                known.pop(id(a), None)
    return [known.get(id(o), o) for o in program.outputs]


register_reader(run, lambda trail, local: trail.adopt(local["e"].site) if "e" in local else None)


def _as_number(x: Any) -> Any:
    """The count of a loop as a weak Python number, which yields in promotion."""
    return x.item() if isinstance(x, np.generic) or (is_array(x) and not x.ndim) else x


def prepare(program: Program) -> Any:
    """Prepare how a program runs on NumPy arrays; False if it has values of ours among its constants, or weak numbers
    among its inputs.
    """
    plan = _RunPlan(program)
    is_bare = all(s.spec.weak is None for s in program.inputs) and not any(isinstance(x, Value) for x in plan.held)
    program.derived["run"] = plan if is_bare else False
    return program.derived["run"]


class _RunPlan:
    """The steps of a program, and the list of values that they start from: constants in their places.

    A step is (op, places of its arguments, static parameters, places of its results, places that are unused from here
    on, the NumPy function that computes it or None, the place of a result whose memory it may reuse or None).
    """

    __slots__ = ("count", "held", "outputs", "steps")

    def __init__(self, program: Program) -> None:
        self.count = len(program.inputs)
        self.held: list[Any] = [None] * self.count
        places = {id(x): i for i, x in enumerate(program.inputs)}

        def place(x: Any, value: Any = None) -> int:
            if id(x) not in places:
                places[id(x)] = len(self.held)
                self.held.append(value)
            return places[id(x)]

        lines = [([place(x, x) for x in e.args], [place(s) for s in e.results]) for e in program.equations]
        self.outputs = [place(o, o) for o in program.outputs]
        last = {i: number for number, (args, results) in enumerate(lines) for i in (*results, *args)}
        made = {i for _, results in lines for i in results}.difference(self.outputs)
        self.steps: list[tuple[Any, ...]] = []
        own: dict[int, Spec] = {}  # results in owned memory
        for number, (e, (args, results)) in enumerate(zip(program.equations, lines, strict=True)):
            over = [i for i in made.intersection((*args, *results)) if last[i] == number]
            ufunc, into = _find_ufunc(e), None
            if ufunc is None:
                for i in args:  # the result may be a view of it
                    own.pop(i, None)
            else:
                into = next((i for i in over if own.get(i) == e.results[0].spec), None)
            if ufunc is not None or e.op.family == "contraction":
                own[results[0]] = e.results[0].spec
            self.steps.append((e.op, args, e.static, results, over, ufunc, into))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs; elementwise equations are direct calls of NumPy's functions that reuse memory."""
        held = self.held.copy()
        held[: self.count] = values
        for op, places, static, results, over, ufunc, into in self.steps:
            args = [held[i] for i in places]
            if ufunc is not None:
                free = None if into is None or held[into].base is not None else held[into]
                made = ufunc(*args) if free is None else ufunc(*args, out=free)
                held[results[0]] = made if type(made) is _ndarray else np.asarray(made)
            else:
                made = run_op(op, args, static)
                for i, value in zip(results, made if type(made) is tuple else (made,), strict=True):
                    held[i] = value
            for i in over:
                held[i] = None
        return [held[i] for i in self.outputs]


def _find_ufunc(equation: Equation) -> np.ufunc | None:
    """The NumPy function of an equation, where it computes the same as the op."""
    if equation.op.ufunc is None or equation.static or equation.results[0].spec.dtype not in _UFUNC_DTYPES:
        return None
    found = getattr(np, equation.op.ufunc, None)
    return found if isinstance(found, np.ufunc) and found.nin == len(equation.args) else None
