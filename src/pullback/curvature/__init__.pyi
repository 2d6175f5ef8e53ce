# The public names of `pullback.curvature` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .diagonals import (
    Estimate as Estimate, hessian_diagonal as hessian_diagonal, hutchinson_diagonal as hutchinson_diagonal,
    hutchinson_trace as hutchinson_trace,
)
from .gauss_newton import (
    fisher_blocks as fisher_blocks, fisher_diagonal as fisher_diagonal, ggn_blocks as ggn_blocks,
    ggn_diagonal as ggn_diagonal,
)
from .kronecker import (
    fisher_factors as fisher_factors, kfac_factors as kfac_factors, KroneckerBlock as KroneckerBlock,
)
from .lanczos import (
    EigenPairs as EigenPairs, lanczos as lanczos, spectral_density as spectral_density, Spectrum as Spectrum,
    top_eigenpairs as top_eigenpairs, Tridiagonal as Tridiagonal,
)
from .likelihoods import (
    bernoulli as bernoulli, categorical as categorical, Likelihood as Likelihood, normal as normal, poisson as poisson,
)
from .penalties import grad_norm as grad_norm, gradient_penalty as gradient_penalty
from .stochastic import (
    function_trace as function_trace, hutch_plus_plus as hutch_plus_plus, log_determinant as log_determinant,
    stochastic_divergence as stochastic_divergence, stochastic_laplacian as stochastic_laplacian,
)
from .statistics import (
    gradient_statistics as gradient_statistics, GradientStatistics as GradientStatistics,
    per_sample_grad as per_sample_grad, per_sample_norms as per_sample_norms,
)
