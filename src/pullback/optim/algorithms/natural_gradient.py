"""Matrix-free natural gradient: conjugate gradients on Gauss-Newton products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of, zeros
from ...errors import ArgumentError
from ...implicit.vector_layout import VectorLayout
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...transforms.control.branches_and_loops import fori_loop
from ...transforms.curvature_products import ggnvp
from ..leaves import cast_like, check_settings
from ..rule import Rule
from ..transformations.scaling import descend


@picklable
def natural_gradient(
    lr: Any,
    model: Callable[..., Any],
    loss: Callable[..., Any],
    damping: Any = 1e-3,
    iterations: int = 20,
    tolerance: Any = 1e-6,
) -> Rule:
    """Steps along (G + damping I)^-1 gradient, where G is the Gauss-Newton matrix of `loss(model(params, *inputs),
    *targets)`, by conjugate gradients on `ggnvp`. For losses that are minus the logarithm of a natural exponential
    family (squared error, cross-entropy of logits) G is the Fisher matrix, and this is the natural gradient.

    The update wants the batch: `rule.update(grads, state, params, batch=(inputs, targets))`, two tuples.

    >>> import numpy as np, pullback as pb
    >>> model, loss = (lambda w, x: x @ w), (lambda y, z: pb.sum((y - z) ** 2))
    >>> x, z, w = np.array([[1.0, 0.0], [0.0, 10.0]]), np.array([1.0, 10.0]), np.zeros(2)
    >>> rule = pb.optim.natural_gradient(1.0, model, loss, damping=0.0)
    >>> grads = pb.grad(lambda w: loss(model(w, x), z))(w)
    >>> rule.update(grads, rule.init(w), w, batch=((x,), (z,)))[0].round(6)
    array([1., 1.])
    """
    more, near = check_settings("natural_gradient", damping=damping, tolerance=tolerance)
    rounds = check_count(iterations, "natural_gradient: iterations")

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        inputs, targets = _check_batch(extra)
        layout, _ = VectorLayout.from_tree(params, "natural_gradient")

        def damped_product(v: Any) -> Any:
            along = (layout.to_tree(v),)
            product = ggnvp(lambda w: model(w, *inputs), lambda y: loss(y, *targets), (params,), along)
            return layout.to_vector(product, "natural_gradient") + cast_like(more, v) * v

        gradient = layout.to_vector(grads, "natural_gradient")
        return layout.to_tree(_conjugate_gradients(damped_product, gradient, rounds, near)), state

    return descend("natural gradient", lr, Rule("natural gradient", lambda params: (), advance))


def _check_batch(extra: Mapping[str, Any]) -> tuple[Any, Any]:
    batch = extra.get("batch")
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(b, (tuple, list)) for b in batch):
        raise ArgumentError(
            "natural_gradient: wants the batch of this step: update(grads, state, params, batch=(inputs, targets)), "
            "where model(params, *inputs) and loss(output, *targets) are called."
        )
    return batch[0], batch[1]


def _conjugate_gradients(product: Callable[[Any], Any], b: Any, rounds: int, near: Any) -> Any:
    """About A^-1 b after at most so many rounds. One that has converged, or meets no curvature, stays as it is: a
    fixed number of rounds can be compiled and differentiated.
    """
    first = total(b * b)

    def cg_step(_: Any, carry: tuple[Any, Any, Any, Any]) -> tuple[Any, ...]:
        x, r, d, rr = carry
        a = product(d)
        curvature = total(d * a)
        goes = pointwise.logical_and(pointwise.greater(rr, near * near * first), pointwise.greater(curvature, 0))
        length = cast_like(pointwise.where(goes, rr / pointwise.where(goes, curvature, 1), 0), b)
        x, r = x + length * d, r - length * a
        new = total(r * r)
        turn = cast_like(pointwise.where(goes, new / pointwise.where(goes, rr, 1), 0), b)
        return x, r, pointwise.where(goes, r + turn * d, d), pointwise.where(goes, new, rr)

    return fori_loop(0, rounds, cg_step, (zeros(spec_of(b)), b, b, first))[0]
