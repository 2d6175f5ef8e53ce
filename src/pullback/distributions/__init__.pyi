# The public names of `pullback.distributions` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from . import constraints as constraints
from .approximations import elbo as elbo, laplace_approximation as laplace_approximation
from .bijectors import (
    Affine as Affine, Bijector as Bijector, Chain as Chain, Exp as Exp, Identity as Identity, Inverse as Inverse,
    Power as Power, Reshape as Reshape, Sigmoid as Sigmoid, Softplus as Softplus, Tanh as Tanh,
)
from .constraints import biject_to as biject_to, Constraint as Constraint
from .continuous import (
    Beta as Beta, Cauchy as Cauchy, Chi2 as Chi2, Exponential as Exponential, FisherSnedecor as FisherSnedecor,
    Gamma as Gamma, GeneralizedPareto as GeneralizedPareto, Gumbel as Gumbel, HalfCauchy as HalfCauchy,
    HalfNormal as HalfNormal, InverseGamma as InverseGamma, Laplace as Laplace, Logistic as Logistic,
    LogNormal as LogNormal, Normal as Normal, Pareto as Pareto, StudentT as StudentT, Uniform as Uniform,
    VonMises as VonMises, Weibull as Weibull,
)
from .discrete import (
    Bernoulli as Bernoulli, Binomial as Binomial, Categorical as Categorical, Geometric as Geometric,
    NegativeBinomial as NegativeBinomial, Poisson as Poisson,
)
from .distribution import Distribution as Distribution
from .divergence import kl_divergence as kl_divergence, register_kl as register_kl
from .estimators import (
    relaxed_sample as relaxed_sample, score_function as score_function, straight_through as straight_through,
)
from .matrices import LKJCholesky as LKJCholesky, Wishart as Wishart
from .matrix_bijectors import CholeskyProduct as CholeskyProduct, CorrelationCholesky as CorrelationCholesky
from .measure_valued import measure_valued as measure_valued
from .normal_vectors import (
    LowRankMultivariateNormal as LowRankMultivariateNormal, MultivariateNormal as MultivariateNormal,
)
from .relaxed import (
    LogisticNormal as LogisticNormal, RelaxedBernoulli as RelaxedBernoulli,
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from .sampling.diagnostics import effective_sample_size as effective_sample_size, split_rhat as split_rhat
from .sampling.kernels import HMC as HMC, NUTS as NUTS
from .sampling.mcmc import Chains as Chains, compile_chain as compile_chain, mcmc as mcmc
from .unconstrain import to_unconstrained as to_unconstrained, Unconstrained as Unconstrained
from .unit_interval import ContinuousBernoulli as ContinuousBernoulli, Kumaraswamy as Kumaraswamy
from .vector_bijectors import (
    FillTriangular as FillTriangular, StickBreaking as StickBreaking, TriangularAffine as TriangularAffine,
)
from .vectors import Dirichlet as Dirichlet, Multinomial as Multinomial, OneHotCategorical as OneHotCategorical
from .wrappers import (
    CumulativeDistribution as CumulativeDistribution, Independent as Independent, Mixture as Mixture,
    TransformedDistribution as TransformedDistribution,
)
