"""Dense output: the solution at any times of its span, read from the states of all steps, as an op.

Its derivatives are those of the policy at saved times, so they need not know how the times came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from ..arrays.backends import to_host
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.trees import register_tree
from ..arrays.value import unwrap_array
from ..errors import ArgumentError
from ..implicit.vector_layout import VectorLayout
from ..ops.dispatch import apply, shape
from ..ops.elementwise import pointwise
from ..ops.forms import Expand
from ..ops.index.indexing import getitem
from ..ops.op import Formula, Op
from ..ops.order.sorting import argsort, searchsorted
from ..ops.placement import move
from ..ops.shape.reshaping import astype, reshape
from ..transforms.boundary import as_array_leaf
from ..transforms.custom.rules import as_bare_results, make_custom_record
from ..transforms.vectorize import vmap
from .loops import len_of
from .policies import Call, apply_to_batch
from .problem import Outcome, Problem, Status

#: What an evaluation reads of a solve: grid, states, counts and choices.
_RECORD = 4


def find_steps(grid: Any, counts: Any, ahead: Any, times: Any) -> Any:
    """The step in which each time lies, of those that were accepted."""
    count = getitem(counts, 0)
    is_taken = pointwise.less_equal(move(np.arange(len_of(grid)), spec_of(grid).device), count)
    after = searchsorted(pointwise.where(is_taken, grid * ahead, np.inf), times * ahead)
    return pointwise.maximum(pointwise.minimum(astype(after, np.int64), count) - 1, 0)


def read_state(problem: Problem, record: Sequence[Any], place: Any, at: Any, arguments: tuple[Any, ...]) -> Any:
    """The state at a time within a step, from that at its start."""
    grid, states = record[:2]
    start, end = getitem(grid, place), getitem(grid, place + 1)
    # a solve without steps has one of no length
    end = pointwise.where(pointwise.greater(getitem(record[2], 0), 0), end, start)
    return problem.method.interpolate(problem.slope(arguments), start, getitem(states, place), end, at)


def _read_rows(problem: Problem, *xs: Any) -> tuple[Any, Any]:
    *record, y0, t0, t1, times = xs[: _RECORD + 4]
    arguments = xs[_RECORD + 4 :]
    places = find_steps(record[0], record[2], pointwise.sign(t1 - t0), times)
    rows = vmap(lambda place, at: read_state(problem, record, place, at, arguments))(places, times)
    return pointwise.where(pointwise.equal(t0, t1), y0, rows), places


def _run(call: Call, xs: Sequence[Any]) -> Any:
    with np.errstate(all="ignore"):
        return call.in_batches(lambda *values: _read_rows(call.problem, *values))(*xs)


def _check_range(times: Any, t0: Any, t1: Any) -> None:
    times, t0, t1 = (to_host(unwrap_array(x)) for x in (times, t0, t1))
    low, high = np.minimum(t0, t1)[..., None], np.maximum(t0, t1)[..., None]
    is_outside = ~((times >= low) & (times <= high))
    if is_outside.any():
        place = tuple(int(i) for i in np.argwhere(is_outside)[0])
        raise ArgumentError(
            f"ode.solve: the solution is known from t = {t0[place[:-1]]} to {t1[place[:-1]]}, and was asked for at "
            f"t = {times[place]}.\n  Solve over a longer span."
        )


def _read_bare(xp: Any, *xs: Any, call: Call) -> Any:
    found = _run(call, xs)
    _check_range(xs[_RECORD + 3], xs[_RECORD + 1], xs[_RECORD + 2])
    return as_bare_results(tuple(found), "ode.solve")


def _read_staged(*xs: Any, call: Call) -> Any:
    rows, places = _run(call, xs)
    return apply(_check_op, rows, xs[_RECORD + 3], xs[_RECORD + 1], xs[_RECORD + 2]), places


def _check_bare(xp: Any, rows: Any, times: Any, t0: Any, t1: Any) -> Any:
    _check_range(times, t0, t1)
    return rows


def _find_specs(*specs: Spec, call: Call) -> tuple[Spec, ...]:
    times = specs[_RECORD + 3]
    return (
        make_spec((*times.shape, call.problem.size), call.problem.dtype, times.device),
        make_spec(times.shape, np.int64, times.device),
    )


def _as_outcome(out: Any, xs: Sequence[Any]) -> Outcome:
    grid, states, counts, choices = xs[:_RECORD]
    held = move(np.zeros((*shape(grid)[:-1], 3, 0), np.int64), spec_of(grid).device)
    return Outcome(out[0], grid, states, out[1], counts, choices, held, None, None, None)


def _pull(bar: Any, out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    if isinstance(bar[0], Spec):
        return (None,) * len(xs)
    return *(None,) * _RECORD, *call.policy.pull(call, bar[0], _as_outcome(out, xs), xs[_RECORD:])


def _push(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    return call.policy.push(call, tangents[_RECORD:], _as_outcome(out, xs), xs[_RECORD:]), None


def _batch(size: int, axes: tuple[int | None, ...], *xs: Any, call: Call) -> Any:
    return apply_to_batch(_read_op, size, axes, xs, call)


_check_op: Op = make_custom_record(
    "check_dense", ("rows", "times", "t0", "t1"), _check_bare, None, None, None, lambda *specs: specs[0]
)
_read_op: Op = replace(make_custom_record(
    "read_solution", ("*xs",), _read_bare, Formula(_pull, ("bar", "out", "xs", "call")),
    Formula(_push, ("tangents", "out", "xs", "call")), _batch, _find_specs,
), form=Expand(_read_staged))  # fmt: skip


@final
class DenseOutput:
    """A solution as a function of time, from its start to its end: an array of times makes leaves with its axes first.
    It holds the states of all steps. It is a tree of arrays, so transforms pass it in and out; that of a batch is
    called inside of `pb.vmap`.

    >>> import numpy as np, pullback as pb
    >>> wave = pb.ode.solve(lambda t, y: (y[1], -y[0]), (0.0, 1.0), (0.0, 6.0), dense=True).dense
    >>> round(float(wave(1.0)[0]), 5), wave(np.array([[1.0, 2.0]]))[0].shape
    (0.84147, (1, 2))
    >>> round(float(pb.grad(lambda t: wave(t)[0])(2.0)), 4)
    -0.4161
    """

    __slots__ = ("_call", "_layout", "_record", "_xs")

    def __init__(self, call: Call, layout: VectorLayout, record: Sequence[Any], xs: Sequence[Any]) -> None:
        self._call, self._layout, self._record, self._xs = call, layout, tuple(record), tuple(xs)

    def __call__(self, t: Any) -> Any:
        """The state at a time, or at each of an array of times, within the span."""
        y0, t0, t1, *arguments = self._xs
        if len(shape(t0)):
            raise ArgumentError(
                "ode.solve: this is a batch of solutions: call each inside of pb.vmap, as in "
                "pb.vmap(lambda solution, t: solution(t))(solutions, times)."
            )
        times = astype(as_array_leaf(t, "ode.solve: the time of a solution"), self._layout.dtype)
        times = move(times, self._layout.device)
        flat = reshape(times, (math.prod(shape(times)),))
        if not len_of(flat):
            raise ArgumentError("ode.solve: a solution was asked for at no times; wanted one at least.")
        order = argsort(flat * pointwise.sign(t1 - t0), stable=True)
        rows = apply(_read_op, *self._record, y0, t0, t1, getitem(flat, order), *arguments, call=self._call)[0]
        if not shape(times):
            return self._layout.to_tree(getitem(rows, 0))
        function = self._layout.to_tree
        for _ in shape(times):
            function = vmap(function)
        return function(reshape(getitem(rows, argsort(order, stable=True)), (*shape(times), self._layout.size)))

    def __repr__(self) -> str:
        return f"DenseOutput from {self._xs[1]} to {self._xs[2]}"


def _flatten(dense: Any) -> tuple[Any, ...]:
    return (dense._record, dense._xs), (dense._call, dense._layout), ("record", "arguments")


def _unflatten(rest: Any, children: Any) -> DenseOutput:
    record, xs = children
    call, layout = rest
    return DenseOutput(call, layout, record, xs)


register_tree(DenseOutput, _flatten, _unflatten)


def make_dense(call: Call, layout: VectorLayout, done: Outcome, xs: Sequence[Any]) -> DenseOutput:
    """The solution of a solve that saved its states, up to the end that it reached."""
    y0, t0, t1, _, *arguments = xs
    if call.problem.events:
        end = getitem(done.found, -1)
    else:
        is_done = pointwise.equal(getitem(done.counts, 2), int(Status.DONE))
        end = pointwise.where(is_done, t1, getitem(done.numbers, 0))
    problem = replace(call.problem, events=(), has_times=True)
    record = done.grid, done.states, done.counts, done.choices
    return DenseOutput(replace(call, problem=problem), layout, record, (y0, t0, end, *arguments))
