"""The counter-based random generator Threefry-2x32 with 20 rounds, on arrays of keys and counters.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). A word depends on its key and its
counter alone, so any part of a stream can be computed at any time, in any order, on any machine.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from ...arrays.spec import Spec
from ...errors import ShapeError

#: The use of a counter, in its four highest bits, so that keys derived from a key never repeat its numbers.
BITS, DRAWS, FOLDS, SPLITS = 0x00000000, 0x20000000, 0x40000000, 0x80000000
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
#: Columns at a time, so that the four arrays at work stay in the cache.
_BLOCK = 1 << 13


def key_batch_shape(key: Spec, what: str = "random") -> tuple[int, ...]:
    """The axes of an array of keys, each of which is two words on the last axis."""
    if key.dtype.name != "uint32" or key.shape[-1:] != (2,):
        raise ShapeError(f"{what}: a key is a uint32 array of shape (2,), got {key}.\n  Make one with pb.random.key.")
    return key.shape[:-1]


def sample_key(rng: Any) -> Any:
    """A key to test on."""
    return rng.integers(0, 2**32, size=(2,), dtype="uint32")


@cache
def _word_constant(xp: Any, number: int) -> Any:
    """A constant: a 0-d array, which NumPy handles at half the cost of a number; for CuPy a scalar, on every device."""
    return np.asarray(number, "uint32") if xp is np else np.uint32(number)


def threefry(xp: Any, key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two random words per counter, all uint32 arrays of at least one axis that broadcast together."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _word_constant(xp, PARITY))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    spare = xp.empty_like(b)
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            a += b
            xp.right_shift(b, _word_constant(xp, 32 - turn), out=spare)
            xp.left_shift(b, _word_constant(xp, turn), out=b)
            b |= spare
            b ^= a
        a += keys[(group + 1) % 3]
        b += keys[(group + 2) % 3] + _word_constant(xp, group + 1)
    return a, b


def generate_words(xp: Any, key: Any, count: int, purpose: int, first: int = 0) -> Any:
    """The first `count` blocks of two words of each key: (*lead, 2) in, (*lead, count, 2) out.

    `first` is the position of a block's first word in its pair.
    """
    lead = key.shape[:-1]
    pairs = key.reshape(-1, 2)
    out = xp.empty((pairs.shape[0], count, 2), "uint32")
    halves = pairs[:, :1], pairs[:, 1:]
    for start in range(0, count, _BLOCK):
        place = xp.arange(start, min(start + _BLOCK, count), dtype="int64")[None, :]
        high, low = (place >> 32).astype("uint32") | _word_constant(xp, purpose), (place & 0xFFFFFFFF).astype("uint32")
        a, b = threefry(xp, halves, (high, low))
        out[:, start : start + _BLOCK, first], out[:, start : start + _BLOCK, 1 - first] = a, b
    return out.reshape(*lead, count, 2)


#: The position of the high word among the two 32-bit halves of a 64-bit word in memory.
HIGH = 1 if sys.byteorder == "little" else 0


def join_words(pairs: Any) -> Any:
    """(..., 2) words of 32 bits, the high one at `HIGH`, as words of 64."""
    return pairs.view("uint64")[..., 0]
