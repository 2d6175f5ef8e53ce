"""Parameters in, averages of them over the steps out; and lookahead, which steps to such an average."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from ..arrays.remade import Recipe, make_again, remade, remember
from ..arrays.trees import flatten, listed, map_tree
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from .leaves import either, fitted, float_steps, no_steps, number, whole_number, zeros_like
from .rule import Rule, State, wrong_state

__all__ = ["Average", "ema", "lookahead", "swa"]


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
    recipe: Recipe | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> Any:
        if self.recipe is None:
            return Average, (self.init, self.update, self.read)
        return make_again, tuple(self.recipe)


@remember.register
def _remembered(made: Average, recipe: Recipe) -> Average:
    return replace(made, recipe=recipe)


def _start(params: Any) -> State:
    leaves = [as_value(x) for x in flatten(params)[0]]
    return State(no_steps(leaves), {"average": map_tree(lambda p: zeros_like(as_value(p)), params)})


@remade
def ema(decay: Any = 0.999, debias: bool = True) -> Average:
    """An average whose weights fall by `decay` a step; with `debias` they sum to one from the first step on, without
    it the average starts at the parameters it is made with.

    >>> import numpy as np, pullback as pb
    >>> average = pb.optim.ema(0.5)
    >>> state = average.update(np.ones(1), average.init(np.zeros(1)))
    >>> average.read(average.update(np.full(1, 4.0), state))
    array([3.])
    """
    d = number(decay, "ema: decay", 0, 1, open_end=True)

    def start(params: Any) -> State:
        # multiplied, since the average may be given away to a compiled step and the parameters with it
        return (
            _start(params)
            if debias
            else _start(params)._replace(
                slots={"average": map_tree(lambda p: pointwise.multiply(as_value(p), 1), params)}
            )
        )

    def update(params: Any, state: State) -> State:
        def blend(a: Any, p: Any) -> Any:
            return as_value(fitted(d, a) * a + (1 - fitted(d, a)) * p)

        new = map_tree(blend, state.slots["average"], params, what="ema: average and parameters")
        return State(pointwise.add(state.steps, 1), {"average": new})

    def read(state: State) -> Any:
        if not debias:
            return state.slots["average"]
        seen = 1 - d ** float_steps(pointwise.maximum(state.steps, 1))
        return map_tree(lambda a: as_value(a / fitted(seen, a)), state.slots["average"])

    return Average(start, update, read)


@remade
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
    first, every = whole_number(first, "swa: first", 0), whole_number(every, "swa: every")

    def update(params: Any, state: State) -> State:
        past = state.steps - first
        counts = pointwise.logical_and(pointwise.greater_equal(past, 0), pointwise.equal(past % every, 0))
        number = pointwise.maximum(past // every + 1, 1)  # with this one

        def blend(a: Any, p: Any) -> Any:
            return either(counts, a + (p - a) / fitted(number, a), a)

        new = map_tree(blend, state.slots["average"], params, what="swa: average and parameters")
        return State(pointwise.add(state.steps, 1), {"average": new})

    return Average(_start, update, lambda state: state.slots["average"])


@remade
def lookahead(rule: Rule, every: int = 6, pace: Any = 0.5) -> Rule:
    """A rule that goes ahead, and every so many steps returns to `pace` of the way from where it was then (Zhang et
    al., 2019).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.lookahead(pb.optim.sgd(1.0), every=2), np.zeros(1)
    >>> state = rule.init(w)
    >>> for _ in range(2):
    ...     updates, state = rule.update(np.ones(1), state, w)
    ...     w = pb.optim.apply_updates(w, updates)
    >>> w
    array([-1.])
    """
    every, share = whole_number(every, "lookahead: every"), number(pace, "lookahead: pace", 0, 1)

    def start(params: Any) -> Any:
        slow = map_tree(lambda p: pointwise.multiply(p, 1), params)  # an array of its own, to be given away
        return State(no_steps(flatten(params)[0]), {"slow": slow}), rule.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        if not isinstance(state, tuple) or len(state) != 2 or not isinstance(state[0], State):
            raise wrong_state("lookahead", state, "a pair of states")
        mine, inner = state
        updates, inner = rule.advance(grads, inner, params, extra)
        t = pointwise.add(mine.steps, 1)
        now = pointwise.equal(t % every, 0)
        structure = flatten(params)[1]
        listed(structure, mine.slots["slow"], "lookahead: state and parameters")

        def met(slow: Any, p: Any, u: Any) -> Any:
            return either(now, slow + fitted(share, p) * (p + u - slow), slow)

        slow = map_tree(met, mine.slots["slow"], params, updates)
        updates = map_tree(lambda u, s, p: either(now, s - p, u), updates, slow, params)
        return updates, (State(t, {"slow": slow}), inner)

    return Rule("lookahead", start, advance)
