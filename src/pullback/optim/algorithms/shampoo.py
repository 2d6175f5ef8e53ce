"""Shampoo: gradients preconditioned along each axis by their second moments."""

from __future__ import annotations

from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...ops.contract.matrix_products import matmul, tensordot
from ...ops.elementwise.pointwise import sqrt, square
from ...ops.linalg.determinants import matrix_power
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import moveaxis
from ...transforms.control.branches_and_loops import fori_loop
from ..leaves import cast_like, check_setting, is_zero, require_real
from ..rule import Rule, leafwise_rule
from ..transformations.scaling import descend
from .momentum import trace

Slots = dict[str, Any]


@picklable
def shampoo(
    lr: Any, eps: Any = 1e-4, momentum: Any = 0.0, weight_decay: Any = 0.0, iterations: int = 30, largest: int = 1024
) -> Rule:
    """Each axis of the gradient is multiplied by the inverse root of the sum of its second moments, which starts at
    `eps` (Gupta et al., 2018); the root is of order 2k for k axes. Axes longer than `largest` are left alone.

    The roots are found by `iterations` rounds of matrix products in every step, enough for condition numbers of about
    2 to the power `iterations - 8`.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.shampoo(1.0, eps=1e-6), np.zeros((2, 2))
    >>> rule.update(np.diag([3.0, 4.0]), rule.init(w), w)[0].round(3) + 0.0
    array([[-1.,  0.],
           [ 0., -1.]])
    """
    first, rounds = check_setting(eps, "shampoo: eps"), check_count(iterations, "shampoo: iterations")

    def start(p: Any) -> Slots:
        require_real(p, "shampoo")
        spec, xp = spec_of(p), namespace_on(spec_of(p).device)
        sizes = [n if n <= largest else 0 for n in spec.shape]
        return {"moments": [cast_like(first, p) * xp.eye(n, dtype=spec.dtype) for n in sizes]}

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        axes = range(spec_of(p).ndim)
        after, update = [], g
        for axis, moment in zip(axes, slots["moments"], strict=True):
            if spec_of(moment).size:
                others = [i for i in axes if i != axis]
                moment = moment + tensordot(g, g, axes=(others, others))
                half = tensordot(_inverse_root(moment, 2 * len(axes), rounds), update, axes=([1], [axis]))
                update = moveaxis(half, 0, axis)
            after.append(moment)
        return update, {"moments": after}

    moving = None if is_zero(momentum) else trace(momentum)
    return descend("shampoo", lr, leafwise_rule("shampoo", start, step, counted=False), weight_decay, moving)


def _inverse_root(a: Any, p: int, rounds: int) -> Any:
    """a^(-1/p) of a positive definite matrix by Newton's method (Guo and Higham, 2006).

    Keep M = X^p a while X goes to the root, so M to the identity: with T = ((p + 1) I - M) / p, both polynomials in a,
    X T has (X T)^p a = T^p M. An eigenvalue m of M goes to m ((p + 1 - m) / p)^p, which tends to 1 from all of
    (0, p + 1); the first factor puts the largest below (p + 1) / 2.
    """
    spec = spec_of(a)
    one = namespace_on(spec.device).eye(spec.shape[0], dtype=spec.dtype)
    scale = (1 + p) / (2 * sqrt(total(square(a))))
    m, x = scale * a, scale ** (1 / p) * one

    def body(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        x, m = carry
        t = ((p + 1) / p) * one - m / p
        return matmul(x, t), matmul(matrix_power(t, p), m)

    return fori_loop(0, rounds, body, (x, m))[0]
