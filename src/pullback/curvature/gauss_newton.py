"""Diagonals and blocks of the Gauss-Newton and the Fisher matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.picklable import picklable
from ..errors import ArgumentError
from ..ops.contract.einsum import einsum
from ..ops.elementwise.pointwise import square
from ..ops.reduce.reductions import sum as total
from .factored import Rows
from .layout import Layout
from .likelihoods import Likelihood
from .pulled import Drawn, Exact, Loss, Pulled, choose_exact, choose_for_likelihood, flatten_rows, pull_samples
from .statistics import average


@picklable
def ggn_diagonal(model: Callable[..., Any], loss: Loss, reduction: str = "mean") -> Callable[..., Any]:
    """The diagonal of the Gauss-Newton matrix of `loss(model(params, x), y)`, exact: a tree like the parameters, by
    `ggn_diagonal(model, loss)(params, inputs, targets)`. Model and loss are of one sample; the matrix is that of the
    mean (or "sum") over the samples. A tuple of inputs is several arguments of the model, targets alike.

    >>> import numpy as np, pullback as pb
    >>> model, loss = (lambda w, x: x @ w), (lambda z, y: (z - y) ** 2)
    >>> pb.curvature.ggn_diagonal(model, loss)(np.zeros(2), np.array([[1.0, 2.0], [3.0, 0.0]]), np.zeros(2))
    array([10.,  4.])
    """
    check_functions("ggn_diagonal", model, loss)
    check_reduction("ggn_diagonal", reduction)

    def diagonal(params: Any, inputs: Any, targets: Any) -> Any:
        return _diagonal(choose_exact("ggn_diagonal", model, loss, targets), params, inputs, reduction)

    return diagonal


@picklable
def ggn_blocks(model: Callable[..., Any], loss: Loss, reduction: str = "mean") -> Callable[..., Any]:
    """The diagonal blocks of the Gauss-Newton matrix, one for each parameter: a tree like the parameters, each leaf of
    n elements a matrix (n, n). Arguments as of `ggn_diagonal`.

    >>> import numpy as np, pullback as pb
    >>> model, loss = (lambda w, x: x @ w), (lambda z, y: (z - y) ** 2)
    >>> pb.curvature.ggn_blocks(model, loss)(np.zeros(2), np.array([[1.0, 2.0], [3.0, 0.0]]), np.zeros(2))
    array([[10.,  2.],
           [ 2.,  4.]])
    """
    check_functions("ggn_blocks", model, loss)
    check_reduction("ggn_blocks", reduction)

    def blocks(params: Any, inputs: Any, targets: Any) -> Any:
        return _blocks(choose_exact("ggn_blocks", model, loss, targets), params, inputs, reduction)

    return blocks


@picklable
def fisher_diagonal(
    model: Callable[..., Any], likelihood: Likelihood, samples: int | None = None, reduction: str = "mean"
) -> Callable[..., Any]:
    """The diagonal of the Fisher matrix of a likelihood (`pb.curvature.categorical`, `normal`, `bernoulli`, `poisson`)
    whose parameter is `model(params, x)`: `fisher_diagonal(model, likelihood)(params, inputs)` is exact,
    `fisher_diagonal(model, likelihood, samples=1)(params, inputs, key)` an unbiased estimate from so many labels drawn
    for each input. With the labels of the data it is the second moment of `gradient_statistics`.

    >>> import numpy as np, pullback as pb
    >>> model, x = (lambda w, x: x @ w), np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> pb.curvature.fisher_diagonal(model, pb.curvature.normal)(np.zeros(2), x)
    array([5., 2.])
    """
    check_functions("fisher_diagonal", model)
    check_reduction("fisher_diagonal", reduction)

    def diagonal(params: Any, inputs: Any, key: Any = None) -> Any:
        choice = choose_for_likelihood("fisher_diagonal", model, likelihood, samples, inputs, key)
        return _diagonal(choice, params, inputs, reduction)

    return diagonal


@picklable
def fisher_blocks(
    model: Callable[..., Any], likelihood: Likelihood, samples: int | None = None, reduction: str = "mean"
) -> Callable[..., Any]:
    """The diagonal blocks of the Fisher matrix, one for each parameter, as in `ggn_blocks`; arguments as of
    `fisher_diagonal`.

    >>> import numpy as np, pullback as pb
    >>> model, x = (lambda w, x: x @ w), np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> pb.curvature.fisher_blocks(model, pb.curvature.normal)(np.zeros(2), x)
    array([[5., 1.],
           [1., 2.]])
    """
    check_functions("fisher_blocks", model)
    check_reduction("fisher_blocks", reduction)

    def blocks(params: Any, inputs: Any, key: Any = None) -> Any:
        choice = choose_for_likelihood("fisher_blocks", model, likelihood, samples, inputs, key)
        return _blocks(choice, params, inputs, reduction)

    return blocks


def check_reduction(what: str, reduction: str) -> None:
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f'{what}: reduction is "mean" or "sum" over the samples, got {reduction!r}.')


def _diagonal(choice: Exact | Drawn, params: Any, inputs: Any, reduction: str) -> Any:
    batch, layouts, found = pull_samples(choice, params, inputs, _measure_diagonals)
    times = 1 if reduction == "mean" else batch.size
    return batch.as_params([times * average(x, layout) for x, layout in zip(found, layouts, strict=True)])


def _measure_diagonals(pulled: Pulled) -> list[Any]:
    return [_leaf_diagonal(x, pulled) for x in pulled.leaves]


def _leaf_diagonal(x: Any, pulled: Pulled) -> Any:
    """sum_kl B_kl J_k J_l, elementwise; rows that are one product have their left side in common."""
    if not isinstance(x, Rows):
        return total(x * pulled.mix(x), axis=0)
    if x.row_count == 1:
        return Rows(square(x.left), total(x.right * pulled.mix(x.right), axis=0))
    whole = x.multiply_out()
    return total(whole * pulled.mix(whole), axis=0)


def _blocks(choice: Exact | Drawn, params: Any, inputs: Any, reduction: str) -> Any:
    batch, _, found = pull_samples(choice, params, inputs, measure_jacobians)
    times = 1.0 / batch.size if reduction == "mean" else 1.0
    return batch.as_params([times * einsum("bkm,bkn->mn", x, mixed) for x, mixed in found])


def measure_jacobians(pulled: Pulled) -> list[tuple[Any, Any]]:
    """For each parameter J as a matrix (k, n), and B J."""
    pairs = zip(pulled.leaves, pulled.layouts, strict=True)
    flat = [flatten_rows(multiply_out(x, layout)) for x, layout in pairs]
    return [(x, pulled.mix(x)) for x in flat]


def multiply_out(x: Any, layout: Layout | None) -> Any:
    """A gradient, or several, in the parameter's shape."""
    return x if layout is None else layout.to_array(x.multiply_out())
