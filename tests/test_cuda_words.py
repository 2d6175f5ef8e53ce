"""Every word of the kernel vocabulary in CUDA C, in every dtype it has, against NumPy."""

import inspect

import ml_dtypes
import numpy as np
import pytest
from cuda_emulator import has_compiler, run_code

from pullback.arrays.dtypes import as_dtype
from pullback.compile.cuda.render import render_program
from pullback.compile.cuda.target import DTYPES
from pullback.compile.loop_ir import Buffer, Kernel, KernelLine, Steps, Store, load_line
from pullback.compile.reference.numpy_scalars import NumpyScalars, to_dtype
from pullback.compile.vocabulary import FLOAT8_DTYPES, VOCABULARY, is_narrow

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the text is compiled by g++")
BINARY = frozenset((
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "floor_divide",
    "copysign", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "rotate_left", "atan2", "logaddexp", "power", "hypot", "heaviside", "nextafter",
))  # fmt: skip
BOOLEAN = frozenset((
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
    "logical_not", "isnan", "isinf", "isfinite", "signbit",
))  # fmt: skip
#: Words whose results are rounded in another way than NumPy's, by so many units in the last place.
ROUNDED = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "logaddexp", "power", "cbrt", "hypot",
))  # fmt: skip


def numbers_of(dtype):
    """Numbers at which a word may go wrong."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 8, 31, 33, ends.min, ends.min + 1, ends.max, ends.max - 1]
        return np.array([*near, *([-1, -2, -3, -7, -8] if dtype.kind == "i" else [])], dtype)
    ends = ml_dtypes.finfo(dtype)
    some = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.1, 20.0, 1e-3, 700.0, float(ends.max), float(ends.tiny), np.inf]
    return np.array([*some, *(-x for x in some), np.nan], dtype)


def kernel_of(word, dtype, count):
    """A kernel that applies a word to each number, or each pair of numbers; and what it reads and writes."""
    n = len(numbers_of(dtype))
    extents = (n,) * count
    given = [Buffer("input", n, dtype, i) for i in range(count)]
    loads = [load_line(b, tuple(int(i == axis) for axis in range(count))) for i, b in enumerate(given)]
    out = Buffer("output", n**count, np.dtype(bool) if word in BOOLEAN else dtype, 0)
    axes = frozenset(range(count))
    line = KernelLine("apply", out.dtype, axes, 0, tuple(loads), lambda k, *xs: getattr(k, word)(*xs), dtype)
    kernel = Kernel(extents, 0, [*loads, line], [Store(line, out, tuple(n ** (count - 1 - i) for i in range(count)))])
    return kernel, given, out


def expected(word, dtype, count):
    (x,) = widened(numbers_of(dtype))
    shape = (len(x),) * count
    args = [np.broadcast_to(x.reshape([-1 if i == axis else 1 for axis in range(count)]), shape) for i in range(count)]
    with np.errstate(all="ignore"):
        found = getattr(NumpyScalars(x.dtype), word)(*args)
        return np.broadcast_to(to_dtype(np.asarray(found), np.dtype(bool) if word in BOOLEAN else dtype), shape)


def widened(*arrays):
    """What is loaded of half types."""
    return [x.astype("f") if is_narrow(x.dtype) else x for x in arrays]


WORDS = sorted(set(VOCABULARY) - {"select"})


@pytest.mark.parametrize("name", sorted(DTYPES - FLOAT8_DTYPES))
def test_words(name):
    dtype = as_dtype(name)
    # the next number of a half type is not that of the type it is computed in: compilers refuse it
    kind = "f" if is_narrow(dtype) else dtype.kind
    words = [w for w in WORDS if kind in VOCABULARY[w] and not (w == "nextafter" and is_narrow(dtype))]
    made = [kernel_of(w, dtype, 2 if w in BINARY else 1) for w in words]
    steps = Steps([k for k, _, _ in made], [b for _, given, _ in made for b in given], [out for _, _, out in made])
    arrays = [numbers_of(dtype) for _ in steps.inputs]
    results = [np.empty(out.size, out.dtype) for out in steps.outputs]
    assert run_code(render_program(steps, fast=False), steps, arrays, results) == 0
    for word, found in zip(words, results, strict=True):
        wanted = expected(word, dtype, 2 if word in BINARY else 1).reshape(-1)
        if word in ROUNDED:
            np.testing.assert_allclose(
                *widened(found, wanted), rtol=8 * float(ml_dtypes.finfo(dtype).eps), atol=0, err_msg=word
            )
        else:
            same = (found == wanted) | ((found != found) & (wanted != wanted))
            assert same.all(), (word, np.flatnonzero(~same)[:5], found[~same][:5], wanted[~same][:5])
            # of two zeros, extremes may be either
            if kind == "f" and word not in BOOLEAN | {"maximum", "minimum", "fmax", "fmin", "relu"}:
                zero = wanted == 0
                assert (np.signbit(found[zero]) == np.signbit(wanted[zero])).all(), word


CASTS = [(a, b) for a in sorted(DTYPES) for b in sorted(DTYPES) if a != b]


def test_casts():
    """Between all dtypes; a float out of an integer's range saturates, and NaN becomes zero."""
    made, arrays, wanted = [], [], []
    for source, target in CASTS:
        x = numbers_of(as_dtype(source))
        given, out = Buffer("input", len(x), x.dtype), Buffer("output", len(x), as_dtype(target))
        load = load_line(given, (1,))
        line = KernelLine("cast", out.dtype, frozenset((0,)), 0, (load,))
        made.append((Kernel((len(x),), 0, [load, line], [Store(line, out, (1,))]), given, out))
        arrays.append(x)
        with np.errstate(all="ignore"):
            wanted.append(to_dtype(*widened(x), as_dtype(target)))
    steps = Steps([k for k, _, _ in made], [g for _, g, _ in made], [out for _, _, out in made])
    results = [np.empty(out.size, out.dtype) for out in steps.outputs]
    assert run_code(render_program(steps, fast=False), steps, arrays, results) == 0
    for pair, found, value in zip(CASTS, results, wanted, strict=True):
        np.testing.assert_array_equal(*widened(found, value), err_msg=str(pair))


def test_every_word_is_tried():
    """Those with two arguments are named above: the words of the reference say so where they have a signature."""
    for word in WORDS:
        method = NumpyScalars.__dict__.get(word)
        if method is not None:
            assert (len(inspect.signature(method).parameters) == 3) == (word in BINARY), word


def test_tanh_is_exact_to_two_units_in_the_last_place():
    """Also where one formula takes over from the other, near zero, and where it is one."""
    x = np.concatenate([np.linspace(-10, 10, 4001), np.linspace(0.64, 0.66, 4001), np.logspace(-40, 2, 500)])
    x = x.astype(np.float32)
    given, out = Buffer("input", x.size, x.dtype, 0), Buffer("output", x.size, x.dtype, 0)
    load = load_line(given, (1,))
    line = KernelLine("apply", x.dtype, frozenset({0}), 0, (load,), lambda k, x: k.tanh(x), x.dtype)
    steps = Steps([Kernel((x.size,), 0, [load, line], [Store(line, out, (1,))])], [given], [out])
    found = np.empty_like(x)
    assert run_code(render_program(steps, False), steps, [x], [found]) == 0
    wanted = np.tanh(x.astype(np.float64))
    assert np.max(np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))) < 2
