"""Pooling and folding: against plain loops, ties and NaN, adaptive and random windows, compiled, what is refused."""

import inspect
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback.errors import ArgumentError, ShapeError

MAX = {1: pb.nn.max_pool1d, 2: pb.nn.max_pool2d, 3: pb.nn.max_pool3d}
AVERAGE = {1: pb.nn.avg_pool1d, 2: pb.nn.avg_pool2d, 3: pb.nn.avg_pool3d}
UNPOOL = {1: pb.nn.max_unpool1d, 2: pb.nn.max_unpool2d, 3: pb.nn.max_unpool3d}


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_functions_of_several_ranks_have_their_own_names_and_parameters(rank):
    for f, name in ((MAX[rank], "max_pool"), (getattr(pb.nn, f"conv{rank}d"), "conv")):
        assert f.__name__ == f.__qualname__ == f"{name}{rank}d"
        assert pickle.loads(pickle.dumps(f)) is f
    parameters = inspect.signature(MAX[rank]).parameters
    assert list(parameters) == ["x", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"]
    assert (parameters["stride"].default, parameters["dilation"].default) == (None, 1)
    with pytest.raises(ShapeError, match=rf"max_pool{rank}d: wants an input of shape \(n, channels"):
        MAX[rank](np.ones(2), 2)
    with pytest.raises(TypeError, match=f"max_pool{rank}d"):
        MAX[rank](np.ones((1,) * rank + (4, 4)))


def starts(n, k, s, p, d, ceil_mode):
    """Where windows start, by walking: the last must start before the end, and fit unless `ceil_mode`."""
    reach, found, at = (k - 1) * d + 1, [], -p
    while at + reach <= n + p or (ceil_mode and at < n and (not found or found[-1] + reach < n + p)):
        found.append(at)
        at += s
    return found


def windows(sizes, window, stride, padding, dilation, ceil_mode):
    """Each window as the list of its places inside the grid."""
    along = [
        [[at + j * d for j in range(k) if 0 <= at + j * d < n] for at in starts(n, k, s, p, d, ceil_mode)]
        for n, k, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True)
    ]
    return tuple(map(len, along)), [list(itertools.product(*w)) for w in itertools.product(*along)]


@st.composite
def geometries(draw, dilated=True):
    rank = draw(st.integers(1, 3))
    several = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    window, stride, dilation = several(1, 3), several(1, 3), several(1, 2 if dilated else 1)
    padding = tuple(draw(st.integers(0, ((k - 1) * d + 1) // 2)) for k, d in zip(window, dilation, strict=True))
    sizes = tuple(
        max((k - 1) * d + 1 - 2 * p, 1) + draw(st.integers(0, 4))
        for k, d, p in zip(window, dilation, padding, strict=True)
    )
    images, channels, ceil_mode = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.booleans())
    return (images, channels, *sizes), window, stride, padding, dilation, ceil_mode


@given(geometries(), st.integers(2, 50))
def test_max_pool_takes_the_first_greatest(geometry, levels):
    """Few levels make ties; the index is PyTorch's, into the flattened plane, and the cotangent goes there."""
    shape, window, stride, padding, dilation, ceil_mode = geometry
    x = np.round(normal(*shape) * levels / 4)
    many, seen = windows(shape[2:], window, stride, padding, dilation, ceil_mode)
    pool = lambda x, indices: MAX[len(window)](x, window, stride, padding, dilation, ceil_mode, indices)  # noqa: E731
    found, index = pool(x, True)
    assert found.shape == index.shape == (*shape[:2], *many)
    expected, places, bars = np.zeros(found.shape), np.zeros(found.shape, int), np.zeros(shape)
    u = normal(*found.shape, seed=1)
    for i, j in np.ndindex(*shape[:2]):
        for p, window_places in zip(np.ndindex(*many), seen, strict=True):
            if not window_places:  # all padding, which is at no place
                expected[(i, j, *p)], places[(i, j, *p)] = -np.inf, index[(i, j, *p)]
                continue
            best = max(window_places, key=lambda at: x[(i, j, *at)])
            expected[(i, j, *p)], places[(i, j, *p)] = x[(i, j, *best)], np.ravel_multi_index(best, shape[2:])
            bars[(i, j, *best)] += u[(i, j, *p)]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(index, places)
    np.testing.assert_allclose(pb.grad(lambda x: pb.sum(pool(x, False) * u))(x), bars, atol=1e-12)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_window_of_padding_alone_has_no_greatest_element(native, dtype):
    """Places of a dilated window may lie on both sides of a narrow grid; zero is not among them."""
    x = -np.arange(1, 6).reshape(1, 1, 1, 5).astype(dtype)
    pool = lambda x: pb.nn.max_pool2d(x, 2, (2, 1), (1, 0), 2)  # noqa: E731
    lowest = -np.inf if dtype == "float32" else np.iinfo(dtype).min
    with pb.native(native):
        np.testing.assert_array_equal(pool(x), np.full((1, 1, 1, 3), lowest))
        np.testing.assert_array_equal(pool(pb.tensor(x)).numpy(), pool(x))
        if dtype == "float32":
            t = pb.tensor(x, requires_grad=True)
            pool(t).sum().backward()
            np.testing.assert_array_equal(t.grad.numpy(), np.zeros_like(x))
    np.testing.assert_array_equal(pb.jit(pool)(x), pool(x))


@given(geometries(dilated=False), st.booleans(), st.sampled_from([None, 3]))
def test_average_pool_counts_as_said(geometry, with_padding, divisor):
    shape, window, stride, padding, dilation, ceil_mode = geometry
    x = normal(*shape)
    many, seen = windows(shape[2:], window, stride, padding, dilation, ceil_mode)
    pool = lambda x: AVERAGE[len(window)](x, window, stride, padding, ceil_mode, with_padding, divisor)  # noqa: E731
    found = pool(x)
    assert found.shape == (*shape[:2], *many)
    begin = itertools.product(
        *(starts(*g, ceil_mode) for g in zip(shape[2:], window, stride, padding, dilation, strict=True))
    )
    for p, places, at in zip(np.ndindex(*many), seen, begin, strict=True):
        whole = math.prod(min(a + k, n + q) - a for a, k, n, q in zip(at, window, shape[2:], padding, strict=True))
        count = divisor or (whole if with_padding else len(places))
        total = sum(x[(slice(None), slice(None), *place)] for place in places)
        np.testing.assert_allclose(found[(slice(None), slice(None), *p)], total / count, atol=1e-12)
    if x.size:
        assert pb.gradcheck(pool, x)


def test_nan_is_the_greatest_and_padding_never():
    x = np.array([[[1.0, np.nan, 3.0, np.nan, -np.inf, -np.inf]]])
    found, index = pb.nn.max_pool1d(x, 2, return_indices=True)
    np.testing.assert_array_equal(found, [[[np.nan, np.nan, -np.inf]]])
    assert index.tolist() == [[[1, 3, 4]]]
    low = np.full((1, 1, 3, 3), -np.inf)
    found, index = pb.nn.max_pool2d(low, 3, 2, 1, return_indices=True)
    assert (found == -np.inf).all()
    assert index[0, 0].tolist() == [[0, 1], [3, 4]]
    for dtype in ("int8", "float32", "bool"):
        assert pb.nn.max_pool1d(np.zeros((1, 1, 4), dtype), 3, 1, 1).dtype == dtype


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling_puts_back(rank):
    x = normal(2, 3, *(5,) * rank)
    y, at = MAX[rank](x, 2, 2, return_indices=True)
    back = UNPOOL[rank](y, at, 2, 2, output_size=(5,) * rank)
    np.testing.assert_array_equal(np.sort(back[back != 0]), np.sort(y.ravel()))
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert UNPOOL[rank](y, at * 0, 2, 2).shape == (2, 3, *(4,) * rank)
    assert pb.gradcheck(lambda y: UNPOOL[rank](y, at, 2, 2, output_size=(5,) * rank), y)


def test_norms_of_windows():
    x = normal(2, 2, 6, 5)
    found = pb.nn.lp_pool2d(x, 3, (2, 3), 1)
    seen = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))
    np.testing.assert_allclose(found, (np.abs(seen) ** 3).sum((-1, -2)) ** (1 / 3))
    np.testing.assert_allclose(pb.nn.lp_pool2d(x, np.inf, (2, 3), 1), np.abs(seen).max((-1, -2)))
    assert pb.gradcheck(lambda x: pb.nn.lp_pool2d(x, 3, 2), x)
    assert pb.grad(lambda x: pb.sum(pb.nn.lp_pool1d(x, 2, 2)))(np.zeros((1, 1, 4))).tolist() == [[[0.0] * 4]]


def test_global_pools():
    x = normal(2, 3, 4, 5)
    np.testing.assert_allclose(pb.nn.global_avg_pool(x), x.mean((2, 3)))
    np.testing.assert_array_equal(pb.nn.global_max_pool(x, keepdims=True), x.max((2, 3), keepdims=True))
    tied = pb.grad(lambda x: pb.sum(pb.nn.global_max_pool(x)))(np.ones((1, 1, 2, 2)))
    assert tied.tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6))
def test_adaptive_windows(height, width, rows, columns):
    x = np.round(3 * normal(2, 1, height, width))
    averages = pb.nn.adaptive_avg_pool2d(x, (rows, columns))
    greatest, index = pb.nn.adaptive_max_pool2d(x, (rows, columns), return_indices=True)
    for i, j in np.ndindex(rows, columns):
        down = slice(i * height // rows, -(-(i + 1) * height // rows))
        right = slice(j * width // columns, -(-(j + 1) * width // columns))
        part = x[:, :, down, right]
        np.testing.assert_allclose(averages[:, :, i, j], part.mean((2, 3)), atol=1e-12)
        np.testing.assert_array_equal(greatest[:, :, i, j], part.max((2, 3)))
        for n in range(2):
            a, b = np.unravel_index(np.argmax(part[n, 0]), part.shape[2:])
            assert index[n, 0, i, j] == (down.start + a) * width + right.start + b


def test_adaptive_pools_differentiate_and_keep_axes():
    x = normal(2, 2, 5, 7)
    assert pb.nn.adaptive_avg_pool2d(x, (None, 3)).shape == (2, 2, 5, 3)
    assert pb.gradcheck(lambda x: pb.nn.adaptive_avg_pool2d(x, 3), x)
    assert pb.gradcheck(lambda x: pb.nn.adaptive_max_pool2d(x, (2, 3)), x)
    assert pb.nn.adaptive_avg_pool1d(normal(2, 7, dtype="float32"), 3).dtype == np.float32
    assert pb.nn.adaptive_max_pool3d(normal(1, 2, 3, 4, 5), 2).shape == (1, 2, 2, 2, 2)
    assert pb.nn.adaptive_avg_pool3d(normal(0, 2, 3, 4, 5), 2).shape == (0, 2, 2, 2, 2)


@pytest.mark.parametrize("rank", [2, 3])
def test_windows_at_random_places(rank):
    pool = {2: pb.nn.fractional_max_pool2d, 3: pb.nn.fractional_max_pool3d}[rank]
    x, key = normal(2, 3, *(7,) * rank), pb.random.key(1)
    found, index = pool(x, 2, 4, return_indices=True, key=key)
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, index.reshape(2, 3, -1), -1), found.reshape(2, 3, -1))
    np.testing.assert_array_equal(found, pool(x, 2, 4, key=key))
    assert pool(x, 2, output_ratio=0.5, key=key).shape == (2, 3, *(3,) * rank)
    assert pb.gradcheck(lambda x: pool(x, 2, 4, key=key), x)
    samples = np.full((2, 3, rank), 0.5)  # a = 5/3: floor((i + 1/2) a) - floor(a / 2) = 0, 2, 4, then the end
    by_hand = x
    for axis in range(2, 2 + rank):
        by_hand = np.stack([by_hand.take([s, s + 1], axis).max(axis) for s in (0, 2, 4, 5)], axis)
    np.testing.assert_array_equal(pool(x, 2, 4, samples=samples), by_hand)
    with pytest.raises(ArgumentError, match="key"):
        pool(x, 2, 4)


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(1, 3))
def test_fold_is_the_transpose_of_unfold(window, dilation, padding, stride):
    x = normal(2, 3, 7, 6)
    columns = pb.nn.unfold(x, window, dilation, padding, stride)
    u = normal(*columns.shape, seed=1)
    back = pb.nn.fold(u, (7, 6), window, dilation, padding, stride)
    np.testing.assert_allclose(np.sum(columns * u), np.sum(x * back), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        pb.grad(lambda x: pb.sum(pb.nn.unfold(x, window, dilation, padding, stride) * u))(x), back
    )
    np.testing.assert_array_equal(pb.nn.fold(u[0], (7, 6), window, dilation, padding, stride), back[0])


def test_unfold_lays_out_what_a_convolution_sees():
    x, w = normal(2, 3, 6, 6), normal(4, 3, 2, 2, seed=1)
    product = w.reshape(4, -1) @ pb.nn.unfold(x, 2, stride=2)
    np.testing.assert_allclose(product.reshape(2, 4, 3, 3), pb.nn.conv2d(x, w, stride=2), atol=1e-12)


def test_pixels_move_between_channels_and_space():
    x = np.arange(2 * 12 * 2 * 3.0).reshape(2, 12, 2, 3)
    y = pb.nn.pixel_shuffle(x, 2)
    assert y.shape == (2, 3, 4, 6)
    for c, i, j in np.ndindex(3, 2, 2):
        np.testing.assert_array_equal(y[:, c, i::2, j::2], x[:, 4 * c + 2 * i + j])
    np.testing.assert_array_equal(pb.nn.pixel_unshuffle(y, 2), x)
    assert pb.nn.pixel_shuffle(x[0], 2).shape == (3, 4, 6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((3, 4, 8, 6), {"kernel_size": 2}),
        ((2, 3, 7, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((2, 1, 7, 9), {"kernel_size": 3, "stride": 1, "ceil_mode": True}),
        ((1, 2, 5, 5), {"kernel_size": 2, "stride": 3}),
    ],
)
def test_compiled_equals_eager(shape, how, dtype):
    x, scale = normal(*shape, dtype=dtype), normal(*shape[1:], seed=1, dtype=dtype)
    x[0, 0, 0, 0] = np.nan
    for pool in (pb.nn.max_pool2d, pb.nn.avg_pool2d):

        def both(x, pool=pool):
            return pb.value_and_grad(lambda x: pb.sum(pb.tanh(pool(pb.sin(x) * scale, **how))))(x)

        expected, found = both(x), pb.jit(both)(x)
        assert "by NumPy" not in pb.jit(both).lower(x).explain()
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-4 if dtype == "float32" else 1e-11, atol=1e-6)
    y, at = pb.jit(lambda x: pb.nn.max_pool2d(x, **how, return_indices=True))(x)
    expected, places = pb.nn.max_pool2d(x, **how, return_indices=True)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(at, places)


def test_compiled_after_a_convolution_in_its_order():
    """Channels lie innermost there; results come out in the usual order all the same."""
    x, w = normal(2, 3, 8, 8), normal(5, 3, 3, 3, seed=1)
    f = lambda x: pb.nn.max_pool2d(pb.nn.conv2d(x, w, padding=1), 3, 2, 1, return_indices=True)  # noqa: E731
    for mine, theirs in zip(pb.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
        assert mine.flags.c_contiguous
    g = lambda x: pb.sum(pb.sin(pb.nn.lp_pool2d(pb.nn.conv2d(x, w), 2, 2)))  # noqa: E731
    np.testing.assert_allclose(pb.jit(pb.grad(g))(x), pb.grad(g)(x), atol=1e-12)
    h = lambda x: pb.flip(pb.nn.conv2d(x, w), axis=(1,)) + pb.nn.conv2d(x, w)[:, ::-1]  # noqa: E731
    np.testing.assert_allclose(pb.jit(h)(x), h(x), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pb.nn.max_pool2d(normal(2, 3), 2), ShapeError, r"\(2, 3\)"),
        (lambda: pb.nn.max_pool2d(normal(1, 1, 2, 2), 3), ShapeError, r"\(2, 2\).*negative"),
        (lambda: pb.nn.max_pool2d(normal(1, 1, 4, 4), 2, padding=2), ArgumentError, "half"),
        (lambda: pb.nn.max_pool2d(normal(1, 1, 4, 4), 2, 0), ArgumentError, "stride"),
        (lambda: pb.nn.avg_pool2d(normal(1, 1, 4, 4), 2, divisor_override=0), ArgumentError, "zero"),
        (lambda: pb.nn.lp_pool1d(normal(1, 1, 4), 0.5, 2), ArgumentError, "norm_type"),
        (lambda: pb.nn.max_unpool2d(normal(1, 1, 2, 2), np.zeros((1, 1, 2, 3), int), 2), ShapeError, r"\(1, 1, 2, 3\)"),
        (lambda: pb.nn.adaptive_avg_pool2d(normal(1, 1, 4, 4), (2, 2, 2)), ArgumentError, "output_size"),
        (lambda: pb.nn.adaptive_max_pool1d(normal(1, 1, 0), 2), ShapeError, "no elements"),
        (lambda: pb.nn.fractional_max_pool2d(normal(1, 1, 4, 4), 2, 4, key=pb.random.key(0)), ShapeError, "room"),
        (lambda: pb.nn.fold(normal(1, 5, 4), (3, 3), 2), ShapeError, r"\(1, 5, 4\)"),
        (lambda: pb.nn.pixel_shuffle(normal(1, 3, 2, 2), 2), ShapeError, r"\(1, 3, 2, 2\)"),
        (lambda: pb.nn.pixel_unshuffle(normal(1, 3, 3, 2), 2), ShapeError, r"\(1, 3, 3, 2\)"),
        (lambda: pb.nn.global_avg_pool(normal(2, 3)), ShapeError, r"\(2, 3\)"),
    ],
)
def test_what_makes_no_sense_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 3, (4, 2), 5])
def test_gradients_of_averages_at_every_place(window, padding):
    wide = window if isinstance(window, tuple) else (window, window)
    if 2 * padding > min(wide):
        pytest.skip("padding is at most half of the window")
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 8))
    y, pull = pb.vjp(lambda x: pb.nn.avg_pool2d(x, window, stride=1, padding=padding), x)
    bar = np.random.default_rng(1).normal(size=y.shape)
    want = np.zeros((2, 3, 9 + 2 * padding, 8 + 2 * padding))
    for i, j in np.ndindex(y.shape[2:]):
        want[:, :, i : i + wide[0], j : j + wide[1]] += bar[:, :, i : i + 1, j : j + 1] / np.prod(wide)
    (found,) = pull(bar)
    np.testing.assert_allclose(found, want[:, :, padding : padding + 9, padding : padding + 8], rtol=0, atol=1e-13)
