"""Muon: momentum orthogonalized by Newton-Schulz iterations."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...errors import ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import matrix_transpose
from ..leaves import cast_like, check_setting, require_real, safe_sqrt, zeros_like
from ..rule import Rule, leafwise_rule
from ..transformations.scaling import descend_decoupled

Slots = dict[str, Any]
#: x -> a x + b x^3 + c x^5 five times brings every singular value in (0.01, 1] to within about 0.3 of 1, as fast as
#: possible.
_QUINTIC = (3.4445, -4.7750, 2.0315)


def newton_schulz(
    g: Any, steps: int = 5, coefficients: tuple[float, float, float] = _QUINTIC, eps: float = 1e-7
) -> Any:
    """An orthogonal matrix near g: its singular vectors stay, its singular values come near 1. Stacks of matrices too.

    >>> import numpy as np, pullback as pb
    >>> q = pb.optim.newton_schulz(np.diag([3.0, 4.0]), steps=12, coefficients=(1.5, -0.5, 0.0))
    >>> q.round(6)
    array([[1., 0.],
           [0., 1.]])
    """
    rows, columns = spec_of(g).shape[-2:]
    x = matrix_transpose(g) if rows > columns else g
    # the Frobenius norm bounds the largest singular value
    x = x / (safe_sqrt(total(pointwise.square(x), axis=(-2, -1), keepdims=True)) + eps)
    a, b, c = coefficients
    for _ in range(steps):
        s = matmul(x, matrix_transpose(x))
        x = a * x + matmul(b * s + c * matmul(s, s), x)  # odd in x, so it acts on singular values alone
    return matrix_transpose(x) if rows > columns else x


@picklable
def muon(
    lr: Any, momentum: Any = 0.95, nesterov: bool = True, steps: int = 5, weight_decay: Any = 0.0, mask: Any = None
) -> Rule:
    """Orthogonalized momentum (Jordan, 2024), times sqrt(max(1, rows / columns)). Parameters of other than two axes
    are refused; give them to another rule by `multi_transform`.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.muon(0.1), np.zeros((2, 2))
    >>> step = rule.update(np.diag([3.0, 4.0]), rule.init(w), w)[0]
    >>> bool(np.all(abs(np.linalg.svd(step)[1] - 0.1) < 0.04))
    True
    """
    mu, count = check_setting(momentum, "muon: momentum", 0, 1), check_count(steps, "muon: steps")

    def start(p: Any) -> Slots:
        require_real(p, "muon")
        if spec_of(p).ndim != 2:
            raise ShapeError(
                f"muon: parameters are matrices, got {spec_of(p)}.\n"
                "  Use pb.optim.multi_transform to give the others another rule."
            )
        return {"momentum": zeros_like(p)}

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        m_ = cast_like(mu, p)
        m = m_ * slots["momentum"] + (1 - m_) * g
        rows, columns = spec_of(p).shape
        blend = m_ * m + (1 - m_) * g if nesterov else m
        return math.sqrt(max(1, rows / columns)) * newton_schulz(blend, count), {"momentum": m}

    return descend_decoupled("muon", lr, leafwise_rule("muon", start, step, counted=False), weight_decay, mask)
