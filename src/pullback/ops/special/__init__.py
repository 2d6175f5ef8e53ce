"""Special functions: SciPy's values, rules of our own, derivatives of every order in both modes.

>>> import pullback as pb
>>> pb.grad(pb.special.lgamma)(1.0)
array(-0.57721566)
"""

from ..elementwise.pointwise import erf
from ..functions import log_softmax, softmax
from ..reduce.reductions import logsumexp
from .bessel import (
    airy,
    i0,
    i0e,
    i1,
    i1e,
    iv,
    ive,
    j0,
    j1,
    jn,
    jv,
    k0,
    k0e,
    k1,
    k1e,
    kn,
    kv,
    kve,
    spherical_in,
    spherical_jn,
    spherical_kn,
    spherical_yn,
    y0,
    y1,
    yn,
    yv,
)
from .entropy import entr, expit, kl_div, log_expit, logit, rel_entr, xlog1py, xlogy
from .error_functions import dawsn, erfc, erfcinv, erfcx, erfinv, fresnel, log_ndtr, ndtr, ndtri, ndtri_exp, owens_t
from .gamma import (
    beta,
    betaln,
    binom,
    comb,
    digamma,
    factorial,
    gamma,
    gammaln,
    lgamma,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    psi,
    rgamma,
    zeta,
)
from .hypergeometric import (
    eval_chebyt,
    eval_chebyu,
    eval_gegenbauer,
    eval_genlaguerre,
    eval_hermite,
    eval_hermitenorm,
    eval_jacobi,
    eval_laguerre,
    eval_legendre,
    hyp0f1,
    hyp1f1,
    hyp2f1,
)
from .incomplete_beta import betainc, betaincc, betainccinv, betaincinv
from .incomplete_gamma import gammainc, gammaincc, gammainccinv, gammaincinv
from .integrals import ellipe, ellipk, ellipkm1, exp1, expi, expn, lambertw, shichi, sici, spence

__all__ = [
    "airy", "beta", "betainc", "betaincc", "betainccinv", "betaincinv", "betaln", "binom", "comb", "dawsn", "digamma",
    "ellipe", "ellipk", "ellipkm1", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "eval_chebyt", "eval_chebyu",
    "eval_gegenbauer", "eval_genlaguerre", "eval_hermite", "eval_hermitenorm", "eval_jacobi", "eval_laguerre",
    "eval_legendre", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc", "gammaincc",
    "gammainccinv", "gammaincinv", "gammaln", "hyp0f1", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "iv",
    "ive", "j0", "j1", "jn", "jv", "k0", "k0e", "k1", "k1e", "kl_div", "kn", "kv", "kve", "lambertw", "lgamma",
    "log_expit", "log_ndtr", "log_softmax", "loggamma", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri",
    "ndtri_exp", "owens_t", "poch", "polygamma", "psi", "rel_entr", "rgamma", "shichi", "sici", "softmax", "spence",
    "spherical_in", "spherical_jn", "spherical_kn", "spherical_yn", "xlog1py", "xlogy", "y0", "y1", "yn", "yv", "zeta",
]  # fmt: skip
