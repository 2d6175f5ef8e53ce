"""`predict`: how long a data-parallel step takes on any number of ranks, played bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final, overload

import numpy as np

from ..arrays.argument_checks import check_count, check_number
from ..arrays.text import format_bytes
from ..errors import ArgumentError
from ..ops.collective.buckets import BUCKET_MB, make_buckets
from .collective_law import Law
from .prediction import BucketTime, Prediction, Scaling
from .recorded_step import GradientTime, Step
from .world_model import WorldModel


@final
@dataclass(frozen=True, slots=True)
class CodecCost:
    """What a codec does to a bucket: bytes become `ratio` times fewer, which takes `encode` seconds a byte of gradient
    and `decode` seconds back. One that `gathers` sends its payload to all ranks, each of which decodes those of all;
    others are summed on the way. `meetings` are the collectives it takes.

    >>> import pullback as pb
    >>> pb.distributed.CodecCost(ratio=2.0, encode=0.16e-9)
    CodecCost(ratio=2.0, encode=1.6e-10, decode=0.0, gathers=False, meetings=1)
    """

    ratio: float
    encode: float = 0.0
    decode: float = 0.0
    gathers: bool = False
    meetings: int = 1

    def __post_init__(self) -> None:
        check_number("CodecCost: ratio", self.ratio, above=0.0)
        check_number("CodecCost: encode", self.encode, least=0.0)
        check_number("CodecCost: decode", self.decode, least=0.0)
        check_count(self.meetings, "CodecCost: meetings")


@overload
def predict(
    step: Step,
    ranks: int,
    *,
    model: WorldModel,
    bucket_mb: float = ...,
    overlap: bool | None = ...,
    codec: CodecCost | None = ...,
    meetings: int = ...,
    level: str | None = ...,
) -> Prediction: ...


@overload
def predict(
    step: Step,
    ranks: Iterable[int],
    *,
    model: WorldModel,
    bucket_mb: float = ...,
    overlap: bool | None = ...,
    codec: CodecCost | None = ...,
    meetings: int = ...,
    level: str | None = ...,
) -> Scaling: ...


def predict(
    step: Step,
    ranks: int | Iterable[int],
    *,
    model: WorldModel,
    bucket_mb: float = BUCKET_MB,
    overlap: bool | None = None,
    codec: CodecCost | None = None,
    meetings: int = 2,
    level: str | None = None,
) -> Prediction | Scaling:
    """Predict a data-parallel step, whose gradients are summed over ranks, from a step on one rank and a model of the
    ranks' collectives; for several numbers of ranks, a table of predictions. Each rank has a batch as large as that of
    the step.

    With `overlap` sums go on beside the backward pass, in buckets of `bucket_mb` as `DistributedGradient` makes them,
    one after the other; without, all are summed after it, in one bucket. None: as the ranks that were measured do, and
    not with a codec. A bucket takes `meetings` collectives: `DistributedGradient` has two, of gradients and of which
    ranks have them, `aggregate` one. `level` is "node" or "network"; None: the one that was measured for so many ranks.

    More ranks than were measured are an extrapolation, and marked as one. The model knows neither ranks that share a
    core nor ranks of which some are slower than others.

    >>> import pullback as pb
    >>> from pullback.distributed import GradientTime, Measurement, Step, WorldModel, predict
    >>> model = WorldModel(tuple(Measurement(n, size, 1e-5 * (n - 1) + size * 1e-9 * (n - 1) / n)
    ...                    for n in (2, 4) for size in (1024, 1 << 20, 1 << 24)))
    >>> step = Step(forward=0.004, backward=0.016, gradients=(GradientTime("w", 4_000_000, ready=0.016),))
    >>> predict(step, [1, 2, 4, 64], model=model)
    ranks     step  efficiency  speed-up  waiting     sums
        1    20 ms        1.00       1.0     0 ns     0 ns
        2    22 ms        0.91       1.8  2.02 ms  2.02 ms
        4  23.1 ms        0.87       3.5  3.06 ms  3.06 ms
       64  25.2 ms        0.79      50.8   5.2 ms   5.2 ms  extrapolated
    node: measured on 2, 4 ranks; fewer than three numbers of ranks do not test the law
    """
    if not step.gradients:
        raise ArgumentError("predict: the step has no gradients, so ranks have nothing to sum.")
    limit = check_number("predict: bucket_mb", bucket_mb, above=0.0)
    overlaps = (model.overlaps and codec is None) if overlap is None else overlap
    buckets = _make_buckets(step, limit) if overlaps else [list(step.gradients)]
    ready = [max(g.ready for g in bucket) for bucket in buckets] if overlaps else [step.backward]
    check_count(meetings, "predict: meetings")

    def at(count: int) -> Prediction:
        if check_count(count, "predict: ranks") == 1:
            return Prediction(1, step.compute, step.compute, 0.0)
        return _play(step, buckets, ready, _Cost(model, count, codec, meetings, level))

    return at(ranks) if isinstance(ranks, int | np.integer) else Scaling(tuple(map(at, ranks)))


def _play(step: Step, buckets: list[list[GradientTime]], ready: list[float], cost: _Cost) -> Prediction:
    sizes = [sum(g.bytes for g in bucket) for bucket in buckets]
    checks = [step.check * size / max(step.bytes, 1) for size in sizes]
    spans, end, waiting = play_buckets(ready, [cost.seconds(size) for size in sizes], checks, step.backward)
    times = tuple(
        BucketTime(tuple(g.name for g in bucket), size, at, *span)
        for bucket, size, at, span in zip(buckets, sizes, ready, spans, strict=True)
    )
    seconds = step.forward + end + step.update
    is_new = not min(cost.law.ranks) <= cost.ranks <= max(cost.law.ranks)
    return Prediction(cost.ranks, seconds, step.compute, waiting, times, is_new, cost.notes(max(sizes)))


def play_buckets(
    ready: Sequence[float], seconds: Sequence[float], checks: Sequence[float], backward: float
) -> tuple[list[tuple[float, float]], float, float]:
    """When the sum of each bucket starts and ends, when all are done, and how long that was waited for. Sums take
    turns, each as soon as its bucket is ready. At the end of the backward pass they are waited for in order, and each
    is checked.
    """
    spans: list[tuple[float, float]] = []
    free = 0.0
    for at, length in zip(ready, seconds, strict=True):
        start = max(at, free)
        free = start + length
        spans.append((start, free))
    now, waiting = backward, 0.0
    for (_, end), check in zip(spans, checks, strict=True):
        waiting += max(end - now, 0.0)
        now = max(end, now) + check
    return spans, now, waiting


class _Cost:
    """How long the sum of a bucket takes on some ranks."""

    def __init__(
        self, model: WorldModel, ranks: int, codec: CodecCost | None, meetings: int, level: str | None
    ) -> None:
        self.law = model.law(ranks, "total", level)
        self.ranks, self._model, self._codec, self._meetings = ranks, model, codec, meetings
        self._wire: Law = self.law
        if codec is not None and codec.gathers:
            self._wire = model.law(ranks, "all_gather", level)

    def seconds(self, size: int) -> float:
        n, codec = self.ranks, self._codec
        more = (self._meetings - 1) * self.law.latency(n)
        if codec is None:
            return self.law.seconds(n, size) + more
        payloads = n if codec.gathers else 1
        sent = size / codec.ratio
        coding = size * (codec.encode + codec.decode * payloads)
        return coding + self._wire.seconds(n, sent * payloads) + (codec.meetings - 1) * self._wire.latency(n) + more

    def notes(self, largest: int) -> tuple[str, ...]:
        law, cores = self.law, self._model.cores
        counts = ", ".join(map(str, law.ranks))
        found = [f"{law.level}: measured on {counts} ranks; {law.accuracy}"]
        if largest > 2 * law.largest:
            found.append(f"buckets of {format_bytes(largest)}: measured up to {format_bytes(law.largest)}")
        if law.level == "node" and cores and self.ranks > cores:
            found.append(f"more ranks than the {cores} cores that were measured: taking turns is not in the model")
        return tuple(found)


def _make_buckets(step: Step, bucket_mb: float) -> list[list[GradientTime]]:
    gradients = sorted(step.gradients, key=lambda g: g.ready)
    numbers = make_buckets([g.bytes for g in gradients], range(len(gradients)), bucket_mb)
    return [[gradients[i] for i in bucket] for bucket in numbers]
