"""Events as JSON in the format of Chrome's tracing, which Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...arrays.timing import MODULE, PULL
from .events import BESIDE_TRACK, FIRST_STREAM, Event
from .rank_clocks import RankClock

#: Where the tracks of streams begin.
_STREAMS = 1000


def trace_json(events: Sequence[Event], ranks: Sequence[RankClock]) -> str:
    """A process for each rank, a thread for each track."""
    tracks = sorted({(e.rank, e.track) for e in events})
    rows = [*_describe_ranks(ranks), *_describe_tracks(tracks), *map(_complete_event, events)]
    clocks = [{"rank": r.rank, "offset_ns": r.offset, "uncertainty_ns": r.uncertainty} for r in ranks]
    return json.dumps({"displayTimeUnit": "ms", "otherData": {"clocks": clocks}, "traceEvents": rows})


def _describe_ranks(ranks: Sequence[RankClock]) -> Iterator[dict[str, Any]]:
    for r in ranks:
        yield _metadata("process_name", r.rank, 0, {"name": f"rank {r.rank}"})
        yield _metadata("process_sort_index", r.rank, 0, {"sort_index": r.rank})


def _describe_tracks(tracks: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for rank, track in tracks:
        yield _metadata("thread_name", rank, _thread_of(track), {"name": track_name(track)})


def track_name(track: int) -> str:
    if track == BESIDE_TRACK:
        return "collectives under way"
    return f"GPU stream {FIRST_STREAM - track}" if track <= FIRST_STREAM else f"thread {track}"


def _thread_of(track: int) -> int:
    return track if track >= 0 else _STREAMS - track


def _metadata(name: str, rank: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": args}


def _complete_event(event: Event) -> dict[str, Any]:
    name = f"pull of {event.name}" if event.kind == PULL else event.name
    about = {"line": event.line, "module": event.module, "phase": event.phase, "bytes": event.nbytes}
    about |= {"moved": event.moved, "operations": event.operations, "runs": event.runs} if event.program else {}
    return {
        "ph": "X", "name": name or MODULE, "cat": event.kind, "pid": event.rank, "tid": _thread_of(event.track),
        "ts": event.start / 1e3, "dur": event.spent / 1e3, "args": {k: v for k, v in about.items() if v},
    }  # fmt: skip
