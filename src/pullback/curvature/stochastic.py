"""Traces from few products: Hutch++, traces of functions of a matrix by Lanczos' quadrature, log-determinants, and
stochastic Laplacians and divergences of functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_count, check_functions
from ..arrays.backends import namespace_on
from ..arrays.picklable import picklable
from ..arrays.spec import spec_of
from ..arrays.trees import LEAF, flatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..implicit.vector_layout import VectorLayout
from ..ops.contract.matrix_products import matmul
from ..ops.elementwise.pointwise import abs as absolute
from ..ops.elementwise.pointwise import greater, less_equal, log, multiply, square, stop_gradient, where
from ..ops.linalg.eigen import eigh
from ..ops.linalg.factorizations import qr
from ..ops.random.discrete import bernoulli
from ..ops.random.keys import split
from ..ops.reduce.reductions import max as max_of
from ..ops.reduce.reductions import sum as total
from ..ops.reduce.scans import cumulative_sum
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import astype, matrix_transpose, reshape
from ..transforms.forward import jvp
from ..transforms.taylor.jet import jet
from ..transforms.vectorize import take_unit_directions, vmap
from .diagonals import Estimate, MatVec, as_vector_product, estimate_mean
from .lanczos import Tridiagonal, check_steps, iterate_lanczos


@picklable
def hutch_plus_plus(matvec: MatVec, like: Any, key: Any, samples: int = 63) -> Estimate:
    """The trace of a matrix known by its product, as `hutchinson_trace` estimates it, from that many products by
    Hutch++ (Meyer et al., 2021): a third of them find the space where the matrix is large, whose share of the trace is
    exact, and a third estimate the rest. Its error falls like 1 / samples instead of the root of that. The standard
    error is that of the rest. It is for symmetric matrices.

    >>> import numpy as np, pullback as pb
    >>> matvec = lambda v: np.array([9.0, 1.0, 0.0, 0.0]) * v
    >>> float(pb.curvature.hutch_plus_plus(matvec, np.zeros(4), pb.random.key(0), samples=9).value.round(9))
    10.0
    """
    check_functions("hutch_plus_plus", matvec)
    layout, _ = VectorLayout.from_tree(like, "hutch_plus_plus")
    if check_count(samples, "hutch_plus_plus: samples") < 3:
        raise ArgumentError(f"hutch_plus_plus: {samples} samples, wants three at least: two spaces and their rest.")
    product = vmap(as_vector_product("hutch_plus_plus", matvec, layout))
    wide, rest = split(key, 2)
    rank = min(samples // 3, layout.size)
    # For any fixed space the estimate is linear in the matrix and unbiased, and so are its derivatives.
    basis, _ = qr(stop_gradient(matrix_transpose(product(_signs(wide, rank, layout)))))
    basis = stop_gradient(basis)
    inside = total(multiply(matrix_transpose(basis), product(matrix_transpose(basis))))
    count = max(samples - 2 * rank, 1)
    probes = _signs(rest, count, layout)
    probes = probes - matmul(matmul(probes, basis), matrix_transpose(basis))
    outside = estimate_mean(total(multiply(probes, product(probes)), axis=1), count)
    return Estimate(inside + outside.value, outside.standard_error)


def _signs(key: Any, count: int, layout: VectorLayout) -> Any:
    return astype(bernoulli(0.5, (count, layout.size), key=key), layout.dtype) * 2 - 1


@picklable
def function_trace(
    f: Callable[[Any], Any], matvec: MatVec, like: Any, key: Any, steps: int = 32, probes: int = 16
) -> Estimate:
    """The trace of f(A), the sum of f over the eigenvalues of a symmetric matrix known by its product with trees like
    `like`: by Lanczos' quadrature (Ubaru et al., 2017) from that many random vectors, with its standard error. It takes
    `steps * probes` products; the error of the quadrature itself falls exponentially with the steps where f is smooth
    on the spectrum.

    >>> import numpy as np, pullback as pb
    >>> matvec = lambda v: np.array([1.0, 2.0, 4.0]) * v
    >>> found = pb.curvature.function_trace(lambda x: x**0, matvec, np.zeros(3), pb.random.key(0), steps=3)
    >>> bool(abs(found.value - 3.0) < 1e-9)
    True
    """
    check_functions("function_trace", f, matvec)
    return _quadrature("function_trace", f, matvec, like, key, steps, probes)


@picklable
def log_determinant(matvec: MatVec, like: Any, key: Any, steps: int = 32, probes: int = 16) -> Estimate:
    """The logarithm of the determinant of a symmetric positive definite matrix known by its product, as the trace of
    its logarithm: see `function_trace`. Derivatives are those of the estimate.

    >>> import numpy as np, pullback as pb
    >>> matvec = lambda v: 3.0 * v
    >>> found = pb.curvature.log_determinant(matvec, np.zeros(2), pb.random.key(0), steps=1, probes=4)
    >>> bool(abs(found.value - np.log(9.0)) < 1e-12)
    True
    """
    check_functions("log_determinant", matvec)
    return _quadrature("log_determinant", log, matvec, like, key, steps, probes)


def _quadrature(
    what: str, f: Callable[[Any], Any], matvec: MatVec, like: Any, key: Any, steps: int, probes: int
) -> Estimate:
    """n v^T f(A) v for random unit vectors: k steps of Lanczos give e_1^T f(T) e_1, exact for polynomials of degree
    2 k - 1.
    """
    layout, _ = VectorLayout.from_tree(like, what)
    rounds, count = check_steps(what, steps, layout), check_count(probes, f"{what}: probes")
    product = as_vector_product(what, matvec, layout)

    def draw(one: Any) -> Any:
        reached, bound = _cut_where_exhausted(iterate_lanczos(product, layout, one, rounds))
        values, turn = eigh(reached.matrix())
        # those beyond the bound stand for nothing, and f need not be defined there
        return layout.size * total(square(turn[0]) * f(where(greater(values, bound), values[0], values)))

    return estimate_mean(vmap(draw)(split(key, count)), count)


def _cut_where_exhausted(found: Tridiagonal) -> tuple[Tridiagonal, Any]:
    """T up to where the first vector's space is exhausted, and a bound of its eigenvalues. What comes after, from other
    vectors, has no share in f(T)_11, but may have the same eigenvalues, and vectors of equal ones have no derivatives:
    in its place are numbers of their own above the bound.
    """
    spec = spec_of(found.diagonal)
    rounds = spec.shape[0]
    if rounds == 1:
        return found, np.inf
    # Gershgorin's, with room for roundings; f(T)_11 changes by the square of what is left out
    bound = stop_gradient(max_of(absolute(found.diagonal)) + 2 * max_of(found.beside)) * 1.5
    broken = cumulative_sum(less_equal(found.beside, 1000 * float(np.finfo(spec.dtype).eps) * bound), axis=0)
    after = greater(concat([broken[:1] * 0, broken]), 0)
    bound = where(greater(bound, 0), bound, 1)
    above = 1 + namespace_on(spec.device).arange(1, rounds + 1) / rounds
    diagonal = where(after, bound * above.astype(spec.dtype), found.diagonal)
    return found._replace(diagonal=diagonal, beside=where(after[1:], 0, found.beside)), bound


@picklable
def stochastic_laplacian(f: Callable[..., Any], samples: int = 16) -> Callable[..., Estimate]:
    """The Laplacian of a scalar function of one array, estimated: `stochastic_laplacian(f)(x, *args, key=key)` is the
    mean of second derivatives along vectors of random signs, each from one Taylor series, with its standard error. It
    takes `samples` of them instead of one for each element of x.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.stochastic_laplacian(lambda x: pb.sum(x**3), 4)(np.array([1.0, 2.0]), key=pb.random.key(0)).value
    array(18.)
    """

    def second_derivative(f: Callable[[Any], Any], x: Any, direction: Any) -> Any:
        out, (_, second) = jet(f, (x,), ([direction, None],))
        if flatten(out)[1] is not LEAF or spec_of(out).size != 1:
            raise ShapeError("stochastic_laplacian: the function must return a scalar.\n  Reduce it (pb.sum).")
        return reshape(second, ())

    return _estimate_along_signs("stochastic_laplacian", f, samples, second_derivative)


@picklable
def stochastic_divergence(f: Callable[..., Any], samples: int = 16) -> Callable[..., Estimate]:
    """The divergence of a function of one array that returns one like it, estimated:
    `stochastic_divergence(f)(x, *args, key=key)` is the mean of v . (J v) over vectors of random signs, with its
    standard error.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.stochastic_divergence(lambda x: x**2, 4)(np.array([1.0, 2.0]), key=pb.random.key(0)).value
    array(6.)
    """

    def derivative(f: Callable[[Any], Any], x: Any, direction: Any) -> Any:
        out, tangent = jvp(f, (x,), (direction,))
        if flatten(out)[1] is not LEAF or spec_of(out).shape != spec_of(x).shape:
            raise ShapeError("stochastic_divergence: the function must return an array of the shape of its argument.")
        return total(direction * tangent)

    return _estimate_along_signs("stochastic_divergence", f, samples, derivative)


def _estimate_along_signs(
    what: str, f: Callable[..., Any], samples: int, derive: Callable[[Callable[[Any], Any], Any, Any], Any]
) -> Callable[..., Estimate]:
    check_functions(what, f)
    count = check_count(samples, f"{what}: samples")

    @functools.wraps(f)
    def estimate(x: Any, *rest: Any, key: Any, **kwargs: Any) -> Estimate:
        layout, leaves = VectorLayout.from_tree(x, what)
        if flatten(x)[1] is not LEAF or layout.dtype.kind != "f":
            raise DtypeError(f"{what}: the argument is one array of real floating-point numbers.")
        point = leaves[0]
        rows = reshape(_signs(key, count, layout), (count, *spec_of(point).shape))
        with take_unit_directions(what):
            draws = vmap(lambda row: derive(lambda y: f(y, *rest, **kwargs), point, row))(rows)
        return estimate_mean(draws, count)

    return estimate
