"""Graph in, a key out that is equal for equal programs, so that code is made once for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..graph.ir import Graph
from ..ops.routine import Routine
from ..ops.specialise import Equation, Symbol

__all__ = ["fingerprint"]

_NAMED = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.dtype)


class _UnknownError(Exception):
    """Something that cannot be compared."""


def fingerprint(graph: Graph) -> Any:
    """None if the graph holds something that is known by nothing but itself. Ops are known by their identity."""
    try:
        return _program(graph.inputs, graph.equations, graph.outputs)
    except _UnknownError:
        return None


def _program(inputs: Iterable[Symbol], equations: Iterable[Equation], outputs: Iterable[Any]) -> Any:
    numbers: dict[int, int] = {}

    def number(s: Symbol) -> Any:
        return numbers.setdefault(id(s), len(numbers)), s.spec

    def of(x: Any) -> Any:
        if isinstance(x, Symbol):
            if id(x) not in numbers:
                raise _UnknownError
            return numbers[id(x)]
        return _value(x)

    first = [number(s) for s in inputs]
    lines = []
    for e in equations:
        args = tuple(map(of, e.args))
        static = tuple((name, _value(value)) for name, value in sorted(e.static.items()))
        lines.append((e.op, args, static, tuple(map(number, e.results))))
    return tuple(first), tuple(lines), tuple((of(o), spec_of(o)) for o in outputs)


def _value(x: Any) -> Any:
    """A constant or a static parameter as something to compare: equal numbers of different types differ."""
    if isinstance(x, _NAMED):
        return type(x), repr(x)
    if isinstance(x, type):  # two classes may have one name
        return type, x
    if isinstance(x, (tuple, list)):
        return type(x), tuple(map(_value, x))
    if isinstance(x, slice):
        return slice, _value((x.start, x.stop, x.step))
    if isinstance(x, np.ndarray) and not x.dtype.hasobject:
        return np.ndarray, x.shape, x.dtype.str, x.tobytes()
    if isinstance(x, np.generic):
        return type(x), x.tobytes()
    if isinstance(x, Routine):
        return Routine, _program(x.inputs, x.equations, x.outputs)
    raise _UnknownError
