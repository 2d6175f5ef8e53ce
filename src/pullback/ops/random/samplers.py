"""Parameters in, samples out, differentiable by reparametrisation: a fixed draw is moved by the parameters.

A draw depends on its key and its place alone; the parameters enter by the formula that is differentiated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.dtypes import as_dtype
from ...arrays.node import signed
from ...arrays.spec import spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from .. import reducing, shaping
from ..axes import shape_tuple
from ..dispatch import apply, as_value
from ..elementwise import abs as magnitude
from ..elementwise import (
    add,
    divide,
    exp,
    expm1,
    greater,
    isfinite,
    less,
    log,
    log1p,
    logaddexp,
    multiply,
    negative,
    power,
    sigmoid,
    sign,
    subtract,
    tan,
    where,
)
from ..families import broadcast_shape, common_device, result_dtype
from ..functions import softmax
from ..special.entropy import logit
from ..special.error import log_ndtr, ndtri, ndtri_exp
from . import draws
from .keys import fold_in, key_on, no_key

__all__ = [
    "beta", "cauchy", "chi2", "dirichlet", "exponential", "gamma", "gumbel", "laplace", "logistic", "lognormal",
    "multivariate_normal", "normal", "pareto", "student_t", "truncated_normal", "uniform", "weibull",
]  # fmt: skip


class Draw:
    """What a sampler was asked for: its parameters as values, the shape and dtype of the result, and its key."""

    def __init__(self, what: str, parameters: Any, size: Any, key: Any, dtype: Any, discrete: bool = False) -> None:
        self.parameters = [as_value(no_key(p, what, "a parameter")) for p in parameters]
        no_key(size, what, "size")
        if discrete:
            self.parameters = [draws.held(what, p) for p in self.parameters]
        specs = [spec_of(p) for p in self.parameters]
        self.shape = _shape(what, size, [s.shape for s in specs])
        self.dtype = as_dtype(dtype) if dtype is not None else _dtype(specs)
        if self.dtype.kind != "f" and self.dtype.name != "bfloat16":
            raise DtypeError(f"random.{what}: samples are real floating-point numbers, got dtype {self.dtype}.")
        device = common_device(f"random.{what}", specs) if specs else "cpu"
        self.key = key_on(key, device, what, namespace_on(device))

    def unit(self) -> Any:
        """Numbers between 0 and 1, never at the ends."""
        width = 64 if self.dtype.itemsize == 8 else 32
        return apply(draws.unit, apply(draws.random_bits, self.key, shape=self.shape, width=width), dtype=self.dtype)

    def normal(self) -> Any:
        return ndtri(self.unit())

    def log_gamma(self, shape: Any) -> Any:
        wide = shaping.astype(shaping.broadcast_to(shape, self.shape), self.dtype)
        return apply(draws.log_gamma, self.key, wide)

    def answer(self, x: Any) -> Any:
        """The sample in the dtype that was asked for."""
        return x if spec_of(x).dtype == self.dtype else shaping.astype(x, self.dtype)


def _shape(what: str, size: Any, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    own = broadcast_shape(f"random.{what}", *shapes)
    if size is None:
        return own
    wanted = shape_tuple(size, f"random.{what}")
    if broadcast_shape(f"random.{what}", own, wanted) != wanted:
        raise ShapeError(f"random.{what}: parameters of shape {own} do not fit into size {wanted}.")
    return wanted


def _dtype(specs: Any) -> Any:
    """That of the parameters where they are floating-point arrays, else float64."""
    strong = [s for s in specs if s.weak is None and s.inexact]
    return result_dtype(strong) if strong else np.dtype("float64")


@signed
def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Numbers between low and high, evenly spread; the ends themselves never come.

    >>> import pullback as pb
    >>> x = pb.random.uniform(2.0, 3.0, size=4, key=pb.random.key(0))
    >>> bool((x > 2).all() and (x < 3).all())
    True
    """
    draw = Draw("uniform", (low, high), size, key, dtype)
    low, high = draw.parameters
    return draw.answer(add(low, multiply(subtract(high, low), draw.unit())))


def _shifted(what: str, noise: Any, loc: Any, scale: Any, size: Any, key: Any, dtype: Any) -> Any:
    """loc + scale * noise."""
    draw = Draw(what, (loc, scale), size, key, dtype)
    loc, scale = draw.parameters
    return draw.answer(add(loc, multiply(scale, noise(draw))))


@signed
def normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Normal numbers of mean loc and standard deviation scale.

    >>> import pullback as pb
    >>> key = pb.random.key(0)
    >>> bool(pb.grad(lambda scale: pb.random.normal(1.0, scale, key=key))(2.0) == pb.random.normal(key=key))
    True
    """
    return _shifted("normal", Draw.normal, loc, scale, size, key, dtype)


@signed
def lognormal(mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Numbers whose logarithm is normal, of that mean and standard deviation.

    >>> import pullback as pb
    >>> bool(pb.random.lognormal(key=pb.random.key(0)) > 0)
    True
    """
    return exp(_shifted("lognormal", Draw.normal, mean, sigma, size, key, dtype))


@signed
def laplace(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Numbers whose distance from loc is exponential, on either side.

    >>> import pullback as pb
    >>> pb.random.laplace(size=3, key=pb.random.key(0)).shape
    (3,)
    """

    def noise(draw: Draw) -> Any:
        centred = subtract(multiply(draw.unit(), 2), 1)
        return negative(multiply(sign(centred), log1p(negative(magnitude(centred)))))

    return _shifted("laplace", noise, loc, scale, size, key, dtype)


@signed
def gumbel(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Gumbel numbers: the limit of the greatest of many.

    >>> import pullback as pb
    >>> pb.random.gumbel(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    return _shifted("gumbel", lambda d: negative(log(negative(log(d.unit())))), loc, scale, size, key, dtype)


@signed
def logistic(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Logistic numbers: the logit of evenly spread ones.

    >>> import pullback as pb
    >>> pb.random.logistic(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    return _shifted("logistic", lambda d: logit(d.unit()), loc, scale, size, key, dtype)


@signed
def cauchy(loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Cauchy numbers, which have no mean.

    >>> import pullback as pb
    >>> pb.random.cauchy(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    turn = lambda d: tan(multiply(subtract(d.unit(), 0.5), math.pi))  # noqa: E731
    return _shifted("cauchy", turn, loc, scale, size, key, dtype)


@signed
def exponential(scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Waiting times of mean scale.

    >>> import pullback as pb
    >>> bool(pb.random.exponential(key=pb.random.key(0)) > 0)
    True
    """
    draw = Draw("exponential", (scale,), size, key, dtype)
    return draw.answer(multiply(negative(log(draw.unit())), draw.parameters[0]))


@signed
def weibull(a: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Weibull numbers of shape a and scale one: waiting times to the power 1 / a.

    >>> import pullback as pb
    >>> bool(pb.random.weibull(2.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = Draw("weibull", (a,), size, key, dtype)
    return draw.answer(power(negative(log(draw.unit())), divide(1.0, draw.parameters[0])))


@signed
def pareto(a: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Pareto numbers of the second kind, which start at zero, as NumPy has them.

    >>> import pullback as pb
    >>> bool(pb.random.pareto(2.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = Draw("pareto", (a,), size, key, dtype)
    return draw.answer(expm1(divide(negative(log(draw.unit())), draw.parameters[0])))


@signed
def truncated_normal(
    low: Any, high: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None
) -> Any:
    """Normal numbers under the condition that they lie between low and high, exact far out in the tails.

    >>> import pullback as pb
    >>> x = pb.random.truncated_normal(30.0, 31.0, key=pb.random.key(0))
    >>> bool(30 < x < 31)
    True
    """
    draw = Draw("truncated_normal", (low, high, loc, scale), size, key, dtype)
    low, high, loc, scale = draw.parameters
    a, b = _standard(low, loc, scale), _standard(high, loc, scale)
    # On the lower side of zero, where the log of the distribution function keeps its digits:
    # log(F(a) (1 - u) + F(b) u), and from there back by the inverse.
    mirrored = greater(a, negative(b))
    a, b = where(mirrored, negative(b), a), where(mirrored, negative(a), b)
    u = draw.unit()
    mixed = logaddexp(add(_log_below(a), log1p(negative(u))), add(_log_below(b), log(u)))
    x = ndtri_exp(mixed)
    return draw.answer(add(loc, multiply(scale, where(mirrored, negative(x), x))))


def _standard(bound: Any, loc: Any, scale: Any) -> Any:
    """A bound in units of the scale from loc; an infinite one stays, whatever they are."""
    finite = isfinite(bound)
    return where(finite, divide(subtract(where(finite, bound, 0.0), loc), scale), bound)


def _log_below(z: Any) -> Any:
    """log_ndtr, with no slope at the infinities."""
    finite = isfinite(z)
    return where(finite, log_ndtr(where(finite, z, 0.0)), where(less(z, 0), -math.inf, 0.0))


@signed
def gamma(shape: Any, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Gamma numbers, differentiable in the shape too: at a fixed probability the draw moves with it.

    >>> import pullback as pb
    >>> key = pb.random.key(0)
    >>> bool(pb.grad(lambda a: pb.random.gamma(a, key=key))(2.0) > 0)
    True
    """
    draw = Draw("gamma", (shape, scale), size, key, dtype)
    return draw.answer(multiply(draw.parameters[1], exp(draw.log_gamma(draw.parameters[0]))))


@signed
def chi2(df: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Sums of df squared standard normal numbers; df need not be whole.

    >>> import pullback as pb
    >>> bool(pb.random.chi2(3.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = Draw("chi2", (df,), size, key, dtype)
    return draw.answer(multiply(exp(draw.log_gamma(multiply(draw.parameters[0], 0.5))), 2))


def _second(draw: Draw, what: str, parameters: Any) -> Draw:
    """Another draw of the same shape, from a key of its own."""
    return Draw(what, parameters, draw.shape, fold_in(draw.key, 1), draw.dtype)


@signed
def beta(a: Any, b: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Beta numbers between 0 and 1: the share of one gamma number in the sum of two.

    >>> import pullback as pb
    >>> bool(0 < pb.random.beta(2.0, 3.0, key=pb.random.key(0)) < 1)
    True
    """
    draw = Draw("beta", (a, b), size, key, dtype)
    a, b = draw.parameters
    return draw.answer(sigmoid(subtract(draw.log_gamma(a), _second(draw, "beta", (a, b)).log_gamma(b))))


@signed
def dirichlet(alpha: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Shares that sum to one along the last axis: gamma numbers over their sum. `size` counts vectors.

    >>> import pullback as pb
    >>> x = pb.random.dirichlet([1.0, 2.0, 3.0], size=4, key=pb.random.key(0))
    >>> x.shape, bool(abs(x.sum(-1) - 1).max() < 1e-15)
    ((4, 3), True)
    """
    alpha = as_value(alpha)
    own = spec_of(alpha).shape
    if not own:
        raise ShapeError("random.dirichlet: alpha must be a vector, one number per share; got a single number.")
    whole = None if size is None else (*shape_tuple(size, "random.dirichlet"), own[-1])
    draw = Draw("dirichlet", (alpha,), whole, key, dtype)
    return draw.answer(softmax(draw.log_gamma(alpha), axis=-1))


@signed
def student_t(
    df: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None
) -> Any:
    """Student's t with df degrees of freedom, shifted and scaled.

    >>> import pullback as pb
    >>> pb.random.student_t(3.0, size=2, key=pb.random.key(0)).shape
    (2,)
    """
    draw = Draw("student_t", (df, loc, scale), size, key, dtype)
    df, loc, scale = draw.parameters
    half = multiply(df, 0.5)
    other = _second(draw, "student_t", (df,))
    # z / sqrt(chi2 / df) = z sqrt((df / 2) / gamma(df / 2))
    spread = exp(multiply(subtract(log(half), other.log_gamma(half)), 0.5))
    return draw.answer(add(loc, multiply(scale, multiply(draw.normal(), spread))))


@signed
def multivariate_normal(mean: Any, factor: Any, size: Any = None, *, key: Any = None, dtype: Any = None) -> Any:
    """Normal vectors of a mean and a covariance `factor @ factor.T`, given by its factor, such as a Cholesky factor.

    >>> import numpy as np, pullback as pb
    >>> pb.random.multivariate_normal(np.zeros(2), np.eye(2), size=3, key=pb.random.key(0)).shape
    (3, 2)
    """
    mean, factor = as_value(mean), as_value(factor)
    columns = _columns(factor)
    lead = broadcast_shape("random.multivariate_normal", spec_of(mean).shape[:-1], spec_of(factor).shape[:-2])
    outer = lead if size is None else (*shape_tuple(size, "random.multivariate_normal"), *lead)
    specs = [spec_of(mean), spec_of(factor)]
    draw = Draw("multivariate_normal", (), (*outer, columns), key, dtype or _dtype(specs))
    noise = reducing.sum(multiply(factor, shaping.expand_dims(draw.normal(), axis=-2)), axis=-1)
    return draw.answer(add(mean, noise))


def _columns(factor: Any) -> int:
    found = spec_of(factor).shape
    if len(found) < 2:
        raise ArgumentError(f"random.multivariate_normal: the factor must be a matrix, got shape {found}.")
    return found[-1]
