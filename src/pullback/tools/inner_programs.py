"""Into a loop or a branch that native code ran: its programs, round by round, each with the arguments it had.

The body is compiled by itself, as it was inside of the loop, and carries what native code returned in the round before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..compile.target import Options
from ..ops.forms import Flow
from ..program.ir import Equation, Program
from .observed_build import run_compiled

#: A program that ran, its arguments, and its place, such as "round 3 of iterate".
Round = tuple[Program, list[Any], str]


def programs_inside(e: Equation, args: Sequence[Any], options: Options) -> Iterator[Round]:
    """The programs that a loop or a branch ran on these arguments, in their order; none for other ops."""
    if isinstance(e.op.form, Flow):
        yield from _INSIDE[e.op.form.kind](e, list(args), options)


def as_inputs(program: Program, given: Sequence[Any]) -> list[Any]:
    """Arrays for the inputs of a program; a row of a sequence may be a number."""
    return [x if is_array(x) else np.asarray(x, s.spec.dtype) for x, s in zip(given, program.inputs, strict=True)]


def _iterate(e: Equation, args: list[Any], options: Options) -> Iterator[Round]:
    body, carries = e.static["body"], e.static["carries"]
    held = carries + e.static["constants"]
    carry, constants, xs = args[:carries], args[carries:held], args[held:]
    for i in range(e.static["length"])[:: -1 if e.static["reverse"] else 1]:
        given = as_inputs(body, [*carry, *constants, *(x[i] for x in xs)])
        yield body, given, f"round {i} of {e.op.name}"
        carry = run_compiled(body, given, options)[:carries]


def _repeat(e: Equation, args: list[Any], options: Options) -> Iterator[Round]:
    condition, body, carries = e.static["condition"], e.static["body"], e.static["carries"]
    carry, constants, rounds = args[:carries], args[carries:], 0
    while bool(run_compiled(condition, given := as_inputs(body, [*carry, *constants]), options)[0]):
        yield body, given, f"round {rounds} of {e.op.name}"
        carry, rounds = run_compiled(body, given, options), rounds + 1


def _branch(e: Equation, args: list[Any], options: Options) -> Iterator[Round]:
    number = int(args[0])
    way = e.static["ways"][number]
    yield way, as_inputs(way, args[1:]), f"way {number} of {e.op.name}"


#: By the kind of the op's form.
_INSIDE: dict[str, Callable[[Equation, list[Any], Options], Iterator[Round]]] = {
    "iterate": _iterate, "repeat": _repeat, "branch": _branch,
}  # fmt: skip
