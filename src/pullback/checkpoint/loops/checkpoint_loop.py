"""`checkpoint_loop`: a loop whose backward pass holds a few snapshots and repeats steps.

The loop is one op, L, and its pullback another, P. Both are closed under differentiation. With the tangent step
(x, x') -> (step(x), step'(x) x'), whose loop L' carries the tangents along and whose pullback is P',

    push of L along (x', p')         = the tangents that L' carries;
    pull of L along b                = P(x, p, b);
    push of P along (x', p', b')     = the cotangents of x and p in P'(x, x', p, p', b', b);
    pull of P along (c, d)           = the tangents of L'(x, c, p, d) for b, and, since <c, J^T b> = <J c, b>, the
                                       cotangents of x and p in P'(x, c, p, d, 0, b).

So derivatives of every order and mode are loops with snapshots again, in bounded memory. `sweeps` runs them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...arrays.argument_checks import check_functions
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply, as_value
from ...ops.fusion import run_op_by_op
from ...ops.op import Formula, Op
from ...ops.replay.reach import Reach, is_generator
from ...ops.user_calls import call_function
from ...settings import modes
from ...transforms.boundary import owned_copy
from ...transforms.control.batch_masks import PYTHON_NUMBERS, as_rebindable, to_bool
from ...transforms.control.captures import Captures, UnchangedArrays
from ...transforms.control.carry import LoopCarry
from ...transforms.custom.rules import is_tracked, make_custom_record
from .chain import Chain
from .revolve import max_reversible_steps
from .snapshots import NO_TICKET, Tiers
from .stream_replay import StreamReplay
from .sweeps import repeating, sweep_backward, sweep_forward
from .trail import TrailCache

#: Default number of snapshots of a loop of unknown length.
_DEFAULT_SNAPSHOTS = 32


@attributed_to_caller
def checkpoint_loop(
    step: Callable[..., Any],
    x0: Any,
    n: Any = None,
    *params: Any,
    until: Callable[..., Any] | None = None,
    snapshots: int | None = None,
    ram: int | None = None,
    disk: int | None = None,
    directory: Any = None,
) -> Any:
    """`x = step(i, x, *params)` for i from 0 to n - 1, starting with x0: like a `fori_loop` that keeps only `snapshots`
    states for the backward pass, x0 among them, and repeats as few steps from there as possible.

    States and params are trees. With `until`, the loop ends before the first step for which `until(i, x, *params)`
    holds; n is at most so many steps then, None for any number. `ram` and `disk` instead of `snapshots` set how many
    are in memory and how many more in memory-mapped files in `directory`. Random numbers that a step draws without a
    key, from NumPy's or Python's global stream, or from generators within its reach, are drawn again alike.

    >>> import pullback as pb
    >>> pb.grad(lambda a: pb.checkpoint_loop(lambda i, x: x * a, 1.0, 100, snapshots=5))(1.0)
    array(100.)
    """
    check_functions("checkpoint_loop", step, *(() if until is None else (until,)))
    limit = _parse_step_limit(n, until)
    tiers = _parse_tiers(limit, snapshots, ram, disk, directory)
    # what the step closes over is an argument of the op, or its gradient would be lost
    captures = Captures((step, until))
    carry = LoopCarry("checkpoint_loop", x0, [*flatten(params)[0], *captures.values])
    if not carry.leaves:
        raise ArgumentError("checkpoint_loop: x0 holds no arrays.")
    given = _LoopFunctions(carry, params, captures)
    leaves = [*carry.leaves, *given.arrays]
    chain = given.make_chain(limit, until is not None, tiers, leaves)
    # no transform looks on, and no tape: nothing need be saved
    if not modes().grad and all(type(x) is Tensor and x.level == 1 for x in leaves if isinstance(x, Value)):
        return unflatten(carry.structure, [owned_copy(x) for x in _run_plain_loop(chain, leaves)])
    # the last result is the ticket, by which the pullback finds the snapshots
    outs = apply(_loop_op, *leaves, chain=chain)
    return unflatten(carry.structure, [owned_copy(x) for x in outs[:-1]])


def _parse_step_limit(n: Any, until: Any) -> int | None:
    """The number of steps, or at most so many, as a Python int."""
    if n is None and until is None:
        raise ArgumentError("checkpoint_loop: pass the number of steps, n, or when to stop, until=function.")
    if n is None:
        return None
    try:
        count = operator.index(n)
    except TypeError:
        raise ArgumentError(
            f"checkpoint_loop: n is a {type(n).__name__}, wanted an integer.\n"
            "  Parameters of the step come after it; with until= alone, n is None."
        ) from None
    if count < 0 or isinstance(n, bool):
        raise ArgumentError(f"checkpoint_loop: the number of steps is {n}, wanted an integer that is not negative.")
    return count


def _parse_tiers(n: int | None, snapshots: Any, ram: Any, disk: Any, directory: Any) -> Tiers:
    counts = {"snapshots": snapshots, "ram": ram, "disk": disk}
    for name, count in counts.items():
        least = 0 if name == "disk" else 1
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < least):
            raise ArgumentError(f"checkpoint_loop: {name} is {count!r}, wanted an integer of {least} or more.")
    if snapshots is not None and (ram is not None or disk is not None):
        raise ArgumentError("checkpoint_loop: pass snapshots, or ram and disk, not both.")
    if snapshots is None and ram is None:
        snapshots = _DEFAULT_SNAPSHOTS if n is None else _count_default_snapshots(n)
    return Tiers(ram if snapshots is None else snapshots, disk or 0, directory)


def _count_default_snapshots(n: int) -> int:
    """The number of snapshots with which no step is repeated more than once before its tape: about sqrt(2 n)."""
    # b(s, 2) steps are repeated at most once before the run with a tape
    count = 1
    while max_reversible_steps(count, 2) < n:
        count += 1
    return count


class _LoopFunctions:
    """The arguments of the functions of a loop: arrays of `params`, then the values they close over; anything else
    in `params` (Python numbers, random generators) is passed unchanged.
    """

    def __init__(self, carry: LoopCarry, params: Any, captures: Captures) -> None:
        self._carry, self._captures = carry, captures
        self._leaves, self._structure = flatten(params)
        self._leaves = [x if _is_passed_through(x) else as_value(x) for x in self._leaves]
        self._places = [i for i, x in enumerate(self._leaves) if not _is_passed_through(x)]
        self.arrays = [*(self._leaves[i] for i in self._places), *captures.values]

    def _call(self, which: int, i: int, leaves: Sequence[Any]) -> Any:
        states, count = len(self._carry.leaves), len(self._places)
        params = list(self._leaves)
        for place, value in zip(self._places, leaves[states:], strict=False):
            params[place] = as_rebindable(value)
        function = self._captures.rebind(leaves[states + count :])[which]
        with run_op_by_op():
            given = (i, self._carry.as_rebindable_tree(leaves[:states]), *unflatten(self._structure, params))
            return call_function(function, given, {})

    def step(self, i: int, *leaves: Any) -> tuple[Any, ...]:
        return tuple(self._carry.check_step_result(self._call(0, i, leaves)))

    def until(self, i: int, *leaves: Any) -> Any:
        return to_bool(self._call(1, i, leaves), "checkpoint_loop: the result of until")

    def make_chain(self, n: int | None, ends: bool, tiers: Tiers, leaves: list[Any]) -> Chain:
        """The loop as `sweeps` run it."""
        states = len(self._carry.leaves)
        # a state may come to depend on tracked parameters, so all of them count
        active = [i for i, x in enumerate(leaves) if spec_of(x).inexact and (i < states or is_tracked(x))]
        reach = Reach(self._captures.functions, self._leaves)
        tracked = any(map(is_tracked, leaves))
        watched = UnchangedArrays(self._captures.arrays if tracked else ())
        return Chain(
            step=self.step, until=self.until if ends else None, n=n, states=states, width=len(leaves),
            active=tuple(active), tiers=tiers, streams=StreamReplay(reach.generators), modes=modes(), tracked=tracked,
            watched=watched, trails=TrailCache(states), objects=reach.objects,
        )  # fmt: skip


def _is_passed_through(x: Any) -> bool:
    return type(x) in PYTHON_NUMBERS or is_generator(x)


def _run_plain_loop(chain: Chain, leaves: list[Any]) -> list[Any]:
    """The plain loop, where no backward pass can follow."""
    i, state, params = 0, leaves[: chain.states], leaves[chain.states :]
    while chain.has_step(i, state, params):
        state = list(chain.step(i, *state, *params))
        i += 1
    return state


def _fill_zero_cotangents(bars: Any, chain: Chain) -> list[Any]:
    """Cotangents of the active states, zeros where there are none."""
    return [zeros(bars[k]) if isinstance(bars[k], Spec) else bars[k] for k in chain.active_states]


def _detach(ticket: Any) -> Any:
    return ticket.detach() if isinstance(ticket, Tensor) else ticket


def _place_among_leaves(chain: Chain, found: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Cotangents of the active leaves, in their places among all leaves."""
    at = dict(zip(chain.active, found, strict=True))
    return tuple(at.get(k) for k in range(count))


def _pull_loop(bar: Any, out: Any, leaves: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    found = apply(_loop_pullback_op, _detach(out[-1]), *leaves, *_fill_zero_cotangents(bar, chain), chain=chain)
    return _place_among_leaves(chain, found, len(leaves))


def _push_loop(tangents: tuple[Any, ...], leaves: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    carried = apply(_loop_op, *chain.with_tangents(leaves, tangents), chain=chain.tangent_chain())[chain.states : -1]
    at = dict(zip(chain.active_states, carried, strict=True))
    return (*(at.get(k) for k in range(chain.states)), None)


def _batch_loop(size: int, axes: tuple[int | None, ...], *leaves: Any, chain: Chain) -> Any:
    count = chain.states
    states = [move_batch_first(x, axis, size) for x, axis in zip(leaves[:count], axes[:count], strict=True)]
    batched = chain.batch((*(0,) * count, *axes[count:]), size)
    return apply(_loop_op, *states, *leaves[count:], chain=batched), (0,) * (count + 1)


def _split_pullback_arguments(xs: tuple[Any, ...], chain: Chain) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments of P after the ticket: leaves and cotangents."""
    count = len(xs) - 1 - len(chain.active_states)
    return xs[1 : count + 1], xs[count + 1 :]


def _pull_loop_pullback(bar: Any, xs: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    leaves, bars = _split_pullback_arguments(xs, chain)
    along = [zeros(b) if isinstance(b, Spec) else b for b in bar]
    with_tangents, primed = (
        chain.with_tangents(leaves, _place_among_leaves(chain, along, len(leaves))),
        chain.tangent_chain(),
    )
    *outs, ticket = apply(_loop_op, *with_tangents, chain=primed)
    start = [zeros(spec_of(b)) for b in bars]
    found = apply(_loop_pullback_op, _detach(ticket), *with_tangents, *start, *bars, chain=primed)
    return (None, *_place_among_leaves(chain, chain.select_primals(found), len(leaves)), *outs[chain.states :])


def _push_loop_pullback(tangents: tuple[Any, ...], xs: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    leaves, bars = _split_pullback_arguments(xs, chain)
    moves, bar_moves = _split_pullback_arguments(tangents, chain)
    with_tangents = chain.with_tangents(leaves, moves)
    found = apply(_loop_pullback_op, NO_TICKET, *with_tangents, *bar_moves, *bars, chain=chain.tangent_chain())
    return tuple(chain.select_primals(found))


def _batch_loop_pullback(size: int, axes: tuple[int | None, ...], *xs: Any, chain: Chain) -> Any:
    """Each element has its own cotangents, so active leaves are batched. The snapshots of a run outside of the batch
    do not fit.
    """
    # a ticket without a batch axis is of a run outside of the batch
    ticket = NO_TICKET if axes[0] is None else move_batch_first(xs[0], axes[0])
    leaves, bars = _split_pullback_arguments(xs, chain)
    of_leaves, of_bars = _split_pullback_arguments(axes, chain)
    every = [0 if k < chain.states or k in chain.active else a for k, a in enumerate(of_leaves)]
    given = [
        move_batch_first(x, a, size) if new == 0 and a != 0 else x
        for x, a, new in zip(leaves, of_leaves, every, strict=True)
    ]
    ends = [move_batch_first(x, a, size) for x, a in zip(bars, of_bars, strict=True)]
    outs = apply(_loop_pullback_op, ticket, *given, *ends, chain=chain.batch(tuple(every), size))
    return outs, (0,) * len(outs)


def _follow_loop(*leaves: Any, chain: Chain) -> list[Any]:
    """Each state after all steps depends on itself, the ticket on nothing."""
    with repeating(chain):
        return [*((x,) for x in _run_plain_loop(chain, list(leaves))), ()]


def _follow_loop_pull(*xs: Any, chain: Chain) -> list[Any]:
    """Where the steps are linear in what moves of the leaves, cotangents depend on cotangents alone."""
    leaves, bars = _split_pullback_arguments(xs, chain)
    _follow_loop(*leaves, chain=chain)
    return [bars for _ in chain.active]


_loop_op: Op = replace(make_custom_record(
    "checkpoint_loop", ("*leaves",), lambda xp, *leaves, chain: sweep_forward(chain, leaves),
    Formula(_pull_loop, ("bar", "out", "leaves", "chain")), Formula(_push_loop, ("tangents", "leaves", "chain")),
    _batch_loop, lambda *specs, chain: (*specs[: chain.states], make_spec(chain.batches, NO_TICKET.dtype)),
), follow=_follow_loop)  # fmt: skip
_loop_pullback_op: Op = replace(make_custom_record(
    "checkpoint_loop_pull", ("*xs",), lambda xp, ticket, *rest, chain: sweep_backward(chain, ticket, rest),
    Formula(_pull_loop_pullback, ("bar", "xs", "chain")), Formula(_push_loop_pullback, ("tangents", "xs", "chain")),
    _batch_loop_pullback, lambda *specs, chain: tuple(specs[1 + k] for k in chain.active),
), follow=_follow_loop_pull)  # fmt: skip
