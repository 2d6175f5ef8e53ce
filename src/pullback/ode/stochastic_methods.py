"""Steps of stochastic equations dy = a(t, y) dt + b(t, y) dW: Euler-Maruyama, Milstein, Runge-Kutta, Heun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import ndim
from ..ops.elementwise.pointwise import sqrt, square
from ..transforms.forward import jvp
from .brownian import Noise

#: A drift or a diffusion of (t, y).
Field = Callable[[Any, Any], Any]


@runtime_checkable
class StochasticMethod(Protocol):
    """One step: the state after h, given the noise of the step. `takes_matrix`: whether the diffusion may be one."""

    takes_matrix: bool

    def advance(self, drift: Field, diffusion: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any: ...


def _apply_diffusion(b: Any, increment: Any) -> Any:
    """b dW: coordinate by coordinate, or by a matrix."""
    return matmul(b, increment) if ndim(b) == 2 else b * increment


@final
@dataclass(frozen=True)
class EulerMaruyama:
    """Euler's step for Ito's equation: strong order 1/2, order 1 where the noise does not depend on the state; in
    expectations order 1. Any noise.

    >>> import pullback as pb
    >>> pb.ode.EulerMaruyama()
    EulerMaruyama()
    """

    takes_matrix = True

    def advance(self, drift: Field, diffusion: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        return y + h * drift(t, y) + _apply_diffusion(diffusion(t, y), noise.increment)


@final
@dataclass(frozen=True)
class Milstein:
    """Milstein's step for Ito's equation with diagonal noise, b_k a function of y_k: strong order 1. The slope of the
    diffusion is exact.

    >>> import pullback as pb
    >>> pb.ode.Milstein()
    Milstein()
    """

    takes_matrix = False

    def advance(self, drift: Field, diffusion: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        w = noise.increment
        b = diffusion(t, y)
        # y' = y + a h + b dW + b b' I_(1,1), with I_(1,1) = (dW^2 - h) / 2
        slope = jvp(lambda y: diffusion(t, y), (y,), (b,))[1]
        return y + h * drift(t, y) + b * w + slope * (0.5 * (square(w) - h))


@final
@dataclass(frozen=True)
class StochasticRungeKutta:
    """Roessler's SRIW1 for Ito's equation with diagonal noise: strong order 3/2, by two drifts and four diffusions.

    >>> import pullback as pb
    >>> pb.ode.StochasticRungeKutta()
    StochasticRungeKutta()
    """

    takes_matrix = False

    def advance(self, drift: Field, diffusion: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        w, root = noise.increment, sqrt(h)
        # the iterated integrals, each over a power of h such that all go as dW
        twice = (square(w) - h) / (2 * root)  # I_(1,1) / h^(1/2)
        area = noise.area + 0.5 * w  # I_(1,0) / h
        thrice = w * (square(w) / h - 3) / 6  # I_(1,1,1) / h
        a, b = drift(t, y), diffusion(t, y)
        a_late = drift(t + 0.75 * h, y + 0.75 * h * a + 1.5 * area * b)
        b_early = diffusion(t + 0.25 * h, y + 0.25 * h * a + 0.5 * root * b)
        b_late = diffusion(t + h, y + h * a - root * b)
        b_last = diffusion(t + 0.25 * h, y + 0.25 * h * a_late + root * (-5 * b + 3 * b_early + 0.5 * b_late))
        found = y + h * (a + 2 * a_late) / 3
        found = found + b * (-w - twice + 2 * area - 2 * thrice)
        found = found + b_early * (4 * w + 4 * twice - 4 * area + 5 * thrice) / 3
        found = found + b_late * (2 * w - twice - 2 * area - 2 * thrice) / 3
        return found + b_last * thrice


@final
@dataclass(frozen=True)
class Heun:
    """Heun's step for Stratonovich's equation: strong order 1 where the noises commute (one noise, diagonal noise),
    else 1/2. Any noise.

    >>> import pullback as pb
    >>> pb.ode.Heun()
    Heun()
    """

    takes_matrix = True

    def advance(self, drift: Field, diffusion: Field, t: Any, y: Any, h: Any, noise: Noise) -> Any:
        w = noise.increment
        a, b = drift(t, y), diffusion(t, y)
        ahead = y + h * a + _apply_diffusion(b, w)
        after = 0.5 * (a + drift(t + h, ahead))
        return y + h * after + 0.5 * (_apply_diffusion(b, w) + _apply_diffusion(diffusion(t + h, ahead), w))
