"""First and second derivatives of elementwise ops against mpmath at 40 digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...ops.op import Op
from ...transforms.forward import jvp
from .cases import Case
from .oracles.scalars import PRECISION, mpmath_functions, to_mpmath

#: The least size an error is relative to: below it, a formula may have cancelled as far as the value has.
_FLOOR = 1e-3
#: How much of the change by the argument's own roundoff is allowed for: some ulps, in units of the tolerance of 1e-10.
_ULPS = 1e-4
#: How much further off a derivative of each order may be.
_TOLERANCE_FACTOR = {1: 1.0, 2: 20.0}
#: Ops that mpmath finds by a search, a quadrature or a limit: differences of those take too long.
_SLOW = {"gammaincinv", "gammainccinv", "betaincinv", "betainccinv", "k0e", "k1e", "owens_t", "von_mises_quantile"}


def scalar_function(op: Op) -> Callable[..., Any] | None:
    """The op on mpmath numbers, where that can be differentiated; None also without mpmath."""
    return None if op.name in _SLOW or op.family != "elementwise" else mpmath_functions().get(op.name)


def high_precision_error(case: Case) -> tuple[float, str] | None:
    """The worst error of the first two derivatives at points of the first sample and at extreme ones."""
    if case.op is None or case.number or not case.op.differentiable:
        return None
    function = scalar_function(case.op)
    if function is None or any(np.asarray(a).dtype != np.float64 for a in case.floats) or not case.moving:
        return None
    worst, description = -1.0, ""
    for args in _test_points(case):
        for place in case.moving:
            if case.op.pull_of(place) is None:
                continue
            for order, mine, true, size in _compare_derivatives(case, function, args, place):
                error = abs(mine - true) / (size * _TOLERANCE_FACTOR[order]) if np.isfinite(mine) else np.inf
                if error > worst:
                    found = f"rule {mine:.16g}, 40 digits {true:.16g}"
                    worst, description = error, f"derivative {order} in argument {place} at {args}: {found}"
    return None if worst < 0 else (worst, description)


def _test_points(case: Case) -> Iterator[list[Any]]:
    """Two points of the sample, and one of them far out and close to zero in one argument at a time."""
    rows = [a.ravel() for a in np.broadcast_arrays(*case.args)]
    for i in range(min(2, len(rows[0]))):
        yield [row[i].item() for row in rows]
    for place in case.moving:
        for factor in (1e-6, 30.0, 1e3):
            args = [row[-1].item() for row in rows]
            args[place] *= factor
            yield args


def _compare_derivatives(
    case: Case, function: Callable[..., Any], args: list[Any], place: int
) -> Iterator[tuple[int, float, float, float]]:
    """First and second derivative in one argument: the order, along_argument, mpmath's, and the size an error is
    measured by.

    An ulp of x moves f' by eps |x f''|, so no formula can be better than that; it is part of the size.
    """

    def along_argument(t: Any) -> Any:
        return case.call(*args[:place], t, *args[place + 1 :])

    def slope(t: Any) -> Any:
        return jvp(along_argument, (t,), (np.ones(()),))[1]

    def curve(t: Any) -> Any:
        return jvp(slope, (t,), (np.ones(()),))[1]

    exact = _mpmath_derivatives(function, args, place)
    x = np.asarray(args[place])
    for order, rule in enumerate((slope, curve)[: max(len(exact) - 1, 0)]):
        true, moved = exact[order], abs(float(x) * exact[order + 1])
        if 1e-200 < abs(true) < 1e200:
            yield order + 1, float(rule(x)), true, max(abs(true), _FLOOR, _ULPS * moved)


def _mpmath_derivatives(function: Callable[..., Any], args: list[Any], place: int) -> list[float]:
    """The first three derivatives by mpmath; none where it has no real, finite result."""
    import mpmath as mp

    with mp.workdps(PRECISION):
        exact = [to_mpmath(a) for a in args]
        try:
            found = list(mp.diffs(lambda t: function(*exact[:place], t, *exact[place + 1 :]), exact[place], 3))[1:]
        except (ArithmeticError, NotImplementedError, TypeError, ValueError, mp.libmp.NoConvergence):
            return []
    return [float(mp.re(d)) for d in found] if all(mp.isfinite(d) and not mp.im(d) for d in found) else []
