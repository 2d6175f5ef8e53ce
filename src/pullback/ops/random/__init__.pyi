# The public names of `pullback.ops.random` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..replay.default_stream import State as State
from .discrete import (
    bernoulli as bernoulli, binomial as binomial, bits as bits, categorical as categorical, choice as choice,
    gumbel_softmax as gumbel_softmax, integers as integers, permutation as permutation, poisson as poisson,
)
from .keys import fold_in as fold_in, key as key, restore as restore, seed as seed, split as split, state as state
from .samplers import (
    beta as beta, cauchy as cauchy, chi2 as chi2, dirichlet as dirichlet, exponential as exponential, gamma as gamma,
    gumbel as gumbel, laplace as laplace, logistic as logistic, lognormal as lognormal,
    multivariate_normal as multivariate_normal, normal as normal, pareto as pareto, student_t as student_t,
    truncated_normal as truncated_normal, uniform as uniform, weibull as weibull,
)
