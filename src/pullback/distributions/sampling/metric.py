"""The metric of a Hamiltonian sampler: an inverse mass near the covariance of the target, diagonal or dense."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...ops.contract.matrix_products import matmul
from ...ops.creation import eye
from ...ops.linalg.factorizations import cholesky
from ...ops.linalg.linear_systems import triangular_solve
from ...ops.random.quick_normal import quick_normal


class Metric(Protocol):
    """What a sampler asks of an inverse mass: the velocity of a momentum, and momenta whose covariance is the mass."""

    @property
    def inverse_mass(self) -> Any: ...

    def velocity(self, momentum: Any) -> Any: ...

    def draw_momentum(self, key: Any) -> Any: ...


class DiagonalMetric(NamedTuple):
    """A variance for each coordinate."""

    inverse_mass: Any

    def velocity(self, momentum: Any) -> Any:
        """The momentum over the mass."""
        return momentum * self.inverse_mass

    def draw_momentum(self, key: Any) -> Any:
        """A momentum of the covariance 1 / inverse_mass."""
        inverse = self.inverse_mass
        return quick_normal(inverse.shape, key, inverse.dtype) / inverse**0.5


class DenseMetric(NamedTuple):
    """A covariance matrix C = L L^T, with L."""

    inverse_mass: Any
    factor: Any

    def velocity(self, momentum: Any) -> Any:
        """C p."""
        return matmul(self.inverse_mass, momentum)

    def draw_momentum(self, key: Any) -> Any:
        """p = L^-T z, whose covariance is C^-1."""
        z = quick_normal(self.factor.shape[:1], key, self.factor.dtype)
        return triangular_solve(self.factor, z, trans=1, lower=True)


def start_metric(position: Any, dense: bool) -> Metric:
    """The unit metric."""
    ones = position * 0.0 + 1.0
    if not dense:
        return DiagonalMetric(ones)
    unit = eye(len(position), dtype=position.dtype) * ones
    return DenseMetric(unit, unit)


def metric_of(covariance: Any) -> Metric:
    """The metric of a vector of variances, or of a covariance matrix."""
    return DiagonalMetric(covariance) if covariance.ndim == 1 else DenseMetric(covariance, cholesky(covariance))
