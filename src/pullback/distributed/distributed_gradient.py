"""`DistributedGradient`: gradients that `backward` writes are summed over ranks, in buckets, as they are completed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import check_count, check_number
from ..arrays.backends import move_array, namespace_of, to_host
from ..arrays.node import Handle
from ..arrays.spec import spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, leaf_paths
from ..compile.jit import jit
from ..errors import ArgumentError
from ..ops.collective.agreement import replicas_op
from ..ops.collective.buckets import BUCKET_MB, make_buckets
from ..ops.collective.checks import check_finite
from ..ops.collective.collectives import total
from ..ops.collective.exchange import Concatenation, FiniteSums, FromRoot, Sum
from ..ops.collective.records import meet
from ..ops.collective.timed_start import start_in_time
from ..ops.collective.world import Started, World, current_world, make_call
from ..ops.dispatch import apply
from ..ops.elementwise import pointwise
from ..tape.cotangents import strip_mask
from .aggregation import aggregate
from .codecs.codec import Codec


class _Slot:
    """A parameter: what this rank alone has added to its gradient since ranks last summed it, and what it was then."""

    __slots__ = ("_kept", "base", "number", "own", "reached", "summed", "tensor")

    def __init__(self, number: int, tensor: Tensor) -> None:
        self.number, self.tensor = number, tensor
        self.base: Tensor | None = None
        self.own: Any = None
        self.summed: Tensor | None = None
        self.reached = False
        #: What it was before the pass that is under way.
        self._kept: tuple[Any, ...] | None = None

    def before(self, bar: Any) -> None:
        """A backward pass is about to add to the gradient."""
        held = self.tensor.grad
        self._kept = self._kept or (held, self.base, self.own, self.summed)
        if held is None:
            self.base = self.own = None
        elif held is self.summed:
            self.base, self.own = held, None
        elif self.own is None:  # someone else's: it counts as this rank's own
            self.base, self.own = None, held
        if self.base is not None and bar is not None:
            bar = strip_mask(bar)
            self.own = bar if self.own is None else pointwise.add(self.own, bar)

    def after(self) -> None:
        self.reached = True
        if self.base is None:
            self.own = self.tensor.grad

    def end(self) -> None:
        """The pass is over."""
        self.reached, self._kept = False, None

    def restore(self) -> None:
        """The pass has failed."""
        if self._kept is not None:
            self.tensor.grad, self.base, self.own, self.summed = self._kept
        self.end()

    def share(self) -> Any:
        """What this rank brings to the sum."""
        found = self.own
        if found is None:
            return zeros(self.tensor.spec)
        return found.value if isinstance(found, Tensor) and found.node is None else found

    def store(self, summed: Any) -> None:
        gradient = summed if isinstance(summed, Tensor) else wrap(summed, spec_of(summed))
        if self.base is not None:
            gradient = self.base + gradient
        self.tensor.grad = self.summed = gradient
        self.base = self.own = None


@final
class DistributedGradient:
    """Sums the gradients of parameters over all ranks in every backward pass: after `loss.backward()` the `.grad` of
    each parameter is the same on all ranks, and an optimizer's step too. `params` is a tree of tensors, such as a
    module.

    Gradients are summed, not averaged: each rank's loss is its share of the whole, for instance the sum over its
    samples divided by `pb.distributed.total` of their number. Parameters that a rank's loss does not depend on count as
    zero there; one that no rank's loss depends on is left alone. Several passes may be accumulated: inside
    `with ddp.no_sync()` gradients stay this rank's own, and the next pass outside sums all of them.

    Gradients travel in buckets of `bucket_mb`, the first completed first, while the pass goes on if a core is free.
    `codec`, `finite` and `check_every` are those of `aggregate`. Where a pass fails on any rank it fails on all, and
    every `.grad` is as it was before. For second derivatives use `pb.distributed.data_parallel`, or pass
    `create_graph=True`.

    >>> import numpy as np, pullback as pb
    >>> def step():
    ...     w = pb.tensor(np.ones(2), requires_grad=True)
    ...     ddp = pb.distributed.DistributedGradient([w])
    ...     pb.sum(w * (1.0 + pb.distributed.rank())).backward()
    ...     return w.grad.tolist()
    >>> pb.distributed.run(step, 2)
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(
        self,
        params: Any,
        *,
        codec: Codec | None = None,
        bucket_mb: float = BUCKET_MB,
        finite: bool = True,
        check_every: int = 100,
    ) -> None:
        leaves, structure = flatten(params)
        paths = leaf_paths(structure)
        found = [(f"params{path}", p) for path, p in zip(paths, leaves, strict=True) if isinstance(p, Tensor)]
        found = [(name, p) for name, p in found if p.requires_grad and p.is_leaf]
        if not found:
            raise ArgumentError("DistributedGradient: none of the parameters requires a gradient.")
        self._names = [name for name, _ in found]
        self._slots = [_Slot(i, p) for i, (_, p) in enumerate(found)]
        self._sizes = [p.spec.nbytes for _, p in found]
        self._bucket_mb = check_number("DistributedGradient: bucket_mb", bucket_mb, above=0.0)
        self._finite, self._every = finite, check_count(check_every, "DistributedGradient: check_every", 0)
        self._coded = None if codec is None else _CodedSum(codec)
        self._order: list[int] = []
        self._buckets = make_buckets(self._sizes, range(len(found))[::-1], self._bucket_mb)
        self._is_order_agreed = False
        self._syncs = True
        self._passes = 0
        self._started: list[Started] = []
        self._handles = [handle for slot in self._slots for handle in _watch(slot, self)]

    def __repr__(self) -> str:
        return f"<gradients of {len(self._slots)} parameters over {current_world().size} ranks>"

    @contextmanager
    def no_sync(self) -> Generator[None, None, None]:
        """Leave gradients of backward passes inside to this rank; the next pass outside sums them too."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    @property
    def bucket_names(self) -> list[list[str]]:
        """The names of the parameters of each bucket."""
        return [[self._names[i] for i in bucket] for bucket in self._buckets]

    def remove(self) -> None:
        """Stop: gradients are again this rank's own."""
        for handle in self._handles:
            handle.remove()

    def _completed(self, slot: _Slot) -> None:
        """The gradient of a parameter is complete: start the buckets that are full, where that runs beside the pass."""
        slot.after()
        self._order.append(slot.number)
        world = current_world()
        if not (self._syncs and world.runs_beside and self._is_order_agreed) or self._coded is not None:
            return
        while len(self._started) < len(self._buckets):
            bucket = [self._slots[i] for i in self._buckets[len(self._started)]]
            if not all(s.reached for s in bucket) or any(_is_linked(s.own) for s in bucket):
                return
            self._started.append(self._start(world, bucket))

    def _end(self) -> None:
        """The pass is over: sum what is not yet under way, and give all parameters their gradients."""
        if self._syncs:
            self._sum()
        for slot in self._slots:
            slot.end()
        self._order, self._started = [], []

    def _failed(self) -> None:
        """The pass has failed: what it added, and what of it was under way, must not come into the next one."""
        for slot in self._slots:
            slot.restore()
        self._order, self._started = [], []

    def _sum(self) -> None:
        world = current_world()
        if world.size == 1:
            for slot in self._slots:
                slot.summed = slot.tensor.grad
            return
        if any(_is_linked(slot.own) for slot in self._slots):
            self._store(list(range(len(self._slots))), total([slot.share() for slot in self._slots]), None)
            return
        self._compare_replicas(world)
        for slot in self._slots:
            if not slot.reached:  # what ranks summed before stays, where the loss of another rank reaches it
                slot.before(None)
        if self._coded is not None:
            sums, counts = self._coded([slot.share() for slot in self._slots], self._reached_flags(self._slots))
            self._store(list(range(len(self._slots))), sums, counts)
            return
        if not self._started and not world.runs_beside:
            buckets = [[i for bucket in self._buckets for i in bucket]]  # nothing to hide behind: one meeting
        else:
            buckets = self._buckets
            self._started += [self._start(world, [self._slots[i] for i in b]) for b in buckets[len(self._started) :]]
        for number, bucket in enumerate(buckets):
            started = self._started[number] if self._started else self._start(world, [self._slots[i] for i in bucket])
            found = started.wait()
            *sums, counts = found
            self._store(bucket, sums, counts, isinstance(found, FiniteSums))
        self._agree_on_order(world)

    def _start(self, world: World, slots: Sequence[_Slot]) -> Started:
        arrays = [slot.share() for slot in slots] + [self._reached_flags(slots)]
        xp = namespace_of(arrays[:1])
        specs = tuple([(x.dtype, x.shape) for x in arrays])
        names = ", ".join(self._names[s.number] for s in slots[:3]) + (", ..." if len(slots) > 3 else "")
        return start_in_time(world, make_call("gradients", Sum(), specs, f" ({names})"), xp, arrays, Sum())

    def _reached_flags(self, slots: Sequence[_Slot]) -> Any:
        """Which gradients this rank has, in the dtype of the first one: they travel with it."""
        first = slots[0].tensor.spec
        return move_array(np.array([slot.own is not None for slot in slots], first.dtype), first.device)

    def _store(self, numbers: Sequence[int], sums: Sequence[Any], counts: Any, is_finite: bool = False) -> None:
        """Sums become gradients; where no rank had a share, nothing changes. Those not known to be finite are
        checked.
        """
        slots = [self._slots[i] for i in numbers]
        if self._finite and counts is not None and not is_finite:
            names = [f"gradient of {self._names[i]}" for i in numbers]
            xp = namespace_of([sums[0]])
            gather = functools.partial(_gather_flags, xp)
            check_finite(xp, names, [slot.share() for slot in slots], sums, gather)
        known = [1] * len(slots) if counts is None else to_host(counts)
        for slot, summed, count in zip(slots, sums, known, strict=True):
            if count:
                slot.store(summed)

    def _compare_replicas(self, world: World) -> None:
        if self._every:
            values = [slot.tensor.value for slot in self._slots]
            names = tuple(self._names)
            apply(replicas_op, np.array(self._passes), *values, ranks=world.size, every=self._every, names=names)
        self._passes += 1

    def _agree_on_order(self, world: World) -> None:
        """After the first pass buckets have the order in which rank 0 completed gradients."""
        if self._is_order_agreed or not world.runs_beside:
            return
        rest = [i for i in range(len(self._slots))[::-1] if i not in self._order]
        mine = np.array([*self._order, *rest], np.int64)
        order = meet(np, "order of gradients", mine, world.size, FromRoot(0))
        self._buckets = make_buckets(self._sizes, order.tolist(), self._bucket_mb)
        self._is_order_agreed = True


class _CodedSum:
    """Sums by a codec, compiled, with the codec's state."""

    def __init__(self, codec: Codec) -> None:
        self._rule = aggregate(codec, finite=False, check_every=0)
        self._state: Any = None

        def run(shares: list[Any], flags: Any, state: Any) -> Any:
            sums, after = self._rule.advance(shares, state, shares, {})
            return sums, total(flags), after

        self._run: Callable[..., Any] = jit(run)

    def __call__(self, shares: list[Any], flags: Any) -> tuple[list[Any], Any]:
        if self._state is None:
            self._state = self._rule.start(shares)
        sums, counts, self._state = self._run(shares, flags, self._state)
        return sums, counts


def _gather_flags(xp: Any, flags: Any) -> Any:
    return meet(np, "finite", flags, current_world().size, Concatenation(0))


def _is_linked(x: Any) -> bool:
    """Whether a gradient can be differentiated again."""
    return isinstance(x, Tensor) and x.node is not None


def _watch(slot: _Slot, owner: DistributedGradient) -> list[Handle]:
    """The hooks of a parameter; they keep the owner alive, as long as the parameter lives or until `remove`."""

    def completed(tensor: Tensor) -> None:
        owner._completed(slot)

    node = slot.tensor._tracked_node("DistributedGradient")
    return [
        node.add_hook("pre_accumulate", slot.before),
        node.add_hook("post_accumulate", completed),
        node.add_hook("end", owner._end),
        node.add_hook("failed", owner._failed),
    ]
