"""What programs lose on the way to native code: arrays that repeat a number, masks, scatters, loops; small loops."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import IndexingError
from pullback.program.scatters import counted_axis

pytest.importorskip("llvmlite")

RNG = np.random.default_rng(3)
Z, LABELS = RNG.normal(size=(6, 5)), np.array([0, 4, 2, 2, 1, 3])


def by_differences(f, x, h=1e-6):
    """The gradient of a function of an array by central differences, in plain NumPy."""
    steps = h * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([(f(x + s) - f(x - s)) / (2 * h) for s in steps]).reshape(x.shape)


def entropy(z, labels):
    shifted = z - z.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(z)), labels])


def kernels_of(f, *args):
    return pb.jit(f).lower(*args).kernels


# Arrays that repeat one number


def test_the_cotangent_of_a_sum_is_a_number_in_the_kernel():
    w = RNG.normal(size=(40, 30))
    lowered = pb.jit(pb.grad(lambda x: pb.sum(x * w * x))).lower(RNG.normal(size=(40, 30)))
    assert not [x for x in lowered.captured if x.size > 1 and (x == x.flat[0]).all()]


@pytest.mark.parametrize("fill", [np.ones, np.zeros, lambda s: np.full(s, -0.0), lambda s: np.full(s, np.nan)])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0, 3)])
def test_repeated_numbers_keep_bits_and_shapes(fill, shape):
    def f(x):
        ones = fill(shape)
        return x * ones, ones + ones, pb.where(ones > 0, x, ones), pb.concatenate([ones.reshape(-1), ones.reshape(-1)])

    x = RNG.normal(size=shape)
    for found, wanted in zip(pb.jit(f)(x), f(x), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
        assert np.shape(found) == np.shape(wanted)


def test_a_captured_array_that_repeats_a_number_may_still_change():
    held = np.ones(4)
    f = pb.jit(lambda x: x * held)
    assert f(np.arange(4.0)).tolist() == [0, 1, 2, 3]
    held[:] = 2
    assert f(np.arange(4.0)).tolist() == [0, 2, 4, 6]


# Scatters that are comparisons, gathers that are strides


def test_counted_axis():
    assert counted_axis(np.arange(4)) == 0
    assert counted_axis(np.arange(4).reshape(1, 4, 1)) == 1
    assert (
        counted_axis(np.arange(1, 5))
        is counted_axis(np.arange(4.0))
        is counted_axis(np.arange(4).reshape(2, 2))
        is None
    )


@pytest.mark.parametrize("labels", [LABELS, LABELS - 5])
def test_the_gradient_of_picked_elements(labels):
    def f(z, labels):
        return pb.sum(pb.take_along_axis(z, labels[:, None], axis=1)[:, 0] * pb.sin(z[:, 0]))

    def plain(z):
        return np.sum(z[np.arange(6), labels] * np.sin(z[:, 0]))

    np.testing.assert_allclose(pb.jit(pb.grad(f))(Z, labels), by_differences(plain, Z), atol=1e-8)


def test_cross_entropy_and_its_gradient_pass_over_the_logits_once():
    f = pb.value_and_grad(lambda z, labels: pb.nn.cross_entropy(z, labels))
    z, labels = RNG.normal(size=(64, 100)), RNG.integers(0, 100, 64)
    assert kernels_of(f, z, labels).count("for each point of 64x100:") == 1
    z, labels = z[:8, :7], labels[:8] % 7
    value, slope = pb.jit(f, check=True)(z, labels)
    assert float(value) == pytest.approx(entropy(z, labels), rel=1e-12)
    np.testing.assert_allclose(slope[:2], by_differences(lambda z: entropy(z, labels), z)[:2], atol=1e-8)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatters_along_every_axis_agree_with_numpy(axis):
    x = RNG.normal(size=(3, 4, 5))
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    index, weight = RNG.integers(-x.shape[axis], x.shape[axis], shape), RNG.normal(size=shape)
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, index, weight, axis)
    f = lambda x, index: pb.sum(pb.take_along_axis(x, index, axis=axis) * weight)  # noqa: E731
    np.testing.assert_array_equal(pb.jit(pb.grad(f))(x, index), wanted)


def test_a_scatter_out_of_range_raises():
    f = pb.jit(pb.grad(lambda x, index: pb.sum(x[np.arange(3), index])))
    with pytest.raises(IndexingError):
        f(np.zeros((3, 4)), np.array([0, 4, 1]))


def test_places_that_repeat_are_still_added():
    f = lambda x, index: pb.sum(x[np.zeros(3, int), index] * np.arange(1.0, 4))  # noqa: E731
    assert pb.jit(pb.grad(f))(np.zeros((2, 3)), np.array([1, 1, 0])).tolist() == [[3, 3, 0], [0, 0, 0]]


# Masks


def test_a_mask_applied_twice_is_applied_once():
    def f(x, m):
        masked = pb.where(m, x * 2, 0.0)
        return pb.where(m, pb.where(m, masked, 5.0), 0.0), pb.where(m, 1.0, pb.where(m, x, x + 1))

    m = Z > 0
    lowered = pb.jit(f).lower(Z, m)
    assert lowered.kernels.count("where(") == 2
    for found, wanted in zip(pb.jit(f)(Z, m), (np.where(m, 2 * Z, 0), np.where(m, 1, Z + 1)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_weaker_mask_is_dropped_and_a_stronger_one_stays():
    def f(x, a, b):
        both = pb.logical_and(a, b)
        return pb.where(both, pb.where(a, x, 7.0), 0.0), pb.where(a, pb.where(both, x, 7.0), 0.0)

    a, b = Z > 0, Z < 1
    found = pb.jit(f)(Z, a, b)
    np.testing.assert_array_equal(found[0], np.where(a & b, Z, 0))
    np.testing.assert_array_equal(found[1], np.where(a, np.where(a & b, Z, 7), 0))


def test_masked_infinities_do_not_come_back():
    f = lambda x: pb.sum(pb.where(x > 0, pb.log(pb.where(x > 0, x, 1.0)), 0.0))  # noqa: E731
    x = np.array([[-1.0, 0.0, 2.0]])
    np.testing.assert_array_equal(pb.jit(pb.grad(f))(x), [[0, 0, 0.5]])


# Loops that contain each other, and loops in registers


def saddle(p):
    """min over p of max over q of p.p - q.q + p.q / 2, by two descents."""
    value = lambda p, q: pb.sum(p * p) - pb.sum(q * q) + 0.5 * pb.sum(p * q)  # noqa: E731

    def reply(p):
        slope = pb.grad(value, 1)
        return pb.while_loop(lambda q: pb.sum(slope(p, q) ** 2) > 1e-20, lambda q: q + 0.3 * slope(p, q), 1.0 + 0 * p)

    def slope(p):
        along = np.eye(p.shape[0])
        return pb.stack([pb.jvp(lambda p: value(p, reply(p)), (p,), (e,))[1] for e in along])

    return pb.while_loop(lambda p: pb.sum(slope(p) ** 2) > 1e-20, lambda p: p - 0.3 * slope(p), p)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_nested_descents_find_the_saddle_in_registers(size):
    p = RNG.normal(size=size)
    lowered = pb.jit(saddle).lower(p)
    assert size == 5 or "@inside" not in lowered.llvm  # five directions are too many lines for one function
    np.testing.assert_allclose(pb.jit(saddle)(p), np.zeros(size), atol=1e-9)


def test_a_loop_and_its_push_are_one_loop():
    f = lambda x: pb.while_loop(lambda y: y < 9.0, lambda y: y * x, x)  # noqa: E731
    both = pb.jit(lambda x: pb.jvp(f, (x,), (np.ones(()),)))
    assert both.lower(np.array(2.0)).kernels.count("repeat of") == 1
    assert [float(v) for v in both(np.array(2.0))] == [16.0, 32.0]


def test_a_scan_and_its_push_are_one_loop():
    f = lambda w, xs: pb.scan(lambda c, x: (c * w + x, c), 0.0, xs)  # noqa: E731
    both = pb.jit(lambda w, xs: pb.jvp(lambda w: f(w, xs), (w,), (1.0,)))
    xs = RNG.normal(size=4)
    assert both.lower(0.5, xs).kernels.count("iterate of") == 1
    (value, ys), (slope, dys) = both(0.5, xs)
    loop = lambda w: sum(x * w ** (3 - i) for i, x in enumerate(xs))  # noqa: E731
    assert float(value) == pytest.approx(loop(0.5))
    assert float(slope) == pytest.approx((loop(0.5 + 1e-6) - loop(0.5 - 1e-6)) / 2e-6)
    assert np.shape(ys) == np.shape(dys) == (4,)


def test_loops_that_start_alike_and_differ_stay_two():
    def f(x):
        one = pb.while_loop(lambda y: y < 9.0, lambda y: y * 2, x)
        other = pb.while_loop(lambda s: s[0] < 9.0, lambda s: (s[0] * 3, s[1] + 1.0), (x, x))
        return one, *other

    assert [float(v) for v in pb.jit(f)(np.array(1.0))] == [16.0, 9.0, 3.0]
    assert pb.jit(f).lower(np.array(1.0)).kernels.count("repeat of") == 2


def test_a_loop_whose_push_depends_on_its_result_stays():
    f = lambda x: pb.while_loop(lambda y: y < 9.0, lambda y: y * x, x)  # noqa: E731
    g = pb.jit(lambda x: pb.jvp(f, (x,), (f(x),))[1])
    assert float(g(np.array(2.0))) == 32.0 * 16.0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16, 17])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_small_carries_of_every_size(size, dtype):
    x = np.arange(1, size + 1).astype(dtype)

    def f(x):
        def step(s):
            y, n, odd = s
            return y + pb.astype(y[::-1] > 3, dtype), n + 1, pb.logical_not(odd)

        return pb.while_loop(lambda s: s[1] < 5, step, (x, 0, x > 2))

    y, odd = x.copy(), x > 2
    for _ in range(5):
        y, odd = y + (y[::-1] > 3).astype(dtype), ~odd
    for found, wanted in zip(pb.jit(f, check=True)(x), (y, 5, odd), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_small_loop_may_have_no_rounds_and_gather():
    f = pb.jit(lambda x, i: pb.fori_loop(0, i, lambda k, y: y + x[k % 3], pb.zeros(2)))
    x = np.arange(6.0).reshape(3, 2)
    assert f(x, np.array(0)).tolist() == [0, 0]
    assert f(x, np.array(4)).tolist() == [6, 10]


def test_an_index_out_of_range_in_a_small_loop_raises():
    f = pb.jit(lambda x, n: pb.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + x[s[0]]), (0, 0.0))[1])
    assert float(f(np.arange(3.0), np.array(3))) == 3.0
    with pytest.raises(IndexingError):
        f(np.arange(3.0), np.array(4))


def test_rows_shorter_than_a_vector():
    """Rows are saved whole between passes, and stored in pieces: nothing beyond them changes."""
    for width in range(1, 10):
        x = RNG.normal(size=(4, width))
        f = lambda x: pb.exp(x - pb.max(x, axis=1, keepdims=True)) / pb.sum(pb.exp(x), axis=1, keepdims=True)  # noqa: E731
        wanted = np.exp(x - x.max(1, keepdims=True)) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(pb.jit(f, check=True)(x), wanted, rtol=1e-12)


def test_parts_are_written_where_they_are_joined():
    f = lambda x: pb.stack([pb.sin(x), pb.cos(x), x * x], axis=-1)  # noqa: E731
    x = RNG.normal(size=(30, 4))
    assert kernels_of(f, x).count("for each point") == 1
    np.testing.assert_allclose(pb.jit(f)(x), np.stack([np.sin(x), np.cos(x), x * x], -1), rtol=1e-14)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 12, 16, 20, 33])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_sums_along_the_loop_around_a_short_row(width, dtype):
    x = (10 * RNG.normal(size=(3, 7, width))).astype(dtype)

    def f(x):
        return pb.sum(x, axis=1), pb.max(x, axis=1), pb.sum(x > 0, axis=1), pb.sum(x, axis=(0, 1)), pb.sum(x, axis=0)

    wanted = x.sum(1), x.max(1), (x > 0).sum(1), x.sum((0, 1)), x.sum(0)
    for found, right in zip(pb.jit(f, check=True)(x), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-4)


def test_long_sums_around_a_short_row_on_any_number_of_threads():
    x = RNG.normal(size=(50, 3000, 8))
    f = pb.jit(lambda x: (pb.sum(x * x, axis=1), pb.sum(x, axis=(0, 1))))
    for found, right in zip(f(x), ((x * x).sum(1), x.sum((0, 1))), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-9)
