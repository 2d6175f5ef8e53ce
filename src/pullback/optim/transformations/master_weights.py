"""Rules for parameters of half types: master weights in float32, and stochastic rounding without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, map_tree, unflatten
from ...errors import ArgumentError, DtypeError
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.elementwise.arithmetic import nextafter
from ...ops.elementwise.rounding import floor
from ...ops.random import fold_in, key, uniform
from ...ops.shape.reshaping import astype
from ..leaves import is_half, split_by_structure, widen, zero_step_count
from ..rule import Rule, State, check_rule, check_state_pair, wrong_state_error

#: The half types: how many binary digits of float32 each lacks, its smallest and its largest positive number.
_HALF_TYPES = {"float16": (13, 2.0**-24, 65504.0), "bfloat16": (16, 2.0**-133, (2 - 2.0**-7) * 2.0**127)}


@picklable
def master_weights(rule: Rule) -> Rule:
    """The rule on a float32 copy of each parameter of a half type, kept in the state: steps too small for the parameter
    add up there, and the parameter is the copy, rounded. Where a parameter was changed by other means (loaded,
    clamped), its copy follows. Other parameters are stepped as they are.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.master_weights(pb.optim.sgd(1.0)), np.ones(1, "float16")
    >>> state = rule.init(w)
    >>> for _ in range(10):  # 1 - 0.0001 is 1 in float16
    ...     updates, state = rule.update(np.full(1, 1e-4, "float16"), state, w)
    ...     w = pb.optim.apply_updates(w, updates)
    >>> w, state[0].slots["master"].round(4)
    (array([0.999], dtype=float16), array([0.999], dtype=float32))
    """

    check_rule(rule, "master_weights")

    def start(params: Any) -> Any:
        # of other parameters there is no copy: an empty tuple is a tree without leaves
        copies = map_tree(lambda p: widen(p) if is_half(p) else (), params)
        return State((), {"master": copies}), rule.start(map_tree(widen, params))

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = check_state_pair(state, "master_weights")
        if "master" not in mine.slots:
            raise wrong_state_error("master_weights", state, "one with master weights")
        leaves, structure = flatten(params)
        copies = split_by_structure(structure, mine.slots["master"], "master_weights: state and parameters")
        wide = [_current_copy(m, p) if is_half(p) else p for m, p in zip(copies, leaves, strict=True)]
        updates, after = rule.advance(map_tree(widen, grads), inner, unflatten(structure, wide), extra)
        found = flatten(updates)[0]
        new = [pointwise.add(m, u) if is_half(p) else () for m, u, p in zip(wide, found, leaves, strict=True)]
        moved = [pointwise.subtract(n, widen(p)) if is_half(p) else u
                 for n, u, p in zip(new, found, leaves, strict=True)]  # fmt: skip
        return unflatten(structure, moved), (State((), {"master": unflatten(structure, new)}), after)

    return Rule("master_weights", start, advance)


def _current_copy(copy: Any, p: Any) -> Any:
    """The float32 copy of a parameter; the parameter itself where it is not the copy, rounded."""
    return pointwise.where(pointwise.equal(astype(copy, spec_of(p).dtype), p), copy, widen(p))


@picklable
def stochastic_rounding(rule: Rule, seed: int = 0) -> Rule:
    """The rule for parameters of half types without copies: computed in float32, and each new parameter rounded up or
    down at random, so that it is right on average and small steps are not lost. The numbers are those of the seed and
    the step, so a run can be repeated and resumed.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.stochastic_rounding(pb.optim.sgd(1.0)), np.ones(4096, "float16")
    >>> updates, state = rule.update(np.full(4096, 1e-4, "float16"), rule.init(w), w)
    >>> float(pb.optim.apply_updates(w, updates).mean(dtype=float).round(5))
    0.9999
    """

    check_rule(rule, "stochastic_rounding")
    first = key(seed)

    def start(params: Any) -> Any:
        leaves = flatten(params)[0]
        return State(zero_step_count(leaves), {}), rule.start(map_tree(widen, params))

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = check_state_pair(state, "stochastic_rounding")
        wide = map_tree(widen, params)
        updates, after = rule.advance(map_tree(widen, grads), inner, wide, extra)
        t = pointwise.add(mine.steps, 1)
        now = fold_in(first, t)
        leaves, structure = flatten(params)

        def round_update(i: int, p: Any, u: Any) -> Any:
            target = stochastic_round(widen(p) + u, spec_of(p).dtype, key=fold_in(now, i))
            return widen(target) - widen(p)

        pairs = enumerate(zip(leaves, flatten(updates)[0], strict=True))
        found = [round_update(i, p, u) if is_half(p) else u for i, (p, u) in pairs]
        return unflatten(structure, found), (State(t, {}), after)

    return Rule("stochastic_rounding", start, advance)


def stochastic_round(x: Any, dtype: Any, *, key: Any) -> Any:
    """x in a half type, each element rounded up or down at random, by a key of `pb.random`: up with the probability
    that makes it x on average. What the type holds exactly stays, as do infinities and NaN; what rounding up would
    make infinite is rounded to nearest. The derivative is that of a cast.

    >>> import numpy as np, pullback as pb
    >>> x = np.full(2**16, 1 + 2.0**-12, "float32")  # a quarter of the way from 1 to the next number of float16
    >>> found = pb.amp.stochastic_round(x, "float16", key=pb.random.key(0))
    >>> np.unique(found), float(np.mean(found > 1).round(2))
    (array([1.   , 1.001], dtype=float16), 0.25)
    """
    x = as_value(x)
    wanted = spec_of(astype(np.zeros((), np.float32), dtype)).dtype
    if wanted.name not in _HALF_TYPES:
        raise ArgumentError(f"stochastic_round: rounds to float16 or bfloat16, got {wanted}.")
    if spec_of(x).dtype != np.float32:
        raise DtypeError(f"stochastic_round: rounds float32, got {spec_of(x)}.\n  Use astype('float32').")
    digits, smallest, largest = _HALF_TYPES[wanted.name]
    known = pointwise.where(pointwise.isfinite(x), x, 0)
    size = pointwise.minimum(pointwise.abs(known), largest)
    # the distance of float32 numbers here, times the digits that the half type lacks: a power of two
    step = pointwise.maximum((nextafter(size, np.float32(np.inf)) - size) * 2.0**digits, smallest)
    quotient = known / step
    low = floor(quotient)
    draw = uniform(size=spec_of(x).shape, key=key, dtype=np.float32, device=spec_of(x).device)
    rounded = (low + astype(pointwise.less(draw, quotient - low), np.float32)) * step
    stays = pointwise.greater(pointwise.abs(rounded), largest)
    # exact, since the difference has few digits; and the derivative is that of x
    moved = pointwise.stop_gradient(pointwise.where(stays, 0, rounded - known))
    return astype(x + moved, wanted)
