"""The places of the largest elements, in one pass over most of an array: for what sends only these."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError
from .. import statics
from ..dispatch import apply, as_value, shape
from ..elementwise import pointwise
from ..families import general
from ..forms import elsewhere
from ..op_samples import normal_samples
from .sorting import argsort, sort

#: Elements that the bound of what can be among the largest is guessed from.
_SAMPLE = 4096


def largest_places(x: Any, count: int) -> Any:
    """The places of the `count` elements of largest absolute value along the last axis, in increasing order; of equal
    ones any. NaN counts as largest.
    """
    x = as_value(x)
    if not 1 <= count <= shape(x)[-1]:
        raise ArgumentError(f"largest_places: {count} of {shape(x)[-1]} elements.")
    return apply(_largest_places, x, count=count)


def _find_places(xp: Any, x: Any, count: int) -> Any:
    sizes = xp.abs(x)
    if xp is not np:
        return xp.sort(xp.argpartition(sizes, x.shape[-1] - count, axis=-1)[..., -count:], axis=-1)
    rows = sizes.reshape(-1, x.shape[-1])
    found = np.stack([_find_in_row(row, count) for row in rows]) if len(rows) else np.empty((0, count), np.intp)
    return found.reshape(*x.shape[:-1], count)


def _find_in_row(sizes: Any, count: int) -> Any:
    """Those above a guess are few, and to find the largest among them is quick; a guess too high is noticed."""
    if sizes.size < 4 * _SAMPLE or count * 4 > sizes.size:
        return np.sort(np.argpartition(sizes, sizes.size - count)[-count:])
    sample = sizes[:: sizes.size // _SAMPLE]
    expected = 1 + int(1.5 * sample.size * count / sizes.size)
    place = max(sample.size - expected - 8, 0)
    guess = np.partition(sample, place)[place]
    candidates = np.flatnonzero(~(sizes < guess))
    if candidates.size < count:
        candidates = np.arange(sizes.size)
    best = np.argpartition(sizes[candidates], candidates.size - count)[-count:]
    return candidates[np.sort(best)]


def _expand_places(x: Any, count: int) -> Any:
    order = argsort(pointwise.abs(x), axis=-1, descending=True)
    return sort(order[..., :count], axis=-1)


def _spec(x: Spec, count: int) -> Spec:
    return make_spec((*x.shape[:-1], count), np.dtype(np.intp), x.device)


_largest_places = general(
    "largest_places",
    statics={"count": statics.integer(1)},
    value=_find_places,
    spec=_spec,
    samples=normal_samples([(4,), (2, 3), (5,)], count=[2, 1, 5]),
    form=elsewhere(_expand_places),
)
