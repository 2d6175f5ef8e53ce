"""`hoist`: values that a program captured become its inputs. The one rule for jit, loop bodies and equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_
from typing import Any

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from .ir import Equation, Program, Symbol


def is_array_or_value(x: Any) -> bool:
    """Whether a captured thing has its own data: a value of ours, or an array that is not one number."""
    return isinstance(x, Value) or (is_array(x) and bool(x.ndim))


def hoist(
    program: Program,
    is_captured: Callable[[Any], bool] = is_array_or_value,
    origin: Callable[[Any], Any] = lambda x: x,
    spec: Callable[[Any], Spec] = spec_of,
) -> tuple[Program, list[Any]]:
    """Turn captured values into the program's last inputs; returns it and those values. `origin` finds what a constant
    is a copy of. A tensor that is not tracked, and was made inside, counts as its array.
    """
    own = {id(s) for s in program.inputs} | {id(s) for e in program.equations for s in e.results}
    symbols: dict[int, Symbol] = {}
    values: list[Any] = []

    def hoist_value(constant: Any) -> Any:
        x = origin(constant)
        if type(x) is Tensor and x is constant and x.node is None and is_array(x.value):
            x = x.value
        # without inputs there is no scope to make a symbol for an array in
        if not is_captured(x) or (not program.inputs and not isinstance(x, Value)):
            return x
        if id(x) not in symbols:
            symbols[id(x)] = Symbol(spec(x), program.inputs[0].scope if program.inputs else x.scope, [], None)
            values.append(x)
        return symbols[id(x)]

    def hoist_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([x if id(x) in own else hoist_value(x) for x in values])

    def rewrite(e: Equation) -> Equation:
        args = hoist_values(e.args)
        return e if all(map(is_, args, e.args)) else Equation(e.results, e.op, args, e.static)

    equations, outputs = tuple([rewrite(e) for e in program.equations]), hoist_values(program.outputs)
    if all(map(is_, equations, program.equations)) and all(map(is_, outputs, program.outputs)):
        return program, values
    return replace(program, inputs=(*program.inputs, *symbols.values()), equations=equations, outputs=outputs), values
