"""Branches and loops of programs, with the programs inside written in place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..program.ir import Equation, Program
from .graph_writer import GraphWriter, Ref
from .words import GraphWords

_INT64: np.dtype[Any] = np.dtype(np.int64)
_WriteProgram = Callable[[Program, Sequence[Ref]], list[Ref]]


def write_flow(w: GraphWriter, write: _WriteProgram, e: Equation, args: list[Ref]) -> list[Ref]:
    """One of several programs, or one that is run repeatedly."""
    return _KINDS[e.op.form.kind](w, write, e, args)


def _write_branch(w: GraphWriter, write: _WriteProgram, e: Equation, args: list[Ref]) -> list[Ref]:
    which = GraphWords(w, _INT64).coerce(args[0])
    specs = [s.spec for s in e.results]

    def write_way(way: Program) -> list[Ref]:
        return _as_specs(w, write(way, args[1:]), specs)

    return w.branch(which, [functools.partial(write_way, way) for way in e.static["ways"]])


def _as_specs(w: GraphWriter, found: Sequence[Ref], specs: Sequence[Any]) -> list[Ref]:
    """Values in the dtypes that the results of a loop or branch have."""
    return [x if x.dtype == s.dtype else w.cast(x, s.dtype) for x, s in zip(found, specs, strict=True)]


def _write_repeat(w: GraphWriter, write: _WriteProgram, e: Equation, args: list[Ref]) -> list[Ref]:
    """The carry and the number of rounds, which is carried too."""
    carries, condition, body = e.static["carries"], e.static["condition"], e.static["body"]
    held = args[carries:]
    k = GraphWords(w, _INT64)

    def step(rounds: Ref, *carry: Ref) -> list[Ref]:
        found = _as_specs(w, write(body, (*carry, *held)), body.output_specs)
        return [k.add(rounds, k.constant(1)), *found]

    start = _as_specs(w, args[:carries], body.output_specs)
    found = w.repeat(
        [k.constant(0), *start], lambda rounds, *carry: write(condition, (*carry, *held))[0], step
    )  # fmt: skip
    return [*found[1:], found[0]]


def _write_iterate(w: GraphWriter, write: _WriteProgram, e: Equation, args: list[Ref]) -> list[Ref]:
    carries, constants, length = e.static["carries"], e.static["constants"], e.static["length"]
    body, reverse = e.static["body"], e.static["reverse"]
    held, xs = args[carries : carries + constants], args[carries + constants :]
    if not length:
        specs = [s.spec for s in e.results[carries:]]
        return [*args[:carries], *(w.expand(w.constant(np.zeros((), s.dtype)), s.shape) for s in specs)]
    # a loop from the last row to the first is one over reversed rows
    xs = [w.reverse(x, (0,)) for x in xs] if reverse else xs

    def step(number: Ref, *carry: Ref) -> tuple[list[Ref], list[Ref]]:
        rows = [w.take(x, number) for x in xs]
        found = _as_specs(w, write(body, (*carry, *held, *rows)), body.output_specs)
        return found[:carries], found[carries:]

    start = _as_specs(w, args[:carries], body.output_specs[:carries])
    shapes = [(s.shape, s.dtype) for s in body.output_specs[carries:]]
    carry, ys = w.iterate(length, start, step, shapes)
    return [*carry, *(w.reverse(y, (0,)) if reverse else y for y in ys)]


_KINDS: dict[str, Callable[..., list[Ref]]] = {
    "branch": _write_branch, "repeat": _write_repeat, "iterate": _write_iterate,
}  # fmt: skip
