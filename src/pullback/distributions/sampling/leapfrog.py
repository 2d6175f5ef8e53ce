"""The phase space of Hamiltonian samplers: points with their log-density and slope, and the leapfrog step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...ops.elementwise.pointwise import where
from ...ops.random.samplers import normal
from ...ops.reduce.reductions import sum as total

#: A log-density and its slope, of a vector.
Slope = Callable[[Any], tuple[Any, Any]]


class Place(NamedTuple):
    """A position with its log-density and its slope."""

    position: Any
    value: Any
    slope: Any


class Phase(NamedTuple):
    """A place and a momentum."""

    place: Place
    momentum: Any


def kinetic_energy(momentum: Any, inverse_mass: Any) -> Any:
    """Half of the momentum's square, in the metric of the inverse mass."""
    return 0.5 * total(momentum * momentum * inverse_mass)


def energy(phase: Phase, inverse_mass: Any) -> Any:
    """Minus the log-density of place and momentum; infinite where that is not a number."""
    found = kinetic_energy(phase.momentum, inverse_mass) - phase.place.value
    return where(found == found, found, float("inf"))


def draw_momentum(key: Any, inverse_mass: Any) -> Any:
    """A momentum of the covariance 1 / inverse_mass."""
    return normal(size=inverse_mass.shape, key=key, dtype=inverse_mass.dtype) / inverse_mass**0.5


def take_leapfrog(slope: Slope, phase: Phase, step: Any, inverse_mass: Any) -> Phase:
    """Half a step of the momentum, a step of the position, half a step of the momentum: reversible, of constant volume,
    and with an error of the energy of second order in the step.
    """
    half = phase.momentum + 0.5 * step * phase.place.slope
    position = phase.place.position + step * inverse_mass * half
    place = Place(position, *slope(position))
    return Phase(place, half + 0.5 * step * place.slope)
