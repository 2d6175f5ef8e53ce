"""Function and direction in, curvature along it out: products with second derivatives that never form a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from .forward import jvp
from .reverse import grad, vjp

__all__ = ["ggnvp", "hvp"]


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function with a vector: forward over reverse, about four times f.

    `primals` and `tangents` are tuples as in `jvp`; the answer is one tree for one argument, else a tuple of trees.

    >>> import numpy as np, pullback as pb
    >>> pb.hvp(lambda x: pb.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    every = tuple(range(len(_as_arguments(primals, tangents, "hvp"))))
    product = jvp(grad(f, every), primals, tangents)[1]
    return product[0] if len(every) == 1 else product


def ggnvp(
    model: Callable[..., Any], loss: Callable[[Any], Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> Any:
    """The product of the generalised Gauss-Newton matrix J^T H J with a vector, for loss(model(*primals)): J is the
    Jacobian of the model and H the Hessian of the loss in the model's result. It is positive semi-definite where the
    loss is convex, which the Hessian need not be.

    >>> import numpy as np, pullback as pb
    >>> model, loss = lambda w: w**2, lambda y: pb.sum(y**2)
    >>> pb.ggnvp(model, loss, (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
    array([ 8., 32.])
    """
    count = len(_as_arguments(primals, tangents, "ggnvp"))
    out, along = jvp(model, primals, tangents)  # J v
    curved = hvp(loss, (out,), (along,))  # H J v
    _, pull = vjp(model, *primals)
    product = pull(curved)  # J^T H J v
    return product[0] if count == 1 else product


def _as_arguments(primals: Any, tangents: Any, what: str) -> Sequence[Any]:
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{what}: primals and tangents are tuples, with one entry for each argument.")
    if len(primals) != len(tangents):
        raise ArgumentError(f"{what}: got {len(primals)} primals and {len(tangents)} tangents.")
    return primals
