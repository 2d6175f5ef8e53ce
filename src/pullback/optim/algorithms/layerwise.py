"""LARS and LAMB: layerwise trust ratios."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...ops.elementwise import pointwise
from ..leaves import cast_like, check_setting, check_settings, l2_norm
from ..rule import Rule, named_chain, stateless_rule
from ..transformations.scaling import descend_decoupled, scale_by_learning_rate
from .adam import scale_by_adam
from .momentum import trace


@picklable
def scale_by_trust_ratio(eps: Any = 0.0) -> Rule:
    """Multiply each update by |parameter| / |update|, by 1 where either is zero.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.scale_by_trust_ratio(), np.array([0.0, 2.0])
    >>> rule.update(np.array([3.0, 4.0]), rule.init(w), w)[0]
    array([1.2, 1.6])
    """
    eps = check_setting(eps, "scale_by_trust_ratio: eps")

    def scale_leaf(g: Any, p: Any) -> Any:
        return _trust_ratio(l2_norm(p), l2_norm(g), cast_like(eps, p)) * g

    return stateless_rule("trust ratio", scale_leaf, flat=True)


def _trust_ratio(size: Any, length: Any, more: Any, share: Any = 1.0) -> Any:
    """share size / (length + more), 1 where size or length is zero."""
    known = pointwise.logical_and(pointwise.greater(size, 0), pointwise.greater(length, 0))
    return pointwise.where(known, share * size / pointwise.where(known, length + more, 1), 1)


@picklable
def lamb(
    lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-6, weight_decay: Any = 0.01, mask: Any = None
) -> Rule:
    """AdamW whose steps are as long, layer by layer, as the layer's weights times the rate (You et al., 2020).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.lamb(0.1, weight_decay=0.0), np.array([3.0, 4.0])
    >>> bool(np.isclose(np.linalg.norm(rule.update(np.ones(2), rule.init(w), w)[0]), 0.5))
    True
    """
    return descend_decoupled("lamb", lr, scale_by_adam(betas, eps), weight_decay, mask, scale_by_trust_ratio())


@picklable
def lars(
    lr: Any, momentum: Any = 0.9, weight_decay: Any = 0.0, trust: Any = 1e-3, eps: Any = 0.0, nesterov: bool = False
) -> Rule:
    """Momentum with rates by layer, `trust` times |weights| / (|gradient| + weight_decay |weights|) (You et al., 2017).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.lars(1.0, trust=0.1), np.array([3.0, 4.0])
    >>> rule.update(np.array([3.0, 4.0]), rule.init(w), w)[0]
    array([-0.3, -0.4])
    """
    decay, share, eps = check_settings("lars", weight_decay=weight_decay, trust=trust, eps=eps)

    def direction(g: Any, p: Any) -> Any:
        size, d = l2_norm(p), cast_like(decay, p)
        ratio = _trust_ratio(size, l2_norm(g), d * size + cast_like(eps, p), cast_like(share, p))
        return ratio * (g + d * p)

    moving = trace(momentum, nesterov)
    return named_chain("lars", stateless_rule("lars", direction, flat=True), scale_by_learning_rate(lr), moving)
