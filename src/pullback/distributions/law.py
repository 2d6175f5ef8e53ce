"""`Law`: what a family states about itself, in functions of a point; and laws that are moved and scaled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import log
from ..ops.placement import move
from .constraints import Constraint, interval

Shape = tuple[int, ...]
Constant = Callable[[], Any]
Curve = Callable[[Any], Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A distribution as functions; None where there is no such thing, or no formula.

    `log_density` is asked at points of the support only, elsewhere at `inside` instead. `draw(shape, key, dtype)` is
    given the shape of the samples and of the batch together, and appends that of an event.
    """

    support: Constraint
    log_density: Curve
    draw: Callable[[Shape, Any, Any], Any] | None = None
    moves: bool = True  # whether a draw moves smoothly with the parameters
    inside: Any = 0.5
    batch_shape: Shape = ()
    event_shape: Shape = ()
    mean: Constant | None = None
    variance: Constant | None = None
    mode: Constant | None = None
    entropy: Constant | None = None
    cdf: Curve | None = None
    icdf: Curve | None = None
    values: Constant | None = None  # all of them, along the first axis


def beside(numbers: Any, parameter: Any) -> Any:
    """An array of constants, on the device of a parameter."""
    return move(numbers, spec_of(parameter).device)


def batch_of(*parameters: Any) -> Shape:
    """The shape that parameters of single numbers have together."""
    return np.broadcast_shapes(*map(shape, parameters))


def locate(law: Law, loc: Any, scale: Any) -> Law:
    """The law of loc + scale x; a loc of None is none."""

    def back(x: Any) -> Any:
        return (x if loc is None else x - loc) / scale

    def onto(z: Any) -> Any:
        return z * scale if loc is None else loc + scale * z

    parameters = (scale,) if loc is None else (loc, scale)
    return replace(
        law,
        support=_move_support(law.support, onto, loc is None),
        log_density=lambda x: law.log_density(back(x)) - log_of_scale(scale),
        draw=None if law.draw is None else (lambda size, key, dtype: onto(_draw(law, size, key, dtype))),
        inside=onto(law.inside),
        batch_shape=np.broadcast_shapes(law.batch_shape, batch_of(*parameters)),
        mean=_after(law.mean, onto),
        variance=_after(law.variance, lambda v: v * scale * scale),
        mode=_after(law.mode, onto),
        entropy=_after(law.entropy, lambda h: h + log_of_scale(scale)),
        cdf=_compose(law.cdf, back),
        icdf=_compose(onto, law.icdf),
    )


def log_of_scale(scale: Any) -> Any:
    """The logarithm; of a Python number it is one too, so that it does not widen a dtype."""
    return math.log(scale) if isinstance(scale, int | float) else log(scale)


def _draw(law: Law, size: Shape, key: Any, dtype: Any) -> Any:
    assert law.draw is not None
    return law.draw(size, key, dtype)


def _after(constant: Constant | None, f: Curve) -> Constant | None:
    return None if constant is None else lambda: f(constant())


def _compose(outer: Curve | None, inner: Curve | None) -> Curve | None:
    return None if outer is None or inner is None else lambda x: outer(inner(x))


def _move_support(support: Constraint, onto: Curve, is_cone: bool) -> Constraint:
    """The support moved; the reals, and with a scale alone all that starts at 0 and has no end, stay."""
    if support.outside is None or (is_cone and support.low == 0.0 and support.high == np.inf):
        return support
    low, high = (end if np.isinf(end) else onto(end) for end in (support.low, support.high))
    return interval(low, high, name=support.name)
