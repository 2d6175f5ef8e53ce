"""SGD, momentum, Lion and Rprop."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...arrays.spec import ones, spec_of
from ...errors import ArgumentError
from ...ops.elementwise import pointwise
from ...ops.functions import clip
from ..leaves import cast_like, check_setting, is_zero, require_real, zeros_like
from ..rule import Rule, leafwise_rule
from ..transformations.scaling import descend, descend_decoupled


@picklable
def trace(decay: Any = 0.9, nesterov: bool = False) -> Rule:
    """Momentum: a decaying sum of the gradients so far. With `nesterov`, what the sum will be if this gradient comes
    once more.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.trace(0.5), np.zeros(1)
    >>> _, state = rule.update(np.ones(1), rule.init(w), w)
    >>> rule.update(np.ones(1), state, w)[0]
    array([1.5])
    """
    mu = check_setting(decay, "trace: decay", 0, 1)

    def step(g: Any, slots: dict[str, Any], p: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        m = cast_like(mu, p) * slots["momentum"] + g
        return g + cast_like(mu, p) * m if nesterov else m, {"momentum": m}

    return leafwise_rule("trace", lambda p: {"momentum": zeros_like(p)}, step, counted=False, flat=True)


@picklable
def sgd(lr: Any, momentum: Any = 0.0, nesterov: bool = False, weight_decay: Any = 0.0) -> Rule:
    """Steps of `lr` against the gradient, or against a decaying sum of gradients; weight decay is part of the
    gradient.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.sgd(0.1, momentum=0.9), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0]
    array([-0.1])
    """
    if is_zero(momentum) and nesterov:
        raise ArgumentError("sgd: nesterov wants a momentum above 0.")
    moving = None if is_zero(momentum) else trace(check_setting(momentum, "sgd: momentum", 0, 1), nesterov)
    return descend("sgd", lr, moving, weight_decay)


@picklable
def lion(lr: Any, betas: tuple[Any, Any] = (0.9, 0.99), weight_decay: Any = 0.0, mask: Any = None) -> Rule:
    """Steps of one length along the signs of a blend of momentum and gradient (Chen et al., 2023), with decoupled
    weight decay.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.lion(0.1), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0]
    array([-0.1,  0.1])
    """
    a, b = (check_setting(x, f"lion: beta{i}", 0, 1) for i, x in enumerate(betas, 1))

    def start(p: Any) -> dict[str, Any]:
        require_real(p, "lion")
        return {"momentum": zeros_like(p)}

    def step(g: Any, slots: dict[str, Any], p: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        m = slots["momentum"]
        blend = cast_like(a, p) * m + cast_like(1 - a, p) * g
        return pointwise.sign(blend), {"momentum": cast_like(b, p) * m + cast_like(1 - b, p) * g}

    return descend_decoupled(
        "lion", lr, leafwise_rule("lion", start, step, counted=False, flat=True), weight_decay, mask
    )


@picklable
def rprop(
    lr: Any = 0.01, factors: tuple[float, float] = (0.5, 1.2), limits: tuple[float, float] = (1e-6, 50.0)
) -> Rule:
    """Each element has a step length of its own, which grows while the sign of its gradient stays and shrinks when it
    turns; then the element rests for a step (Riedmiller and Braun, 1993, without stepping back). For whole batches.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.rprop(0.1), np.zeros(2)
    >>> _, state = rule.update(np.array([3.0, -0.2]), rule.init(w), w)
    >>> rule.update(np.array([3.0, 0.2]), state, w)[0]
    array([-0.12,  0.  ])
    """
    first = check_setting(lr, "rprop: lr")
    shrink, grow = factors
    if not 0 < shrink < 1 < grow:
        raise ArgumentError(f"rprop: factors are (below 1, above 1), got {factors}.")

    def start(p: Any) -> dict[str, Any]:
        require_real(p, "rprop")
        return {"before": zeros_like(p), "length": cast_like(first, p) * ones(spec_of(p))}

    def step(g: Any, slots: dict[str, Any], p: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        same = g * slots["before"]
        turned = pointwise.less(same, 0)
        factor = pointwise.where(turned, shrink, pointwise.where(pointwise.greater(same, 0), grow, 1.0))
        length = clip(slots["length"] * cast_like(factor, p), *limits)
        update = pointwise.where(turned, 0, -(length * pointwise.sign(g)))
        return update, {"before": pointwise.where(turned, 0, g), "length": length}

    return leafwise_rule("rprop", start, step, counted=False, flat=True)
