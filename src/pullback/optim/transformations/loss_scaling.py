"""Dynamic loss scaling: gradients of a scaled loss in, steps by the true gradients out; skipped where they overflowed.

The scale is a power of two, so scaling and unscaling change no digit; they move gradients into the range of float16.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...arrays.argument_checks import check_count
from ...arrays.backends import is_array, namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, map_tree
from ...errors import ArgumentError
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.fusion import cast_whole
from ..leaves import cast_like, widen, zero_step_count, zero_update
from ..rule import LOSS_SCALE, Rule, State, check_rule, check_state_pair, find_loss_scales
from .conditional import step_if_finite

#: The scale stays between these, so that it and its inverse are normal numbers of float32.
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-32, 2.0**64


class ScaleSettings(NamedTuple):
    """How a scale starts, and how it follows what happens: it grows by a factor after `growth_interval` steps in a row
    with finite gradients, and shrinks by a factor at each step that has none.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def check(self, what: str) -> ScaleSettings:
        """The settings, if they are powers of two on the right sides of one."""
        first = check_scale(self.init_scale, f"{what}: init_scale")
        growth = _check_power(self.growth_factor, f"{what}: growth_factor", 1.0, LARGEST_SCALE)
        backoff = _check_power(self.backoff_factor, f"{what}: backoff_factor", SMALLEST_SCALE, 1.0)
        return ScaleSettings(first, growth, backoff, check_count(self.growth_interval, f"{what}: growth_interval"))

    def advance(self, scale: Any, tracker: Any, finite: Any) -> tuple[Any, Any]:
        """The next scale, and the number of steps in a row with finite gradients since it last changed."""
        row = pointwise.where(finite, tracker + 1, 0)
        grows = pointwise.greater_equal(row, self.growth_interval)
        larger = pointwise.minimum(scale * self.growth_factor, LARGEST_SCALE)
        smaller = pointwise.maximum(scale * self.backoff_factor, SMALLEST_SCALE)
        after = pointwise.where(finite, pointwise.where(grows, larger, scale), smaller)
        return after, pointwise.where(grows, 0, row)


def check_scale(x: Any, what: str) -> float:
    """A scale as a number, if it is a power of two."""
    return _check_power(x, what, SMALLEST_SCALE, LARGEST_SCALE)


def _check_power(x: Any, what: str, low: float, high: float) -> float:
    is_number = isinstance(x, (int, float, np.floating)) or (is_array(x) and not x.ndim and x.dtype.kind in "iuf")
    number = float(x) if is_number and not isinstance(x, bool) else math.nan
    if not low <= number <= high or math.frexp(number)[0] != 0.5:
        raise ArgumentError(
            f"{what} is a power of two from {low:g} to {high:g}, got {x!r}.\n  Other factors would round gradients."
        )
    return number


def initial_scale(settings: ScaleSettings, device: str) -> tuple[Any, Any]:
    """The first scale and its tracker, on a device."""
    xp = namespace_on(device)
    return xp.full((), settings.init_scale, np.float32), xp.zeros((), np.int32)


@cast_whole("promote")
def multiply_scale(loss: Any, scale: Any) -> Any:
    """A loss times the scale; one of a half type in float32, which has the range for it."""
    wide = widen(as_value(loss))
    return pointwise.multiply(wide, cast_like(scale, wide))


@cast_whole("promote")
def divide_scale(gradient: Any, scale: Any) -> Any:
    """A gradient of a scaled loss without the scale; one of a half type in float32, or it would underflow again."""
    wide = widen(as_value(gradient))
    return pointwise.multiply(wide, cast_like(1 / scale, wide))


@picklable
def scaled(
    rule: Rule,
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> Rule:
    """A rule for gradients of a scaled loss, as float16 needs: `pb.optim.scale_loss(loss, state)` scales it. The scale
    is undone before the rule sees the gradients, so clipping and accumulation belong inside:
    `scaled(chain(clip_by_global_norm(1.0), adam(1e-3)))`. Where one gradient is not finite, the step is skipped: the
    updates are zero, the state of the rule stays as it was, counts of steps included, and the scale shrinks by
    `backoff_factor`; after `growth_interval` steps in a row without that it grows by `growth_factor`.

    Nothing branches on a value, so a compiled step is one call, and one graph on a GPU. The first part of the state
    counts, in `steps`, the steps that were skipped.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.scaled(pb.optim.sgd(0.5), init_scale=2.0**17), np.ones(2, "float32")
    >>> loss = lambda w: pb.sum(pb.square(w).astype("float16"))
    >>> state = rule.init(w)
    >>> for _ in range(3):  # float16 ends at 65504: two scales are too large
    ...     grads = pb.grad(lambda w: pb.optim.scale_loss(loss(w), state))(w)
    ...     updates, state = rule.update(grads, state, w)
    >>> updates, float(pb.optim.loss_scale(state)), int(state[0].steps)
    (array([-1., -1.], dtype=float32), 32768.0, 2)
    """
    settings = ScaleSettings(init_scale, growth_factor, backoff_factor, growth_interval).check("scaled")
    check_rule(rule, "scaled")

    def start(params: Any) -> Any:
        leaves = flatten(params)[0]
        scale, tracker = initial_scale(settings, spec_of(leaves[0]).device if leaves else "cpu")
        return State(zero_step_count(leaves), {LOSS_SCALE: scale, "tracker": tracker}), rule.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = _check_scaled_state(state)
        scale = mine.slots[LOSS_SCALE]

        def step(grads: Any) -> Any:
            return rule.advance(map_tree(lambda g: divide_scale(g, scale), grads), inner, params, extra)

        finite, (updates, after) = step_if_finite(grads, step, lambda: (map_tree(zero_update, params), inner))
        skipped = pointwise.where(finite, mine.steps, mine.steps + 1)
        scale, tracker = settings.advance(scale, mine.slots["tracker"], finite)
        return updates, (State(skipped, {LOSS_SCALE: scale, "tracker": tracker}), after)

    @functools.cache
    def wrap(inner: Rule) -> Rule:
        return scaled(inner, *settings)

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        mine, inner = _check_scaled_state(state)
        assert rule.split is not None
        return [(wrap(alone), (mine, own)) for alone, own in rule.split(params, inner)]

    return Rule("scaled", start, advance, None if rule.split is None else split, 1 + rule.joint_folds)


def _check_scaled_state(state: Any) -> tuple[State, Any]:
    mine, inner = check_state_pair(state, "scaled")
    if LOSS_SCALE not in mine.slots:
        raise ArgumentError("scaled: the state belongs to another rule; make one with rule.init(params).")
    return mine, inner


def loss_scale(state: Any) -> Any:
    """The scale in the state of a rule that `pb.optim.scaled` made, or of one around it.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.scaled(pb.optim.adam(1e-3), init_scale=1024.0)
    >>> float(pb.optim.loss_scale(rule.init(np.zeros(2))))
    1024.0
    """
    found = find_loss_scales(state)
    if len(found) != 1:
        raise ArgumentError(
            f"loss_scale: the state holds {len(found)} scales, and one was expected.\n"
            "  Give the state of one pb.optim.scaled(rule)."
        )
    return found[0]


def scale_loss(loss: Any, state: Any) -> Any:
    """The loss (or each loss of a tree) times the scale in a state of `pb.optim.scaled(rule)`: what to differentiate.

    >>> import numpy as np, pullback as pb
    >>> state = pb.optim.scaled(pb.optim.sgd(0.1)).init(np.zeros(2, "float32"))
    >>> float(pb.optim.scale_loss(np.float32(0.5), state))
    32768.0
    """
    scale = loss_scale(state)
    return map_tree(lambda x: multiply_scale(x, scale), loss)


def unscale(grads: Any, state: Any) -> Any:
    """Gradients of a scaled loss without the scale, those of half types in float32: for what is computed of gradients,
    such as a penalty on their norm. `rule.update` wants them scaled.

    >>> import numpy as np, pullback as pb
    >>> state = pb.optim.scaled(pb.optim.sgd(0.1)).init(np.zeros(2, "float32"))
    >>> w = np.full(2, 3.0, "float32")
    >>> pb.optim.unscale(pb.grad(lambda w: pb.optim.scale_loss(pb.sum(w * w), state))(w), state)
    array([6., 6.], dtype=float32)
    """
    scale = loss_scale(state)
    return map_tree(lambda g: divide_scale(g, scale), grads)
