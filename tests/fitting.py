"""How the coefficients of the vector mathematics were found: polynomials at Chebyshev points, in many digits.

`python tests/fitting.py` prints the tables of `pullback/compile/cpu/coefficients.py` and `tables.py`.
"""

from itertools import pairwise

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def fitted(f, low, high, count):
    """The `count` coefficients (lowest power first) of the polynomial through f at the Chebyshev points of [low, high],
    rounded to float64.
    """
    low, high = mp.mpf(low), mp.mpf(high)
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    return tuple(float(c) for c in _interpolated(points, [f(x) for x in points]))


def _interpolated(points, values):
    """Newton's divided differences, then multiplied out."""
    table = list(values)
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - level])
    powers = [table[-1]]
    for c, x in zip(reversed(table[:-1]), reversed(points[:-1]), strict=True):
        moved = [mp.mpf(0), *powers]
        powers = [m - x * p for m, p in zip(moved, [*powers, mp.mpf(0)], strict=True)]
        powers[0] += c
    return powers


def _exp(r):
    return (mp.exp(r) - 1 - r) / r**2 if abs(r) > 1e-15 else mp.mpf(1) / 2 + r / 6


def _log(z):
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - mp.mpf(2) / 3 * s**3) / s**5


def _odd(f):
    """P in f(x) = x + x z P(z) with z = x^2."""
    return lambda z: (f(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def _erf(z):
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def _scaled_erfc(x):
    return mp.exp(x * x) * mp.erfc(x)


#: Where (x - k) / (x + k) is zero: in the middle of where erfc bends.
K = 3.75


def _erfcx(t):
    x = K * (1 + t) / (1 - t)
    grown = 1 / (x * mp.sqrt(mp.pi)) * (1 - 1 / (2 * x**2)) if x > 1e12 else mp.exp(x * x) * mp.erfc(x)
    return (1 + 2 * x) * grown


def _last_t(x):
    return (mp.mpf(x) - K) / (x + K)


#: Name, function, interval, and how many coefficients for float64 and for float32.
FITS = (
    ("EXP", _exp, -0.3466, 0.3466, 11, 5),
    ("LOG", _log, 1e-12, 0.02945, 9, 4),
    ("ATAN", _odd(mp.atan), 1e-12, 0.1716, 12, 5),
    ("ASIN", _odd(mp.asin), 1e-12, 0.25, 13, 6),
    ("SINH", _odd(mp.sinh), 1e-12, 1.0, 8, 4),
    ("ERF", _erf, 1e-12, 0.25, 11, 5),
    ("ERFC", _erfcx, _last_t(0.45), _last_t(28), 25, 13),
    ("ERF_NEAR", _erf, 1e-12, 1.002, 0, 6),
    ("ERF_FAR", _scaled_erfc, 0.999, 2.6, 0, 9),  # beyond, what it is multiplied by vanishes
    ("CBRT", mp.cbrt, 1.0, 2.0, 6, 6),
)


def tables():
    """Each table by its name: {bytes of the dtype: coefficients}."""
    return {
        name: {size: fitted(f, a, b, count) for size, count in ((8, n), (4, m)) if count}
        for name, f, a, b, n, m in FITS
    }


def tanh_table():
    """`TANH` of `pullback/compile/cpu/tables.py`: for each interval [2^e (1 + q/4) - 1, ...) its middle m and the
    coefficients of tanh(m + r); the middle is a float32 whose tanh is nearly one, found near the real middle.
    """
    edges = [mp.mpf(2) ** e * (1 + mp.mpf(q) / 4) - 1 for e in range(4) for q in range(4)] + [mp.mpf(15)]
    rows = [_tanh_about(low, high) for low, high in pairwise(edges)]
    return tuple(zip(*(rows[4:] + rows[:4]), strict=True))


def _tanh_about(low, high, count=6):
    if low >= 9:
        return (0.0, 1.0, *[0.0] * count)
    middle = _middle(low, high) if low else 0.0
    first = float(np.float32(float(mp.tanh(middle))))
    points = [
        (low + high) / 2 - middle + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)
    ]
    found = _interpolated(points, [(mp.tanh(middle + r) - first) / r for r in points])
    found[0] = found[0] if low else mp.mpf(1)  # tanh x is x where x is small
    return (middle, first, *(float(np.float32(float(c))) for c in found))


def _middle(low, high, count=2000):
    best = None
    for towards in (100, -100):
        x = np.float32(float((low + high) / 2))
        for _ in range(count):
            exact = mp.tanh(mp.mpf(float(x)))
            off = abs(exact - mp.mpf(float(np.float32(float(exact)))))
            best = (off, float(x)) if best is None or off < best[0] else best
            x = np.nextafter(x, np.float32(towards))
    return best[1]


if __name__ == "__main__":
    for row in tanh_table():
        print(f'numbers("{" ".join(map(repr, row))}"),')
    for name, table in tables().items():
        print(f"{name} = {{")
        for size, row in table.items():
            print(f'    {size}: numbers("{" ".join(map(repr, row))}"),')
        print("}")
