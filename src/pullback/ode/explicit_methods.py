"""Explicit Runge-Kutta pairs, for systems that are not stiff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from .methods import Attempt, Method, Slope, Tolerance, combine, find_share, interpolate_cubic
from .tableaux import BOSH3, DOPRI5, DOPRI8, TSIT5, Tableau


@final
@dataclass(frozen=True)
class RungeKutta(Method):
    """The explicit pair of a tableau: `Tsit5()`, `Dopri5()`, `Dopri8()` and `Bosh3()` are some, and yours may be one.

    >>> import pullback as pb
    >>> a, b, c, error = ((), (1.0,)), (0.5, 0.5), (0.0, 1.0), (-0.5, 0.5, 0.0)
    >>> heun = pb.ode.RungeKutta(pb.ode.Tableau(a, b, c, error, order=2, error_order=1))
    >>> y = pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), method=heun, rtol=1e-8, max_steps=20_000).y
    >>> bool(abs(y - 0.36787944) < 1e-7)
    True
    """

    tableau: Tableau

    @property
    def order(self) -> int:  # type: ignore[override]
        """That of the tableau."""
        return self.tableau.order

    @property
    def error_order(self) -> int:  # type: ignore[override]
        """That of the solution it is compared with."""
        return self.tableau.error_order

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        """One for each stage: the first is the last one of the step before."""
        return len(self.tableau.b)

    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any, tolerance: Tolerance) -> Attempt:
        h = t_next - t
        slopes = self._slopes(f, t, y, slope, h)
        end = y + combine(self.tableau.b, slopes) * h
        slopes.append(f(t_next, end))
        return Attempt(end, slopes[-1], combine(self.tableau.error, slopes) * h)

    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        h = t_next - t
        return y + combine(self.tableau.b, self._slopes(f, t, y, f(t, y), h)) * h

    def interpolate(self, f: Slope, t: Any, y: Any, t_next: Any, at: Any) -> Any:
        if self.tableau.dense_order < self.order - 1 and self.order > 3:
            return self.advance(f, t, y, at)
        h = t_next - t
        slopes = self._slopes(f, t, y, f(t, y), h)
        end = y + combine(self.tableau.b, slopes) * h
        slopes.append(f(t_next, end))
        share = find_share(at, t, h)
        if not self.tableau.dense:
            return interpolate_cubic(y, slopes[0], end, slopes[-1], h, share)
        weighted = [k * _polynomial(row, share) for k, row in zip(slopes, self.tableau.dense, strict=True) if any(row)]
        return y + combine([1.0] * len(weighted), weighted) * h

    def _slopes(self, f: Slope, t: Any, y: Any, slope: Any, h: Any) -> list[Any]:
        slopes = [slope]
        for row, c in zip(self.tableau.a[1:], self.tableau.c[1:], strict=True):
            slopes.append(f(t + h * c, y + combine(row, slopes) * h))
        return slopes


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """The polynomial without a constant term, by Horner's rule."""
    total = coefficients[-1] * x
    for coefficient in coefficients[-2::-1]:
        total = (total + coefficient) * x
    return total


def Bosh3() -> RungeKutta:
    """Bogacki and Shampine's pair of order 3(2): three evaluations a step, for coarse tolerances.

    >>> import pullback as pb
    >>> round(float(pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), method=pb.ode.Bosh3()).y), 5)
    0.36788
    """
    return RungeKutta(BOSH3)


def Tsit5() -> RungeKutta:
    """Tsitouras' pair of order 5(4), the default: six evaluations a step, dense output of fourth order.

    >>> import pullback as pb
    >>> round(float(pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), method=pb.ode.Tsit5()).y), 6)
    0.367879
    """
    return RungeKutta(TSIT5)


def Dopri5() -> RungeKutta:
    """Dormand and Prince's pair of order 5(4), the one of SciPy's "RK45" and MATLAB's `ode45`.

    >>> import pullback as pb
    >>> round(float(pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), method=pb.ode.Dopri5()).y), 6)
    0.367879
    """
    return RungeKutta(DOPRI5)


def Dopri8() -> RungeKutta:
    """Prince and Dormand's pair of order 8(7): thirteen evaluations a step, for tolerances below 1e-9 or so. Times
    within a step are reached by a step of their own, so that they are of order 8 too.

    >>> import pullback as pb
    >>> y = pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), method=pb.ode.Dopri8(), rtol=1e-12, atol=1e-12).y
    >>> round(float(y), 11)
    0.36787944117
    """
    return RungeKutta(DOPRI8)
