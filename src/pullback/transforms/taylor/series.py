"""Values along a curve: the interpreter that carries Taylor coefficients through every op, which nests by level.

Inside a rule, series compute their coefficients on demand. To know the k-th coefficient of y' a rule
needs those of y up to the k-th and no more, so a rule may name the very result that it is the rule of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.scope import Scope
from ...arrays.spec import Spec, derivative_dtype, spec_of, zeros
from ...arrays.value import Value
from ...errors import ConversionError
from ...ops.dispatch import run
from ...ops.elementwise.pointwise import multiply
from ...ops.op import Op
from ...ops.shape.reshaping import broadcast_checked, narrow
from ...settings import PLAIN, installed, modes
from .coefficient_rules import CoefficientRule, SeriesCall, coefficient_rules

_SCALARS = (bool, int, float, complex)


class Series(Value):
    """A value along a curve: its Taylor coefficients, of which the first is where it starts; None is zero.

    A finished series has all the coefficients it will ever have, and only the first if it is constant. A growing
    one lives in the `memo` of a rule and computes its next coefficient, from those before it, on demand.
    """

    __slots__ = ("grow", "known", "level", "memo", "scope", "slope", "spec")
    level: int
    scope: Scope

    def __init__(
        self, known: list[Any], scope: Scope, memo: SeriesMemo | None = None, grow: CoefficientRule | None = None
    ) -> None:
        self.known = known
        self.spec: Spec = spec_of(known[0]).as_guarded()
        self.scope = scope
        self.level = scope.level
        self.memo = memo
        self.grow = grow
        self.slope: Series | None = None

    def parts(self) -> tuple[Any, ...]:
        return tuple(self.known)

    def with_parts(self, *parts: Any) -> Series:
        return Series(list(parts), self.scope, self.memo, self.grow)

    @property
    def start(self) -> Any:
        """Where the curve starts."""
        return self.known[0]

    @property
    def is_tracked(self) -> bool:
        return self.moves

    @property
    def moves(self) -> bool:
        return self.grow is not None or len(self.known) > 1

    def coefficient(self, k: int) -> Any:
        """The k-th Taylor coefficient: a value of the level below, or None."""
        known = self.known
        while len(known) <= k:
            if self.grow is None:
                return None
            known.append(_fit_coefficient(self.grow(len(known)), self.spec))
        return known[k]

    def derivative(self) -> Series:
        """x'(t), whose k-th coefficient is (k + 1) x_(k+1)."""
        if self.slope is None:
            first = self.coefficient(1)
            start = zeros(self.spec) if first is None else first
            self.slope = Series([start], self.scope, self.memo, self._slope_coefficient)
        return self.slope

    def _slope_coefficient(self, k: int) -> Any:
        found = self.coefficient(k + 1)
        return None if found is None else multiply(found, k + 1)

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Inside a rule, a result that grows. Outside, all coefficients at once, so that no graph is too deep."""
        scope = self.scope
        if not scope.open:
            scope.check()
        order = 0
        for x in args:
            if type(x) is Series and x.scope is scope:
                if x.memo is not None:
                    return x.memo.result(op, args, static)
                order = max(order, len(x.known) - 1)
        # Nothing moves: compute below, as for any constant.
        if order == 0 or not op.differentiable:
            out = run(op, [_start_of(x, scope) for x in args], static)
            return _map_results(out, lambda part: Series([part], scope)) if op.differentiable else out
        # A memo for each op: rules of one op share series, and it is finished before the next op runs.
        memo = SeriesMemo(scope)
        out = memo.result(op, [memo.import_argument(x) for x in args], static)
        memo.finish(order)
        if modes() is not PLAIN:
            parts = out if type(out) is tuple else (out,)
            installed().pushed(op.name, [c for part in parts for c in part.known[1:] if c is not None])
        return _map_results(out, lambda part: part.freeze())

    def freeze(self) -> Series:
        """The coefficients that are known, as a series of the function."""
        known = self.known
        return Series(known[:1] if all(c is None for c in known[1:]) else known, self.scope)

    def __bool__(self) -> bool:
        return bool(self.known[0])

    def conversion_error(self, what: str) -> ConversionError:
        """Raise: a bare array would lose the derivatives."""
        return ConversionError(
            f"{what}: {self.spec} carries derivatives along a curve, a bare array would lose them.\n"
            "  Use functions of pullback on it, or pb.stop_gradient for a constant."
        )

    def __repr__(self) -> str:
        return f"series({', '.join(map(repr, self.known))})"


class SeriesMemo:
    """Where the derivative of one op is worked out. Each series in it is made once for an op and its arguments: sin
    asks for cos, whose own derivative asks for sin and finds the series that asked. So n coefficients take n^2 steps;
    made anew each time they would take 2^n.
    """

    __slots__ = ("_made", "_seen", "_series", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._made: dict[tuple[Any, ...], list[tuple[Sequence[Any], dict[str, Any], Any]]] = {}
        self._seen: dict[int, Series] = {}
        self._series: list[Series] = []

    def import_argument(self, x: Any) -> Any:
        """An argument from outside, as a series of this memo."""
        if type(x) is not Series or x.scope is not self.scope:
            return x
        if id(x) not in self._seen:
            self._seen[id(x)] = self._remember(Series(x.known, self.scope, self))
        return self._seen[id(x)]

    def result(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """The result of an op on series of this memo: the one made before, or a new one that grows."""
        entries = self._made.setdefault((op, *map(_identity, args)), [])
        for _, known, out in entries:
            if _is_equal(known, static):
                return out
        out = self._make_result(op, args, static)
        entries.append((args, static, out))  # with the arguments, lest their ids are reused
        return out

    def _make_result(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        scope = self.scope
        points = [_start_of(x, scope) for x in args]
        start = run(op, points, static)
        if not op.differentiable:
            return start
        moving = [x if type(x) is Series and x.scope is scope and x.moves else None for x in args]
        out = _map_results(start, lambda part: self._remember(Series([part], scope, self)))
        # Results exist before their rules do, since a rule may refer to its own result.
        grown = coefficient_rules(SeriesCall(op, args, static, points, moving), start, out)
        for part, grow in zip(out if type(out) is tuple else (out,), grown, strict=True):
            part.grow = grow if part.spec.inexact else None
        return out

    def _remember(self, series: Series) -> Series:
        self._series.append(series)
        return series

    def finish(self, order: int) -> None:
        """Let all series grow until the result, the first of them, has an order; then break their cycles.

        Innermost first, each by one coefficient at a time: left to themselves they ask each other as deep as the order.
        They refer to each other, so without that their memory would wait for the garbage collector.
        """
        for _ in range(order):
            growing = [(series, len(series.known)) for series in self._series if series.grow is not None]
            # The lengths were taken before: each series grows by one however often the others ask it.
            for series, k in reversed(growing):
                series.coefficient(k)
        for series in self._series:
            series.grow = series.slope = None
        for held in (self._made, self._seen, self._series):
            held.clear()


def _start_of(x: Any, scope: Scope) -> Any:
    """Where an argument starts: the first coefficient of a series of this scope, any other value itself."""
    return x.known[0] if type(x) is Series and x.scope is scope else x


def _map_results(out: Any, function: Callable[[Any], Any]) -> Any:
    """A function of each result of an op that may have several."""
    return tuple([function(part) for part in out]) if type(out) is tuple else function(out)


def _identity(x: Any) -> Any:
    """Numbers are the same if type and value are, other things only if they are one object."""
    # By repr, since 0.0 == -0.0 and nan != nan.
    return (type(x), repr(x)) if type(x) in _SCALARS else id(x)


def _is_equal(static: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        return bool(static == other)
    except Exception:  # the equality of arrays is no single truth
        return False


def _fit_coefficient(coefficient: Any, spec: Spec) -> Any:
    """A coefficient in the shape and dtype of its series: rules leave out broadcasting and may compute wider."""
    if coefficient is None:
        return None
    found = spec_of(coefficient)
    if found.shape != spec.shape:
        coefficient = broadcast_checked(coefficient, spec.shape)
    wanted = derivative_dtype(spec.dtype)
    return coefficient if found.dtype == wanted else narrow(coefficient, wanted)


def series_scope() -> Scope:
    """A run of Taylor mode."""
    return Scope("jet", _lift_constant, _lower_constant)


def _lift_constant(scope: Scope, x: Any) -> Series:
    return Series([x], scope)


def _lower_constant(x: Any) -> Any:
    return x.known[0] if type(x) is Series and not x.moves else x
