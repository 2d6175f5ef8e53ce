"""Rules for the next Taylor coefficient of an op call on series.

One rule is right for every op: the derivative along t is the op's own push,

    y'(t) = push(x'(t), y(t), x(t)),    y_k = (y')_(k-1) / k,

and since pushes are written in ops, the rule runs on series too. The others are the same mathematics with less work,
for derivatives that are constant, for products and for quotients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ops.dispatch import run
from ...ops.elementwise.pointwise import add, divide, multiply, subtract
from ...ops.op import Op

#: Returns the k-th coefficient, for k from 1 on, where those before are known; None is zero.
CoefficientRule = Callable[[int], Any]
#: Families whose formulas name all that their derivative depends on.
_DECLARED_FAMILIES = ("elementwise", "linear")


@dataclass(frozen=True, slots=True)
class SeriesCall:
    """An op and its arguments: where each starts, and the series of those that move, None for the others."""

    op: Op
    args: Sequence[Any]
    static: dict[str, Any]
    start: list[Any]
    moving: list[Any]

    def coefficient(self, position: int, k: int) -> Any:
        """The k-th coefficient of an argument, moving or not."""
        series = self.moving[position]
        if series is not None:
            return series.coefficient(k)
        return self.start[position] if k == 0 else None


def coefficient_rules(call: SeriesCall, start: Any, out: Any) -> list[CoefficientRule | None]:
    """How each result of a call grows from where it starts; `out` are the series of the results themselves."""
    moves = tuple(series is not None for series in call.moving)
    # A result that does not move has no further coefficients.
    if True not in moves:
        return [None] * (len(out) if type(out) is tuple else 1)
    # Two ops have rules of their own: the product is what rules are made of, so it must not ask its own for one; and a
    # rule for the quotient would hold two quotients, each with a rule of its own, and so on.
    is_product = call.op.algebra.is_product or call.op.family == "contraction"
    if is_product and sum(moves) > 1:
        return [_make_product_rule(call)]
    if is_product or (call.op.family in _DECLARED_FAMILIES and _is_constant(call.op, moves)):
        return _split_rule(_make_linear_rule(call, start), out)
    if call.op.algebra.is_quotient:
        return [_make_quotient_rule(call, out)]
    return _make_general_rules(call, out)


@functools.cache
def _is_constant(op: Op, moves: tuple[bool, ...]) -> bool:
    """Whether the derivative is the same along the whole curve: its formulas name no series."""
    varying = {op.argument(i).removeprefix("*") for i, moving in enumerate(moves) if moving} | {"out", "others"}
    pulls = [op.pull_of(i) for i, moving in enumerate(moves) if moving]
    return all(pull is None or varying.isdisjoint(pull.names) for pull in pulls)


def _make_linear_rule(call: SeriesCall, start: Any) -> CoefficientRule:
    """A constant derivative J: y_k = J x_k."""

    def grow(k: int) -> Any:
        along = [None if series is None else series.coefficient(k) for series in call.moving]
        if all(x is None for x in along):
            return None
        return call.op.push(along, start, call.start, call.static)

    return grow


def _split_rule(grow: CoefficientRule, out: Any) -> list[CoefficientRule | None]:
    """The rule of each result, from one that returns all of them at once."""
    if type(out) is not tuple:
        return [grow]
    row = functools.cache(lambda k: grow(k) or (None,) * len(out))
    return [lambda k, i=i: row(k)[i] for i in range(len(out))]  # type: ignore[misc]


def _make_product_rule(call: SeriesCall) -> CoefficientRule:
    """An op that is linear in each argument apart, of which two or more are series."""
    moving = [series for series in call.moving if series is not None]
    places = [i for i, series in enumerate(call.moving) if series is not None]

    def times(*factors: Any) -> Any:
        filled = dict(zip(places, factors, strict=True))
        return run(call.op, [filled.get(i, x) for i, x in enumerate(call.start)], call.static)

    return lambda k: _convolve_coefficients(times, moving, k)


def _convolve_coefficients(times: Callable[..., Any], factors: list[Any], k: int) -> Any:
    """The sum of times(x_i, y_j, ...) over all i + j + ... = k, for two factors or more."""
    first, second, *others = factors
    out = None
    for i in range(k + 1):
        x = first.coefficient(i)
        if x is None:
            continue
        if others:
            out = add_or_none(out, _convolve_coefficients(functools.partial(times, x), [second, *others], k - i))
            continue
        y = second.coefficient(k - i)
        if y is not None:
            out = add_or_none(out, times(x, y))
    return out


def _make_quotient_rule(call: SeriesCall, out: Any) -> CoefficientRule:
    """From x = y d follows x_k = y_k d_0 + sum of y_(k-j) d_j over j = 1 ... k, which is solved for y_k."""
    divisor = call.start[1]

    def grow(k: int) -> Any:
        known = None
        for j in range(1, k + 1):
            d, y = call.coefficient(1, j), out.coefficient(k - j)
            if d is not None and y is not None:
                known = add_or_none(known, multiply(d, y))
        x = call.coefficient(0, k)
        if known is None:
            return None if x is None else divide(x, divisor)
        return divide(subtract(0 if x is None else x, known), divisor)

    return grow


def _make_general_rules(call: SeriesCall, out: Any) -> list[CoefficientRule | None]:
    """The rule that is right for all: y_k = (y')_(k-1) / k, where y' is the push, made at its first use."""
    results = out if type(out) is tuple else (out,)

    @functools.cache
    def slopes() -> tuple[Any, ...]:
        along = [None if series is None else series.derivative() for series in call.moving]
        pushed = call.op.push(along, out, call.args, call.static)
        # A push may return None for all results together.
        return pushed if type(pushed) is tuple else (pushed,) * len(results)

    def grow(i: int, k: int) -> Any:
        found = _coefficient_of(slopes()[i], k - 1, results[i])
        return found if found is None or k == 1 else divide(found, k)

    return [functools.partial(grow, i) for i in range(len(results))]


def _coefficient_of(x: Any, k: int, like: Any) -> Any:
    """A coefficient of what a rule returned: a series such as `like`, a constant, or None."""
    if type(x) is type(like) and x.scope is like.scope:
        return x.coefficient(k)
    return x if k == 0 else None


def add_or_none(x: Any, y: Any) -> Any:
    """x + y, where None is zero."""
    return y if x is None else x if y is None else add(x, y)
