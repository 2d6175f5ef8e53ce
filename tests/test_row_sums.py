"""Norms and the kernels that walk their rows: formulas written out in NumPy, and how often rows are read."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.jit import jit
from pullback.ops.reduce.deviations import squared_deviations

RNG = np.random.default_rng(5)


def normal(*shape, dtype="float64"):
    return RNG.normal(size=shape).astype(dtype)


def norm_gradients(x, w, bar, eps=1e-5):
    """The cotangents of layer norm's argument, weight and bias, as textbooks have them, in float64."""
    x, w, bar = (np.asarray(a, "float64") for a in (x, w, bar))
    away = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + eps)
    y, g = away * r, bar * w
    share = r * (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True))
    return share, (bar * y).sum(0), bar.sum(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 9), (7, 3), (33, 40), (3, 20_000), (64, 771)])
def test_gradients_of_layer_norm(shape, dtype):
    """Also no rows, rows of one element, rows longer than the nearest cache."""
    x, w, b, bar = normal(*shape, dtype=dtype), *normal(2, shape[1], dtype=dtype), normal(*shape, dtype=dtype)
    wanted = norm_gradients(x, w, bar)

    def loss(x, w, b):
        return pb.sum(pb.nn.layer_norm(x, w, b) * bar)

    gradient = pb.grad(loss, argnums=(0, 1, 2))
    eager, again, compiled = gradient(x, w, b), gradient(x, w, b), jit(gradient)(x, w, b)
    with pb.native(False):
        plain = gradient(x, w, b)
    size = 2e-4 if dtype == "float32" else 1e-11
    for i, exact in enumerate(wanted):
        np.testing.assert_array_equal(np.asarray(eager[i]), np.asarray(again[i]))
        for found in (eager[i], compiled[i], plain[i]):
            np.testing.assert_allclose(np.asarray(found), exact, rtol=size, atol=size * max(shape[0], 1) ** 0.5)


def test_rows_with_nan_or_infinity_spoil_no_others():
    x, bar = normal(4, 37, dtype="float32"), normal(4, 37, dtype="float32")
    clean = np.asarray(pb.grad(lambda x: pb.sum(pb.nn.layer_norm(x) * bar))(x))
    x[1, 3], x[2, 30] = np.nan, np.inf
    for function in (lambda f: f, jit):
        found = np.asarray(function(pb.grad(lambda x: pb.sum(pb.nn.layer_norm(x) * bar)))(x))
        np.testing.assert_allclose(found[[0, 3]], clean[[0, 3]], rtol=1e-5, atol=1e-6)
        assert np.isnan(found[1:3]).all()


@pytest.mark.parametrize("norm", [
    lambda x: pb.nn.layer_norm(x), lambda x: pb.nn.group_norm(x, 2), lambda x: pb.nn.rms_norm(x),
    lambda x: pb.nn.batch_norm(x, training=True)[0],
])  # fmt: skip
def test_every_way_to_a_second_derivative(norm):
    x, v, u = normal(4, 6), normal(4, 6), normal(4, 6)

    def loss(x):
        return pb.sum(norm(x) ** 3 * u)

    def slope(x):
        return pb.sum(pb.grad(loss)(x) * v)

    by_reverse = np.asarray(pb.grad(slope)(x))
    by_forward = np.asarray(pb.jvp(pb.grad(loss), (x,), (v,))[1])
    compiled = np.asarray(jit(pb.grad(slope))(x))
    step = 1e-5
    differences = (np.asarray(pb.grad(loss)(x + step * v)) - np.asarray(pb.grad(loss)(x - step * v))) / (2 * step)
    np.testing.assert_allclose(by_reverse, by_forward, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_reverse, compiled, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_reverse, differences, rtol=1e-5, atol=1e-5)
    many = pb.vmap(pb.grad(loss))(np.stack([x, v]))
    np.testing.assert_allclose(np.asarray(many)[1], np.asarray(pb.grad(loss)(v)), rtol=1e-9, atol=1e-9)


def test_second_derivative_of_squared_deviations():
    x = normal(5)
    hessian = np.asarray(pb.hessian(lambda x: pb.sum(squared_deviations(x, (0,))))(x))
    np.testing.assert_allclose(hessian, 2 * (np.eye(5) - 1 / 5), atol=1e-12)


def test_a_backward_pass_reads_rows_twice_in_one_kernel():
    """The two sums over a row need no sum before them; those over columns share the kernel."""
    x, r, m = normal(64, 300, dtype="float32"), normal(64, 1, dtype="float32"), normal(64, 1, dtype="float32")

    def pull(x, m, r, w, bar):
        away, g = x - m, bar * w
        inner = pb.sum(g * away, axis=1, keepdims=True)
        share = g * r + pb.mean(-g * r, axis=1, keepdims=True) + away * inner
        return share, pb.sum(bar, axis=0), pb.sum(bar * (away * r), axis=0)

    def ordered(x, m, r, w, bar):
        twice, away = r * 2, x - m
        bias = pb.sum(bar, axis=0)
        g = bar * w
        weight = pb.sum(bar * (away * r), axis=0)
        inner = pb.sum(g * away, axis=1, keepdims=True)
        return g * r + pb.mean(-g * r, axis=1, keepdims=True) + away * (inner / twice), bias, weight

    args = x, m, r, normal(300, dtype="float32"), normal(64, 300, dtype="float32")
    for function in (pull, ordered):
        text = jit(function).lower(*args).explain()
        assert text.count("kernel") == 1, text
        assert "2 passes over each row" in text
        for found, wanted in zip(jit(function)(*args), function(*args), strict=True):
            np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-4)


def test_erf_and_its_slope_share_an_exponential():
    x = np.linspace(-6, 6, 4096, dtype="float32")

    def count(function):
        lines = jit(function).lower(x).assembly.split("\n")
        return sum("mul" in line or "fma" in line or "fmsub" in line for line in lines)

    alone, slope = count(pb.special.erf), count(lambda x: pb.exp(-pb.square(x)))
    both = count(lambda x: (pb.special.erf(x), pb.exp(-pb.square(x))))
    assert both <= alone + 2 < alone + slope
