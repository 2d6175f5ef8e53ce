"""Ops that only compare ranks: `barrier`, which waits for all, `compare_replicas`, and `check_sums`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import make_spec
from ...arrays.timing import MEETING, span
from .. import statics
from ..families import general
from ..op import COLLECTIVE
from .batching import batch_behind
from .checks import check_alike, digest_of
from .exchange import Concatenation, Nothing
from .many import NAMES, check_totals
from .records import RANKS, meet, world_of
from .world import make_call


def _wait_for_all(xp: Any, ranks: int, text: str) -> Any:
    """Meet all ranks, who must have the same text."""
    call = make_call(text or "barrier", Nothing(), ())
    with span(MEETING, call):
        world_of("barrier", ranks).meet(call, xp, (), Nothing())
    return np.ones((), np.bool_)


def _compare_replicas(xp: Any, steps: Any, params: Sequence[Any], ranks: int, every: int, names: Any) -> Any:
    if int(steps) % every == 0:
        digests = [digest_of(x.get() if xp is not np else x) for x in params]
        found = meet(np, "digests of replicas", np.array(digests, np.uint64).reshape(1, -1), ranks, Concatenation(0))
        check_alike(names, found)
    return np.ones((), np.bool_)


def _check_sums(xp: Any, arrays: Sequence[Any], ranks: int, names: tuple[str, ...]) -> Any:
    check_totals(xp, arrays[: len(names)], arrays[len(names) :], ranks, names)
    return np.ones((), np.bool_)


#: Named arrays of a rank's own, and as many sums that came of them: these are common, so ranks meet only to raise.
sums_op = general(
    "check_sums",
    statics={"ranks": RANKS, "names": NAMES},
    value=lambda xp, *arrays, ranks, names: _check_sums(xp, arrays, ranks, names),
    spec=lambda *arrays, ranks, names: make_spec((), np.dtype(bool), "cpu"),
    batch=batch_behind(0, True),
    samples=lambda rng: [((rng.normal(size=3), rng.normal(size=3)), {"ranks": 1, "names": ("w",)})],
    effects=COLLECTIVE,
    wide=False,
)
replicas_op = general(
    "compare_replicas",
    statics={"ranks": RANKS, "every": statics.integer(1), "names": NAMES},
    value=lambda xp, steps, *params, ranks, every, names: _compare_replicas(xp, steps, params, ranks, every, names),
    spec=lambda steps, *params, ranks, every, names: make_spec((), np.dtype(bool), "cpu"),
    batch=batch_behind(1, True),
    samples=lambda rng: [((np.array(0), rng.normal(size=3)), {"ranks": 1, "every": 1, "names": ("w",)})],
    effects=COLLECTIVE,
    wide=False,
)
barrier_op = general(
    "barrier",
    statics={"ranks": RANKS, "text": statics.text},
    value=lambda xp, ranks, text: _wait_for_all(xp, ranks, text),
    spec=lambda ranks, text: make_spec((), np.dtype(bool), "cpu"),
    samples=lambda rng: [((), {"ranks": 1, "text": ""})],
    effects=COLLECTIVE,
)
