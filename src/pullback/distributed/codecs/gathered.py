"""Payloads of all ranks in, the sum of what they stand for out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...transforms.control.branches_and_loops import fori_loop

#: Up to so many ranks the sum is written out, so that it is one pass over memory; beyond, it would be long to compile.
_WRITTEN_OUT = 16


def add_shares(decode: Callable[..., Any], *gathered: Any) -> Any:
    """The sum over ranks of `decode(*payload)`, where the first axis of what was gathered counts the ranks."""
    ranks = shape(gathered[0])[0]

    def decode_share(rank: Any) -> Any:
        return decode(*(getitem(x, rank) for x in gathered))

    found = decode_share(0)
    for rank in range(1, min(ranks, _WRITTEN_OUT)):
        found = pointwise.add(found, decode_share(rank))
    if ranks <= _WRITTEN_OUT:
        return found
    return fori_loop(_WRITTEN_OUT, ranks, lambda rank, so_far: pointwise.add(so_far, decode_share(rank)), found)
