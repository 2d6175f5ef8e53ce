"""Normal vectors: by covariance, precision or Cholesky factor, and by few columns and a diagonal."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import log, sqrt, square
from ..ops.linalg.factorizations import cholesky
from ..ops.linalg.linear_systems import triangular_solve
from ..ops.placement import move
from ..ops.random import samplers
from ..ops.random.keys import fold_in
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import diagonal, flip
from ..ops.shape.diagonals import diag_embed
from ..ops.shape.reshaping import broadcast_to, expand_dims, matrix_transpose
from ..ops.value_objects import value_object
from . import constraints
from .distribution import Distribution, check_parameter, ranked, set_parameters
from .law import Law, beside
from .standard_forms import HALF_LOG_2PI
from .vector_bijectors import solve_lower


@final
@value_object
class MultivariateNormal(Distribution):
    """Normal vectors of a mean loc, and one of: a covariance matrix, its inverse (precision matrix), its Cholesky
    factor. Whichever is given, the factor is what is kept.

    >>> import numpy as np, pullback as pb
    >>> d = pb.distributions.MultivariateNormal(np.zeros(2), covariance_matrix=[[2.0, 1.0], [1.0, 2.0]])
    >>> round(float(d.log_prob(np.ones(2))), 6)
    -2.720517
    """

    loc: Any = ranked(1)
    scale_tril: Any = ranked(2)

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None
    ) -> None:
        loc = as_value(loc)
        check_parameter("MultivariateNormal", "loc", loc, constraints.real_vector)
        factor = matrix_factor("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        if shape(factor)[-2:] != 2 * shape(loc)[-1:]:
            raise ShapeError(
                f"MultivariateNormal: a loc of shape {shape(loc)} wants square matrices of that size, got shape "
                f"{shape(factor)}."
            )
        set_parameters(self, {"loc": loc, "scale_tril": factor})

    @property
    def covariance_matrix(self) -> Any:
        """The covariance of the elements."""
        return matmul(self.scale_tril, matrix_transpose(self.scale_tril))

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return inverse_of(self.scale_tril)

    def law(self) -> Law:
        loc, factor = self.loc, self.scale_tril
        size = shape(loc)[-1]
        batch = np.broadcast_shapes(shape(loc)[:-1], shape(factor)[:-2])

        def half_log_det() -> Any:
            return total(log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1)

        def draw(wanted: Any, key: Any, dtype: Any) -> Any:
            noise = samplers.normal(size=(*wanted, size), key=key, dtype=dtype)
            return loc + matmul(factor, expand_dims(noise, axis=-1))[..., 0]

        def log_density(x: Any) -> Any:
            z = solve_lower(factor, x - loc)
            return -0.5 * total(square(z), axis=-1) - half_log_det() - size * HALF_LOG_2PI

        return Law(
            support=constraints.real_vector,
            log_density=log_density,
            draw=draw,
            batch_shape=batch,
            event_shape=(size,),
            mean=lambda: loc,
            variance=lambda: total(square(factor), axis=-1),
            mode=lambda: loc,
            entropy=lambda: size * (0.5 + HALF_LOG_2PI) + half_log_det(),
        )


def matrix_factor(family: str, covariance: Any, precision: Any, factor: Any) -> Any:
    """The Cholesky factor of a covariance matrix that is given in one of three forms."""
    given = {"covariance_matrix": covariance, "precision_matrix": precision, "scale_tril": factor}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise ArgumentError(f"{family}: pass one of covariance_matrix, precision_matrix, scale_tril.")
    (name,) = chosen
    value = as_value(given[name])
    found = shape(value)
    if len(found) >= 2 and found[-2] != found[-1]:
        raise ShapeError(f"{family}: {name} must be square matrices, got shape {found}.")
    constraint = constraints.lower_cholesky if name == "scale_tril" else constraints.positive_definite
    check_parameter(family, name, value, constraint)
    if name == "scale_tril":
        return value
    return cholesky(value) if name == "covariance_matrix" else _factor_of_inverse(value)


def inverse_of(factor: Any) -> Any:
    """(L L^T)^-1."""
    lower = triangular_solve(factor, _unit_like(factor), lower=True)
    return matmul(matrix_transpose(lower), lower)


def _unit_like(matrices: Any) -> Any:
    size, found = shape(matrices)[-1], spec_of(matrices)
    return broadcast_to(move(np.eye(size, dtype=found.dtype), found.device), found.shape)


def _factor_of_inverse(precision: Any) -> Any:
    """L with L L^T = P^-1: with P reversed = M M^T, L is the inverse of M^T reversed."""
    reversed_factor = flip(cholesky(flip(precision, axis=(-2, -1))), axis=(-2, -1))
    upper = matrix_transpose(reversed_factor)
    return triangular_solve(upper, _unit_like(precision), lower=True)


@final
@value_object
class LowRankMultivariateNormal(Distribution):
    """Normal vectors of a mean loc and the covariance cov_factor cov_factor^T + diag(cov_diag): work and memory grow
    with the number of columns of cov_factor, not with the square of the size.

    >>> import numpy as np, pullback as pb
    >>> d = pb.distributions.LowRankMultivariateNormal(np.zeros(2), np.ones((2, 1)), np.ones(2))
    >>> round(float(d.log_prob(np.ones(2))), 6)
    -2.720517
    """

    loc: Any = ranked(1)
    cov_factor: Any = ranked(2)
    cov_diag: Any = ranked(1)

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any) -> None:
        values = {"loc": as_value(loc), "cov_factor": as_value(cov_factor), "cov_diag": as_value(cov_diag)}
        check_parameter("LowRankMultivariateNormal", "loc", values["loc"], constraints.real_vector)
        check_parameter("LowRankMultivariateNormal", "cov_factor", values["cov_factor"], constraints.real_matrix)
        check_parameter("LowRankMultivariateNormal", "cov_diag", values["cov_diag"], constraints.positive)
        sizes = {shape(values["loc"])[-1], shape(values["cov_factor"])[-2], (shape(values["cov_diag"]) or (0,))[-1]}
        if len(sizes) != 1:
            raise ShapeError(
                f"LowRankMultivariateNormal: sizes differ: { {name: shape(value) for name, value in values.items()} }."
            )
        set_parameters(self, values)

    def law(self) -> Law:
        loc, w, d = self.loc, self.cov_factor, self.cov_diag
        size, columns = shape(w)[-2:]
        batch = np.broadcast_shapes(shape(loc)[:-1], shape(w)[:-2], shape(d)[:-1])

        def capacitance() -> Any:
            # I + W^T D^-1 W, whose factor gives determinant and inverse (Woodbury)
            inner = matmul(matrix_transpose(w), w / expand_dims(d, axis=-1))
            return cholesky(inner + beside(np.eye(columns, dtype=spec_of(inner).dtype), inner))

        def log_det(factor: Any) -> Any:
            inner = 2.0 * total(log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
            return inner + total(log(d), axis=-1)

        def log_density(x: Any) -> Any:
            factor, gap = capacitance(), x - loc
            projected = matmul(matrix_transpose(w), expand_dims(gap / d, axis=-1))[..., 0]
            square_norm = total(square(gap) / d, axis=-1) - total(square(solve_lower(factor, projected)), axis=-1)
            return -0.5 * (square_norm + log_det(factor)) - size * HALF_LOG_2PI

        def draw(wanted: Any, key: Any, dtype: Any) -> Any:
            inner = samplers.normal(size=(*wanted, columns), key=fold_in(key, 0), dtype=dtype)
            own = samplers.normal(size=(*wanted, size), key=fold_in(key, 1), dtype=dtype)
            return loc + matmul(w, expand_dims(inner, axis=-1))[..., 0] + sqrt(d) * own

        return Law(
            support=constraints.real_vector,
            log_density=log_density,
            draw=draw,
            batch_shape=batch,
            event_shape=(size,),
            mean=lambda: loc,
            variance=lambda: total(square(w), axis=-1) + d,
            mode=lambda: loc,
            entropy=lambda: size * (0.5 + HALF_LOG_2PI) + 0.5 * log_det(capacitance()),
        )

    @property
    def covariance_matrix(self) -> Any:
        """The covariance of the elements."""
        return matmul(self.cov_factor, matrix_transpose(self.cov_factor)) + diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return inverse_of(self.scale_tril)
