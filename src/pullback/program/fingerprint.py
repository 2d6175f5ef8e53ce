"""Program in, a key out that is equal for equal programs, so that they share compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from .ir import Program, Symbol

_NAMED = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.dtype)


class IncomparableError(Exception):
    """Something that cannot be compared."""


def fingerprint(program: Program) -> Any:
    """The key; None if the program has something that cannot be compared. Ops are compared by identity."""
    try:
        return program_key(program, content_key)
    except IncomparableError:
        return None


def program_key(program: Program, constant_key: Callable[[Any], Any]) -> Any:
    """The key of a program, given that of a constant or a static parameter."""
    numbers: dict[int, int] = {}

    def number_symbol(s: Symbol) -> Any:
        return numbers.setdefault(id(s), len(numbers)), s.spec

    def argument_key(x: Any) -> Any:
        # a symbol of another program, which is still being traced, is a constant of this one
        return numbers[id(x)] if id(x) in numbers else constant_key(x)

    first = [number_symbol(s) for s in program.inputs]
    lines = []
    for e in program.equations:
        args = tuple(map(argument_key, e.args))
        static = tuple((name, constant_key(value)) for name, value in sorted(e.static.items()))
        lines.append((e.op, args, static, tuple(map(number_symbol, e.results))))
    return tuple(first), tuple(lines), tuple((argument_key(o), spec_of(o)) for o in program.outputs)


def content_key(x: Any) -> Any:
    """A constant or a static parameter as a key: equal numbers of different types differ."""
    if isinstance(x, _NAMED):
        return type(x), repr(x)
    if isinstance(x, type):  # two classes may have one name
        return type, x
    if isinstance(x, (tuple, list)):
        return type(x), tuple(map(content_key, x))
    if isinstance(x, slice):
        return slice, content_key((x.start, x.stop, x.step))
    if isinstance(x, np.ndarray) and not x.dtype.hasobject:
        return np.ndarray, x.shape, x.dtype.str, x.tobytes()
    if isinstance(x, np.generic):
        return type(x), x.tobytes()
    if isinstance(x, Program):
        return Program, program_key(x, content_key)
    raise IncomparableError
