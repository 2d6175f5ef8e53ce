"""Distributions of matrices: factors of correlation matrices (LKJ), covariance matrices (Wishart)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..ops.axes import as_integer
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import log, sqrt, square, where
from ..ops.linalg.eigen import eigvalsh
from ..ops.linalg.factorizations import cholesky
from ..ops.linalg.linear_systems import triangular_solve
from ..ops.random import samplers
from ..ops.random.keys import fold_in
from ..ops.reduce.reductions import any as any_of
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import diagonal, tril
from ..ops.shape.diagonals import diag_embed
from ..ops.shape.reshaping import broadcast_to, expand_dims, matrix_transpose
from ..ops.value_objects import set_fields, static, value_object
from . import constraints
from .distribution import Distribution, check_parameter, ranked, set_parameters
from .law import Law, beside
from .normal_vectors import inverse_of, matrix_factor
from .normalizers import digamma, log_gamma


@final
@value_object
class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices of a size, whose determinants have the power concentration - 1 as
    density: with 1 all correlation matrices are alike, above 1 those near the unit matrix are favored.

    >>> import numpy as np, pullback as pb
    >>> round(float(pb.distributions.LKJCholesky(2, 1.0).prob(np.eye(2))), 12)
    0.5
    """

    dim: int = static()
    concentration: Any = ranked(0)

    def __init__(self, dim: int, concentration: Any = 1.0) -> None:
        size = as_integer(dim, "LKJCholesky: dim")
        if size < 2:
            raise ArgumentError(f"LKJCholesky: dim must be 2 or more, got {size}.")
        value = as_value(concentration)
        check_parameter("LKJCholesky", "concentration", value, constraints.positive)
        set_fields(self, {"dim": size, "concentration": value})

    def law(self) -> Law:
        n, eta = self.dim, self.concentration
        wide = eta if isinstance(eta, int | float) else expand_dims(eta, axis=-1)

        def log_density(x: Any) -> Any:
            # det^(eta - 1) = prod L_ii^(2 eta - 2), times the Jacobian of L -> L L^T, prod L_ii^(n - 1 - i)
            orders = 2.0 * (wide - 1.0) + beside(np.arange(n - 2.0, -1.0, -1.0).astype(spec_of(x).dtype), x)
            logs = log(diagonal(x, axis1=-2, axis2=-1)[..., 1:])
            return total(orders * logs, axis=-1) - normalizer()

        def normalizer() -> Any:
            alpha = eta + 0.5 * (n - 1)
            return 0.5 * (n - 1) * math.log(math.pi) + log_multigamma(alpha - 0.5, n - 1) - (n - 1) * log_gamma(alpha)

        def draw(size: Any, key: Any, dtype: Any) -> Any:
            # row by row (the onion method): its length before the diagonal by a beta variable, its direction uniform
            before = beside(np.arange(n - 1.0), wide)
            spare = wide + 0.5 * (n - 2) - 0.5 * before
            length = samplers.beta(0.5 * before + 0.5, spare, (*size, n - 1), key=fold_in(key, 0), dtype=dtype)
            noise = tril(samplers.normal(size=(*size, n - 1, n - 1), key=fold_in(key, 1), dtype=dtype))
            unit = noise / sqrt(total(square(noise), axis=-1, keepdims=True))
            return _with_diagonal(unit * sqrt(expand_dims(length, axis=-1)), sqrt(1.0 - length), n)

        return Law(
            support=constraints.correlation_cholesky,
            log_density=log_density,
            draw=draw,
            inside=beside(np.eye(n), eta),
            batch_shape=shape(eta),
            event_shape=(n, n),
            mode=lambda: beside(np.eye(n), eta),
        )


def _with_diagonal(rows: Any, ends: Any, n: int) -> Any:
    """Lower triangles of a one and of rows, whose entries before the diagonal and on it are given."""
    dtype = spec_of(rows).dtype
    down, right = np.eye(n, n - 1, -1, dtype=dtype), np.eye(n - 1, n, dtype=dtype)
    corner = np.zeros((n, n), dtype)
    corner[0, 0] = 1
    down, right, corner = (beside(m, rows) for m in (down, right, corner))
    # products put the rows below the first one and keep every transform
    return corner + matmul(matmul(down, rows), right) + matmul(matmul(down, diag_embed(ends)), matrix_transpose(down))


@final
@value_object
class Wishart(Distribution):
    """Covariance matrices: sums of df outer products of normal vectors of a covariance, given by itself, by its inverse
    or by its Cholesky factor; df is above the size less one and need not be an integer.

    >>> import numpy as np, pullback as pb
    >>> pb.distributions.Wishart(3.0, np.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    df: Any = ranked(0)
    scale_tril: Any = ranked(2)

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None
    ) -> None:
        factor = matrix_factor("Wishart", covariance_matrix, precision_matrix, scale_tril)
        value, size = as_value(df), shape(factor)[-1]
        check_parameter("Wishart", "df", value, constraints.interval(size - 1.0, is_open=True))
        set_parameters(self, {"df": value, "scale_tril": factor})

    @property
    def covariance_matrix(self) -> Any:
        """The covariance of the vectors."""
        return matmul(self.scale_tril, matrix_transpose(self.scale_tril))

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return inverse_of(self.scale_tril)

    def law(self) -> Law:
        df, factor = self.df, self.scale_tril
        n = shape(factor)[-1]
        wide = df if isinstance(df, int | float) else expand_dims(df, axis=(-2, -1))

        def log_det(lower: Any) -> Any:
            return 2.0 * total(log(diagonal(lower, axis1=-2, axis2=-1)), axis=-1)

        def log_density(x: Any) -> Any:
            own = cholesky(x)
            lead = np.broadcast_shapes(shape(own)[:-2], shape(factor)[:-2])
            left, right = (broadcast_to(m, (*lead, n, n)) for m in (factor, own))
            ratio = triangular_solve(left, right, lower=True)
            weight = 0.5 * (df - n - 1.0) * log_det(own) - 0.5 * total(square(ratio), axis=(-2, -1))
            return weight - 0.5 * df * (n * math.log(2.0) + log_det(factor)) - log_multigamma(0.5 * df, n)

        def draw(size: Any, key: Any, dtype: Any) -> Any:
            # Bartlett: L A A^T L^T, with normal numbers in A below a diagonal of square roots of chi-square ones
            each = df if isinstance(df, int | float) else expand_dims(df, axis=-1)
            degrees = each - beside(np.arange(float(n)), factor)
            ends = samplers.gamma(0.5 * degrees, 2.0, size=(*size, n), key=fold_in(key, 0), dtype=dtype)
            noise = samplers.normal(size=(*size, n, n), key=fold_in(key, 1), dtype=dtype)
            root = matmul(factor, tril(noise, -1) + diag_embed(sqrt(ends)))
            return matmul(root, matrix_transpose(root))

        def variance() -> Any:
            c = self.covariance_matrix
            ends = diagonal(c, axis1=-2, axis2=-1)
            return wide * (square(c) + expand_dims(ends, axis=-1) * expand_dims(ends, axis=-2))

        def entropy() -> Any:
            halves = total(digamma(0.5 * (df - steps(n, df))), axis=0)
            known = log_multigamma(0.5 * df, n) - 0.5 * (df - n - 1.0) * halves + 0.5 * n * df
            return 0.5 * (n + 1.0) * (log_det(factor) + n * math.log(2.0)) + known

        return Law(
            support=replace(constraints.positive_definite, outside=_is_not_definite),
            log_density=log_density,
            draw=draw,
            inside=beside(np.eye(n), factor),
            batch_shape=np.broadcast_shapes(shape(df), shape(factor)[:-2]),
            event_shape=(n, n),
            mean=lambda: wide * self.covariance_matrix,
            variance=variance,
            mode=lambda: where(wide <= n + 1.0, math.nan, (wide - n - 1.0) * self.covariance_matrix),
            entropy=entropy,
        )


def _is_not_definite(x: Any) -> Any:
    """Asked before any Cholesky factor is."""
    asymmetric = constraints.positive_definite.outside(x)  # type: ignore[misc]
    return asymmetric | any_of(eigvalsh(x) <= 0, axis=-1)


def log_multigamma(a: Any, n: int) -> Any:
    """The logarithm of the gamma function of n by n matrices."""
    return 0.25 * n * (n - 1) * math.log(math.pi) + total(log_gamma(a - 0.5 * steps(n, a)), axis=0)


def steps(n: int, df: Any) -> Any:
    """0, 1, ..., n - 1 along an axis in front of a batch."""
    return beside(np.arange(float(n)).reshape(-1, *(1,) * len(shape(df))), df)
