"""Averages of parameters over steps (EMA, SWA), and lookahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from ...arrays.argument_checks import check_count
from ...arrays.picklable import MakerCall, picklable, reduce_made
from ...arrays.trees import flatten, leaves_matching, map_tree
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ..leaves import cast_like, check_setting, select_if, steps_as_float64, widen, zero_step_count, zero_update
from ..rule import Rule, State, check_rule, check_state_pair, split_around


@final
@dataclass(frozen=True, slots=True)
class Average:
    """An average of parameters over steps: `init(params)` is its state, `update(params, state)` the next one, and
    `read(state)` the average so far.

    >>> import numpy as np, pullback as pb
    >>> average = pb.optim.swa()
    >>> state = average.update(np.ones(1), average.init(np.zeros(1)))
    >>> average.read(average.update(np.full(1, 3.0), state))
    array([2.])
    """

    init: Callable[[Any], State]
    update: Callable[[Any, State], State]
    read: Callable[[State], Any]
    maker_call: MakerCall | None = field(default=None, repr=False, compare=False)

    __reduce__ = reduce_made


def _initial_average(params: Any) -> State:
    leaves = [as_value(x) for x in flatten(params)[0]]
    return State(zero_step_count(leaves), {"average": map_tree(lambda p: zero_update(as_value(p)), params)})


@picklable
def ema(decay: Any = 0.999, debias: bool = True) -> Average:
    """An average whose weights fall by `decay` a step; with `debias` they sum to one from the first step on, without
    it the average starts at the parameters it was initialized with.

    >>> import numpy as np, pullback as pb
    >>> average = pb.optim.ema(0.5)
    >>> state = average.update(np.ones(1), average.init(np.zeros(1)))
    >>> average.read(average.update(np.full(1, 4.0), state))
    array([3.])
    """
    d = check_setting(decay, "ema: decay", 0, 1, open_end=True)

    def start(params: Any) -> State:
        empty = _initial_average(params)
        if debias:
            return empty
        # multiplied, since average and parameters may both be donated to a compiled step
        return empty._replace(slots={"average": map_tree(lambda p: pointwise.multiply(widen(as_value(p)), 1), params)})

    def update(params: Any, state: State) -> State:
        def blend(a: Any, p: Any) -> Any:
            return as_value(cast_like(d, a) * a + (1 - cast_like(d, a)) * p)

        new = map_tree(blend, state.slots["average"], params, what="ema: average and parameters")
        return State(pointwise.add(state.steps, 1), {"average": new})

    def read(state: State) -> Any:
        if not debias:
            return state.slots["average"]
        seen = 1 - d ** steps_as_float64(pointwise.maximum(state.steps, 1))
        return map_tree(lambda a: as_value(a / cast_like(seen, a)), state.slots["average"])

    return Average(start, update, read)


@picklable
def swa(first: int = 0, every: int = 1) -> Average:
    """The plain mean of the parameters at step `first` and every so many steps after it (Izmailov et al., 2018); steps
    are counted from 0.

    >>> import numpy as np, pullback as pb
    >>> average = pb.optim.swa(first=1)
    >>> state = average.init(np.zeros(1))
    >>> for w in (10.0, 1.0, 2.0):
    ...     state = average.update(np.full(1, w), state)
    >>> average.read(state)
    array([1.5])
    """
    first, every = check_count(first, "swa: first", 0), check_count(every, "swa: every")

    def update(params: Any, state: State) -> State:
        past = state.steps - first
        counts = pointwise.logical_and(pointwise.greater_equal(past, 0), pointwise.equal(past % every, 0))
        number = pointwise.maximum(past // every + 1, 1)  # with this one

        def blend(a: Any, p: Any) -> Any:
            return select_if(counts, a + (p - a) / cast_like(number, a), a)

        new = map_tree(blend, state.slots["average"], params, what="swa: average and parameters")
        return State(pointwise.add(state.steps, 1), {"average": new})

    return Average(_initial_average, update, lambda state: state.slots["average"])


@picklable
def lookahead(rule: Rule, every: int = 6, step_size: Any = 0.5) -> Rule:
    """A rule that runs ahead, and every so many steps moves the slow weights by `step_size` of the way towards the
    fast ones, and continues from there (Zhang et al., 2019).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.lookahead(pb.optim.sgd(1.0), every=2), np.zeros(1)
    >>> state = rule.init(w)
    >>> for _ in range(2):
    ...     updates, state = rule.update(np.ones(1), state, w)
    ...     w = pb.optim.apply_updates(w, updates)
    >>> w
    array([-1.])
    """
    every, share = check_count(every, "lookahead: every"), check_setting(step_size, "lookahead: step_size", 0, 1)
    check_rule(rule, "lookahead")

    def start(params: Any) -> Any:
        slow = map_tree(lambda p: pointwise.multiply(widen(p), 1), params)  # an owned copy, which may be donated
        return State(zero_step_count(flatten(params)[0]), {"slow": slow}), rule.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = check_state_pair(state, "lookahead")
        updates, inner = rule.advance(grads, inner, params, extra)
        t = pointwise.add(mine.steps, 1)
        now = pointwise.equal(t % every, 0)
        structure = flatten(params)[1]
        leaves_matching(structure, mine.slots["slow"], "lookahead: state and parameters")

        def pull_slow(slow: Any, p: Any, u: Any) -> Any:
            return select_if(now, slow + cast_like(share, slow) * (widen(p) + u - slow), slow)

        slow = map_tree(pull_slow, mine.slots["slow"], params, updates)
        updates = map_tree(lambda u, s, p: select_if(now, s - widen(p), u), updates, slow, params)
        return updates, (State(t, {"slow": slow}), inner)

    split = split_around(rule, lambda inner: lookahead(inner, every, share))
    return Rule("lookahead", start, advance, split, rule.joint_folds)
