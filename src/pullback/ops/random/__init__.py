"""Random numbers from keys: the same key gives the same numbers, eager, batched, staged or computed again.

>>> import pullback as pb
>>> key = pb.random.key(0)
>>> pb.random.normal(size=2, key=key)
array([-0.20584214, -0.78476578])
"""

from ..replay.default_stream import State
from .discrete import bernoulli, binomial, bits, categorical, choice, gumbel_softmax, integers, permutation, poisson
from .keys import fold_in, key, restore, seed, split, state
from .samplers import (
    beta,
    cauchy,
    chi2,
    dirichlet,
    exponential,
    gamma,
    gumbel,
    laplace,
    logistic,
    lognormal,
    multivariate_normal,
    normal,
    pareto,
    student_t,
    truncated_normal,
    uniform,
    weibull,
)

__all__ = [
    "State", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chi2", "choice", "dirichlet",
    "exponential", "fold_in", "gamma", "gumbel", "gumbel_softmax", "integers", "key", "laplace", "logistic",
    "lognormal", "multivariate_normal", "normal", "pareto", "permutation", "poisson", "restore", "seed", "split",
    "state", "student_t", "truncated_normal", "uniform", "weibull",
]  # fmt: skip
