"""The vector mathematics against mpmath: two units in the last place, special values exact."""

import math

import mpmath as mp
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from elementwise import run_word
from fitting import tables, tanh_table

import pullback as pb
from pullback.compile.cpu.math import coefficients
from pullback.compile.cpu.math.tables import TANH
from pullback.compile.jit import jit
from pullback.compile.vocabulary import VOCABULARY

COUNT = 360
DTYPES = [np.float32, np.float64]
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    np.inf,
    -np.inf,
    np.nan,
    1e300,
    -1e300,
    1e-310,
    -1e-310,
]


def spread(low, high):
    """Numbers evenly between bounds."""
    return lambda rng, n: rng.uniform(low, high, n)


def scales(smallest, largest, signed=True):
    """Numbers of every size, as powers of two between bounds."""

    def sample(rng, n):
        size = np.exp2(rng.uniform(smallest, largest, n))
        return size * (rng.choice([-1.0, 1.0], n) if signed else 1.0)

    return sample


def close_to(*points):
    """Numbers at all distances from some."""
    return lambda rng, n: rng.choice(points, n) * (1 + np.exp2(rng.uniform(-52, -3, n)) * rng.choice([-1.0, 1.0], n))


EVERY = scales(-1074, 1023.9)
POSITIVE = scales(-1074, 1023.9, signed=False)
UNARY = {
    "exp": (mp.exp, spread(-746, 710), spread(-104, 89), scales(-60, 3)),
    "exp2": (lambda x: mp.mpf(2) ** x, spread(-1076, 1024), spread(-150, 128), scales(-60, 3)),
    "expm1": (mp.expm1, spread(-40, 709), spread(-20, 89), scales(-1074, 3)),
    "sinh": (mp.sinh, spread(-710, 710), spread(-89, 89), scales(-1074, 3)),
    "cosh": (mp.cosh, spread(-710, 710), spread(-89, 89), scales(-60, 3)),
    "tanh": (mp.tanh, spread(-20, 20), EVERY, scales(-20, 4)),
    "sigmoid": (lambda x: 1 / (1 + mp.exp(-x)), spread(-700, 40), spread(-88, 20), scales(-20, 3)),
    "log": (mp.log, POSITIVE, close_to(1.0), spread(0, 10)),
    "log2": (lambda x: mp.log(x) / mp.log(2), POSITIVE, close_to(1.0), spread(0, 10)),
    "log10": (lambda x: mp.log(x) / mp.log(10), POSITIVE, close_to(1.0), spread(0, 10)),
    "log1p": (lambda x: mp.log1p(x), POSITIVE, scales(-1074, -0.001), close_to(-1.0)),
    "asinh": (mp.asinh, EVERY, scales(-30, 4)),
    "acosh": (mp.acosh, scales(0, 1023, False), close_to(1.0), spread(1, 4)),
    "atanh": (mp.atanh, scales(-1074, -0.0001), close_to(1.0, -1.0), spread(-1, 1)),
    "sin": (mp.sin, spread(-10, 10), EVERY, close_to(np.pi, 1e3 * np.pi), spread(-8000, 8000)),
    "cos": (mp.cos, spread(-10, 10), EVERY, close_to(np.pi / 2, 1e3 * np.pi), spread(-8000, 8000)),
    "tan": (mp.tan, spread(-10, 10), EVERY, close_to(np.pi, np.pi / 2, np.pi / 4), spread(-8000, 8000)),
    "asin": (mp.asin, scales(-1074, 0), spread(-1, 1), close_to(0.5, -0.5)),
    "acos": (mp.acos, scales(-60, 0), spread(-1, 1), close_to(0.5, -0.5, 1.0, -1.0)),
    "atan": (mp.atan, EVERY, spread(-5, 5), close_to(0.41421356237309503, 1.0, 2.414213562373095)),
    "erf": (mp.erf, EVERY, spread(-6, 6), close_to(0.5, -0.5, 4.0)),
    "erfc": (mp.erfc, spread(-6, 27.2), spread(-4, 10.1), scales(-60, 3)),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), EVERY, spread(-30, 30)),
}
BINARY = {
    "power": (
        mp.power, (POSITIVE, scales(-12, 10)), (spread(0, 100), spread(-30, 30)), (close_to(1.0), scales(20, 60)),
    ),
    "atan2": (mp.atan2, (EVERY, EVERY), (spread(-3, 3), spread(-3, 3)), (scales(-1074, -1000), scales(-1074, -1000))),
    "hypot": (mp.hypot, (EVERY, EVERY), (spread(-3, 3), spread(-3, 3)), (scales(-1074, -1000), scales(-1074, -1000))),
    "logaddexp": (
        lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), (spread(-600, 600), lambda rng, n: np.zeros(n)),
        (spread(0, 20), spread(-5, 20)), (scales(-60, 3), lambda rng, n: np.zeros(n)),
    ),
}  # fmt: skip


def units_off(found, exact, dtype):
    """How far a number is from the exact value, in units of the last place that this value has."""
    limits = np.finfo(dtype)
    if abs(exact) > mp.mpf(float(limits.max)) * (1 + mp.mpf(float(limits.eps)) / 4):
        return 0.0 if np.isinf(found) and (found > 0) == (exact > 0) else math.inf
    if not np.isfinite(found):
        nearly = abs(exact) > mp.mpf(float(limits.max)) * (1 - 2 * mp.mpf(float(limits.eps)))
        return 1.0 if nearly and np.isinf(found) else math.inf
    exponent = mp.floor(mp.log(abs(exact), 2)) if exact else limits.minexp
    unit = mp.mpf(2) ** (max(int(exponent), limits.minexp) - limits.nmant)
    return float(abs(mp.mpf(float(found)) - exact) / unit)


def worst(word, function, samples, dtype):
    rng = np.random.default_rng(sum(map(ord, word)))
    count = COUNT // len(samples)
    parts = [[s(rng, count) for s in (group if isinstance(group, tuple) else (group,))] for group in samples]
    with np.errstate(over="ignore", under="ignore"):
        args = [np.concatenate(columns).astype(dtype) for columns in zip(*parts, strict=True)]
    good = np.all(np.isfinite(args), axis=0) & (args[0] != 0)  # mpmath has no signed zero
    if word in ("log1p", "atanh", "acosh", "asin", "acos", "log", "log2", "log10", "power"):
        good &= inside(word, args[0])
    args = [a[good] for a in args]
    found = run_word(word, *args)
    with mp.workprec(1300 if word in ("sin", "cos", "tan", "logaddexp") else 260):
        off = [units_off(f, function(*map(mp.mpf, map(float, xs))), dtype) for f, *xs in zip(found, *args, strict=True)]
    at = int(np.argmax(off))
    return off[at], [float(a[at]) for a in args]


def inside(word, x):
    """Where a function is defined and finite."""
    low, high = {"log1p": (-1, 1e999), "atanh": (-1, 1), "acosh": (0.9999999, 1e999)}.get(word, (0, 1e999))
    if word in ("asin", "acos"):
        return np.abs(x) <= 1
    return (x >= 1) if word == "acosh" else (x > low) & (x < high)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", UNARY)
def test_function_is_within_two_units(word, dtype):
    function, *samples = UNARY[word]
    off, at = worst(word, function, samples, dtype)
    assert off <= 2, at


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", BINARY)
def test_function_of_two_is_within_two_units(word, dtype):
    function, *samples = BINARY[word]
    off, at = worst(word, function, samples, dtype)
    assert off <= 2, at


@pytest.mark.parametrize("dtype", DTYPES)
def test_softplus_is_within_two_units_and_cheap(dtype):
    """Its terms never cancel, so it needs no double-double as log(e^x + e^y) does, which takes six times as long."""
    rng = np.random.default_rng(0)
    x = np.concatenate([spread(-80, 40)(rng, 200), scales(-60, 3)(rng, 160)]).astype(dtype)
    f = jit(pb.softplus)
    with mp.workprec(260):
        off = [units_off(y, mp.log1p(mp.exp(mp.mpf(float(v)))), dtype) for y, v in zip(f(x), x, strict=True)]
    assert max(off) <= 2, x[int(np.argmax(off))]
    found = f(np.array([-np.inf, np.inf, np.nan, -0.0, -1e300 if dtype is np.float64 else -1e30], dtype))
    np.testing.assert_array_equal(found, np.array([0, np.inf, np.nan, math.log(2), 0], dtype))
    assert "pb_logaddexp" not in f.lower(x).llvm


def oracle(word):
    names = {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "asin": "arcsin", "acos": "arccos"}
    names |= {"atan": "arctan", "atan2": "arctan2"}
    if word in ("erf", "erfc"):
        return np.vectorize(getattr(math, word))
    if word == "sigmoid":
        return lambda x: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)
    return getattr(np, names.get(word, word))


def identical(found, wanted, units):
    """The same special values with the same signs; elsewhere close."""
    special = ~np.isfinite(wanted) | (wanted == 0)
    np.testing.assert_array_equal(found[special], wanted[special].astype(found.dtype))
    plain = special & ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[plain]), np.signbit(wanted[plain]))
    limits = np.finfo(found.dtype)
    np.testing.assert_allclose(
        found, wanted, rtol=units * float(limits.eps), atol=units * float(limits.smallest_subnormal)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", [*UNARY, "floor", "ceil", "trunc", "rint", "abs", "sign", "sqrt"])
def test_special_values(word, dtype):
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, 2.5, -1.5]).astype(dtype)
        wanted = np.asarray(oracle(word)(x)).astype(dtype)
    identical(run_word(word, x), wanted, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", [*BINARY, "fmod", "remainder", "floor_divide", "copysign", "nextafter"])
def test_special_values_of_two(word, dtype):
    with np.errstate(all="ignore"):
        points = np.array([*SPECIAL, 7.5, -7.5, 0.3]).astype(dtype)
        x, y = (a.ravel().copy() for a in np.meshgrid(points, points))
        wanted = oracle(word)(x, y)
    identical(run_word(word, x, y), wanted, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", ["fmax", "fmin", "maximum", "minimum"])
def test_larger_and_smaller(word, dtype):
    points = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5], dtype)
    x, y = (a.ravel().copy() for a in np.meshgrid(points, points))
    np.testing.assert_array_equal(run_word(word, x, y), getattr(np, word)(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_are_exact_where_they_can_be(dtype):
    base, exponent = np.meshgrid(np.arange(-7.0, 8.0), np.arange(0.0, 9.0))
    x, y = base.ravel().astype(dtype), exponent.ravel().astype(dtype)
    np.testing.assert_array_equal(run_word("power", x, y), x**y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_of_powers_are_exact(dtype):
    n = np.arange(-30.0, 31.0).astype(dtype)
    np.testing.assert_array_equal(run_word("log2", np.exp2(n)), n)
    tens = np.arange(11.0).astype(dtype)
    np.testing.assert_array_equal(run_word("log10", (10.0 ** np.arange(11)).astype(dtype)), tens)


@pytest.mark.parametrize("dtype", DTYPES)
def test_remainders_are_exact(dtype):
    rng = np.random.default_rng(5)
    x = (rng.normal(size=400) * np.exp2(rng.uniform(-60, 60, 400))).astype(dtype)
    y = (rng.normal(size=400) * np.exp2(rng.uniform(-20, 20, 400))).astype(dtype)
    for word in ("fmod", "remainder"):
        np.testing.assert_array_equal(run_word(word, x, y), getattr(np, word)(x, y))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_whole_numbers_divide_without_a_trap(dtype):
    limits = np.iinfo(dtype)
    points = np.unique(np.array([limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype))
    if limits.min:
        points = np.concatenate([points, np.array([-1, -2, -7], dtype)])
    x, y = (a.ravel().copy() for a in np.meshgrid(points, points))
    with np.errstate(all="ignore"):
        for word in ("floor_divide", "remainder", "fmod"):
            np.testing.assert_array_equal(run_word(word, x, y), getattr(np, word)(x, y), err_msg=word)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_shifts_as_numpy(dtype):
    limits = np.iinfo(dtype)
    x, y = np.meshgrid(np.array([limits.min, 1, 5, limits.max], dtype), np.array([0, 1, 3, 7, 8, 63, 100], dtype))
    x, y = x.ravel().copy(), y.ravel().copy()
    np.testing.assert_array_equal(run_word("bitwise_left_shift", x, y), np.left_shift(x, y))
    np.testing.assert_array_equal(run_word("bitwise_right_shift", x, y), np.right_shift(x, y))


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_narrower_vectors_give_the_same_bits(dtype, width):
    x = np.random.default_rng(3).normal(size=37).astype(dtype) * 3
    for word in ("exp", "tanh", "sin", "erf", "sinh", "atan", "cbrt"):
        np.testing.assert_array_equal(run_word(word, x, width=width), run_word(word, x), err_msg=word)
    for word in ("power", "atan2", "logaddexp", "fmod"):
        found = run_word(word, np.abs(x), x[::-1].copy(), width=width)
        np.testing.assert_array_equal(found, run_word(word, np.abs(x), x[::-1].copy()), err_msg=word)


def test_coefficients_are_those_of_the_fit():
    for name, table in tables().items():
        assert getattr(coefficients, name) == table


def test_the_table_of_tanh_is_that_of_the_fit():
    np.testing.assert_array_equal(TANH, tanh_table())


def test_fast_math_is_a_choice():
    def f(x, y):
        return x * y + 1.0

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1000))
    np.testing.assert_array_equal(jit(f)(x, y), f(x, y))  # strict: two roundings, as NumPy
    found = jit(f, fast_math=True)(x, y)
    np.testing.assert_allclose(found, f(x, y), rtol=1e-12, atol=1e-15)
    assert (found != f(x, y)).any()
    assert np.isnan(jit(f, fast_math=True)(x * np.nan, y)).all()


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, -1.0, 0.5, 2.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_known_beforehand(exponent, dtype):
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, 7.5, 0.3, 1e-3]).astype(dtype)
        wanted = np.array([_as_in_c(float(v), exponent) for v in x]).astype(dtype)
        identical(np.asarray(jit(lambda x: pb.power(x, exponent))(x)), wanted, 4)


def _as_in_c(x, y):
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.inf * (math.copysign(1, x) if y % 2 == 1 else 1)
    except ValueError:
        return math.copysign(math.inf, x) if x == 0 else math.nan


TWO = {
    "add", "multiply", "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "subtract", "divide", "fmod", "remainder", "floor_divide", "copysign",
    "fmax", "fmin", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "atan2",
    "logaddexp", "power", "hypot", "heaviside", "nextafter", "rotate_left",
}  # fmt: skip
KINDS = {"b": "bool", "i": "int16", "u": "uint32", "f": "float32"}


@pytest.mark.parametrize("word", VOCABULARY)
def test_every_word_of_the_vocabulary_is_spoken(word):
    count = 2 if word in TWO else 3 if word == "select" else 1
    truth = word.startswith(("equal", "not_", "less", "greater", "logical", "is", "signbit"))
    for kind in VOCABULARY[word]:
        x = np.ones(5, KINDS[kind])
        assert run_word(word, *[x] * count, out="bool" if truth else None).shape == (5,)
