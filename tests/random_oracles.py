"""The ops of `pullback.random` said in plain Python integers and SciPy's distributions, for the generated tests."""

from __future__ import annotations

import numpy as np
from scipy import stats

MASK = 2**32 - 1


def threefry(key, counter):
    """Threefry-2x32-20 on Python integers."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    a, b = (counter[0] + keys[0]) & MASK, (counter[1] + keys[1]) & MASK
    turns = (13, 15, 26, 6, 17, 29, 16, 24)
    for r in range(20):
        a = (a + b) & MASK
        b = ((b << turns[r % 8] | b >> (32 - turns[r % 8])) & MASK) ^ a
        if r % 4 == 3:
            n = r // 4 + 1
            a, b = (a + keys[n % 3]) & MASK, (b + keys[(n + 1) % 3] + n) & MASK
    return a, b


def random_bits(key, shape, width):
    key, size = key.tolist(), int(np.prod(shape))
    if width == 64:
        pairs = [threefry(key, (0, i)) for i in range(size)]
        return np.array([a << 32 | b for a, b in pairs], np.uint64).reshape(shape)
    flat = [word for i in range(-(-size // 2)) for word in threefry(key, (0, i))]
    return np.array(flat[:size], np.uint32).reshape(shape)


def random_word(words, which):
    shape = np.broadcast_shapes(*map(np.shape, words))
    rows = zip(*(np.broadcast_to(w, shape).ravel().tolist() for w in words), strict=True)
    return np.array([threefry((a, b), (c, d))[which] for a, b, c, d in rows], np.uint32).reshape(shape)


def split_key(key, count):
    return np.array([threefry(key.tolist(), (0x80000000, i)) for i in range(count)], np.uint32).reshape(count, 2)


def fold_in(key, data):
    flat = [threefry(key.tolist(), (0x40000000 | (n >> 32 & 0x0FFFFFFF), n & MASK)) for n in data.ravel().tolist()]
    return np.array(flat, np.uint32).reshape(*data.shape, 2)


def unit(draws):
    return ((draws[0] << 32 | draws[1]) >> 12) / 2**52 + 2.0**-53


def log_gamma_draw(key, a):
    """Marsaglia and Tsang, one element after the other, for a >= 1 and below."""

    def one(place, shape):
        grown = shape + 1 if shape < 1 else shape
        d, attempt = grown - 1 / 3, 0
        while True:
            u, w = (unit(threefry(key.tolist(), (0x20000000 | 2 * attempt + j, place))) for j in (0, 1))
            z = stats.norm.ppf(u)
            v = (1 + z / np.sqrt(9 * d)) ** 3
            if v > 0 and np.log(w) < z * z / 2 + d * (1 - v + np.log(v)):
                break
            attempt += 1
        boost = np.log(unit(threefry(key.tolist(), (0x20FFFFFF, place)))) / shape if shape < 1 else 0.0
        return np.log(d * v) + boost

    return np.array([one(i, shape) for i, shape in enumerate(a.ravel().tolist())]).reshape(a.shape)


RANDOM = {
    "random_word_first": lambda *words: random_word(words, 0),
    "random_word_second": lambda *words: random_word(words, 1),
    "random_bits": random_bits,
    "split_key": split_key,
    "fold_in": fold_in,
    "random_unit": lambda bits, dtype: (bits >> np.uint64(12)).astype(float) / 2**52 + 2.0**-53,
    "log_gamma_draw": log_gamma_draw,
    "poisson_draw": lambda u, rate: stats.poisson.ppf(u, rate),
    "binomial_draw": lambda u, n, p: stats.binom.ppf(u, n, p),
    "random_ranged": lambda bits, low, high: np.array(
        [int(lo) + int(b) % (int(hi) - int(lo)) for b, lo, hi in np.broadcast(bits, low, high)]
    ),
    "random_order": lambda bits: np.argsort(bits, axis=-1),
}
