"""Approximations of posteriors: normal at the mode (Laplace), and the bound that variational inference raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, UnsupportedFunction
from ..implicit.solve_functions import argmin
from ..ops.dispatch import as_value, shape
from ..ops.reduce.reductions import mean
from ..ops.shape.reshaping import matrix_transpose
from ..transforms.jacobian.functions import hessian
from ..transforms.vectorize import vmap
from .distribution import Distribution, check_distribution, sample_count
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
    is_tree = isinstance(initial, dict | tuple)
    initial = initial if is_tree else as_value(initial)
    if is_tree or len(shape(initial)) != 1:
        found = f"a {type(initial).__name__}" if is_tree else f"shape {shape(initial)}"
        raise ArgumentError(
            f"laplace_approximation: wants a start vector, got {found}.\n"
            "  Of a tree: vector, unravel = pb.ravel_pytree(initial), and log_density(unravel(x)) of the vector x."
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
    check_distribution("elbo", guide)
    if not guide.has_rsample:
        raise UnsupportedFunction(
            f"elbo: draws of {type(guide).__name__} do not move with its parameters.\n"
            "  Use pb.distributions.score_function(lambda z: log_density(z) - guide.log_prob(z), guide, key=key)."
        )
    count = sample_count(samples, "elbo")
    if guide.batch_shape:
        raise ArgumentError(
            f"elbo: the guide has batches of shape {guide.batch_shape}; make them one event by Independent."
        )
    z = guide.rsample((count,), key=key)
    values = vmap(log_density)(z)
    if shape(values) != (count,):
        raise ArgumentError(f"elbo: log_density must return a number, got shape {shape(values)[1:]}: sum it by pb.sum.")
    return mean(values - guide.log_prob(z))
