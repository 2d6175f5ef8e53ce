"""`Rule`: gradients, state and parameters in, updates and the next state out; and chains of rules.

A rule never writes to anything. Its state is a tree of arrays, so it can be saved, donated to a compiled step,
batched and differentiated like the parameters themselves. Of parameters of half types (float16, bfloat16) state and
updates are in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.picklable import MakerCall, picklable, reduce_made
from ..arrays.spec import spec_of, zeros
from ..arrays.trees import flatten, leaf_paths, leaves_matching, map_tree, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..graph.builder_lines import GraphValue
from ..nn.module import trainable_mask
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.fusion import cast_whole
from ..settings import modes, override_modes
from .leaves import add_update, is_half, keep_autocast, split_by_structure, widen, zero_step_count


class State(NamedTuple):
    """The state of most rules: the number of steps taken (an integer array; empty where a rule does not use it), and
    trees like the parameters by name.
    """

    steps: Any
    slots: dict[str, Any]


#: The name of the slot that holds a loss scale.
LOSS_SCALE = "loss_scale"


def find_loss_scales(state: Any) -> list[Any]:
    """The loss scales in the state of a rule, which rules around others may have put anywhere."""
    if isinstance(state, State):
        return [state.slots[LOSS_SCALE]] if LOSS_SCALE in state.slots else []
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, (tuple, list)) else ()
    return [scale for part in parts for scale in find_loss_scales(part)]


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """An optimization rule: `init(params)` is its first state, `update(grads, state, params)` returns
    (updates, state). The updates are to be added to the parameters: `apply_updates(params, updates)`.

    >>> import numpy as np, pullback as pb
    >>> rule, params = pb.optim.sgd(0.5), {"w": np.array([1.0, 2.0])}
    >>> state = rule.init(params)
    >>> updates, state = rule.update({"w": np.array([1.0, 1.0])}, state, params)
    >>> pb.optim.apply_updates(params, updates)
    {'w': array([0.5, 1.5])}
    """

    name: str
    start: Callable[[Any], Any]
    advance: Callable[[Any, Any, Any, Mapping[str, Any]], tuple[Any, Any]]
    #: For rules to which a parameter is a row of numbers, whatever its shape: `split(params, state)` are the rule and
    #: the state that each parameter would have alone, so that one native routine can serve them all.
    split: Callable[[Any, Any], list[tuple[Rule, Any]]] | None = field(default=None, repr=False, compare=False)
    #: The number of its sums that go over all parameters; others go over one parameter.
    joint_folds: int = field(default=0, repr=False, compare=False)
    maker_call: MakerCall | None = field(default=None, repr=False, compare=False)

    __reduce__ = reduce_made

    def init(self, params: Any) -> Any:
        """The state before the first step."""
        leaves, structure = flatten(params)
        values = [_check_parameter(x, self.name, structure, i) for i, x in enumerate(leaves)]
        return self.start(unflatten(structure, values))

    def update(self, grads: Any, state: Any, params: Any, **extra: Any) -> tuple[Any, Any]:
        """What to add to the parameters, and the next state. Some rules want more by name: `value=` (the loss),
        `value_and_grad=` (a function of parameters), `batch=` (what a model is called with).
        """
        if modes().autocast is not None:
            extra = keep_autocast(extra)
            with override_modes(autocast=None):
                return self.update(grads, state, params, **extra)
        leaves, structure = flatten(params)
        try:
            values = [_check_parameter(x, self.name, structure, i) for i, x in enumerate(leaves)]
            given = _matching_values(structure, grads, values, f"{self.name}: gradients and parameters", "gradient")
        except (ArgumentError, DtypeError):
            if structure != (own := flatten(grads)[1]) and flatten(state)[1] == own:
                raise ArgumentError(
                    f"{self.name}: update got the parameters in place of the state.\n"
                    "  The order is update(gradients, state, params)."
                ) from None
            raise
        updates, after = self.advance(unflatten(structure, given), state, unflatten(structure, values), extra)
        return _zero_buffer_updates(params, updates), after

    def updates(self, pairs: Sequence[tuple[Any, Any]], **extra: Any) -> list[tuple[Any, Any]]:
        """For a graph built by hand: pairs of (variable, its gradient) in, pairs of (variable, new value) out, those
        of the state included, which become variables of the graph.

        >>> import numpy as np, pullback as pb
        >>> g = pb.Graph()
        >>> w = g.variable("w", np.array([3.0, 4.0]))
        >>> loss = pb.sum(w * w)
        >>> (dw,) = g.gradients(loss, [w])
        >>> step = g.compile(loss, updates=pb.optim.sgd(0.25, momentum=0.5).updates([(w, dw)]))
        >>> step(), step(), sorted(g.variables)
        (array(25.), array(6.25), ['sgd[0].slots.momentum.w', 'w'])
        """
        return _graph_updates(self, pairs, extra)


def _graph_updates(rule: Rule, pairs: Sequence[tuple[Any, Any]], extra: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """A step of a rule, recorded in the graph that the variables belong to."""
    pairs = [_check_pair(pair, rule.name) for pair in pairs]
    if not pairs:
        raise ArgumentError(f"{rule.name}: updates of no variables; give pairs of (variable, gradient).")
    builder = pairs[0][0].builder
    names = [builder.variable_name(w, f"{rule.name}: updates") for w, _ in pairs]
    if len(set(names)) < len(names):
        raise ArgumentError(f"{rule.name}: updates: a variable is given twice among {', '.join(names)}.")
    leaves, structure = flatten(rule.init({n: builder.read(n) for n in names}))
    labels = [rule.name + _slot_name(path) for path in leaf_paths(structure)]
    if find_loss_scales(unflatten(structure, leaves)):
        raise ArgumentError(
            f"{rule.name}: updates: a graph takes gradients of the loss before the rule has a scale.\n"
            "  Write the step as a function: pb.jit, pb.grad and pb.optim.scale_loss."
        )
    slots = [builder.variable(_unique_name(builder, n), x) for n, x in zip(labels, leaves, strict=True)]
    params = {w.name: w for w, _ in pairs}
    grads = {w.name: g for w, g in pairs}
    found, after = rule.update(grads, unflatten(structure, slots), params, **extra)
    changed = [(w, add_update(w, found[name])) for name, w in params.items()]
    return changed + list(zip(slots, flatten(after)[0], strict=True))


def _check_pair(pair: Any, name: str) -> tuple[GraphValue, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], GraphValue):
        raise ArgumentError(
            f"{name}: updates takes pairs of (variable of a graph, gradient), got {pair!r}.\n"
            "  For tensors, use pb.optim.Optimizer."
        )
    return pair[0], pair[1]


def _slot_name(path: str) -> str:
    """`[0].slots['m']['w']` as `[0].slots.m.w`."""
    return path.replace("['", ".").replace("']", "")


def _unique_name(builder: Any, name: str) -> str:
    taken, found, more = {*builder.placeholders, *builder.variables}, name, 1
    while found in taken:
        more += 1
        found = f"{name} ({more})"
    return found


def _zero_buffer_updates(params: Any, updates: Any) -> Any:
    """The updates with zeros for the buffers of modules: running statistics are not learned, and must not decay."""
    flags = trainable_mask(params)
    if all(flags):
        return updates
    leaves, structure = flatten(updates)
    return unflatten(structure, [u if f else zeros(spec_of(u)) for u, f in zip(leaves, flags, strict=True)])


def _check_parameter(x: Any, what: str, structure: Any, number: int) -> Any:
    value = as_value(x)
    spec = spec_of(value)
    if not spec.inexact:
        raise DtypeError(
            f"{what}: params{leaf_paths(structure)[number]} is {spec}, and only floating-point and complex arrays are "
            "learned.\n  Convert it, or leave it out of the parameters."
        )
    return value


def _matching_values(structure: Any, tree: Any, values: list[Any], what: str, noun: str) -> list[Any]:
    """The leaves of a tree of gradients or updates, each with the shape and dtype of its parameter; those of half types
    may be in float32.
    """
    given = [as_value(x) for x in leaves_matching(structure, tree, what)]
    for i, (found, wanted) in enumerate(zip(map(spec_of, given), map(spec_of, values), strict=True)):
        if found == wanted:
            continue
        where = f"{what.partition(':')[0]}: the {noun} of params{leaf_paths(structure)[i]}"
        if found.shape != wanted.shape:
            raise ShapeError(f"{where} has shape {found.shape}, the parameter {wanted.shape}.")
        if is_half(values[i]) and found.dtype == np.float32:
            continue
        if found.dtype != wanted.dtype and not (found.weak or wanted.weak):
            name = wanted.dtype.name
            raise DtypeError(f"{where} is {found.dtype}, the parameter {wanted.dtype}.\n  Use astype({name!r}).")
    return given


@cast_whole("promote")
def apply_updates(params: Any, updates: Any) -> Any:
    """The parameters after a step: `params + updates`, leaf by leaf, each in its own dtype. Of half types the sum is
    computed in float32, as the updates are, and rounded once.

    >>> import numpy as np, pullback as pb
    >>> pb.optim.apply_updates([np.ones(2)], [np.array([0.5, -0.5])])
    [array([1.5, 0.5])]
    """
    leaves, structure = flatten(params)
    values = [as_value(p) for p in leaves]
    given = _matching_values(structure, updates, values, "apply_updates: parameters and updates", "update")
    return unflatten(structure, [add_update(p, u) for p, u in zip(values, given, strict=True)])


@picklable
def chain(*rules: Rule) -> Rule:
    """One rule after the other: each gets the updates of the one before as its gradients. The state is a tuple of
    theirs.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.sgd(0.5))
    >>> w = np.zeros(2)
    >>> rule.update(np.array([3.0, 4.0]), rule.init(w), w)[0]
    array([-0.3, -0.4])
    """
    return named_chain("chain", *(check_rule(rule, "chain") for rule in rules))


def check_rule(rule: Any, what: str) -> Rule:
    """A rule that another one is made of."""
    if not isinstance(rule, Rule):
        raise ArgumentError(f"{what}: wants a rule, such as pb.optim.adam(1e-3), got a {type(rule).__name__}.")
    return rule


def named_chain(name: str, *rules: Rule) -> Rule:
    """A chain with a name."""

    def start(params: Any) -> Any:
        states = tuple(rule.start(params) for rule in rules)
        if find_loss_scales(states[1:]):
            raise ArgumentError(
                f"{name}: scaled comes after other rules, which would see scaled gradients.\n"
                "  Put them inside: pb.optim.scaled(pb.optim.chain(...))."
            )
        return states

    def check(state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != len(rules):
            raise wrong_state_error(name, state, f"a tuple of {len(rules)} states")
        return state

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        after = []
        for rule, before in zip(rules, check(state), strict=True):
            grads, new = rule.advance(grads, before, params, extra)
            after.append(new)
        return grads, tuple(after)

    @functools.cache
    def chain_alone(rules: tuple[Rule, ...]) -> Rule:
        return named_chain(name, *rules)

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        parts = [rule.split(params, s) for rule, s in zip(rules, check(state), strict=True) if rule.split is not None]
        alone = [tuple(zip(*column, strict=True)) for column in zip(*parts, strict=True)]
        return [(chain_alone(own), states) for own, states in alone]

    is_flat = bool(rules) and all(rule.split is not None for rule in rules)
    return Rule(name, start, advance, split if is_flat else None, sum(rule.joint_folds for rule in rules))


def split_around(rule: Rule, wrap: Callable[[Rule], Rule]) -> Callable[[Any, Any], list[tuple[Rule, Any]]] | None:
    """The `split` of a rule around another, whose state is a pair: its own, and that of the inner rule."""
    if rule.split is None:
        return None
    inner, wrap_once = rule.split, functools.cache(wrap)

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        mine, of_rule = check_state_pair(state, rule.name)
        own = split_state(params, mine, rule.name)
        return [(wrap_once(r), (s, t)) for s, (r, t) in zip(own, inner(params, of_rule), strict=True)]

    return split


def split_state(params: Any, state: Any, name: str) -> list[State]:
    """The state of each parameter alone: the count is that of all."""
    state = check_state(state, name)
    leaves, structure = flatten(params)
    what = f"{name}: state and parameters"
    columns = {n: split_by_structure(structure, tree, what) for n, tree in state.slots.items()}
    return [State(state.steps, {n: column[i] for n, column in columns.items()}) for i in range(len(leaves))]


def wrong_state_error(name: str, state: Any, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: the state is a {type(state).__name__} where {wanted} was expected.\n"
        "  It belongs to another rule; make one with rule.init(params)."
    )


def check_state(state: Any, name: str) -> State:
    if not isinstance(state, State):
        raise wrong_state_error(name, state, "a State")
    return state


def check_state_pair(state: Any, name: str) -> tuple[State, Any]:
    """The own state of a rule around another, and the state of that one."""
    if not isinstance(state, tuple) or len(state) != 2 or not isinstance(state[0], State):
        raise wrong_state_error(name, state, "a pair of states")
    return state[0], state[1]


@picklable
def stateless_rule(name: str, update_leaf: Callable[[Any, Any], Any], flat: bool = False) -> Rule:
    """A rule without a state: `update_leaf(gradient, parameter)` for each leaf. `flat` as in `leafwise_rule`.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.stateless_rule("cubed", lambda g, p: -0.1 * g**3, flat=True)
    >>> rule.update(np.array([1.0, 2.0]), rule.init(np.zeros(2)), np.zeros(2))[0]
    array([-0.1, -0.8])
    """

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        leaves, structure = flatten(params)
        pairs = zip(flatten(grads)[0], leaves, strict=True)
        return unflatten(structure, [as_value(update_leaf(widen(g), widen(p))) for g, p in pairs]), state

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        return [(rule, state)] * len(flatten(params)[0])

    rule = Rule(name, lambda params: (), advance, split if flat else None)
    return rule


@picklable
def leafwise_rule(
    name: str,
    start: Callable[[Any], dict[str, Any]],
    step: Callable[[Any, dict[str, Any], Any, Any], tuple[Any, dict[str, Any]]],
    counted: bool = True,
    flat: bool = False,
) -> Rule:
    """A rule that treats each parameter alone: `start(p)` are its slots, `step(g, slots, p, t)` returns (update, slots)
    in the t-th step, counted from 1. Parameters and gradients of half types come in float32. A rule that does not use t
    need not count. One that is `flat` does the same with a parameter's elements in one row: slots are numbers or like
    p, and what it sums up, it sums over all of p. An `Optimizer` steps by it natively.

    >>> import numpy as np, pullback as pb
    >>> def step(g, slots, p, t):
    ...     largest = pb.maximum(slots["largest"], abs(g))
    ...     return -g / (largest * t), {"largest": largest}
    >>> rule = pb.optim.leafwise_rule("by largest", lambda p: {"largest": pb.zeros_like(p)}, step, flat=True)
    >>> w = pb.tensor([3.0, 4.0], requires_grad=True)
    >>> optimizer = pb.optim.Optimizer(rule, [w])
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(w, [2.0, 0.5])])
    >>> w
    tensor([1.5, 2.5], dtype=float64, requires_grad=True)
    """

    def begin(params: Any) -> State:
        leaves, structure = flatten(params)
        slots = [start(widen(p)) for p in leaves]
        names = slots[0] if slots else ()
        steps = zero_step_count(leaves) if counted else ()
        return State(steps, {n: unflatten(structure, [s[n] for s in slots]) for n in names})

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, name)
        leaves, structure = flatten(params)
        t = pointwise.add(state.steps, 1) if counted else ()
        what = f"{name}: state and parameters"
        columns = {n: split_by_structure(structure, tree, what) for n, tree in state.slots.items()}
        updates, slots = [], []
        for i, (g, p) in enumerate(zip(flatten(grads)[0], leaves, strict=True)):
            update, after = step(widen(g), {n: column[i] for n, column in columns.items()}, widen(p), t)
            updates.append(as_value(update))
            slots.append(after)
        new = {n: unflatten(structure, [map_tree(as_value, s[n]) for s in slots]) for n in columns}
        return unflatten(structure, updates), State(t, new)

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        return [(rule, own) for own in split_state(params, state, name)]

    rule = Rule(name, begin, advance, split if flat else None)
    return rule
