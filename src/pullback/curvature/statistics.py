"""Statistics of the gradients of a batch's samples: norms, second moments and variances, in one backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.picklable import picklable
from ..ops.contract.einsum import einsum
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import greater, maximum, sqrt, square, where
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..transforms.reverse import grad
from ..transforms.vectorize import vmap
from .factored import Rows
from .layout import Layout
from .staging import StagedGradient, read_batch, stage_gradient


class GradientStatistics(NamedTuple):
    """What `gradient_statistics` returns. `values` and `norms` have an entry for each sample, the others are trees like
    the parameters: means over the samples of the gradient, of its square, of its squared distance from the mean.
    """

    values: Any
    norms: Any
    gradient: Any
    second_moment: Any
    variance: Any


@picklable
@explains_arguments("per_sample_grad")
def per_sample_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of `f(params, *sample)` for each sample of a batch: `per_sample_grad(f)(params, *batch)` is a tree
    like the parameters whose leaves have the batch as their first axis. It is `vmap(grad(f), (None, 0, ...))`.

    >>> import numpy as np, pullback as pb
    >>> f = lambda w, x, y: (x @ w - y) ** 2 / 2
    >>> pb.curvature.per_sample_grad(f)(np.ones(2), np.array([[1.0, 0.0], [2.0, 1.0]]), np.zeros(2))
    array([[1., 0.],
           [6., 3.]])
    """
    check_functions("per_sample_grad", f)

    def gradients(params: Any, *batch: Any) -> Any:
        call = read_batch("per_sample_grad", params, batch)
        if not call.params:
            return call.as_params(())
        return vmap(grad(f), (None, *(0 for _ in batch)), axis_size=call.size)(params, *batch)

    return gradients


@picklable
@explains_arguments("per_sample_norms")
def per_sample_norms(f: Callable[..., Any]) -> Callable[..., Any]:
    """The norm of the gradient of `f(params, *sample)`, over all parameters, for each sample of a batch:
    `per_sample_norms(f)(params, *batch)`. The gradients of matrices are not multiplied out where that costs more.

    >>> import numpy as np, pullback as pb
    >>> f = lambda w, x, y: (x @ w - y) ** 2 / 2
    >>> pb.curvature.per_sample_norms(f)(np.ones(2), np.array([[3.0, 4.0], [0.0, 1.0]]), np.zeros(2))
    array([35.,  1.])
    """
    check_functions("per_sample_norms", f)

    def norms(params: Any, *batch: Any) -> Any:
        call = read_batch("per_sample_norms", params, batch)
        staged = stage_gradient(f, call)
        return _safe_sqrt(call.over_samples(lambda values: _squared_norm(staged.run(values)[1])))

    return norms


@picklable
@explains_arguments("gradient_statistics")
def gradient_statistics(f: Callable[..., Any]) -> Callable[..., GradientStatistics]:
    """Values, norms, mean, second moment and variance of the gradients of `f(params, *sample)` over a batch, in one
    backward pass: `gradient_statistics(f)(params, *batch)`. Means are over samples, the variance is that of the
    population (divided by the number of samples). Compiled, what is not used is not computed.

    >>> import numpy as np, pullback as pb
    >>> f = lambda w, x, y: (x @ w - y) ** 2 / 2
    >>> found = pb.curvature.gradient_statistics(f)(np.ones(2), np.array([[1.0, 0.0], [2.0, 1.0]]), np.zeros(2))
    >>> found.gradient, found.second_moment, found.variance
    (array([3.5, 1.5]), array([18.5,  4.5]), array([6.25, 2.25]))
    """
    check_functions("gradient_statistics", f)

    def statistics(params: Any, *batch: Any) -> GradientStatistics:
        call = read_batch("gradient_statistics", params, batch)
        staged = stage_gradient(f, call)
        values, squares, grads, moments = call.over_samples(lambda given: _measure(staged, given))
        pairs = list(zip(grads, staged.layouts, strict=True))
        first = [average(g, layout) for g, layout in pairs]
        second = [average(m, layout) for m, (_, layout) in zip(moments, pairs, strict=True)]
        spread = [maximum(m - square(g), 0) for m, g in zip(second, first, strict=True)]
        trees = (call.as_params(leaves) for leaves in (first, second, spread))
        return GradientStatistics(values, _safe_sqrt(squares), *trees)

    return statistics


def _measure(staged: StagedGradient, values: Sequence[Any]) -> tuple[Any, Any, list[Any], list[Any]]:
    """Of one sample: the value, the squared norm, the gradients, and their squares."""
    value, grads = staged.run(values)
    return value, _squared_norm(grads), grads, [square_elements(g) for g in grads]


def square_elements(gradient: Any) -> Any:
    """The squares of a gradient's elements: those of its factors, where each is one product."""
    if not isinstance(gradient, Rows):
        return square(gradient)
    if gradient.row_count == 1:
        return Rows(square(gradient.left), square(gradient.right))
    return square(gradient.multiply_out())


def average(found: Any, layout: Layout | None) -> Any:
    """The mean over samples of something like a gradient: rows, stacks of matrices, or arrays of the parameter's shape.
    Rows of all samples are one product.
    """
    if isinstance(found, Rows):
        size = shape(found.left)[0]
        return _to_array(einsum("bsrm,bsrn->smn", found.left, found.right) / max(size, 1), layout)
    one = mean(found, axis=0)
    return _to_array(one, layout) if layout is not None else one


def _to_array(matrices: Any, layout: Layout | None) -> Any:
    return matrices if layout is None else layout.to_array(matrices)


def _squared_norm(grads: Sequence[Any]) -> Any:
    """The sum of squares of all elements, of one sample."""
    return sum((_sum_squares(g) for g in grads), start=np.zeros(()) if not grads else 0)


def _sum_squares(gradient: Any) -> Any:
    if not isinstance(gradient, Rows):
        return total(square(gradient))
    if gradient.row_count == 1:
        left, right = (total(square(side), axis=(-2, -1)) for side in gradient)
        return total(left * right)
    if not _is_gram_cheaper(gradient):
        return total(square(gradient.multiply_out()))
    # |sum_r a_r b_r^T|^2 = sum_rs <a_r, a_s> <b_r, b_s>
    left, right = (einsum("srm,stm->srt", side, side) for side in gradient)
    return total(left * right)


def _is_gram_cheaper(rows: Rows) -> bool:
    """Two matrices of scalar products between rows, or one product of both sides."""
    r, m, n = rows.row_count, shape(rows.left)[-1], shape(rows.right)[-1]
    return r * (m + n) < m * n


def _safe_sqrt(x: Any) -> Any:
    """The root with derivative 0 at 0, which a gradient that vanishes has."""
    positive = greater(x, 0)
    return where(positive, sqrt(where(positive, x, 1)), 0)
