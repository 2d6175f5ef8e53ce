"""Random draws in Python integers: Threefry, keys, uniform and discrete distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

_WORD = 2**32
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32-20 (Salmon, Moraes, Dror and Shaw 2011)."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    a, b = (counter[0] + keys[0]) % _WORD, (counter[1] + keys[1]) % _WORD
    for r in range(20):
        a = (a + b) % _WORD
        b = (b << _ROTATIONS[r % 8]) % _WORD ^ b >> (32 - _ROTATIONS[r % 8]) ^ a
        if r % 4 == 3:
            n = r // 4 + 1
            a, b = (a + keys[n % 3]) % _WORD, (b + keys[(n + 1) % 3] + n) % _WORD
    return a, b


def _random_bits(key: Any, shape: tuple[int, ...], width: int) -> Any:
    words = tuple(key.tolist())
    size = math.prod(shape)
    if width == 64:
        pairs = [threefry(words, (0, i)) for i in range(size)]
        return np.array([a << 32 | b for a, b in pairs], np.uint64).reshape(shape)
    flat = [word for i in range(-(-size // 2)) for word in threefry(words, (0, i))]
    return np.array(flat[:size], np.uint32).reshape(shape)


def _split_key(key: Any, count: int) -> Any:
    words = tuple(key.tolist())
    return np.array([threefry(words, (0x80000000, i)) for i in range(count)], np.uint32).reshape(count, 2)


def _fold_in(key: Any, data: Any) -> Any:
    words = tuple(key.tolist())
    found = [threefry(words, (0x40000000 | (n >> 32 & 0x0FFFFFFF), n % _WORD)) for n in data.ravel().tolist()]
    return np.array(found, np.uint32).reshape(*data.shape, 2)


def _unit_interval(bits: int, width: int = 64, digits: int = 52) -> float:
    """The middle of one of 2^52 equal parts of the line from 0 to 1, or of fewer where a dtype has fewer digits."""
    return ((bits >> (width - digits)) + 0.5) / 2.0**digits


def _random_unit(bits: Any, dtype: Any) -> Any:
    width, digits = 8 * bits.dtype.itemsize, min(int(np.finfo(dtype).nmant), 52)
    return np.array([_unit_interval(b, width, digits) for b in bits.ravel().tolist()]).reshape(bits.shape)


def _log_gamma(key: Any, a: Any) -> Any:
    words = tuple(key.tolist())
    found = [_one_log_gamma(words, i, shape) for i, shape in enumerate(a.ravel().tolist())]
    return np.array(found, float).reshape(a.shape)


def _one_log_gamma(words: tuple[int, int], place: int, shape: float) -> float:
    """Marsaglia and Tsang's method, attempt after attempt; a shape below 1 is raised by 1 and the draw scaled down."""

    def uniform(high: int) -> float:
        first, second = threefry(words, (0x20000000 | high, place))
        return _unit_interval(first << 32 | second)

    d = (shape + 1 if shape < 1 else shape) - 1 / 3
    attempt = 0
    while True:
        z = NormalDist().inv_cdf(uniform(2 * attempt))
        v = (1 + z / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(2 * attempt + 1)) < z * z / 2 + d * (1 - v + math.log(v)):
            break
        attempt += 1
    return math.log(d * v) + (math.log(uniform(0xFFFFFF)) / shape if shape < 1 else 0.0)


def _invert_cumulative(first: float, ratio: Callable[[int], float], u: float, last: float = math.inf) -> int:
    """The first integer k at which the sum of probabilities, each `ratio(k)` times the one before, reaches u."""
    terms, k = [first], 0
    while math.fsum(terms) < u and k < last:
        k += 1
        terms.append(terms[-1] * ratio(k))
    return k


def _poisson(u: Any, rate: Any) -> Any:
    rows = np.broadcast(u, rate)
    found = [_invert_cumulative(math.exp(-r), lambda k, r=r: r / k, p) for p, r in rows]  # type: ignore[misc]
    return np.array(found, np.int64).reshape(rows.shape)


def _binomial(u: Any, n: Any, p: Any) -> Any:
    rows = np.broadcast(u, n, p)
    found = [
        _invert_cumulative((1 - c) ** m, lambda k, m=m, c=c: (m - k + 1) / k * c / (1 - c), x, m)  # type: ignore[misc]
        for x, m, c in rows
    ]
    return np.array(found, np.int64).reshape(rows.shape)


def _random_in_range(bits: Any, low: Any, high: Any) -> Any:
    rows = np.broadcast(bits, low, high)
    found = [int(lo) + int(b) % (int(hi) - int(lo)) for b, lo, hi in rows]
    return np.array(found, np.int64).reshape(rows.shape)


def _random_order(bits: Any) -> Any:
    rows = [sorted(range(len(row)), key=row.__getitem__) for row in bits.reshape(-1, bits.shape[-1]).tolist()]
    return np.array(rows, np.int64).reshape(bits.shape)


RANDOM_ORACLES: dict[str, Callable[..., Any]] = {
    "random_bits": _random_bits,
    "split_key": _split_key,
    "fold_in": _fold_in,
    "random_unit": _random_unit,
    "random_ranged": _random_in_range,
    "random_order": _random_order,
    "log_gamma_draw": _log_gamma,
    "poisson_draw": _poisson,
    "binomial_draw": _binomial,
}
