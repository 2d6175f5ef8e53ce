"""`Codec`: how one array is summed over ranks in fewer bytes; and how the codecs of many arrays share meetings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from ...arrays.picklable import MakerCall, reduce_made
from ...arrays.spec import Spec, spec_of
from ...errors import ArgumentError
from ...ops.collective.agreement import sums_op
from ...ops.collective.gathering import gathers_op
from ...ops.collective.many import totals_op
from ...ops.collective.world import current_world
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import astype, reshape
from ...optim.leaves import widen
from ...transforms.control.branches_and_loops import cond


class SumOver(NamedTuple):
    """A request of a codec: arrays to be summed over ranks. It is sent back their totals."""

    arrays: tuple[Any, ...]


class GatherFrom(NamedTuple):
    """A request of a codec: arrays of all ranks. It is sent back for each of its arrays one with the ranks in front."""

    arrays: tuple[Any, ...]


class ChooseByStep(NamedTuple):
    """A request of a codec in a traced program: run one codec in the first steps, another one later. It is sent back
    what the chosen one returned. Those that choose at the same step do so in one branch.
    """

    steps: int
    early: Callable[[], Running]
    late: Callable[[], Running]


class Coded(NamedTuple):
    """What a codec returns: the total over ranks, as all of them have it; the share of it that this rank sent, which a
    residual is computed from; and the next state.
    """

    total: Any
    sent: Any
    state: Any


Request = SumOver | GatherFrom | ChooseByStep
Running = Generator[Request, Any, Coded]


@final
@dataclass(frozen=True, slots=True)
class Codec:
    """A way to sum an array over ranks in fewer bytes, for `pb.distributed.aggregate` and
    `pb.distributed.DistributedGradient`.

    `start(x)` is the first state for arrays like x, a tree of arrays. `run(x, state, step)` is a generator: it yields
    what it wants of the ranks, is sent what they brought, and returns what it made of that; `step` counts from 0.
    `sent_bytes(spec)` are the bytes that a rank sends for an array. All is written in ops, so that it compiles.

    A codec is used for real arrays that it makes smaller, others are summed plainly; so `start` and `run` see only
    such arrays, those of half types in float32.

    >>> import numpy as np, pullback as pb
    >>> codec = pb.distributed.codecs.int8()
    >>> codec.name, codec.applies(pb.spec_of(np.ones(100, np.float32))), codec.applies(pb.spec_of(np.ones(())))
    ("int8(per='tensor')", True, False)
    """

    name: str
    start: Callable[[Any], Any] = field(repr=False)
    run: Callable[[Any, Any, Any], Running] = field(repr=False)
    sent_bytes: Callable[[Spec], float] = field(repr=False)
    maker_call: MakerCall | None = field(default=None, repr=False, compare=False)

    __reduce__ = reduce_made

    def ratio(self, spec: Spec) -> float:
        """How many times fewer bytes are sent than the array has.

        >>> import numpy as np, pullback as pb
        >>> pb.distributed.codecs.bfloat16().ratio(pb.spec_of(np.ones(10)))
        4.0
        """
        return spec.nbytes / self.sent_bytes(spec) if self.applies(spec) else 1.0

    def applies(self, spec: Spec) -> bool:
        """Whether arrays of a spec are encoded; others are summed plainly."""
        return spec.inexact and spec.dtype.kind != "c" and self.sent_bytes(spec) < spec.nbytes

    def init(self, x: Any) -> Any:
        """The first state for an array."""
        return self.start(x) if self.applies(spec_of(x)) else ()

    def send(self, x: Any, state: Any, step: Any) -> Running:
        """`run`, or a plain sum where the codec does not apply."""
        spec = spec_of(x)
        if not self.applies(spec):
            return (yield from sum_plainly(x, state))
        coded = yield from self.run(widen(x), state, step)
        return coded._replace(total=astype(coded.total, spec.dtype))


def check_codec(codec: Any, what: str) -> Codec:
    """A codec that another thing is made of."""
    if not isinstance(codec, Codec):
        raise ArgumentError(
            f"{what}: wants a codec, such as pb.distributed.codecs.bfloat16(), got a {type(codec).__name__}."
        )
    return codec


def no_state(x: Any) -> tuple[()]:
    """The state of a codec that has none."""
    return ()


def sum_plainly(x: Any, state: Any) -> Running:
    """The sum of an array as it is."""
    (summed,) = yield SumOver((x,))
    return Coded(summed, widen(x), state)


def run_codecs(
    codecs: Sequence[Codec], arrays: Sequence[Any], states: Sequence[Any], step: Any, names: Sequence[str] = ()
) -> list[Coded]:
    """Sum arrays over ranks, each by its codec. They go in step: requests of one kind that are made at a time are one
    meeting. With names, a sum that is not finite raises on all ranks, and names the ranks it comes from.
    """
    runs = [c.send(x, s, step) for c, x, s in zip(codecs, arrays, states, strict=True)]
    return _run_in_step(runs, step, [_Given(x, name) for x, name in zip(arrays, names, strict=True)] if names else [])


class _Given(NamedTuple):
    """An array that a codec was given, and its name."""

    array: Any
    name: str


def _run_in_step(runs: Sequence[Running], step: Any, given: Sequence[_Given]) -> list[Coded]:
    running, replies = dict(enumerate(runs)), dict.fromkeys(range(len(runs)))
    found: dict[int, Coded] = {}
    gathered: dict[int, Any] = {}
    while running:
        requests: dict[int, Request] = {}
        for i, run in list(running.items()):
            try:
                requests[i] = run.send(replies[i])
            except StopIteration as end:
                found[i] = end.value
                del running[i]
        sums = {i: r for i, r in requests.items() if isinstance(r, SumOver)}
        gathers = {i: r for i, r in requests.items() if isinstance(r, GatherFrom)}
        names = [given[i].name for i, r in sums.items() for _ in r.arrays] if given else []
        replies = _serve(sums, functools.partial(_total_all, names)) | _serve(gathers, _gather_all)
        replies |= _choose_all({i: r for i, r in requests.items() if isinstance(r, ChooseByStep)}, step, given)
        gathered |= gathers
    if given and gathered:  # totals were checked where they were summed
        _check_sums([given[i] for i in gathered], [found[i].total for i in gathered])
    return [found[i] for i in range(len(runs))]


def _serve(requests: dict[int, Any], meet: Callable[[list[Any]], list[Any]]) -> dict[int, Any]:
    arrays = [x for request in requests.values() for x in request.arrays]
    results = iter(meet(arrays) if arrays else ())
    return {i: tuple(next(results) for _ in request.arrays) for i, request in requests.items()}


def _total_all(names: Sequence[str], arrays: list[Any]) -> list[Any]:
    return list(apply(totals_op, *arrays, ranks=current_world().size, names=tuple(names)))


def _gather_all(arrays: list[Any]) -> list[Any]:
    rows = [reshape(x, (1, *spec_of(x).shape)) for x in arrays]
    return list(apply(gathers_op, *rows, ranks=current_world().size, axis=0))


def _check_sums(given: Sequence[_Given], sums: Sequence[Any]) -> None:
    names = tuple(g.name for g in given)
    apply(sums_op, *(g.array for g in given), *sums, ranks=current_world().size, names=names)


def _choose_all(requests: dict[int, ChooseByStep], step: Any, given: Sequence[_Given]) -> dict[int, Coded]:
    """Choices of one step are one branch, in which the chosen codecs share meetings again."""
    found: dict[int, Coded] = {}
    for steps in dict.fromkeys(r.steps for r in requests.values()):
        chosen = {i: r for i, r in requests.items() if r.steps == steps}
        own = [given[i] for i in chosen] if given else []
        early, late = (
            functools.partial(_run_all, starts, step, own)
            for starts in ([r.early for r in chosen.values()], [r.late for r in chosen.values()])
        )
        found |= zip(chosen, cond(pointwise.less(step, steps), early, late), strict=True)
    return found


def _run_all(starts: Sequence[Callable[[], Running]], step: Any, given: Sequence[_Given]) -> list[Coded]:
    return _run_in_step([start() for start in starts], step, given)
