"""`Prediction`: what a step on some ranks takes, bucket by bucket; and a table of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from ..arrays.text import format_bytes, format_seconds, text_table
from ..tools.render.svg_plots import draw_curves


class BucketTime(NamedTuple):
    """A bucket: its gradients and bytes, and the seconds after the backward pass began at which it is complete, its
    sum starts, and its sum ends.
    """

    names: tuple[str, ...]
    bytes: int
    ready: float
    start: float
    end: float


@final
@dataclass(frozen=True, slots=True)
class Prediction:
    """A step on some ranks: its seconds, those in which computation waits for sums, and when each bucket travels.
    `extrapolated` says that so many ranks were not measured; `notes` say what else to mind.

    >>> import pullback as pb
    >>> pb.distributed.Prediction(ranks=8, seconds=0.032, compute=0.024, waiting=0.008).speedup
    6.0
    """

    ranks: int
    seconds: float
    compute: float
    waiting: float
    buckets: tuple[BucketTime, ...] = ()
    extrapolated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float:
        """The time of the step on one rank, of that on all: 1 if sums cost nothing."""
        return self.compute / self.seconds if self.seconds else 1.0

    @property
    def speedup(self) -> float:
        """How many times more samples a second than one rank has, each with a batch of the same size."""
        return self.ranks * self.efficiency

    @property
    def communication(self) -> float:
        """The seconds of all sums, hidden behind the backward pass or not."""
        return sum(b.end - b.start for b in self.buckets)

    def __repr__(self) -> str:
        rows: list[Sequence[str]] = [("bucket", "gradients", "bytes", "ready", "starts", "ends")]
        for i, b in enumerate(self.buckets):
            times = [format_seconds(t) for t in (b.ready, b.start, b.end)]
            rows.append((str(i), str(len(b.names)), format_bytes(b.bytes), *times))
        timeline = [text_table(rows, right=range(6))] if self.buckets else []
        mark = " (extrapolated)" if self.extrapolated else ""
        head = (
            f"<{format_seconds(self.seconds)} a step on {self.ranks} ranks{mark}: efficiency {self.efficiency:.2f}, "
            f"{format_seconds(self.waiting)} waiting for {format_seconds(self.communication)} of sums>"
        )
        return "\n".join([head, *timeline, *self.notes])


@final
@dataclass(frozen=True, slots=True)
class Scaling:
    """Predictions for several numbers of ranks; it prints as a table.

    >>> import pullback as pb
    >>> pb.distributed.Scaling((pb.distributed.Prediction(ranks=8, seconds=0.025, compute=0.020, waiting=0.005),))
    ranks   step  efficiency  speed-up  waiting  sums
        8  25 ms        0.80       6.4     5 ms  0 ns
    """

    predictions: tuple[Prediction, ...]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)

    def __len__(self) -> int:
        return len(self.predictions)

    def __getitem__(self, number: int) -> Prediction:
        return self.predictions[number]

    def __repr__(self) -> str:
        rows: list[Sequence[str]] = [("ranks", "step", "efficiency", "speed-up", "waiting", "sums", "")]
        for p in self.predictions:
            times = [format_seconds(t) for t in (p.seconds, p.waiting, p.communication)]
            mark = "extrapolated" if p.extrapolated else ""
            rows.append((str(p.ranks), times[0], f"{p.efficiency:.2f}", f"{p.speedup:.1f}", *times[1:], mark))
        notes = dict.fromkeys(note for p in self.predictions for note in p.notes)
        return "\n".join([text_table(rows, right=range(6)), *notes])

    def svg(self, title: str = "Efficiency of a data-parallel step") -> str:
        """The efficiency against the number of ranks, dashed where it is extrapolated."""
        measured = [p.ranks for p in self.predictions if not p.extrapolated]
        return draw_curves(
            {"efficiency": ([p.ranks for p in self.predictions], [p.efficiency for p in self.predictions])},
            title=title,
            x_label="ranks",
            y_label="efficiency",
            log_x=True,
            cover=(0.0, 1.0),
            dashed_from=max(measured, default=0),
            dashed_label="extrapolated",
        )
