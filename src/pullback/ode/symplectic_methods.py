"""Symplectic steps for mechanics: the energy of long runs oscillates, and does not drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ..errors import ArgumentError
from ..implicit.vector_layout import VectorLayout
from ..ops.shape.arrange import concat
from .methods import Attempt, Method, Slope, Tolerance

# Yoshida 1990: three leapfrogs, the middle one backward, whose errors of third order cancel.
_OUTER = 1 / (2 - 2 ** (1 / 3))
_SHARES = {2: (1.0,), 4: (_OUTER, 1 - 2 * _OUTER, _OUTER)}


@final
@dataclass(frozen=True)
class _Splitting(Method):
    """Leapfrogs one after the other: half a kick, a drift, half a kick."""

    order: int
    error_order: None = None
    solves_any = False  # sensitivities and adjoints have no positions and velocities

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        """A drift and two kicks for each leapfrog, and the slope at the end."""
        return 3 * len(_SHARES[self.order]) + 1

    def check_state(self, layout: VectorLayout) -> None:
        specs = layout.specs
        if len(specs) != 2 or specs[0].shape != specs[1].shape or specs[0].dtype.kind != specs[1].dtype.kind:
            raise ArgumentError(
                "ode.solve: a symplectic step wants y = (positions, velocities), two arrays of one shape, and f that "
                f"returns (their slopes from the velocities, from the positions); got {len(specs)} arrays: "
                f"{', '.join(map(str, specs))}."
            )

    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any, tolerance: Tolerance) -> Attempt:
        end = self.advance(f, t, y, t_next)
        return Attempt(end, slope, end)

    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        h = t_next - t
        for share in _SHARES[self.order]:
            y, t = _leap(f, t, y, h * share)
        return y


def _leap(f: Slope, t: Any, y: Any, h: Any) -> tuple[Any, Any]:
    n = y.shape[0] // 2
    q, p = y[:n], y[n:]
    p = p + f(t, concat([q, p]))[n:] * (h / 2)
    q = q + f(t + h / 2, concat([q, p]))[:n] * h
    p = p + f(t + h, concat([q, p]))[n:] * (h / 2)
    return concat([q, p]), t + h


def Leapfrog() -> Method:
    """The leapfrog or velocity Verlet step of second order, for y = (positions, velocities), with fixed steps.

    >>> import pullback as pb
    >>> f = lambda t, y: (y[1], -y[0])
    >>> q, p = pb.ode.solve(f, (1.0, 0.0), (0, 100), method=pb.ode.Leapfrog(), control=pb.ode.FixedSteps(1000)).y
    >>> bool(abs(q * q + p * p - 1) < 0.003)
    True
    """
    return _Splitting(2)


def Yoshida4() -> Method:
    """Yoshida's step of fourth order, of three leapfrogs.

    >>> import pullback as pb
    >>> f = lambda t, y: (y[1], -y[0])
    >>> q, p = pb.ode.solve(f, (1.0, 0.0), (0, 100), method=pb.ode.Yoshida4(), control=pb.ode.FixedSteps(1000)).y
    >>> bool(abs(q * q + p * p - 1) < 2e-5)
    True
    """
    return _Splitting(4)
