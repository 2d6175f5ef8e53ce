"""Sums over ranks in memory that is given: the same tree of additions as `add_up`, so the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import HALF_CODES
from ...ops.dispatch import cast_array

#: Elements that are added at a time: terms and sum stay in the nearest caches.
_BLOCK = 16384


def add_up_into(terms: Sequence[Any], out: Any) -> None:
    """The sum of flat arrays into another, by the binary tree of `add_up`."""
    if out.dtype.char in HALF_CODES:
        sums = np.empty(out.shape, np.float32)
        add_up_into([cast_array(t, np.dtype(np.float32)) for t in terms], sums)
        out[...] = cast_array(sums, out.dtype)
    elif len(terms) <= 2:
        _add_tree(terms, out)
    else:
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            _add_tree([t[block] for t in terms], out[block])


def _add_tree(terms: Sequence[Any], out: Any) -> None:
    if len(terms) == 1:
        out[...] = terms[0]
    elif len(terms) == 2:
        np.add(terms[0], terms[1], out=out)
    else:
        # pairs of pairs: the left branch has the largest power of two of the terms
        left = 1 << (len(terms) - 1).bit_length() - 1
        _add_tree(terms[:left], out)
        if len(terms) == left + 1:
            right = terms[left]
        else:
            right = np.empty_like(out)
            _add_tree(terms[left:], right)
        np.add(out, right, out=out)
