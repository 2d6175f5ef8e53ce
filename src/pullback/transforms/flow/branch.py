"""The choice between routines as an op: (which, operands) in, what the chosen one answers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.spec import Spec, spec_of, zeros
from ...errors import DtypeError, IndexingError, ShapeError
from ...ops import basis
from ...ops import elementwise as pointwise
from ...ops.dispatch import apply
from ...ops.forms import Flow
from ...ops.indexing import getitem
from ...ops.op import Op, Terms
from ...ops.routine import Routine, routine
from ...ops.shaping import astype
from ..rules import custom_record
from .derived import ROUTINES, batched, fits, floating, led, pulled, pushed, remembered

__all__ = ["branch", "branched", "chosen"]


def branched(ways: Sequence[Callable[..., Sequence[Any]]], which: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one of some functions of the operands; `which` is a number, or False and True."""
    codes = [routine(way, *map(spec_of, operands)) for way in ways]
    return chosen([code for code, _ in codes], [found for _, found in codes], which, operands)


def chosen(
    codes: Sequence[Routine], closed: Sequence[Sequence[Any]], which: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Routines of the operands and of what each closed over, as one op of all of these."""
    count = len(operands)
    every = [x for found in closed for x in found]
    specs = [spec_of(x) for x in (*operands, *every)]
    at = count
    ways = []
    for code, found in zip(codes, closed, strict=True):
        ways.append(_among(code, count, at, len(found), specs))
        at += len(found)
    result: tuple[Any, ...] = apply(branch, astype(which, np.dtype(np.int64)), *operands, *every, ways=tuple(ways))
    return result


def _among(code: Routine, count: int, at: int, own: int, specs: Sequence[Spec]) -> Routine:
    """The routine as one of all inputs, of which it reads the operands and its own."""
    if own == len(specs) - count:
        return code
    return routine(lambda *xs: code.run(*xs[:count], *xs[at : at + own]), *specs, hoisted=False)[0]


def _value(xp: Any, which: Any, *args: Any, ways: tuple[Routine, ...]) -> Any:
    number = int(which)
    if not 0 <= number < len(ways):
        raise IndexingError(f"switch: index {number} is out of range for {len(ways)} functions.")
    found = ways[number].run(*args)
    return tuple(xp.array(x, s.dtype) for x, s in zip(found, ways[0].results, strict=True))


def _spec(which: Spec, *specs: Spec, ways: tuple[Routine, ...]) -> tuple[Spec, ...]:
    if which.shape or which.dtype.kind not in "biu":
        raise DtypeError(f"branch: one integer or truth says which way to go, got {which}.")
    results = [fits(f"branch: way {i}", way, specs).results for i, way in enumerate(ways)]
    if any([(s.shape, s.dtype) for s in r] != [(s.shape, s.dtype) for s in results[0]] for r in results):
        raise ShapeError("branch: all ways answer the same shapes and dtypes.")
    return results[0]


def _pushed(tangents: tuple[Any, ...], which: Any, args: tuple[Any, ...], ways: tuple[Routine, ...]) -> Any:
    moving = tuple(i for i, t in enumerate(tangents[1:]) if t is not None)
    ends, floats = len(ways[0].outputs), floating(ways[0].results)
    codes = tuple(_last(pushed(way, moving), ends) for way in ways)
    found = apply(branch, which, *args, *(tangents[1 + i] for i in moving), ways=codes)
    at = dict(zip(floats, found, strict=True))
    return tuple(at.get(i) for i in range(ends))


def _last(code: Routine, ends: int) -> Routine:
    """The routine of the outputs from a place on."""
    return remembered(code, ("last", ends), lambda: Routine(code.inputs, code.equations, code.outputs[ends:]))


def _pulled(
    bar: tuple[Any, ...], which: Any, args: tuple[Any, ...], position: tuple[int, ...], ways: tuple[Routine, ...]
) -> tuple[Any, ...]:
    specs = [spec_of(x) for x in args]
    wanted = tuple(i for i in floating(specs) if i + 1 in position)
    barred = tuple(i for i, s in enumerate(ways[0].results) if s.inexact and not isinstance(bar[i], Spec))
    if not wanted or not barred:
        return (None,) * (len(args) + 1)

    def back_through(way: Routine) -> Routine:
        back = pulled(way, wanted, barred)

        def shares(*values: Any) -> list[Any]:
            xs, bars = values[: len(args)], values[len(args) :]
            found = back.code.run(*xs, *way.run(*xs), *bars)
            return [zeros(specs[i]) if back.zero[k] else found[k] for k, i in enumerate(wanted)]

        shapes = (*specs, *(way.results[i] for i in barred))
        made: Routine = remembered(
            way, ("back", wanted, barred), lambda: routine(shares, *shapes, hoisted=False)[0]
        )  # fmt: skip
        return made

    codes = tuple(back_through(way) for way in ways)
    found = apply(branch, which, *args, *(bar[i] for i in barred), ways=codes)
    at = dict(zip(wanted, found, strict=True))
    return (None, *(at.get(i) for i in range(len(args))))


def _batched(size: int, axes: tuple[int | None, ...], which: Any, *args: Any, ways: tuple[Routine, ...]) -> Any:
    has = tuple(a is not None for a in axes[1:])
    fronts = [basis.moveaxis(x, a, 0) if a else x for x, a in zip(args, axes[1:], strict=True)]
    codes = [batched(way, has, size) for way in ways]
    out = [axes[0] is not None or any(flags) for flags in zip(*(flags for _, flags in codes), strict=True)]
    led_codes = tuple(_led(code, flags, out, size) for code, flags in codes)
    ends = tuple(0 if o else None for o in out)
    if axes[0] is None:
        return apply(branch, which, *fronts, ways=led_codes), ends
    which = _within(which, len(ways))
    found = led_codes[0].run(*fronts)
    for number, code in enumerate(led_codes[1:], 1):
        takes = pointwise.equal(which, number)
        found = [
            pointwise.where(basis.reshape(takes, (size, *(1,) * (spec_of(new).ndim - 1))), new, old)
            for new, old in zip(code.run(*fronts), found, strict=True)
        ]
    return tuple(found), ends


def _within(which: Any, count: int) -> Any:
    """The numbers by element; one that is out of range raises where it is looked up."""
    return getitem(np.arange(count), which)


def _led(code: Routine, flags: Sequence[bool], wanted: Sequence[bool], size: int) -> Routine:
    """All outputs with the batch axes that are wanted."""
    if tuple(flags) == tuple(wanted):
        return code

    def whole(*values: Any) -> list[Any]:
        pairs = zip(code.run(*values), flags, wanted, strict=True)
        return [led(x, has, want, size) for x, has, want in pairs]

    return remembered(code, ("led", tuple(wanted)), lambda: routine(whole, *code.specs, hoisted=False)[0])


branch: Op = replace(custom_record(
    "branch", ("which", "*args"), _value, Terms(_pulled, ("bar", "which", "args", "position", "ways")),
    Terms(_pushed, ("tangents", "which", "args", "ways")), _batched, _spec,
), form=Flow("branch"), statics={"ways": ROUTINES})  # fmt: skip
