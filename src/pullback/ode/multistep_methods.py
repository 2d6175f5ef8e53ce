"""Backward differentiation formulas of variable order and step, for stiff systems: one equation a step.

Let P be the polynomial through the new state and the last k. The step solves P'(t_new) = f(t_new, P(t_new)):

    sum_i w_i y_i = f(t_0, y_0),    w_0 = sum_i 1 / (t_0 - t_i),
    w_i = prod_(j not i) (t_0 - t_j) / (t_i - t_j) / (t_i - t_0)

with nodes counted back from the new one. So coefficients follow the steps taken, whatever these are. With the divided
differences D over the nodes, what the step of order k neglects is, to leading order,

    error_k = D_(k+1) prod_(i=1..k) (t_0 - t_i) / w_0,

also for the orders next to the one in use, and the order that allows the longest step comes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..implicit.option_checks import check_positive_count
from ..ops import basis
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.placement import move
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat, stack
from ..ops.shape.reshaping import astype, reshape
from .implicit_methods import FAILED, attach_stage, invert_stage, iterate_stage, reject_unsolved
from .methods import Attempt, Method, Outlook, Slope, Tolerance, find_share

#: The highest order that is stable enough, and how many states a step looks back to judge it.
_HIGHEST, _BACK = 5, 6
#: Errors of a lower, the same and a higher order weigh so: changes should pay.
_BIASES = 1.2, 1.0, 1.4


class _Memory(NamedTuple):
    """The last states, newest first; the times of all but the newest; the order of the next step, how many steps were
    taken since the order or the step grew, and how many states there are.
    """

    states: Any
    times: Any
    order: Any
    waited: Any
    known: Any


def _unpack(z: Any) -> _Memory:
    size = (int(z.shape[0]) - _BACK - 2) // _BACK
    rest = z[_BACK * size :]
    states = reshape(z[: _BACK * size], (_BACK, size))
    return _Memory(states, rest[: _BACK - 1], *(getitem(rest, _BACK - 1 + i) for i in range(3)))


def _pack(memory: _Memory) -> Any:
    numbers = stack([memory.order, memory.waited, memory.known])
    return concat([reshape(memory.states, (-1,)), memory.times, numbers])


class _Nodes(NamedTuple):
    """The end of a step and its length; times counted from the end, in units of the length, newest first; and the
    states at all of these but the first.
    """

    end: Any
    length: Any
    times: list[Any]
    states: list[Any]


def _find_nodes(memory: _Memory, t: Any, slope: Any, t_next: Any) -> _Nodes:
    """Where there are no states yet, times lie before the start by a step each, and the state by a slope."""
    h = t_next - t
    spec, states = spec_of(slope), [memory.states[0]]
    times = [move(np.full((), x, spec.dtype), spec.device) for x in (0, -1)]
    for i in range(1, _BACK):
        is_known = pointwise.less(i, memory.known)
        before = find_share(getitem(memory.times, i - 1), t, h) - 1
        times.append(pointwise.where(is_known, before, times[-1] - 1))
        fictive = states[0] - slope * h if i == 1 else states[-1]
        states.append(pointwise.where(is_known, getitem(memory.states, i), fictive))
    return _Nodes(t_next, h, times, states)


def _weigh(nodes: _Nodes, order: Any) -> tuple[Any, Any]:
    """The factor and the base of the equation y = base + factor f(t, y) of a step."""
    gaps = [-t for t in nodes.times[1 : _HIGHEST + 1]]
    is_used = [pointwise.less_equal(i + 1, order) for i in range(_HIGHEST)]
    leading = sum(pointwise.where(used, 1.0 / gap, 0.0) for used, gap in zip(is_used, gaps, strict=True))
    rise: Any = 0.0
    for i in range(1, _HIGHEST):
        weight = -1.0 / gaps[i]
        for j, gap in enumerate(gaps):
            if j != i:
                weight = weight * pointwise.where(is_used[j], gap / (gap - gaps[i]), 1.0)
        # the weights have the sum zero, so differences do, which lose fewer digits
        rise = rise + pointwise.where(is_used[i], weight, 0.0) * (nodes.states[i] - nodes.states[0])
    return nodes.length / leading, nodes.states[0] - rise / leading


def _divide_differences(nodes: _Nodes, y: Any) -> list[Any]:
    """D_0 .. D_6 over the nodes, the new state first."""
    row, found = [y, *nodes.states], [y]
    for k in range(1, _BACK + 1):
        row = [(row[i] - row[i + 1]) / (nodes.times[i] - nodes.times[i + k]) for i in range(len(row) - 1)]
        found.append(row[0])
    return found


def _extrapolate(nodes: _Nodes, order: Any) -> Any:
    """The polynomial through the last states, one more than the order, at the end of the step."""
    row, at, total, product = list(nodes.states), nodes.times[1:], nodes.states[0], 1.0
    for k in range(1, _BACK):
        row = [(row[i] - row[i + 1]) / (at[i] - at[i + k]) for i in range(len(row) - 1)]
        product = product * -at[k - 1]
        total = total + pointwise.where(pointwise.less_equal(k, order), product, 0.0) * row[0]
    return total


@final
@dataclass(frozen=True)
class BDF(Method):
    """Backward differentiation formulas of the orders 1 to `highest`, chosen as they go, with one equation a step: for
    stiff systems, coarse to medium tolerances, and slopes that cost much. Orders above 2 are not stable for fast
    oscillations that are little damped; `BDF(2)` and `Kvaerno5()` are.

    >>> import numpy as np, pullback as pb
    >>> f = lambda t, y: -1e4 * (y - pb.cos(t))
    >>> solution = pb.ode.solve(f, 0.0, (0.0, 1.0), method=pb.ode.BDF())
    >>> bool(abs(solution.y - np.cos(1.0)) < 1e-3), solution.report.steps < 200
    (True, True)
    """

    highest: int = _HIGHEST
    has_choices = True

    def __post_init__(self) -> None:
        if check_positive_count(self.highest, "BDF: highest") > _HIGHEST:
            raise ArgumentError(f"BDF: highest must be at most {_HIGHEST}, got {self.highest}: none above is stable.")

    @property
    def order(self) -> int:  # type: ignore[override]
        """The highest."""
        return self.highest

    @property
    def error_order(self) -> int:  # type: ignore[override]
        """That of the first steps."""
        return 1

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        """At least one: iterations, and the Jacobian, are not counted."""
        return 1

    def count_numbers(self, size: int) -> int:
        return _BACK * size + _BACK + 2

    def begin(self, t: Any, y: Any) -> Any:
        times = basis.broadcast_to(reshape(t, (1,)), (_BACK - 1,))
        states = basis.broadcast_to(reshape(y, (1, -1)), (_BACK, spec_of(y).shape[0]))
        numbers = (move(np.full((), x, spec_of(y).dtype), spec_of(y).device) for x in (1, 0, 1))
        return _pack(_Memory(states, times, *numbers))

    def state(self, y: Any) -> Any:
        return y[: (int(y.shape[0]) - _BACK - 2) // _BACK]

    def choice(self, y: Any) -> Any:
        return astype(_unpack(y).order, np.int64)

    def recall(self, y: Any, choice: Any) -> Any:
        memory = _unpack(y)
        return _pack(memory._replace(order=astype(choice, spec_of(y).dtype)))

    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any, tolerance: Tolerance) -> Attempt:
        memory = _unpack(y)
        nodes = _find_nodes(memory, t, slope, t_next)
        factor, base = _weigh(nodes, memory.order)
        k, is_solved, _ = _solve(f, nodes, memory.order, factor, base)
        end = base + k * factor
        errors = _estimate(nodes, end)
        error = reject_unsolved(is_solved, _pick(errors, memory.order), end)
        order, growth, waited = self._choose_order(memory, errors, tolerance, end)
        memory = _advance_memory(memory, t, end)._replace(order=order, waited=waited)
        outlook = Outlook(_pick(errors, order), memory.order + 1, order + 1, growth)
        return Attempt(_pack(memory), k, error, outlook)

    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        memory = _unpack(y)
        return _pack(_advance_memory(memory, t, self._step(f, t, memory, t_next)[1]))

    def interpolate(self, f: Slope, t: Any, y: Any, t_next: Any, at: Any) -> Any:
        memory = _unpack(y)
        nodes, end = self._step(f, t, memory, t_next)
        total, product, share = end, 1.0, find_share(at, nodes.end, nodes.length)
        for k, difference in enumerate(_divide_differences(nodes, end)[1 : _HIGHEST + 1]):
            product = product * (share - nodes.times[k])
            total = total + pointwise.where(pointwise.less(k, memory.order), product, 0.0) * difference
        return total

    def _step(self, f: Slope, t: Any, memory: _Memory, t_next: Any) -> tuple[_Nodes, Any]:
        # in a batch, elements that are done go on by steps of no length, for which no order was chosen
        memory = memory._replace(order=pointwise.where(pointwise.equal(t, t_next), 1.0, memory.order))
        nodes = _find_nodes(memory, t, f(t, getitem(memory.states, 0)), t_next)
        factor, base = _weigh(nodes, memory.order)
        k, _, inverse = _solve(f, nodes, memory.order, factor, base)
        return nodes, base + attach_stage(f, nodes.end, base, factor, k, inverse) * factor

    def _choose_order(self, memory: _Memory, errors: list[Any], tolerance: Tolerance, end: Any) -> tuple[Any, Any, Any]:
        """The order of the next step, how much the step may grow, and how long both have been as they are."""
        dtype, order = spec_of(end).dtype, memory.order
        ratios = stack([tolerance.measure(error, end, getitem(memory.states, 0)) for error in errors])
        orders = move(np.arange(1, _HIGHEST + 1), spec_of(end).device)
        lengths = pointwise.maximum(ratios, 1e-10) ** (-1.0 / (orders + 1))
        bias = sum(
            pointwise.where(pointwise.equal(orders, order + d), 1.0 / b, 0.0)
            for d, b in zip((-1, 0, 1), _BIASES, strict=True)
        )
        has_waited = pointwise.greater(memory.waited, order)
        is_judged = pointwise.less_equal(orders + 1, pointwise.maximum(memory.known, 2))  # D has a node more
        may = pointwise.logical_and(pointwise.less_equal(orders, self.highest), is_judged)
        lengths = pointwise.where(may, lengths, 0.0) * bias
        best = astype(reductions.argmax(lengths), dtype) + 1
        best = pointwise.where(has_waited, best, order)
        is_longer = pointwise.logical_and(has_waited, pointwise.greater(getitem(lengths, _index(best)), 1.2))
        # a step that grows all the time makes the higher orders unstable
        growth = pointwise.where(is_longer, pointwise.where(pointwise.equal(order, 1), 10.0, 2.0), 1.0)
        is_first = pointwise.less(memory.known, 3)
        growth = pointwise.where(is_first, 10.0, growth)
        is_new = pointwise.logical_or(is_longer, pointwise.not_equal(best, order))
        return best, growth, pointwise.where(is_new, 0.0, memory.waited + 1)


def _index(order: Any) -> Any:
    return astype(order, np.int64) - 1


def _pick(errors: list[Any], order: Any) -> Any:
    return getitem(stack(errors), _index(order))


def _estimate(nodes: _Nodes, end: Any) -> list[Any]:
    """The errors of the step at all orders."""
    differences, found = _divide_differences(nodes, end), []
    product, leading = 1.0, 0.0
    for k in range(1, _HIGHEST + 1):
        gap = -nodes.times[k]
        product, leading = product * gap, leading + 1.0 / gap
        found.append(differences[k + 1] * (product / leading))
    return found


def _solve(f: Slope, nodes: _Nodes, order: Any, factor: Any, base: Any) -> tuple[Any, Any, Any]:
    """The slope at the end of a step, whether it was found, and the matrix of the equation; without derivatives."""
    times, states = ([pointwise.stop_gradient(x) for x in part] for part in (nodes.times, nodes.states))
    nodes = _Nodes(pointwise.stop_gradient(nodes.end), pointwise.stop_gradient(nodes.length), times, states)
    order, factor, base = (pointwise.stop_gradient(x) for x in (order, factor, base))
    # a step of no length stays, and nothing is asked of f elsewhere
    guess = pointwise.where(pointwise.equal(nodes.length, 0), states[0], _extrapolate(nodes, order))
    inverse = invert_stage(f, nodes.end, guess, factor)
    divisor = pointwise.where(pointwise.equal(factor, 0), 1.0, factor)
    k, left = iterate_stage(f, nodes.end, base, factor, inverse, (guess - base) / divisor)
    return k, pointwise.less(left, FAILED), inverse


def _advance_memory(memory: _Memory, t: Any, end: Any) -> _Memory:
    states = concat([reshape(end, (1, -1)), memory.states[: _BACK - 1]])
    times = concat([reshape(t, (1,)), memory.times[: _BACK - 2]])
    return memory._replace(states=states, times=times, known=pointwise.minimum(memory.known + 1, float(_BACK)))
