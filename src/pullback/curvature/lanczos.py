"""Lanczos iteration on a symmetric matrix known by its products: spectra, their densities, and top eigenpairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.argument_checks import check_count, check_functions
from ..arrays.backends import is_array, namespace_on
from ..arrays.picklable import picklable
from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..errors import ArgumentError
from ..implicit.vector_layout import VectorLayout
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import abs as absolute
from ..ops.elementwise.pointwise import equal, exp, greater, maximum, sqrt, square, where
from ..ops.index.indexing import getitem
from ..ops.lazy import lazy_function
from ..ops.linalg.eigen import eigh
from ..ops.order.sorting import argsort
from ..ops.random.keys import split
from ..ops.random.samplers import normal
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import matrix_transpose
from ..transforms.control.branches_and_loops import fori_loop
from ..transforms.vectorize import vmap
from .diagonals import MatVec, as_vector_product

_plot_spectrum = lazy_function("spectrum_plot", "plot_spectrum", "tools")


class Tridiagonal(NamedTuple):
    """A = V^T T V on the space that k steps of Lanczos reached: `vectors` (k, n), the diagonal of T and what is beside
    it; `residual` is the length of what A leads out of that space.
    """

    diagonal: Any
    beside: Any
    vectors: Any
    residual: Any

    def matrix(self) -> Any:
        """T, (k, k)."""
        xp, k = namespace_on(spec_of(self.diagonal).device), spec_of(self.diagonal).shape[0]
        one, up = (xp.eye(k, k, offset, dtype=spec_of(self.diagonal).dtype) for offset in (0, 1))
        upper = up[: k - 1] * self.beside[:, None] if k > 1 else 0 * one
        padded = matmul(matrix_transpose(one[: k - 1]), upper) if k > 1 else upper
        return one * self.diagonal[:, None] + padded + matrix_transpose(padded)


@picklable
def lanczos(matvec: MatVec, like: Any, key: Any, steps: int) -> Tridiagonal:
    """So many steps of Lanczos' iteration, from a random vector, on a symmetric matrix known by its product with trees
    like `like`. Every vector is made orthogonal to all before it, twice; where the space is exhausted (equal
    eigenvalues) the iteration goes on with another random vector, so that n steps find all n eigenvalues.

    >>> import numpy as np, pullback as pb
    >>> found = pb.curvature.lanczos(lambda v: np.array([1.0, 2.0, 2.0]) * v, np.zeros(3), pb.random.key(0), steps=3)
    >>> pb.linalg.eigvalsh(found.matrix()).round(6)
    array([1., 2., 2.])
    """
    check_functions("lanczos", matvec)
    layout, _ = VectorLayout.from_tree(like, "lanczos")
    return iterate_lanczos(
        as_vector_product("lanczos", matvec, layout), layout, key, check_steps("lanczos", steps, layout)
    )


def check_steps(what: str, steps: Any, layout: VectorLayout) -> int:
    count = check_count(steps, f"{what}: steps")
    if count > layout.size:
        raise ArgumentError(f"{what}: {count} steps are more than the {layout.size} elements of a vector.")
    return count


def iterate_lanczos(product: MatVec, layout: VectorLayout, key: Any, steps: int) -> Tridiagonal:
    """The vectors are rows; row j + 1 is written in step j."""
    xp, n, dtype = namespace_on(layout.specs[0].device), layout.size, layout.dtype
    noise = normal(size=(steps + 1, n), key=key, dtype=dtype)
    numbers = xp.arange(steps + 1)
    first = noise[0] / _norm(noise[0])
    vectors = where(equal(numbers, 0)[:, None], first, xp.zeros((steps + 1, n), dtype))
    eps = float(np.finfo(dtype).eps)

    def step(j: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        vectors, diagonal, beside, scale = carry
        here = equal(numbers, j)
        v = matmul(here.astype(dtype), vectors)
        w = product(v)
        alpha = total(v * w)
        w = _make_orthogonal(_make_orthogonal(w, vectors), vectors)
        beta, scale = _norm(w), maximum(scale, _norm(w) + absolute(alpha))
        goes_on = greater(beta, 10 * eps * scale)
        other = _make_orthogonal(_make_orthogonal(matmul(equal(numbers, j + 1).astype(dtype), noise), vectors), vectors)
        length = _norm(other)
        # in the last of n steps nothing is left, and what is written then is not used
        restart = other / where(greater(length, 0), length, 1)
        following = where(goes_on, w / where(goes_on, beta, 1), restart)
        beta = where(goes_on, beta, 0)
        vectors = where(equal(numbers, j + 1)[:, None], following, vectors)
        return vectors, where(here, alpha, diagonal), where(here, beta, beside), scale

    blank = xp.zeros(steps + 1, dtype)
    vectors, diagonal, beside, _ = fori_loop(0, steps, step, (vectors, blank, blank, xp.zeros((), dtype)))
    return Tridiagonal(diagonal[:steps], beside[: steps - 1], vectors[:steps], beside[steps - 1])


def _make_orthogonal(w: Any, rows: Any) -> Any:
    return w - matmul(matmul(rows, w), rows)


def _norm(v: Any) -> Any:
    return sqrt(total(square(v)))


class EigenPairs(NamedTuple):
    """Eigenvalues, their eigenvectors (trees with one more axis in front), and for each the norm of A v - value v: an
    eigenvalue of A is no further away.
    """

    values: Any
    vectors: Any
    residuals: Any


@picklable
def top_eigenpairs(
    matvec: MatVec, like: Any, key: Any, count: int = 1, steps: int | None = None, by: str = "magnitude"
) -> EigenPairs:
    """The `count` largest eigenvalues of a symmetric matrix known by its product with trees like `like`, by "magnitude"
    or "value", largest first, from that many `steps` of Lanczos' iteration (if not given, 2 count + 50, or as many as a
    vector has elements). The residuals say how good they are: take more steps where they are too large.

    >>> import numpy as np, pullback as pb
    >>> found = pb.curvature.top_eigenpairs(lambda v: np.array([1.0, -3.0, 2.0]) * v, np.zeros(3), pb.random.key(0), 2)
    >>> found.values.round(6)
    array([-3.,  2.])
    """
    check_functions("top_eigenpairs", matvec)
    if by not in ("magnitude", "value"):
        raise ArgumentError(f'top_eigenpairs: by is "magnitude" or "value", got {by!r}.')
    layout, _ = VectorLayout.from_tree(like, "top_eigenpairs")
    wanted = check_count(count, "top_eigenpairs: count")
    limit = min(layout.size, max(2 * wanted + 50, wanted)) if steps is None else steps
    rounds = check_steps("top_eigenpairs", limit, layout)
    if wanted > rounds:
        raise ArgumentError(f"top_eigenpairs: {wanted} eigenvalues cannot be found in {rounds} steps.")
    product = as_vector_product("top_eigenpairs", matvec, layout)
    found = iterate_lanczos(product, layout, key, rounds)
    values, turn = eigh(found.matrix())
    chosen = argsort(-(absolute(values) if by == "magnitude" else values))[:wanted]
    values, vectors = getitem(values, chosen), matmul(getitem(matrix_transpose(turn), chosen), found.vectors)
    apart = vmap(product)(vectors) - values[:, None] * vectors
    return EigenPairs(values, vmap(layout.to_tree)(vectors), sqrt(total(square(apart), axis=1)))


@final
@dataclass(frozen=True, slots=True)
class Spectrum:
    """The spectrum of a matrix of `size` rows as seen by some random vectors: for each vector `nodes`, about
    eigenvalues, and `weights`, the shares of eigenvalues near them; both (probes, steps). Moments of low order are
    those of the vectors exactly.
    """

    nodes: Any
    weights: Any
    size: int

    def density(self, grid: Any, width: Any) -> Any:
        """The share of eigenvalues per unit at each number of a grid: a normal density of that width around each."""
        grid = as_value(grid if is_array(grid) or isinstance(grid, Value) else np.asarray(grid))
        apart = (grid[:, None, None] - self.nodes) / width
        bells = exp(-square(apart) / 2) / (width * float(np.sqrt(2 * np.pi)))
        return mean(total(self.weights * bells, axis=-1), axis=-1)

    def trace(self) -> Any:
        """An estimate of the trace."""
        return self.size * mean(total(self.weights * self.nodes, axis=-1))

    def plot(self, path: str | Path | None = None, width: float | None = None, points: int = 400) -> str:
        """The density as an SVG picture, in logarithmic height, since most eigenvalues lie together; written to a file
        if a path is given. The width of a bell is a hundredth of the range unless another is given.
        """
        return str(_plot_spectrum(self, path, width, points))


@picklable
def spectral_density(matvec: MatVec, like: Any, key: Any, steps: int = 64, probes: int = 4) -> Spectrum:
    """The density of eigenvalues of a symmetric matrix known by its product with trees like `like`, by Lanczos'
    quadrature from `probes` random vectors (Ghorbani et al., 2019). It takes `steps * probes` products.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: pb.sum(np.array([1.0, 2.0, 3.0]) * x * x)
    >>> matvec = lambda v: pb.hvp(f, (np.zeros(3),), (v,))
    >>> spectrum = pb.curvature.spectral_density(matvec, np.zeros(3), pb.random.key(0), steps=3)
    >>> spectrum.nodes[0].round(6), spectrum.plot().startswith("<svg")
    (array([2., 4., 6.]), True)
    """
    check_functions("spectral_density", matvec)
    layout, _ = VectorLayout.from_tree(like, "spectral_density")
    rounds = check_steps("spectral_density", steps, layout)
    product = as_vector_product("spectral_density", matvec, layout)

    def probe(one: Any) -> tuple[Any, Any]:
        values, turn = eigh(iterate_lanczos(product, layout, one, rounds).matrix())
        return values, square(turn[0])

    nodes, weights = vmap(probe)(split(key, check_count(probes, "spectral_density: probes")))
    return Spectrum(nodes, weights, layout.size)
