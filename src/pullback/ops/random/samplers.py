"""Continuous samplers, differentiable by reparametrization: the parameters transform a fixed draw.

A draw depends on its key and its index alone; the parameters enter by the formula that is differentiated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.dtypes import as_dtype
from ...arrays.spec import is_real_float, spec_of
from ...errors import ArgumentError, DtypeError, ShapeError
from ..axes import as_shape
from ..dispatch import apply, as_value, counts_as_number
from ..elementwise import pointwise
from ..elementwise.pointwise import abs as magnitude
from ..elementwise.pointwise import add, divide, exp, isfinite, log, log1p, multiply, negative, power, subtract, where
from ..families import broadcast_shape, common_device, result_dtype
from ..functions import softmax
from ..placement import move
from ..reduce import reductions
from ..shape import reshaping
from ..special.entropy import logit
from ..special.error_functions import log_ndtr, ndtri, ndtri_exp
from . import draw_ops
from .keys import fold_in, key_on_device, refuse_key
from .signatures import (
    of_exponent,
    of_freedom,
    of_freedom_location_scale,
    of_interval,
    of_interval_location_scale,
    of_location_scale,
    of_mean_and_factor,
    of_mean_and_sigma,
    of_scale,
    of_shape_and_scale,
    of_shares,
    of_two_exponents,
)


class DrawRequest:
    """A request to a sampler: its parameters as values, the shape and dtype of the result, and its key."""

    def __init__(
        self, what: str, parameters: Any, size: Any, key: Any, dtype: Any, discrete: bool = False, device: Any = None
    ) -> None:
        self.parameters = [as_value(refuse_key(p, what, "a parameter")) for p in parameters]
        refuse_key(size, what, "size")
        if discrete:
            self.parameters = [draw_ops.held(what, p) for p in self.parameters]
        specs = [spec_of(p) for p in self.parameters]
        self.shape = _draw_shape(what, size, [s.shape for s in specs])
        self.dtype = as_dtype(dtype) if dtype is not None else _draw_dtype(specs)
        if not is_real_float(self.dtype):
            raise DtypeError(f"random.{what}: samples are real floating-point numbers, got dtype {self.dtype}.")
        if device is None and not all(map(counts_as_number, specs)):
            device = common_device(f"random.{what}", specs)
        self.key = key_on_device(key, device, what)

    def unit(self) -> Any:
        """Numbers between 0 and 1, excluding the ends."""
        width = 64 if self.dtype.itemsize == 8 else 32
        return apply(
            draw_ops.unit, apply(draw_ops.random_bits, self.key, shape=self.shape, width=width), dtype=self.dtype
        )

    def normal(self) -> Any:
        return ndtri(self.unit())

    def log_gamma(self, shape: Any) -> Any:
        wide = reshaping.astype(reshaping.broadcast_to(shape, self.shape), self.dtype)
        if counts_as_number(spec_of(shape)):
            wide = move(wide, spec_of(self.key).device)
        return apply(draw_ops.log_gamma, self.key, wide)

    def cast(self, x: Any) -> Any:
        """The sample in the dtype that was asked for."""
        return x if spec_of(x).dtype == self.dtype else reshaping.astype(x, self.dtype)


def _draw_shape(what: str, size: Any, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    own = broadcast_shape(f"random.{what}", *shapes)
    if size is None:
        return own
    wanted = as_shape(size, f"random.{what}")
    if broadcast_shape(f"random.{what}", own, wanted) != wanted:
        raise ShapeError(f"random.{what}: parameters of shape {own} do not fit into size {wanted}.")
    return wanted


def _draw_dtype(specs: Any) -> Any:
    """The dtype of floating-point array parameters, else float64."""
    strong = [s for s in specs if s.weak is None and s.inexact]
    return result_dtype(strong) if strong else np.dtype("float64")


@of_interval
@attributed_to_caller
def uniform(
    low: Any = 0.0, high: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Uniform numbers between low and high, excluding both ends.

    >>> import pullback as pb
    >>> x = pb.random.uniform(2.0, 3.0, size=4, key=pb.random.key(0))
    >>> bool((x > 2).all() and (x < 3).all())
    True
    """
    draw = DrawRequest("uniform", (low, high), size, key, dtype, device=device)
    low, high = draw.parameters
    return draw.cast(add(low, multiply(subtract(high, low), draw.unit())))


def _location_scale(what: str, noise: Any, loc: Any, scale: Any, size: Any, key: Any, dtype: Any, device: Any) -> Any:
    """loc + scale * noise."""
    draw = DrawRequest(what, (loc, scale), size, key, dtype, device=device)
    loc, scale = draw.parameters
    return draw.cast(add(loc, multiply(scale, noise(draw))))


@of_location_scale
@attributed_to_caller
def normal(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Normal samples of mean loc and standard deviation scale.

    >>> import pullback as pb
    >>> key = pb.random.key(0)
    >>> bool(pb.grad(lambda scale: pb.random.normal(1.0, scale, key=key))(2.0) == pb.random.normal(key=key))
    True
    """
    return _location_scale("normal", DrawRequest.normal, loc, scale, size, key, dtype, device)


@of_mean_and_sigma
@attributed_to_caller
def lognormal(
    mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Samples whose logarithm is normal, of that mean and standard deviation.

    >>> import pullback as pb
    >>> bool(pb.random.lognormal(key=pb.random.key(0)) > 0)
    True
    """
    return exp(_location_scale("lognormal", DrawRequest.normal, mean, sigma, size, key, dtype, device))


@of_location_scale
@attributed_to_caller
def laplace(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Laplace samples: the distance from loc is exponential, on either side.

    >>> import pullback as pb
    >>> pb.random.laplace(size=3, key=pb.random.key(0)).shape
    (3,)
    """

    def noise(draw: DrawRequest) -> Any:
        centred = subtract(multiply(draw.unit(), 2), 1)
        return negative(multiply(pointwise.sign(centred), log1p(negative(magnitude(centred)))))

    return _location_scale("laplace", noise, loc, scale, size, key, dtype, device)


@of_location_scale
@attributed_to_caller
def gumbel(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Gumbel samples: the limit law of the greatest of many.

    >>> import pullback as pb
    >>> pb.random.gumbel(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    return _location_scale(
        "gumbel", lambda d: negative(log(negative(log(d.unit())))), loc, scale, size, key, dtype, device
    )


@of_location_scale
@attributed_to_caller
def logistic(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Logistic samples: the logit of uniform ones.

    >>> import pullback as pb
    >>> pb.random.logistic(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    return _location_scale("logistic", lambda d: logit(d.unit()), loc, scale, size, key, dtype, device)


@of_location_scale
@attributed_to_caller
def cauchy(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Cauchy samples, which have no mean.

    >>> import pullback as pb
    >>> pb.random.cauchy(size=3, key=pb.random.key(0)).shape
    (3,)
    """
    turn = lambda d: pointwise.tan(multiply(subtract(d.unit(), 0.5), math.pi))  # noqa: E731
    return _location_scale("cauchy", turn, loc, scale, size, key, dtype, device)


@of_scale
@attributed_to_caller
def exponential(scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Exponential samples of mean scale.

    >>> import pullback as pb
    >>> bool(pb.random.exponential(key=pb.random.key(0)) > 0)
    True
    """
    draw = DrawRequest("exponential", (scale,), size, key, dtype, device=device)
    return draw.cast(multiply(negative(log(draw.unit())), draw.parameters[0]))


@of_exponent
@attributed_to_caller
def weibull(a: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Weibull samples of shape a and scale one: exponential samples to the power 1 / a.

    >>> import pullback as pb
    >>> bool(pb.random.weibull(2.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = DrawRequest("weibull", (a,), size, key, dtype, device=device)
    return draw.cast(power(negative(log(draw.unit())), divide(1.0, draw.parameters[0])))


@of_exponent
@attributed_to_caller
def pareto(a: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Pareto samples of the second kind (Lomax), which start at zero, as in NumPy.

    >>> import pullback as pb
    >>> bool(pb.random.pareto(2.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = DrawRequest("pareto", (a,), size, key, dtype, device=device)
    return draw.cast(pointwise.expm1(divide(negative(log(draw.unit())), draw.parameters[0])))


@of_interval_location_scale
@attributed_to_caller
def truncated_normal(
    low: Any,
    high: Any,
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    *,
    key: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    """Normal samples truncated to low and high, accurate far out in the tails.

    >>> import pullback as pb
    >>> x = pb.random.truncated_normal(30.0, 31.0, key=pb.random.key(0))
    >>> bool(30 < x < 31)
    True
    """
    draw = DrawRequest("truncated_normal", (low, high, loc, scale), size, key, dtype, device=device)
    low, high, loc, scale = draw.parameters
    a, b = _standardize_bound(low, loc, scale), _standardize_bound(high, loc, scale)
    # On the lower side of zero, where the log of the distribution function keeps its digits:
    # log(F(a) (1 - u) + F(b) u), and from there back by the inverse.
    mirrored = pointwise.greater(a, negative(b))
    a, b = where(mirrored, negative(b), a), where(mirrored, negative(a), b)
    u = draw.unit()
    mixed = pointwise.logaddexp(add(_safe_log_ndtr(a), log1p(negative(u))), add(_safe_log_ndtr(b), log(u)))
    x = ndtri_exp(mixed)
    return draw.cast(add(loc, multiply(scale, where(mirrored, negative(x), x))))


def _standardize_bound(bound: Any, loc: Any, scale: Any) -> Any:
    """A bound in units of the scale from loc; an infinite one stays, whatever they are."""
    finite = isfinite(bound)
    return where(finite, divide(subtract(where(finite, bound, 0.0), loc), scale), bound)


def _safe_log_ndtr(z: Any) -> Any:
    """log_ndtr, with derivative zero at the infinities."""
    finite = isfinite(z)
    return where(finite, log_ndtr(where(finite, z, 0.0)), where(pointwise.less(z, 0), -math.inf, 0.0))


@of_shape_and_scale
@attributed_to_caller
def gamma(
    shape: Any, scale: Any = 1.0, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Gamma samples, differentiable in the shape too (implicitly, at a fixed probability).

    >>> import pullback as pb
    >>> key = pb.random.key(0)
    >>> bool(pb.grad(lambda a: pb.random.gamma(a, key=key))(2.0) > 0)
    True
    """
    draw = DrawRequest("gamma", (shape, scale), size, key, dtype, device=device)
    return draw.cast(multiply(draw.parameters[1], exp(draw.log_gamma(draw.parameters[0]))))


@of_freedom
@attributed_to_caller
def chi2(df: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Chi-square samples: sums of df squared standard normals; df need not be an integer.

    >>> import pullback as pb
    >>> bool(pb.random.chi2(3.0, key=pb.random.key(0)) > 0)
    True
    """
    draw = DrawRequest("chi2", (df,), size, key, dtype, device=device)
    return draw.cast(multiply(exp(draw.log_gamma(multiply(draw.parameters[0], 0.5))), 2))


def _second_draw(draw: DrawRequest, what: str, parameters: Any) -> DrawRequest:
    """Another draw of the same shape, from a key of its own."""
    return DrawRequest(what, parameters, draw.shape, fold_in(draw.key, 1), draw.dtype)


@of_two_exponents
@attributed_to_caller
def beta(a: Any, b: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Beta samples between 0 and 1: the share of one gamma sample in the sum of two.

    >>> import pullback as pb
    >>> bool(0 < pb.random.beta(2.0, 3.0, key=pb.random.key(0)) < 1)
    True
    """
    draw = DrawRequest("beta", (a, b), size, key, dtype, device=device)
    a, b = draw.parameters
    return draw.cast(pointwise.sigmoid(subtract(draw.log_gamma(a), _second_draw(draw, "beta", (a, b)).log_gamma(b))))


@of_shares
@attributed_to_caller
def dirichlet(alpha: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Shares that sum to one along the last axis: gamma samples over their sum. `size` counts vectors.

    >>> import pullback as pb
    >>> x = pb.random.dirichlet([1.0, 2.0, 3.0], size=4, key=pb.random.key(0))
    >>> x.shape, bool(abs(x.sum(-1) - 1).max() < 1e-15)
    ((4, 3), True)
    """
    alpha = as_value(alpha)
    own = spec_of(alpha).shape
    if not own:
        raise ShapeError("random.dirichlet: alpha must be a vector, one number per share; got a scalar.")
    whole = None if size is None else (*as_shape(size, "random.dirichlet"), own[-1])
    draw = DrawRequest("dirichlet", (alpha,), whole, key, dtype, device=device)
    return draw.cast(softmax(draw.log_gamma(alpha), axis=-1))


@of_freedom_location_scale
@attributed_to_caller
def student_t(
    df: Any,
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    *,
    key: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    """Student's t samples with df degrees of freedom, shifted and scaled.

    >>> import pullback as pb
    >>> pb.random.student_t(3.0, size=2, key=pb.random.key(0)).shape
    (2,)
    """
    draw = DrawRequest("student_t", (df, loc, scale), size, key, dtype, device=device)
    df, loc, scale = draw.parameters
    half = multiply(df, 0.5)
    other = _second_draw(draw, "student_t", (df,))
    # z / sqrt(chi2 / df) = z sqrt((df / 2) / gamma(df / 2))
    spread = exp(multiply(subtract(log(half), other.log_gamma(half)), 0.5))
    return draw.cast(add(loc, multiply(scale, multiply(draw.normal(), spread))))


@of_mean_and_factor
@attributed_to_caller
def multivariate_normal(
    mean: Any, factor: Any, size: Any = None, *, key: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    """Normal vectors of a mean and a covariance `factor @ factor.T`, given by its factor, such as a Cholesky factor.

    >>> import numpy as np, pullback as pb
    >>> pb.random.multivariate_normal(np.zeros(2), np.eye(2), size=3, key=pb.random.key(0)).shape
    (3, 2)
    """
    mean, factor = as_value(mean), as_value(factor)
    columns = _factor_columns(factor)
    lead = broadcast_shape("random.multivariate_normal", spec_of(mean).shape[:-1], spec_of(factor).shape[:-2])
    outer = lead if size is None else (*as_shape(size, "random.multivariate_normal"), *lead)
    specs = [spec_of(mean), spec_of(factor)]
    draw = DrawRequest("multivariate_normal", (), (*outer, columns), key, dtype or _draw_dtype(specs), device=device)
    noise = reductions.sum(multiply(factor, reshaping.expand_dims(draw.normal(), axis=-2)), axis=-1)
    return draw.cast(add(mean, noise))


def _factor_columns(factor: Any) -> int:
    found = spec_of(factor).shape
    if len(found) < 2:
        raise ArgumentError(f"random.multivariate_normal: the factor must be a matrix, got shape {found}.")
    return found[-1]
