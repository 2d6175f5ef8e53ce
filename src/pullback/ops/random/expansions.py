"""Random draws expanded into elementwise ops, which the compiler can fuse.

Eager calls compute all words of a draw at once (`threefry.py`); a compiled program computes each where it is
used. Both run the same rounds, and a test compares them bit by bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ..elementwise.arithmetic import bitwise_left_shift, bitwise_right_shift, remainder
from ..elementwise.pointwise import add, bitwise_and, bitwise_or, multiply, subtract
from ..families import elementwise
from ..placement import move
from ..shape import arrange, reshaping
from .threefry import BITS, FOLDS, PARITY, ROTATIONS, SPLITS, threefry

#: Draws of more elements than this fall back to NumPy: a counter has 32 bits.
MAX_EXPANDED = 1 << 31
#: Counters up to here are one table. Others are the sums of two, so that they do not fill memory.
_TABLE, _COLUMNS = 1 << 19, 1 << 12


def _threefry_rounds(k: Any, first: Any, second: Any, high: Any, row: Any, low: Any) -> tuple[Any, Any]:
    """Both words of the block at the counter (high, row + low), in the scalar vocabulary; as in `threefry`."""
    keys = (first, second, k.bitwise_xor(k.bitwise_xor(first, second), k.constant(PARITY)))
    a, b = k.add(high, first), k.add(k.add(row, low), second)
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            a = k.add(a, b)
            b = k.bitwise_xor(k.rotate_left(b, k.constant(turn)), a)
        a = k.add(a, keys[(group + 1) % 3])
        b = k.add(b, k.add(keys[(group + 2) % 3], k.constant(group + 1)))
    return a, b


def _word_op(name: str, which: int) -> Any:
    def value(xp: Any, *arrays: Any) -> Any:
        first, second, high, row, low = (xp.atleast_1d(x) for x in arrays)
        wide = np.broadcast_shapes(*(x.shape for x in arrays))
        full = (xp.broadcast_to(high, wide or (1,)), xp.broadcast_to(row + low, wide or (1,)))
        return threefry(xp, (first, second), full)[which].reshape(wide)

    return elementwise(
        name, dict.fromkeys(("first", "second", "high", "row", "low")), doc="A random word of a key at a counter.",
        value=value, dtype="bits", kernel=lambda k, *scalars: _threefry_rounds(k, *scalars)[which],
        samples=lambda rng: [
            (tuple(rng.integers(0, 2**32, size=n, dtype=np.uint32) for n in shape), {})
            for shape in ((1, 1, 1, 1, 5), ((), (), (), (), ()), ((2, 1), (2, 1), 3, 1, 3), (0, 0, 1, 1, 0))
        ],
    )  # fmt: skip


first_word = _word_op("random_word_first", 0)
second_word = _word_op("random_word_second", 1)


def _word_pairs(key: Any, count: int, purpose: int) -> tuple[Any, Any]:
    """Both words of the first blocks of each key: (*lead, 2) in, (*lead, count) twice out; of more blocks than fit into
    a table, (*lead, rows, columns) with a few too many.
    """
    xp, lead = namespace_on(spec_of(key).device), spec_of(key).shape[:-1]
    row, columns, halves = xp.zeros(1, np.uint32), count, [key[..., :1], key[..., 1:]]
    if count > _TABLE:
        columns = math.gcd(count, _TABLE) if count % _COLUMNS == 0 else _COLUMNS
        row = xp.arange(0, count, columns, dtype=np.uint32)[:, None]
        halves = [reshaping.reshape(x, (*lead, 1, 1)) for x in halves]
    counter = xp.full(1, purpose, np.uint32), row, xp.arange(columns, dtype=np.uint32)
    return first_word(*halves, *counter), second_word(*halves, *counter)


def _flatten_grid(words: Any, rank: int, tail: tuple[int, ...], count: int) -> Any:
    """The first words as (*lead, count, *tail), where the lead has a rank."""
    shape = spec_of(words).shape
    flat = reshaping.reshape(words, (*shape[:rank], math.prod(shape[rank:]) // math.prod(tail), *tail))
    return flat if spec_of(flat).shape[rank] == count else flat[(slice(None),) * rank + (slice(count),)]


def expand_bits(key: Any, shape: tuple[int, ...], width: int) -> Any:
    size, lead = math.prod(shape), spec_of(key).shape[:-1]
    a, b = _word_pairs(key, size if width == 64 else -(-size // 2), BITS)
    if width == 32:
        words = arrange.stack([a, b], axis=-1)
    else:
        high, low = (reshaping.astype(x, np.uint64) for x in (a, b))
        words = bitwise_or(bitwise_left_shift(high, np.uint64(32)), low)
    return reshaping.reshape(_flatten_grid(words, len(lead), (), size), (*lead, *shape))


def expand_split(key: Any, count: int) -> Any:
    words = arrange.stack(list(_word_pairs(key, count, SPLITS)), axis=-1)
    return _flatten_grid(words, len(spec_of(key).shape) - 1, (2,), count)


def expand_fold_in(key: Any, data: Any) -> Any:
    # a number goes where the key is: with an axis it would be an array of the CPU
    number = reshaping.expand_dims(move(reshaping.astype(data, np.int64), spec_of(key).device), -1)
    low = reshaping.astype(bitwise_and(number, np.int64(0xFFFFFFFF)), np.uint32)
    top = bitwise_and(bitwise_right_shift(number, np.int64(32)), np.int64(0x0FFFFFFF))
    high = bitwise_or(reshaping.astype(top, np.uint32), np.uint32(FOLDS))
    counter = high, namespace_on(spec_of(key).device).zeros(1, np.uint32), low
    halves = key[..., :1], key[..., 1:]
    return arrange.concat([word(*halves, *counter) for word in (first_word, second_word)], axis=-1)


def expand_unit(bits: Any, dtype: Any, digits: int) -> Any:
    """(k + 1/2) / 2^m of the m highest bits k: exact in the dtype, or in the wider one it is cast from."""
    words = spec_of(bits).dtype
    wide = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    top = bitwise_right_shift(bits, words.type(8 * words.itemsize - digits))
    found = multiply(add(reshaping.astype(top, wide), wide.type(0.5)), wide.type(2.0**-digits))
    return reshaping.astype(found, dtype)


def expand_range(bits: Any, low: Any, high: Any) -> Any:
    span = reshaping.astype(subtract(high, low), np.uint64)
    return add(reshaping.astype(low, np.int64), reshaping.astype(remainder(bits, span), np.int64))
