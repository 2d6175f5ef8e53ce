"""Traces and diagonals of matrices known by their products: Hutchinson's estimates, and the Hessian's diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.argument_checks import check_count, check_functions
from ..arrays.backends import namespace_on
from ..arrays.picklable import picklable
from ..arrays.spec import spec_of
from ..implicit.vector_layout import VectorLayout
from ..ops.elementwise.pointwise import equal, multiply, sqrt, where
from ..ops.random.discrete import bernoulli
from ..ops.reduce.reductions import mean, var
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype, reshape
from ..transforms.control.scan import map as map_rows
from ..transforms.curvature_products import hvp
from ..transforms.vectorize import take_unit_directions, vmap

MatVec = Callable[[Any], Any]


class Estimate(NamedTuple):
    """The mean of draws, and its standard error, estimated from their spread: a number each, or trees of arrays."""

    value: Any
    standard_error: Any


@picklable
def hutchinson_trace(matvec: MatVec, like: Any, key: Any, samples: int = 64) -> Estimate:
    """The trace of a matrix known by its product with a vector, as the mean of v^T A v over vectors of random signs;
    with its standard error. `matvec` takes and returns trees like `like`, such as the parameters; for a symmetric
    matrix the variance is twice the sum of squares off the diagonal, so it is exact for a diagonal one.

    >>> import numpy as np, pullback as pb
    >>> matvec = lambda v: np.array([1.0, 2.0, 3.0]) * v
    >>> float(pb.curvature.hutchinson_trace(matvec, np.zeros(3), pb.random.key(0), samples=4).value)
    6.0
    """
    products, _ = _probe("hutchinson_trace", matvec, like, key, samples)
    return estimate_mean(total(products, axis=1), check_count(samples, "hutchinson_trace: samples"))


@picklable
def hutchinson_diagonal(matvec: MatVec, like: Any, key: Any, samples: int = 64) -> Estimate:
    """The diagonal of a matrix known by its product with a vector, as the mean of v * (A v) over vectors of random
    signs: trees like `like`, of the estimate and of its standard error.

    >>> import numpy as np, pullback as pb
    >>> matvec = lambda v: np.array([1.0, 2.0, 3.0]) * v
    >>> pb.curvature.hutchinson_diagonal(matvec, np.zeros(3), pb.random.key(0), samples=2).value
    array([1., 2., 3.])
    """
    products, layout = _probe("hutchinson_diagonal", matvec, like, key, samples)
    found = estimate_mean(products, check_count(samples, "hutchinson_diagonal: samples"))
    return Estimate(layout.to_tree(found.value), layout.to_tree(found.standard_error))


def _probe(what: str, matvec: MatVec, like: Any, key: Any, samples: int) -> tuple[Any, VectorLayout]:
    """v * (A v) for each of many vectors of random signs."""
    check_functions(what, matvec)
    layout, _ = VectorLayout.from_tree(like, what)
    signs = bernoulli(0.5, (check_count(samples, f"{what}: samples"), layout.size), key=key)
    probes = astype(signs, layout.dtype) * 2 - 1
    return multiply(probes, vmap(as_vector_product(what, matvec, layout))(probes)), layout


def as_vector_product(what: str, matvec: MatVec, layout: VectorLayout) -> MatVec:
    """A product of trees as one of vectors."""
    return lambda v: layout.to_vector(matvec(layout.to_tree(v)), f"{what}: the product")


def estimate_mean(draws: Any, count: int) -> Estimate:
    """The mean over the first axis; one draw has no spread to judge it by."""
    if count == 1:
        return Estimate(mean(draws, axis=0), mean(draws, axis=0) * np.nan)
    return Estimate(mean(draws, axis=0), sqrt(var(draws, axis=0, correction=1) / count))


@picklable
def hessian_diagonal(f: Callable[..., Any], chunk_size: int = 64) -> Callable[..., Any]:
    """The diagonal of the Hessian of a scalar function of a tree, exact: `hessian_diagonal(f)(params, *args)` is a tree
    like the parameters. It takes a product with the Hessian for each parameter, `chunk_size` of them at a time, so it
    is for some ten thousands at most; `hutchinson_diagonal` estimates it for more.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.hessian_diagonal(lambda x: pb.sum(x**3) + x[0] * x[1])(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    check_functions("hessian_diagonal", f)
    step = check_count(chunk_size, "hessian_diagonal: chunk_size")

    def diagonal(params: Any, *args: Any) -> Any:
        layout, leaves = VectorLayout.from_tree(params, "hessian_diagonal")
        x, xp = layout.join_leaves(leaves), namespace_on(spec_of(leaves[0]).device)
        places = xp.arange(layout.size)

        def flat(v: Any) -> Any:
            return f(layout.to_tree(v), *args)

        def element(i: Any) -> Any:
            unit = where(equal(places, i), xp.ones((), layout.dtype), xp.zeros((), layout.dtype))
            return total(unit * hvp(flat, (x,), (unit,)))

        width = min(step, max(layout.size, 1))
        rows = -(-layout.size // width)
        # a last chunk that is too long asks for units that do not exist: their vector is zero
        with take_unit_directions("hessian_diagonal"):
            found = map_rows(vmap(element), xp.arange(rows * width).reshape((rows, width)))
        return layout.to_tree(reshape(found, (rows * width,))[: layout.size])

    return diagonal
