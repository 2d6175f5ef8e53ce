"""Kernels and products as they are cut, widened and tiled: the same numbers as the array library's."""

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.compile.jit import jit

pytest.importorskip("llvmlite")
RNG = np.random.default_rng(5)


def rounding(dtype):
    return {"rtol": 2e-5, "atol": 2e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-11}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("left_turned", "right_turned"), list(itertools.product((False, True), repeat=2)))
def test_products_in_tiles(dtype, left_turned, right_turned):
    """Sizes that fill tiles and that leave rows, vectors and lanes over."""
    for rows, columns, depth in ((64, 64, 33), (17, 47, 70), (8, 100, 16), (5, 33, 129), (130, 10, 40), (16, 3, 300)):
        a = RNG.normal(size=(depth, rows) if left_turned else (rows, depth)).astype(dtype)
        b = RNG.normal(size=(columns, depth) if right_turned else (depth, columns)).astype(dtype)

        def product(a, b):
            return (a.T if left_turned else a) @ (b.T if right_turned else b)

        np.testing.assert_allclose(jit(product)(a, b), product(a, b), **rounding(dtype))


def test_products_of_a_batch_in_tiles():
    a, b = RNG.normal(size=(3, 20, 30)), RNG.normal(size=(3, 30, 40))
    np.testing.assert_allclose(jit(lambda a, b: a @ b)(a, b), a @ b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jit(lambda a, b: a @ b)(a, b[0]), a @ b[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("columns", [10, 64, 75])
def test_an_update_is_added_in_tiles(columns):
    w, x, g = RNG.normal(size=(50, columns)), RNG.normal(size=(40, 50)), RNG.normal(size=(40, columns))
    wanted = w - 0.25 * (x.T @ g)
    step = jit(lambda w, x, g: w - 0.25 * (x.T @ g), donate_argnums=0)
    np.testing.assert_allclose(step(w.copy(), x, g), wanted, rtol=1e-12, atol=1e-12)


def test_numbers_that_are_none_go_through_tiles():
    a, b = RNG.normal(size=(16, 40)).astype("f"), RNG.normal(size=(40, 50)).astype("f")
    a[3, 4], b[7, 9] = np.nan, np.inf
    np.testing.assert_array_equal(np.isnan(jit(lambda a, b: a @ b)(a, b)), np.isnan(a @ b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 7, 100, 4099])
def test_a_chain_is_cut_into_loops(dtype, size):
    w, x = (RNG.normal(size=size).astype(dtype) for _ in range(2))

    def chain(w, x):
        h, seen = x, 0
        for _ in range(9):
            h = pb.tanh(h * w + pb.exp(-h * h))
            seen = seen + h
        return (seen * h).sum()

    f = jit(pb.value_and_grad(chain, argnums=(0, 1)))
    value, gradients = f(w, x)
    wanted, slopes = pb.value_and_grad(chain, argnums=(0, 1))(w, x)
    np.testing.assert_allclose(value, wanted, **rounding(dtype))
    for found, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(found, slope, **rounding(dtype))


def test_cutting_stores_no_more_than_it_must():
    """Links whose values are results anyway are cut there."""

    def links(x):
        y = pb.tanh(x)
        return y, pb.tanh(y * 2 + 1)

    lowered = jit(links).lower(np.ones(100, "f"))
    assert lowered.memory().arena == 0
    assert lowered.kernels.count("kernel") == 2


def test_cut_along_an_axis_of_a_row():
    """A value that depends on fewer axes than the kernel."""
    a, b = RNG.normal(size=(6, 1)), RNG.normal(size=(1, 33))

    def f(a, b):
        return pb.exp(pb.sin(pb.tanh(a) + b) * pb.tanh(a))

    np.testing.assert_allclose(jit(f)(a, b), f(a, b), rtol=1e-12)


def test_a_kernel_over_its_own_input_is_not_cut():
    x = RNG.normal(size=100)
    wanted = np.tanh(np.tanh(x) + x)
    np.testing.assert_allclose(jit(lambda x: pb.tanh(pb.tanh(x) + x), donate_argnums=0)(x.copy()), wanted, rtol=1e-12)


def test_tanh_has_the_same_bits_at_any_length():
    x = np.concatenate([RNG.normal(size=29) * 3, [0.0, -0.0, np.nan, np.inf, -np.inf, 9.01, -9.6, 1e-40]]).astype("f")
    whole = jit(pb.tanh)(x)
    np.testing.assert_array_equal(np.signbit(whole), np.signbit(np.tanh(x)))
    for n in (1, 2, 3, 4, 5, 8, 9, 16, 17):
        np.testing.assert_array_equal(jit(pb.tanh)(x[-n:].copy()), whole[-n:])
    for number in range(len(x)):
        np.testing.assert_array_equal(jit(pb.tanh)(x[number].reshape(())), whole[number])


@pytest.mark.parametrize("shape", [(5, 17), (3, 100), (1, 3)])
def test_counts_beside_narrow_numbers(shape):
    """Integers of 64 bits are folded in lanes that suit float32."""
    x = RNG.integers(0, 4, size=shape).astype("f")

    def f(x):
        top = pb.max(x, axis=1, keepdims=True)
        return pb.exp(x - top) / pb.sum(x == top, axis=1, keepdims=True), pb.sum(x == top, axis=1)

    for found, wanted in zip(jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert found.dtype == wanted.dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_keep_what_is_no_number(dtype):
    x = np.array([1, np.nan, -np.inf, np.inf, 2, np.nan, 0, -3], dtype)
    y = np.array([np.nan, 1, np.nan, 5, 2, np.nan, -1, np.inf], dtype)
    np.testing.assert_array_equal(jit(pb.maximum)(x, y), np.maximum(x, y))
    np.testing.assert_array_equal(jit(pb.minimum)(x, y), np.minimum(x, y))
    assert np.isnan(jit(pb.max)(x))
    assert jit(pb.max)(x[6:]) == 0


def test_a_repeated_number_is_seen_when_it_changes():
    number = np.array(2.0)
    many = np.broadcast_to(number, (3, 4))
    f = jit(lambda x: x * many)
    x = RNG.normal(size=(3, 4))
    np.testing.assert_array_equal(f(x), 2 * x)
    number[...] = 5.0
    np.testing.assert_array_equal(f(x), 5 * x)
    assert f.lower(x).memory().inputs == x.nbytes + 8


def test_placing_everywhere_is_a_reshape():
    def f(x):
        return (pb.sin(x)[:, None] * np.ones((1, 3))).sum()

    lowered = jit(pb.grad(f)).lower(RNG.normal(size=4))
    assert "scatter" not in lowered.graph.text()
    x = RNG.normal(size=4)
    np.testing.assert_allclose(jit(pb.grad(f))(x), 3 * np.cos(x), rtol=1e-12)


def test_layer_norm_and_its_gradients_are_one_kernel():
    def normed(x, g, d):
        m = x.mean(-1)[:, None]
        v = ((x - m) ** 2).mean(-1)[:, None]
        return ((x - m) / pb.sqrt(v + 1e-5) * g * d).sum()

    x, g, d = RNG.normal(size=(6, 40)), RNG.normal(size=40), RNG.normal(size=(6, 40))
    f = pb.value_and_grad(normed, argnums=(0, 1))
    assert jit(f).lower(x, g, d).kernels.count("kernel") == 1
    for found, wanted in zip(jit(f)(x, g, d)[1], f(x, g, d)[1], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(64, 256), (96, 75), (50, 100)])
def test_long_products_are_shared_and_keep_their_bits(rows, columns):
    """Parts of the columns, parts of the rows, and sizes that have none."""
    a, b = RNG.normal(size=(rows, 300)).astype("f"), RNG.normal(size=(300, columns)).astype("f")
    before = pb.get_num_threads()
    f = jit(lambda a, b: a @ b)
    try:
        pb.set_num_threads(1)
        alone = f(a, b)
        pb.set_num_threads(2)
        np.testing.assert_array_equal(f(a, b), alone)
    finally:
        pb.set_num_threads(before)
    np.testing.assert_allclose(alone, a @ b, rtol=2e-5, atol=2e-4)
