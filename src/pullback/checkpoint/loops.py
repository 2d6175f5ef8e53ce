"""Step and start in, the state after many steps out: a loop whose way back holds a few snapshots and repeats steps.

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

from ..arrays.checks import wants_functions
from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError
from ..ops.batching import lead
from ..ops.dispatch import apply, as_value
from ..ops.op import Op, Terms
from ..ops.reach import Reach, is_generator
from ..settings import modes
from ..transforms.border import fresh
from ..transforms.captures import Captures, Unchanged
from ..transforms.carry import Carry
from ..transforms.masks import NUMBERS, own, truth
from ..transforms.rules import carries, custom_record
from .chain import Chain
from .randomness import Replay
from .schedules import longest
from .snapshots import NO_TICKET, Tiers
from .sweeps import back, forth, repeating
from .trail import Trails

__all__ = ["checkpoint_loop"]

#: Snapshots of a loop whose length nobody knows, if nobody says how many.
_UNKNOWN = 32


@signed
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
    states for the way back, x0 among them, and repeats steps from there: as few as is possible.

    States and params are trees. With `until`, the loop ends before the first step for which `until(i, x, *params)`
    holds; n is at most so many steps then, None for any number. `ram` and `disk` instead of `snapshots` say how many
    are in memory and how many more in memory-mapped files in `directory`. Random numbers that a step draws without a
    key, from NumPy's or Python's global stream, or from generators within its reach, are drawn again in the same way.

    >>> import pullback as pb
    >>> pb.grad(lambda a: pb.checkpoint_loop(lambda i, x: x * a, 1.0, 100, snapshots=5))(1.0)
    array(100.)
    """
    wants_functions("checkpoint_loop", step, *(() if until is None else (until,)))
    limit = _limit(n, until)
    tiers = _tiers(limit, snapshots, ram, disk, directory)
    captures = Captures((step, until))
    carry = Carry("checkpoint_loop", x0, [*flatten(params)[0], *captures.values])
    if not carry.leaves:
        raise ArgumentError("checkpoint_loop: x0 holds no arrays.")
    given = _Given(carry, params, captures)
    leaves = [*carry.leaves, *given.arrays]
    chain = given.chain(limit, until is not None, tiers, leaves)
    if not modes().grad and all(type(x) is Tensor and x.level == 1 for x in leaves if isinstance(x, Value)):
        return unflatten(carry.structure, [fresh(x) for x in _plain(chain, leaves)])
    outs = apply(_loop, *leaves, chain=chain)
    return unflatten(carry.structure, [fresh(x) for x in outs[:-1]])


def _limit(n: Any, until: Any) -> int | None:
    """The number of steps, or at most so many, as a Python int."""
    if n is None and until is None:
        raise ArgumentError("checkpoint_loop: say how many steps there are, n, or when to stop, until=function.")
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


def _tiers(n: int | None, snapshots: Any, ram: Any, disk: Any, directory: Any) -> Tiers:
    counts = {"snapshots": snapshots, "ram": ram, "disk": disk}
    for name, count in counts.items():
        least = 0 if name == "disk" else 1
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < least):
            raise ArgumentError(f"checkpoint_loop: {name} is {count!r}, wanted an integer of {least} or more.")
    if snapshots is not None and (ram is not None or disk is not None):
        raise ArgumentError("checkpoint_loop: say snapshots, or ram and disk.")
    if snapshots is None and ram is None:
        snapshots = _UNKNOWN if n is None else _enough(n)
    return Tiers(ram if snapshots is None else snapshots, disk or 0, directory)


def _enough(n: int) -> int:
    """So many snapshots that no step is repeated more than once before its tape: about the root of 2 n."""
    count = 1
    while longest(count, 2) < n:
        count += 1
    return count


class _Given:
    """What the functions of a loop are called with: arrays of `params`, then the values they close over; anything else
    in `params` (Python numbers, random generators) goes through as it is.
    """

    def __init__(self, carry: Carry, params: Any, captures: Captures) -> None:
        self._carry, self._captures = carry, captures
        self._leaves, self._structure = flatten(params)
        self._leaves = [x if _goes_through(x) else as_value(x) for x in self._leaves]
        self._places = [i for i, x in enumerate(self._leaves) if not _goes_through(x)]
        self.arrays = [*(self._leaves[i] for i in self._places), *captures.values]

    def _called(self, which: int, i: int, leaves: Sequence[Any]) -> Any:
        states, count = len(self._carry.leaves), len(self._places)
        params = list(self._leaves)
        for place, value in zip(self._places, leaves[states:], strict=False):
            params[place] = own(value)
        function = self._captures.over(leaves[states + count :])[which]
        return function(i, self._carry.given(leaves[:states]), *unflatten(self._structure, params))

    def step(self, i: int, *leaves: Any) -> tuple[Any, ...]:
        return tuple(self._carry.after(self._called(0, i, leaves)))

    def until(self, i: int, *leaves: Any) -> Any:
        return truth(self._called(1, i, leaves), "checkpoint_loop: what until returned")

    def chain(self, n: int | None, ends: bool, tiers: Tiers, leaves: list[Any]) -> Chain:
        """The loop as `sweeps` run it."""
        states = len(self._carry.leaves)
        moving = [i for i, x in enumerate(leaves) if spec_of(x).inexact and (i < states or carries(x))]
        reach = Reach(self._captures.functions, self._leaves)
        tracked = any(map(carries, leaves))
        watched = Unchanged(self._captures.arrays if tracked else ())
        return Chain(
            step=self.step, until=self.until if ends else None, n=n, states=states, width=len(leaves),
            moving=tuple(moving), tiers=tiers, streams=Replay(reach.generators), modes=modes(), tracked=tracked,
            watched=watched, trails=Trails(states), objects=reach.objects,
        )  # fmt: skip


def _goes_through(x: Any) -> bool:
    return type(x) in NUMBERS or is_generator(x)


def _plain(chain: Chain, leaves: list[Any]) -> list[Any]:
    """The loop as it stands, where nobody will want to go back."""
    i, state, params = 0, leaves[: chain.states], leaves[chain.states :]
    while chain.goes_on(i, state, params):
        state = list(chain.step(i, *state, *params))
        i += 1
    return state


def _filled(bars: Any, chain: Chain) -> list[Any]:
    """Cotangents of the states that have any, zeros where none came."""
    return [zeros(bars[k]) if isinstance(bars[k], Spec) else bars[k] for k in chain.moving_states]


def _constant(ticket: Any) -> Any:
    return ticket.detach() if isinstance(ticket, Tensor) else ticket


def _in_place(chain: Chain, found: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Cotangents of what moves, among all leaves."""
    at = dict(zip(chain.moving, found, strict=True))
    return tuple(at.get(k) for k in range(count))


def _loop_pulled(bar: Any, out: Any, leaves: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    found = apply(_pull, _constant(out[-1]), *leaves, *_filled(bar, chain), chain=chain)
    return _in_place(chain, found, len(leaves))


def _loop_pushed(tangents: tuple[Any, ...], leaves: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    carried = apply(_loop, *chain.with_tangents(leaves, tangents), chain=chain.tangent())[chain.states : -1]
    at = dict(zip(chain.moving_states, carried, strict=True))
    return (*(at.get(k) for k in range(chain.states)), None)


def _loop_batched(size: int, axes: tuple[int | None, ...], *leaves: Any, chain: Chain) -> Any:
    count = chain.states
    states = [lead(x, axis, size) for x, axis in zip(leaves[:count], axes[:count], strict=True)]
    whole = chain.in_batch((*(0,) * count, *axes[count:]), size)
    return apply(_loop, *states, *leaves[count:], chain=whole), (0,) * (count + 1)


def _split(xs: tuple[Any, ...], chain: Chain) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments of P after the ticket: leaves and cotangents."""
    count = len(xs) - 1 - len(chain.moving_states)
    return xs[1 : count + 1], xs[count + 1 :]


def _pull_pulled(bar: Any, xs: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    leaves, bars = _split(xs, chain)
    along = [zeros(b) if isinstance(b, Spec) else b for b in bar]
    moved, primed = chain.with_tangents(leaves, _in_place(chain, along, len(leaves))), chain.tangent()
    *outs, ticket = apply(_loop, *moved, chain=primed)
    start = [zeros(spec_of(b)) for b in bars]
    found = apply(_pull, _constant(ticket), *moved, *start, *bars, chain=primed)
    return (None, *_in_place(chain, chain.of_primals(found), len(leaves)), *outs[chain.states :])


def _pull_pushed(tangents: tuple[Any, ...], xs: tuple[Any, ...], chain: Chain) -> tuple[Any, ...]:
    leaves, bars = _split(xs, chain)
    moves, bar_moves = _split(tangents, chain)
    moved = chain.with_tangents(leaves, moves)
    found = apply(_pull, NO_TICKET, *moved, *bar_moves, *bars, chain=chain.tangent())
    return tuple(chain.of_primals(found))


def _pull_batched(size: int, axes: tuple[int | None, ...], *xs: Any, chain: Chain) -> Any:
    """Each element has its own cotangents, so what moves is there once for each. What a run outside of the batch left
    does not fit.
    """
    ticket = NO_TICKET if axes[0] is None else lead(xs[0], axes[0])
    leaves, bars = _split(xs, chain)
    of_leaves, of_bars = _split(axes, chain)
    every = [0 if k < chain.states or k in chain.moving else a for k, a in enumerate(of_leaves)]
    given = [lead(x, a, size) if new == 0 and a != 0 else x for x, a, new in zip(leaves, of_leaves, every, strict=True)]
    ends = [lead(x, a, size) for x, a in zip(bars, of_bars, strict=True)]
    outs = apply(_pull, ticket, *given, *ends, chain=chain.in_batch(tuple(every), size))
    return outs, (0,) * len(outs)


def _loop_followed(*leaves: Any, chain: Chain) -> list[Any]:
    """Each state after all steps depends on itself, the ticket on nothing."""
    with repeating(chain):
        return [*((x,) for x in _plain(chain, list(leaves))), ()]


def _pull_followed(*xs: Any, chain: Chain) -> list[Any]:
    """Where the steps are linear in what moves of the leaves, cotangents depend on cotangents alone."""
    leaves, bars = _split(xs, chain)
    _loop_followed(*leaves, chain=chain)
    return [bars for _ in chain.moving]


_loop: Op = replace(custom_record(
    "checkpoint_loop", ("*leaves",), lambda xp, *leaves, chain: forth(chain, leaves),
    Terms(_loop_pulled, ("bar", "out", "leaves", "chain")), Terms(_loop_pushed, ("tangents", "leaves", "chain")),
    _loop_batched, lambda *specs, chain: (*specs[: chain.states], make_spec(chain.batches, NO_TICKET.dtype)),
), follow=_loop_followed)  # fmt: skip
_pull: Op = replace(custom_record(
    "checkpoint_loop_pull", ("*xs",), lambda xp, ticket, *rest, chain: back(chain, ticket, rest),
    Terms(_pull_pulled, ("bar", "xs", "chain")), Terms(_pull_pushed, ("tangents", "xs", "chain")),
    _pull_batched, lambda *specs, chain: tuple(specs[1 + k] for k in chain.moving),
), follow=_pull_followed)  # fmt: skip
