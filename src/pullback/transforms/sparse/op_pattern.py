"""The patterns of the results of an op call, from those of its arguments.

How an op propagates patterns is read off its record; where the record does not say, every element of a result gets all
that any element of an argument has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.spec import ones, spec_of
from ...ops.elementwise.pointwise import unrecorded
from ...ops.op import Op
from .contraction_pattern import contract_pattern
from .op_call import OpCall, known_numbers
from .pattern_rows import boolean_matrix, copy_rows, unite_rows
from .probe import linked_axes, single_sources, unit_sources

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    Matrix = csr_matrix[Any]

#: The most elements to run through an op for a tight pattern instead of a cautious one.
_MAX_PROBE_ELEMENTS = 1 << 27


def patterns_of(call: OpCall, below: Sequence[Matrix | None]) -> list[Matrix | None]:
    """The pattern of each result, None for a constant."""
    totals: list[Matrix | None] = [None] * len(call.outs)
    for position, pattern in enumerate(below):
        if pattern is None or _has_no_derivative(call.op, position):
            continue
        for i, part in enumerate(_propagate(call, position, pattern)):
            total = totals[i]
            totals[i] = part if total is None or total is part else total + part
    return [t if spec_of(out).inexact else None for t, out in zip(totals, call.outs, strict=True)]


def _has_no_derivative(op: Op, position: int) -> bool:
    """Only what an op says is zero is taken to be zero; what tapes alone do not see is none of it."""
    return op is not unrecorded.op and op.pulls.get(op.argument(position), ...) is None


def _propagate(call: OpCall, position: int, pattern: Matrix) -> list[Matrix]:
    """What the results have from one argument."""
    op, one_result = call.op, len(call.outs) == 1
    if op.motion == "pointwise" and one_result:
        return [_propagate_pointwise(call, position, pattern)]
    try:
        if op.family == "linear":
            return _propagate_linear(call, position, pattern)
        if op.motion == "contract" and one_result:
            return [contract_pattern(call, position, pattern)]
        if op.family == "reduction" and op.motion == "rearrange" and one_result:
            return [_propagate_reduction(call, position, pattern)]
    except Exception:  # an op need not run on probe values: then nothing is known of it
        pass
    return [unite_rows(pattern, (), call.spec(position).shape, spec_of(out).shape) for out in call.outs]


def _propagate_pointwise(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """Each result has what the elements that were broadcast to it have."""
    shape, wanted = call.spec(position).shape, spec_of(call.outs[0]).shape
    source = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), wanted).reshape(-1)
    keep = _nonzero_partial(call, position) if call.local else None
    return copy_rows(pattern, source, keep)


def _nonzero_partial(call: OpCall, position: int) -> Any:
    """Where the partial derivative is not zero: an elementwise op pushes a tangent of ones to its partial."""
    spec, out = call.spec(position), call.outs[0]
    if spec.dtype.kind == "c" or spec_of(out).dtype.kind == "c":
        return None
    tangents: list[Any] = [None] * len(call.values)
    tangents[position] = ones(spec)
    with np.errstate(all="ignore"):
        partial = known_numbers(call.op.push(tangents, out, call.values, call.static))
    return None if partial is None else np.broadcast_to(partial != 0, spec_of(out).shape).reshape(-1)


def _propagate_linear(call: OpCall, position: int, pattern: Matrix) -> list[Matrix]:
    """A linear op: each element of a result adds up elements of its argument, and running it shows which."""
    size = call.spec(position).size
    run = call.as_linear_function(position)
    if call.op.motion == "rearrange":
        copies = single_sources(run, size)
        if copies is not None:
            return [copy_rows(pattern, source, there) for source, there in copies]
        if len(call.outs) == 1:
            targets = single_sources(call.as_pull_function(position), spec_of(call.outs[0]).size)
            if targets is not None:
                ((target, there),) = targets
                return [
                    boolean_matrix(target[there], np.flatnonzero(there), spec_of(call.outs[0]).size, size) @ pattern
                ]
    return [_propagate_by_units(call, position, i, run, pattern) for i in range(len(call.outs))]


def _propagate_by_units(
    call: OpCall, position: int, i: int, run: Callable[[Any], list[Any]], pattern: Matrix
) -> Matrix:
    """Element by element along the axes that the op mixes, if they are not too many."""
    shape, wanted = call.spec(position).shape, spec_of(call.outs[i]).shape
    size, count = math.prod(shape), math.prod(wanted)

    def run_one(x: Any) -> Any:
        return run(x.reshape(-1))[i].reshape(wanted)

    links = linked_axes(run_one, shape, wanted) if call.op.motion == "rearrange" else []
    mixed = size // max(1, math.prod(shape[a] for a, _ in links))
    if mixed * (size + count) > _MAX_PROBE_ELEMENTS:
        return unite_rows(pattern, links, shape, wanted)
    return boolean_matrix(*unit_sources(run_one, shape, wanted, links), count, size) @ pattern


def _propagate_reduction(call: OpCall, position: int, pattern: Matrix) -> Matrix:
    """A reduction: each result has what the elements along the folded axes have; locally, those that count."""
    (out,), spec = call.outs, call.spec(position)
    kept = tuple(1 if a in call.static["axis"] else n for a, n in enumerate(spec.shape))
    target = np.broadcast_to(np.arange(spec_of(out).size).reshape(kept), spec.shape).reshape(-1)
    counts = np.ones(spec.size, bool)
    if call.local:
        (share,) = call.as_pull_function(position)(np.ones(spec_of(out).size))
        counts = share != 0
    return boolean_matrix(target[counts], np.flatnonzero(counts), spec_of(out).size, spec.size) @ pattern
