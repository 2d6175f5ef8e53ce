"""Compiled equals eager for every dtype and every mixture of them, bit by bit where the arithmetic is exact."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.jit import jit
from pullback.errors import ConversionError

pytest.importorskip("llvmlite")
NATIVE = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
PAIRS = [(d, d) for d in NATIVE]
PAIRS += [(d, e) for d in NATIVE for e in ("int32", "uint8", "float32", "uint64") if d != e]
PAIRS += [("int64", "float32"), ("float64", "float32"), ("bool", "float64"), ("int64", "uint64")]
SIZE = 37  # no vector's lanes divide it


def numbers(dtype, seed):
    """Numbers of a dtype, its extremes among them."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtype.kind == "f":
        x = rng.normal(size=SIZE).astype(dtype) * 10
        x[:5] = [np.inf, -np.inf, np.nan, 0.0, -0.0]
        return rng.permutation(x)
    limits = np.iinfo(dtype)
    x = rng.integers(max(limits.min, -100), min(limits.max, 100), SIZE, dtype=dtype, endpoint=True)
    x[:4] = [limits.min, limits.max, 0, 1]
    return rng.permutation(x)


def equal(found, wanted, what):
    for number, (f, w) in enumerate(zip(found, wanted, strict=True)):
        f, w = np.asarray(f), np.asarray(w)
        assert (f.shape, f.dtype) == (w.shape, w.dtype), (what, number)
        np.testing.assert_array_equal(f, w, err_msg=f"{what}, result {number}")


def pointwise(x, y):
    found = [pb.add(x, y), pb.multiply(x, y), pb.maximum(x, y), pb.minimum(x, y), pb.where(pb.less(x, y), x, y)]
    found += [g(x, y) for g in (pb.equal, pb.not_equal, pb.less, pb.less_equal, pb.greater, pb.greater_equal)]
    found += [pb.logical_and(x, y), pb.logical_or(x, y), pb.logical_not(x), pb.isnan(x), pb.isfinite(y), pb.abs(x)]
    if pb.spec_of(found[0]).dtype.kind != "b":
        found += [pb.subtract(x, y)]
    if pb.spec_of(x).dtype.kind in "iuf":
        found += [pb.square(x), pb.negative(x), pb.sign(x)]
    if pb.spec_of(x).dtype.kind in "biu" and pb.spec_of(y).dtype == pb.spec_of(x).dtype:
        found += [x & y, x | y, x ^ y, ~x]
    return found


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pointwise(first, second):
    x, y = numbers(first, 1), numbers(second, 2)
    with np.errstate(all="ignore"):
        equal(jit(pointwise)(x, y), pointwise(x, y), f"{first} with {second}")


def nearest_integer(x, limits):
    if np.isnan(x):
        return 0
    return min(max(int(np.clip(x, -1e30, 1e30)), limits.min), limits.max)


@pytest.mark.parametrize("target", [d for d in NATIVE if "int" in d])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_out_of_range_become_the_nearest_integer(source, target):
    """Vectors are compared with the limits and converted at once; those are tried with numbers around them."""
    limits = np.iinfo(target)
    edges = [float(limits.min), float(limits.max), -1.5, -0.5, 0.5, 1.5, 100.9, -100.9]
    edges += [e * f for e in edges[:2] for f in (0.5, 0.999999, 1.000001, 2.0)]
    x = np.resize(np.array([*edges, np.inf, -np.inf, np.nan, 1e30, -1e30], source), 101)
    wanted = np.array([nearest_integer(v, limits) for v in x], target)
    np.testing.assert_array_equal(jit(lambda x: pb.astype(x, target))(x), wanted)


def test_signed_and_unsigned_compare_exactly():
    x, y = np.array([2**63 - 1, -1, 5]), np.array([2**63, 2**64 - 1, 5], np.uint64)
    for g in (pb.equal, pb.less, pb.greater_equal):
        np.testing.assert_array_equal(jit(g)(x, y), g(x, y))


@pytest.mark.parametrize("shape", [(2, 3), (40, 70)])
def test_extremes_of_booleans(shape):
    for given in (np.zeros(shape, bool), np.ones(shape, bool), np.eye(*shape, dtype=bool)):
        for axis in (None, 0, 1):
            for f in (pb.max, pb.min):
                found = pb.jit(lambda b, f=f, axis=axis: f(b, axis=axis))(given)
                assert np.array_equal(found, np.asarray(f(given, axis=axis))), (f, axis)


def folds(x):
    found = [pb.max(x, axis=1), pb.min(x, axis=0), pb.any(x, axis=1), pb.all(x, axis=0)]
    if pb.spec_of(x).dtype.kind in "biu":
        found += [pb.sum(x, axis=1), pb.sum(x, axis=0), pb.sum(x), pb.prod(x, axis=1)]
    return found


@pytest.mark.parametrize("dtype", NATIVE)
def test_folds(dtype):
    x = np.stack([numbers(dtype, seed) for seed in range(5)])
    with np.errstate(all="ignore"):
        equal(jit(folds)(x), folds(x), dtype)


@pytest.mark.parametrize("source", NATIVE)
def test_casts(source):
    x = numbers(source, 3)
    if x.dtype.kind == "f":
        x = np.where(np.isfinite(x), np.abs(x), 1).astype(source)  # elsewhere C leaves the answer open

    def f(x):
        return [pb.astype(x, d) for d in NATIVE]

    equal(jit(f)(x), f(x), source)


@pytest.mark.parametrize(
    ("dtype", "epsilon"), [("float16", 2**-10), ("bfloat16", 2**-7), ("complex64", 0), ("complex128", 0)]
)
def test_other_dtypes_are_those_of_the_array_library(dtype, epsilon):
    """Complex numbers are computed by NumPy; half numbers in float32, where each of NumPy's ops rounds."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = np.linspace(0.5, 2.0, SIZE).astype(dtype)

    def f(x):
        y = pb.exp(x) * x + 1
        return [y, pb.sum(y * y), pb.multiply(y, x)[3:], pb.astype(pb.abs(y), np.float32) * 2]

    for a, b in zip(jit(f)(x), f(x), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        if epsilon:
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=3 * epsilon)
        else:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_words_beyond_the_vocabulary_are_computed_by_the_array_library():
    def f(x, n):
        return pb.power(x, n) + pb.multiply(x, 2)

    x, n = np.arange(5), np.array([0, 1, 2, 3, 2])
    np.testing.assert_array_equal(jit(f)(x, n), f(x, n))
    assert any(type(s).__name__ == "Host" for s in jit(f).lower(x, n).code.compilation.steps.steps)


@pytest.mark.parametrize(
    ("f", "parts"),
    [
        (lambda x: x * float(pb.sum(x)), ["float()", "static_argnums", "test_compiled_dtypes.py"]),
        (lambda x: pb.reshape(x, (int(pb.sum(x)),)), ["int()", "x.shape", "test_compiled_dtypes.py"]),
    ],
)
def test_a_number_of_a_value_names_the_line_and_the_alternative(f, parts):
    with pytest.raises(ConversionError) as caught:
        jit(f)(np.ones(3))
    for part in parts:
        assert part in str(caught.value)
