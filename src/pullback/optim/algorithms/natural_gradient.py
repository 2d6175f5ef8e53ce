"""Matrix-free natural gradient: conjugate gradients on Gauss-Newton products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.picklable import picklable
from ...arrays.spec import spec_of, zeros
from ...arrays.trees import flatten, leaves_matching, unflatten
from ...errors import ArgumentError
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...transforms.control.branches_and_loops import fori_loop
from ...transforms.curvature_products import ggnvp
from ..leaves import cast_like, check_count, check_setting, require_real
from ..rule import Rule, named_chain
from ..transformations.scaling import scale_by_learning_rate


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
    more, rounds = (
        check_setting(damping, "natural_gradient: damping"),
        check_count(iterations, "natural_gradient: iterations"),
    )
    near = check_setting(tolerance, "natural_gradient: tolerance")

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        inputs, targets = _check_batch(extra)
        leaves, structure = flatten(params)
        for p in leaves:
            require_real(p, "natural_gradient")

        def damped_product(v: list[Any]) -> list[Any]:
            product = ggnvp(
                lambda w: model(w, *inputs), lambda y: loss(y, *targets), (params,), (unflatten(structure, v),)
            )
            found = leaves_matching(structure, product, "natural_gradient")
            return [c + cast_like(more, x) * x for c, x in zip(found, v, strict=True)]

        solved = _conjugate_gradients(damped_product, flatten(grads)[0], rounds, near)
        return unflatten(structure, solved), state

    return named_chain(
        "natural gradient", Rule("natural gradient", lambda params: (), advance), scale_by_learning_rate(lr)
    )


def _check_batch(extra: Mapping[str, Any]) -> tuple[Any, Any]:
    batch = extra.get("batch")
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(b, (tuple, list)) for b in batch):
        raise ArgumentError(
            "natural_gradient: wants the batch of this step: update(grads, state, params, batch=(inputs, targets)), "
            "where model(params, *inputs) and loss(output, *targets) are called."
        )
    return batch[0], batch[1]


def _dot(a: list[Any], b: list[Any]) -> Any:
    found = [total(x * y) for x, y in zip(a, b, strict=True)]
    return sum(found[1:], found[0])


def _conjugate_gradients(product: Callable[[list[Any]], list[Any]], b: list[Any], rounds: int, near: Any) -> list[Any]:
    """About A^-1 b after at most so many rounds. One that has converged, or meets no curvature, stays as it is: a
    fixed number of rounds can be compiled and differentiated.
    """
    first = _dot(b, b)

    def cg_step(_: Any, carry: tuple[list[Any], list[Any], list[Any], Any]) -> tuple[Any, ...]:
        x, r, d, rr = carry
        a = product(d)
        curvature = _dot(d, a)
        goes = pointwise.logical_and(pointwise.greater(rr, near * near * first), pointwise.greater(curvature, 0))
        length = pointwise.where(goes, rr / pointwise.where(goes, curvature, 1), 0)
        x = [v + cast_like(length, v) * w for v, w in zip(x, d, strict=True)]
        r = [v - cast_like(length, v) * w for v, w in zip(r, a, strict=True)]
        new = _dot(r, r)
        turn = pointwise.where(goes, new / pointwise.where(goes, rr, 1), 0)
        d = [pointwise.where(goes, v + cast_like(turn, v) * w, w) for v, w in zip(r, d, strict=True)]
        return x, r, d, pointwise.where(goes, new, rr)

    start: list[Any] = [zeros(spec_of(v)) for v in b]
    return list(fori_loop(0, rounds, cg_step, (start, b, b, first))[0])
