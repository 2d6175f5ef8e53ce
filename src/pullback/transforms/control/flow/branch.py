"""`branch`, the choice between programs as an op: (which, operands) in, the results of the chosen one out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays.backends import namespace_on
from ....arrays.spec import Spec, spec_of
from ....errors import DtypeError, IndexingError, ShapeError
from ....ops import basis
from ....ops.dispatch import apply
from ....ops.elementwise import pointwise
from ....ops.forms import Flow
from ....ops.index.indexing import getitem
from ....ops.op import Formula, Op
from ....ops.shape.reshaping import astype
from ....program.ir import Program
from ....program.run import run
from ...custom.rules import make_custom_record
from .derive import (
    PROGRAMS,
    add_batch_axes,
    check_program,
    derive_batch,
    derive_once,
    derive_pull,
    derive_push,
    float_places,
    refuse_collecting,
    stage_body,
    stage_derived,
)


def apply_branch(ways: Sequence[Callable[..., Sequence[Any]]], which: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one of some functions of the operands; `which` is a number, or False and True."""
    codes = [stage_body(way, *map(spec_of, operands)) for way in ways]
    return apply_branch_programs([code for code, _ in codes], [found for _, found in codes], which, operands)


def apply_branch_programs(
    codes: Sequence[Program], closed: Sequence[Sequence[Any]], which: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Programs of the operands and of what each closed over, as one op of all of these."""
    count = len(operands)
    every = [x for found in closed for x in found]
    specs = [spec_of(x) for x in (*operands, *every)]
    at = count
    ways = []
    for code, found in zip(codes, closed, strict=True):
        ways.append(_widen_inputs(code, count, at, len(found), specs))
        at += len(found)
    result: tuple[Any, ...] = apply(branch, astype(which, np.dtype(np.int64)), *operands, *every, ways=tuple(ways))
    return result


def _widen_inputs(code: Program, count: int, at: int, own: int, specs: Sequence[Spec]) -> Program:
    """The program as one of all inputs, of which it uses the operands and its own captures."""
    if own == len(specs) - count:
        return code
    return stage_derived(lambda *xs: run(code, (*xs[:count], *xs[at : at + own])), *specs)


def _value(xp: Any, which: Any, *args: Any, ways: tuple[Program, ...]) -> Any:
    number = int(which)
    if not 0 <= number < len(ways):
        raise IndexingError(f"switch: index {number} is out of range for {len(ways)} functions.")
    found = run(ways[number], args)
    # copies: a result may be an argument itself
    return tuple(xp.array(x, s.dtype) for x, s in zip(found, ways[0].output_specs, strict=True))


def _spec(which: Spec, *specs: Spec, ways: tuple[Program, ...]) -> tuple[Spec, ...]:
    if which.shape or which.dtype.kind not in "biu":
        raise DtypeError(f"branch: one integer or boolean selects the way, got {which}.")
    results = [check_program(f"branch: way {i}", way, specs).output_specs for i, way in enumerate(ways)]
    if any([(s.shape, s.dtype) for s in r] != [(s.shape, s.dtype) for s in results[0]] for r in results):
        raise ShapeError("branch: all ways must return the same shapes and dtypes.")
    return results[0]


def _push(tangents: tuple[Any, ...], which: Any, args: tuple[Any, ...], ways: tuple[Program, ...]) -> Any:
    moving = tuple(i for i, t in enumerate(tangents[1:]) if t is not None)
    ends, floats = len(ways[0].outputs), float_places(ways[0].output_specs)
    # only tangents: the results are computed by the forward branch
    codes = tuple(_drop_first_outputs(derive_push(way, moving), ends) for way in ways)
    found = apply(branch, which, *args, *(tangents[1 + i] for i in moving), ways=codes)
    at = dict(zip(floats, found, strict=True))
    return tuple(at.get(i) for i in range(ends))


def _drop_first_outputs(code: Program, ends: int) -> Program:
    """The program of the outputs from a place on."""
    return derive_once(code, ("last", ends), lambda: Program(code.inputs, code.equations, code.outputs[ends:]))


def _pull(
    bar: tuple[Any, ...], which: Any, args: tuple[Any, ...], position: tuple[int, ...], ways: tuple[Program, ...]
) -> tuple[Any, ...]:
    specs = [spec_of(x) for x in args]
    wanted = tuple(i for i in float_places(specs) if i + 1 in position)
    barred = tuple(i for i, s in enumerate(ways[0].output_specs) if s.inexact and not isinstance(bar[i], Spec))
    if not wanted or not barred:
        return (None,) * (len(args) + 1)

    codes = tuple(derive_pull(way, wanted, barred) for way in ways)
    found = apply(branch, which, *args, *(bar[i] for i in barred), ways=codes)
    at = dict(zip(wanted, found, strict=True))
    return (None, *(at.get(i) for i in range(len(args))))


def _batch(size: int, axes: tuple[int | None, ...], which: Any, *args: Any, ways: tuple[Program, ...]) -> Any:
    has = tuple(a is not None for a in axes[1:])
    fronts = [basis.moveaxis(x, a, 0) if a else x for x, a in zip(args, axes[1:], strict=True)]
    codes = [derive_batch(way, has, size) for way in ways]
    out = [axes[0] is not None or any(flags) for flags in zip(*(flags for _, flags in codes), strict=True)]
    batched_codes = tuple(add_batch_axes(code, flags, out, size) for code, flags in codes)
    ends = tuple(0 if o else None for o in out)
    if axes[0] is None:
        return apply(branch, which, *fronts, ways=batched_codes), ends
    # elements choose differently: every way runs, and each element takes its own
    refuse_collecting(*ways)
    which = _check_indices(which, len(ways))
    found = run(batched_codes[0], fronts)
    for number, code in enumerate(batched_codes[1:], 1):
        takes = pointwise.equal(which, number)
        found = [
            pointwise.where(basis.reshape(takes, (size, *(1,) * (spec_of(new).ndim - 1))), new, old)
            for new, old in zip(run(code, fronts), found, strict=True)
        ]
    return tuple(found), ends


def _check_indices(which: Any, count: int) -> Any:
    """The index of each element; one that is out of range raises in the lookup."""
    return getitem(namespace_on(spec_of(which).device).arange(count), which)


branch: Op = replace(make_custom_record(
    "branch", ("which", "*args"), _value, Formula(_pull, ("bar", "which", "args", "position", "ways")),
    Formula(_push, ("tangents", "which", "args", "ways")), _batch, _spec,
), form=Flow("branch"), statics={"ways": PROGRAMS})  # fmt: skip
