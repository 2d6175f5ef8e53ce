"""Approximations of posteriors: normal at the mode (Laplace), and the bound that variational inference raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, UnsupportedFunction
from ..implicit.solve_functions import argmin
from ..ops.axes import as_integer
from ..ops.dispatch import shape
from ..ops.reduce.reductions import mean
from ..ops.shape.reshaping import matrix_transpose
from ..transforms.jacobian.functions import hessian
from ..transforms.vectorize import vmap
from .distribution import Distribution
from .normal_vectors import MultivariateNormal


def laplace_approximation(log_density: Callable[..., Any], initial: Any, *params: Any, **options: Any) -> Any:
    """The normal distribution at the mode of a log-density of vectors near a point, with its curvature there:
    `log_density(x, *params)`, which is differentiable in params through mode and curvature. Options are those of
    `pb.argmin`. Exact where the density is normal; else right to the second order around the mode.

    >>> import numpy as np, pullback as pb
    >>> D = pb.distributions
    >>> found = D.laplace_approximation(lambda x: pb.sum(D.Normal(1.0, 2.0).log_prob(x)), np.zeros(2))
    >>> found.mean.round(6).tolist(), found.variance.round(6).tolist()
    ([1.0, 1.0], [4.0, 4.0])
    """
    if len(shape(initial)) != 1:
        raise ArgumentError(
            f"laplace_approximation: wants a start vector, got shape {shape(initial)}; see pb.ravel_pytree for trees."
        )

    def potential(x: Any, *params: Any) -> Any:
        return -log_density(x, *params)

    center = argmin(potential, initial, *params, **options)
    curvature = hessian(potential)(center, *params)
    return MultivariateNormal(center, precision_matrix=0.5 * (curvature + matrix_transpose(curvature)))


def elbo(log_density: Callable[[Any], Any], guide: Distribution, *, key: Any, samples: int = 1) -> Any:
    """The evidence lower bound E[log_density(z) - log guide(z)] over draws z of the guide, which move with its
    parameters: its gradient raises it. log_density takes one draw and returns a number.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> same = D.elbo(D.Normal(1.0, 2.0).log_prob, D.Normal(1.0, 2.0), key=pb.random.key(0), samples=3)
    >>> float(abs(same)) < 1e-15
    True
    """
    if not guide.has_rsample:
        raise UnsupportedFunction(
            f"elbo: draws of {type(guide).__name__} do not move with its parameters.\n"
            "  Use pb.distributions.score_function(lambda z: log_density(z) - guide.log_prob(z), guide, key=key)."
        )
    count = as_integer(samples, "elbo: samples")
    if guide.batch_shape:
        raise ArgumentError(
            f"elbo: the guide has batches of shape {guide.batch_shape}; make them one event by Independent."
        )
    z = guide.rsample((count,), key=key)
    return mean(vmap(log_density)(z) - guide.log_prob(z))
