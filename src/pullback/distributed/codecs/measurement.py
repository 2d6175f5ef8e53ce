"""What a codec costs and saves for an array, measured on the ranks that are there."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.dtypes import as_dtype
from ...arrays.spec import Spec, spec_of
from ...arrays.trees import map_tree
from ...compile.jit import jit
from ...ops.collective.collectives import total
from ...ops.collective.exchange import Sum
from ...ops.collective.world import World, current_world, make_call
from ...settings import override_modes
from .codec import Codec, run_codecs
from .rehearsal import Meeting, Rehearsal, synchronize

#: How often a collective is timed, and for how many seconds a codec: the best time counts, noise only adds.
_REPEATS, _SECONDS = 5, 0.02
#: A step that is past every `after`.
LATE = 2**31


class Measurement(NamedTuple):
    """Seconds a step, means over ranks: to encode, to decode, on the wire, and on the wire without the codec; and the
    bytes a rank sends, by the codec and without.
    """

    encode: float
    decode: float
    wire: float
    plain_wire: float
    sent_bytes: float
    plain_bytes: float

    @property
    def seconds(self) -> float:
        """What a sum by the codec takes."""
        return self.encode + self.decode + self.wire

    @property
    def bandwidth(self) -> float:
        """Bytes of an array that are summed in a second without the codec."""
        return self.plain_bytes / self.plain_wire

    @property
    def break_even(self) -> float:
        """The bandwidth at which the codec saves as much as it costs, if wires were slower and all else the same."""
        return self.bandwidth * (self.plain_wire - self.wire) / (self.encode + self.decode)


_known: WeakKeyDictionary[World, dict[tuple[Codec, Spec], Measurement]] = WeakKeyDictionary()


def measure(codec: Codec, spec: Spec, state: Any) -> Measurement:
    """The measurement of a codec on arrays of a spec. All ranks come to it together, and get the same numbers; once for
    each codec and spec.
    """
    world = current_world()
    known = _known.setdefault(world, {})
    if (codec, spec) not in known:
        known[codec, spec] = _measure(codec, spec, state, world)
    return known[codec, spec]


def _measure(codec: Codec, spec: Spec, state: Any, world: World) -> Measurement:
    found = rehearse(codec, _random_array(spec), state, world.size)
    plain = Meeting(Sum(), ((spec.dtype.name, spec.shape),), 0.0, 0.0)
    wire = sum(_time_meeting(m, spec.device, world) for m in found.meetings)
    sent = sum(m.sent_bytes for m in found.meetings)
    own = [found.encode, found.decode, wire, _time_meeting(plain, spec.device, world), sent, spec.nbytes]
    return Measurement(*(np.asarray(total(np.array(own))) / world.size).tolist())


def _random_array(spec: Spec) -> Any:
    numbers = np.random.default_rng(0).standard_normal(spec.shape, np.float32).astype(spec.dtype)
    return namespace_on(spec.device).asarray(numbers)


class Rehearsed(NamedTuple):
    """The best time of a codec apart from its meetings: before the end of the last one, and after it."""

    encode: float
    decode: float
    meetings: list[Meeting]


def rehearse(codec: Codec, x: Any, state: Any, ranks: int, seconds: float = _SECONDS) -> Rehearsed:
    """Time a compiled codec, for some seconds, where other ranks bring what this one does. The state is overwritten in
    place, as in a compiled training step.
    """
    xp = namespace_on(spec_of(x).device)

    def run(x: Any, state: Any, step: Any) -> Any:
        (coded,) = run_codecs([codec], [x], [state], step)
        return coded.total, coded.state

    compiled: Callable[..., Any] = jit(run, donate_argnums=1)
    found: list[Rehearsed] = []
    world = Rehearsal(ranks)
    with override_modes(rank=world):
        total, state = compiled(x, map_tree(xp.array, state), np.array(LATE))
        until = perf_counter() + seconds
        while not found or perf_counter() < until:
            del total  # its memory serves the next
            world.meetings.clear()
            synchronize(xp)
            begin = perf_counter()
            total, state = compiled(x, state, np.array(LATE))
            synchronize(xp)
            found.append(_split_time(begin, perf_counter(), list(world.meetings)))
    return min(found, key=lambda r: r.encode + r.decode)


def _split_time(begin: float, end: float, meetings: list[Meeting]) -> Rehearsed:
    last = meetings[-1].end
    return Rehearsed(last - begin - sum(m.end - m.begin for m in meetings), end - last, meetings)


def _time_meeting(meeting: Meeting, device: str, world: World) -> float:
    """The seconds of a collective on the ranks that are there."""
    xp = namespace_on(device)
    arrays = [xp.zeros(shape, as_dtype(dtype)) for dtype, shape in meeting.specs]
    call = make_call("measurement", meeting.exchange, meeting.specs)
    best = np.inf
    for _ in range(_REPEATS):
        synchronize(xp)
        begin = perf_counter()
        world.meet(call, xp, arrays, meeting.exchange)
        synchronize(xp)
        best = min(best, perf_counter() - begin)
    return float(best)
