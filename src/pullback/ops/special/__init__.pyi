# The public names of `pullback.ops.special` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..elementwise.pointwise import erf as erf
from ..functions import log_softmax as log_softmax, softmax as softmax
from ..reduce.reductions import logsumexp as logsumexp
from .bessel import (
    airy as airy, i0 as i0, i0e as i0e, i1 as i1, i1e as i1e, iv as iv, ive as ive, j0 as j0, j1 as j1, jn as jn,
    jv as jv, k0 as k0, k0e as k0e, k1 as k1, k1e as k1e, kn as kn, kv as kv, kve as kve, spherical_in as spherical_in,
    spherical_jn as spherical_jn, spherical_kn as spherical_kn, spherical_yn as spherical_yn, y0 as y0, y1 as y1,
    yn as yn, yv as yv,
)
from .circular import von_mises_cdf as von_mises_cdf, von_mises_quantile as von_mises_quantile
from .entropy import (
    entr as entr, expit as expit, kl_div as kl_div, log_expit as log_expit, logit as logit, rel_entr as rel_entr,
    xlog1py as xlog1py, xlogy as xlogy,
)
from .error_functions import (
    dawsn as dawsn, erfc as erfc, erfcinv as erfcinv, erfcx as erfcx, erfinv as erfinv, fresnel as fresnel,
    log_ndtr as log_ndtr, ndtr as ndtr, ndtri as ndtri, ndtri_exp as ndtri_exp, owens_t as owens_t,
)
from .gamma import (
    beta as beta, betaln as betaln, binom as binom, comb as comb, digamma as digamma, factorial as factorial,
    gamma as gamma, gammaln as gammaln, lgamma as lgamma, loggamma as loggamma, multigammaln as multigammaln,
    poch as poch, polygamma as polygamma, psi as psi, rgamma as rgamma, zeta as zeta,
)
from .hypergeometric import (
    eval_chebyt as eval_chebyt, eval_chebyu as eval_chebyu, eval_gegenbauer as eval_gegenbauer,
    eval_genlaguerre as eval_genlaguerre, eval_hermite as eval_hermite, eval_hermitenorm as eval_hermitenorm,
    eval_jacobi as eval_jacobi, eval_laguerre as eval_laguerre, eval_legendre as eval_legendre, hyp0f1 as hyp0f1,
    hyp1f1 as hyp1f1, hyp2f1 as hyp2f1,
)
from .incomplete_beta import (
    betainc as betainc, betaincc as betaincc, betainccinv as betainccinv, betaincinv as betaincinv,
)
from .incomplete_gamma import (
    gammainc as gammainc, gammaincc as gammaincc, gammainccinv as gammainccinv, gammaincinv as gammaincinv,
)
from .integrals import (
    ellipe as ellipe, ellipk as ellipk, ellipkm1 as ellipkm1, exp1 as exp1, expi as expi, expn as expn,
    lambertw as lambertw, shichi as shichi, sici as sici, spence as spence,
)
