"""The phase space of Hamiltonian samplers: points with their log-density and slope, and the leapfrog step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...ops.elementwise.pointwise import where
from ...ops.reduce.reductions import sum as total
from .metric import Metric

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


def energy(phase: Phase, metric: Metric) -> Any:
    """Minus the log-density of place and momentum; infinite where that is not a number."""
    found = 0.5 * total(phase.momentum * metric.velocity(phase.momentum)) - phase.place.value
    return where(found == found, found, float("inf"))


def take_leapfrog(slope: Slope, phase: Phase, step: Any, metric: Metric) -> Phase:
    """Half a step of the momentum, a step of the position, half a step of the momentum: reversible, of constant volume,
    and with an error of the energy of second order in the step.
    """
    half = phase.momentum + 0.5 * step * phase.place.slope
    position = phase.place.position + step * metric.velocity(half)
    place = Place(position, *slope(position))
    return Phase(place, half + 0.5 * step * place.slope)
