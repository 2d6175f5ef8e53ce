# The public names of `pullback.curvature` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .gauss_newton import (
    fisher_blocks as fisher_blocks, fisher_diagonal as fisher_diagonal, ggn_blocks as ggn_blocks,
    ggn_diagonal as ggn_diagonal,
)
from .kronecker import (
    fisher_factors as fisher_factors, kfac_factors as kfac_factors, KroneckerBlock as KroneckerBlock,
)
from .likelihoods import (
    bernoulli as bernoulli, categorical as categorical, Likelihood as Likelihood, normal as normal, poisson as poisson,
)
from .statistics import (
    gradient_statistics as gradient_statistics, GradientStatistics as GradientStatistics,
    per_sample_grad as per_sample_grad, per_sample_norms as per_sample_norms,
)
