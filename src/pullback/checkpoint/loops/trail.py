"""The trail of a loop: two numbers for each state, to check that repeated steps lead to the same states."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.backends import device_of
from ...errors import RecomputeError
from ..recompute.fingerprint import Fingerprint, epsilon

#: The most runs remembered; a compiled program or an equation runs one loop on other arrays each time.
_RUNS = 16


class TrailCache:
    """The trails of a loop, one for the arrays that it starts from."""

    __slots__ = ("_found", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._found: dict[int, Trail] = {}

    def trail_from(self, leaves: Sequence[Any]) -> Trail:
        """The trail of a run from these arrays: a new one if there was none."""
        # reading a fingerprint would make the loop wait for the device
        if any(device_of(x) != "cpu" for x in leaves):
            return Trail(self._width)
        mark = _hash_fingerprints([Fingerprint(x) for x in leaves])
        found = self._found.get(mark)
        if found is None:
            found = self._found[mark] = Trail(self._width)
            # dictionaries keep the order of insertion
            for oldest in list(self._found)[:-_RUNS]:
                del self._found[oldest]
        return found


class Trail:
    """The first `width` arrays of each state: a hash of their fingerprints, and the sum of their samples, which tells
    rounding from other values. Where rounding differs once, a loop may lead anywhere, so nothing more is compared.
    States on a GPU are not recorded: the loop would have to wait for each.
    """

    __slots__ = ("_has_diverged", "_hashes", "_totals", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._has_diverged = False
        self._hashes, self._totals = array("q"), array("d")

    def check_state(self, step: int, state: Sequence[Any]) -> None:
        """Record the state after a step that runs for the first time; compare it if the step ran before."""
        seen = state[: self._width]
        if self._has_diverged or step > len(self._hashes) or any(device_of(x) != "cpu" for x in seen):
            return
        prints = [Fingerprint(x) for x in seen]
        mark = _hash_fingerprints(prints)
        if step == len(self._hashes):
            self._hashes.append(mark)
            self._totals.append(_sum_samples(prints)[0])
        elif self._hashes[step] != mark:
            self._compare(step, prints, seen)

    def _compare(self, step: int, prints: Sequence[Fingerprint], state: Sequence[Any]) -> None:
        total, size = _sum_samples(prints)
        # another order of additions, as from other threads, is no mistake
        apart = abs(total - self._totals[step])
        if not math.isnan(apart) and 0 < apart <= math.sqrt(max(epsilon(x.dtype) for x in state)) * size:
            self._has_diverged = True
            return
        raise RecomputeError(
            f"checkpoint_loop: step {step} leads to other values than when the loop ran.\n"
            "  Likely causes: something that it reads changed in between (a global, a closed-over list or object), or\n"
            "  it counts its calls, reads a clock or an iterator. Pass what it depends on as params, or in the state."
        )


def _hash_fingerprints(prints: Sequence[Fingerprint]) -> int:
    return hash(tuple([(p.words(), p.sample()) for p in prints]))


def _sum_samples(prints: Sequence[Fingerprint]) -> tuple[float, float]:
    """The sum of the samples, and of their magnitudes."""
    samples = [p.numbers() for p in prints]
    return sum(float(s.sum().real) for s in samples), sum(float(np.abs(s).sum()) for s in samples)
