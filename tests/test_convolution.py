"""Convolutions: against plain loops, in every mode, compiled, and what is refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import cpu_with

import pullback as pb
from pullback.errors import ArgumentError, ShapeError

CONV = {1: pb.nn.conv1d, 2: pb.nn.conv2d, 3: pb.nn.conv3d}
TRANSPOSED = {1: pb.nn.conv_transpose1d, 2: pb.nn.conv_transpose2d, 3: pb.nn.conv_transpose3d}


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def slow_conv(x, w, stride, padding, dilation, groups):
    """The definition, one output element at a time, on an input that is padded with zeros."""
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    many = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *many), np.result_type(x, w))
    for f, at in itertools.product(range(w.shape[0]), np.ndindex(*many)):
        group = f // (w.shape[0] // groups)
        channels = slice(group * w.shape[1], (group + 1) * w.shape[1])
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(at, stride, reach, dilation, strict=True))
        out[(slice(None), f, *at)] = (x[(slice(None), channels, *window)] * w[f]).sum(tuple(range(1, x.ndim)))
    return out


@st.composite
def geometries(draw):
    rank = draw(st.integers(1, 3))
    several = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    window, stride, dilation = several(1, 3), several(1, 3), several(1, 2)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    extra = several(0, 3)
    sizes = tuple(
        max((k - 1) * d + 1 - low - high, 1) + e
        for k, d, (low, high), e in zip(window, dilation, padding, extra, strict=True)
    )
    groups = draw(st.integers(1, 3))
    inside, filters = draw(st.integers(1, 2)) * groups, draw(st.integers(1, 2)) * groups
    images = draw(st.integers(0, 2))
    return (images, inside, *sizes), (filters, inside // groups, *window), stride, padding, dilation, groups


@given(geometries(), st.sampled_from(["float32", "float64"]))
def test_any_geometry_agrees_with_the_definition(geometry, dtype):
    x_shape, w_shape, stride, padding, dilation, groups = geometry
    x, w, b = normal(*x_shape, dtype=dtype), normal(*w_shape, seed=1, dtype=dtype), normal(w_shape[0], dtype=dtype)
    found = CONV[len(stride)](x, w, b, stride, padding, dilation, groups)
    expected = slow_conv(x, w, stride, padding, dilation, groups) + b.reshape(-1, *(1,) * len(stride))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 if dtype == "float32" else 1e-12)


@given(geometries())
def test_gradients_are_the_transposes(geometry):
    """<u, C(x, w)> is linear in x and in w, so its gradients give it back."""
    x_shape, w_shape, stride, padding, dilation, groups = geometry
    x, w = normal(*x_shape), normal(*w_shape, seed=1)
    conv = lambda x, w: CONV[len(stride)](x, w, None, stride, padding, dilation, groups)  # noqa: E731
    u = normal(*conv(x, w).shape, seed=2)
    x_bar, w_bar = pb.grad(lambda x, w: pb.sum(conv(x, w) * u), argnums=(0, 1))(x, w)
    assert (x_bar.shape, w_bar.shape) == (x.shape, w.shape)
    value = np.sum(conv(x, w) * u)
    np.testing.assert_allclose([np.sum(x_bar * x), np.sum(w_bar * w)], [value, value], rtol=1e-9, atol=1e-9)


@given(geometries(), st.integers(0, 2))
def test_a_transposed_convolution_is_the_transpose(geometry, extra):
    """<C(x), y> = <x, C^T(y)> for the sizes that C^T answers."""
    x_shape, w_shape, stride, padding, dilation, groups = geometry
    if not x_shape[0]:
        return
    rank = len(stride)
    extra = tuple(min(extra, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    w = normal(*w_shape, seed=1)
    many = tuple(2 for _ in range(rank))
    full = [(m - 1) * s + (k - 1) * d + 1 for m, s, k, d in zip(many, stride, w_shape[2:], dilation, strict=True)]
    if any(n - low - high < 1 for n, (low, high) in zip(full, padding, strict=True)):
        return
    y = normal(x_shape[0], w_shape[0], *many)
    found = TRANSPOSED[rank](y, w, None, stride, padding, extra, groups, dilation)
    assert found.shape[2:] == tuple(n - low - high + e for n, (low, high), e in zip(full, padding, extra, strict=True))
    x = normal(*found.shape, seed=3)
    forward = CONV[rank](x, w, None, stride, padding, dilation, groups)
    cut = forward[(slice(None), slice(None), *(slice(0, m) for m in many))]
    np.testing.assert_allclose(np.sum(cut * y), np.sum(x * found), rtol=1e-9, atol=1e-9)


def test_an_image_alone_needs_no_batch_axis():
    x, w, b = normal(2, 5, 5), normal(3, 2, 3, 3), normal(3)
    np.testing.assert_array_equal(pb.nn.conv2d(x, w, b), pb.nn.conv2d(x[None], w, b)[0])
    y = normal(3, 4, 4)
    np.testing.assert_array_equal(pb.nn.conv_transpose2d(y, w), pb.nn.conv_transpose2d(y[None], w)[0])


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_same_padding_gives_one_window_for_each_stride(stride, window):
    x, w = normal(1, 1, 7, 6), normal(1, 1, window, window)
    found = pb.nn.conv2d(x, w, stride=stride, padding="same")
    assert found.shape[2:] == (-(-7 // stride), -(-6 // stride))
    assert pb.nn.conv_transpose2d(x, w, stride=stride, padding="same").shape[2:] == (7 * stride, 6 * stride)
    if stride == 1:
        low, high = (window - 1) // 2, window - 1 - (window - 1) // 2
        padded = np.pad(x, [(0, 0), (0, 0), (low, high), (low, high)])
        np.testing.assert_allclose(found, pb.nn.conv2d(padded, w))


@pytest.mark.parametrize(("mode", "by_numpy"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_padding_may_take_elements_of_the_input(mode, by_numpy):
    x, w = normal(2, 2, 4, 5), normal(3, 2, 3, 3, seed=1)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 2), (2, 0)], mode=by_numpy)
    expected = slow_conv(padded, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    np.testing.assert_allclose(pb.nn.conv2d(x, w, padding=((1, 2), (2, 0)), mode=mode), expected, atol=1e-12)
    assert pb.gradcheck(lambda x, w: pb.nn.conv2d(x, w, padding=1, mode=mode), x, w)


def test_second_derivatives_forward_mode_and_batches():
    x, w = normal(2, 2, 5, 4), normal(4, 1, 3, 2, seed=1)
    f = lambda x, w: pb.sin(pb.nn.conv2d(x, w, stride=(2, 1), padding=(1, 0), groups=2))  # noqa: E731
    assert pb.gradcheck(f, x, w)
    assert pb.gradgradcheck(f, x, w)
    many_x, many_w = normal(3, *x.shape), normal(3, *w.shape, seed=1)
    for axes, given_ in (((0, None), (many_x, w)), ((None, 0), (x, many_w)), ((0, 0), (many_x, many_w))):
        found = pb.vmap(f, in_axes=axes)(*given_)
        rows = [f(*(a[i] if axis == 0 else a for a, axis in zip(given_, axes, strict=True))) for i in range(3)]
        np.testing.assert_allclose(found, np.stack(rows), atol=1e-12)


def test_complex_numbers():
    x, w = normal(1, 2, 4) + 1j * normal(1, 2, 4, seed=1), normal(2, 2, 2, seed=2) + 1j * normal(2, 2, 2, seed=3)
    expected = slow_conv(x, w, (1,), ((0, 0),), (1,), 1)
    np.testing.assert_allclose(pb.nn.conv1d(x, w), expected)
    assert pb.gradcheck(lambda x, w: pb.nn.conv1d(x, w), x, w)


def test_strange_memory_and_mixed_dtypes():
    x, w = normal(6, 6, 2, 3).transpose(3, 2, 0, 1)[..., ::-1], normal(4, 2, 3, 3, seed=1)[:, :, ::-1]
    plain = pb.nn.conv2d(x.copy(), w.copy(), padding=1)
    np.testing.assert_array_equal(pb.nn.conv2d(x, w, padding=1), plain)
    assert pb.nn.conv2d(x.astype("float32"), w).dtype == np.float64
    assert pb.nn.conv2d(np.ones((1, 1, 3, 3), int), np.ones((1, 1, 2, 2), int)).tolist() == [[[[4, 4], [4, 4]]]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pb.nn.conv2d(normal(3, 5), normal(1, 3, 3, 3)), r"\(3, 5\)"),
        (lambda: pb.nn.conv2d(normal(1, 3, 5, 5), normal(1, 2, 3, 3)), r"\(1, 3, 5, 5\).*\(1, 2, 3, 3\)"),
        (lambda: pb.nn.conv2d(normal(1, 4, 5, 5), normal(3, 2, 3, 3), groups=2), r"\(3, 2, 3, 3\).*2 groups"),
        (lambda: pb.nn.conv2d(normal(1, 1, 2, 5), normal(1, 1, 3, 3)), r"\(2, 5\).*negative"),
        (lambda: pb.nn.conv2d(normal(1, 1, 4, 4), normal(1, 1, 3, 3), dilation=2), "reaches over 5"),
        (lambda: pb.nn.conv2d(normal(1, 1, 4, 4), normal(1, 1, 3)), "weight of 4 axes"),
        (lambda: pb.nn.conv2d(normal(1, 1, 4, 4), normal(2, 1, 3, 3), normal(3)), r"bias of shape \(2,\)"),
        (lambda: pb.nn.conv2d(normal(1, 1, 2, 2), normal(1, 1, 3, 3), padding=2, mode="reflect"), "too small"),
        (lambda: pb.nn.conv_transpose2d(normal(1, 1, 2, 2), normal(1, 1, 2, 2), padding=2), "would have sizes"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, words):
    with pytest.raises(ShapeError, match=words):
        call()


@pytest.mark.parametrize(
    "how",
    [
        {"stride": 0},
        {"stride": (1, 1, 1)},
        {"padding": -1},
        {"padding": "some"},
        {"dilation": 0},
        {"mode": "odd"},
        {"groups": 0},
    ],
)
def test_parameters_without_sense_are_refused(how):
    with pytest.raises(ArgumentError):
        pb.nn.conv2d(normal(1, 1, 5, 5), normal(1, 1, 3, 3), **how)
    if how == {"stride": 0}:
        with pytest.raises(ArgumentError, match="output_padding"):
            pb.nn.conv_transpose1d(normal(1, 1, 5), normal(1, 1, 3), stride=2, output_padding=2)


COMPILED = [
    ((4, 3, 9, 8), (5, 3, 3, 3), {"padding": 1}),
    ((4, 16, 9, 8), (5, 16, 3, 3), {"padding": "same", "dilation": 2}),
    ((6, 2, 11), (3, 2, 4), {"stride": 3, "padding": 2}),
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
    ((2, 8, 5, 5), (4, 8, 1, 1), {}),
    ((3, 4, 6, 6), (4, 1, 3, 3), {"groups": 4}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x_shape", "w_shape", "how"), COMPILED)
def test_compiled_equals_eager(x_shape, w_shape, how, dtype):
    conv = CONV[len(x_shape) - 2]
    x, w = normal(*x_shape, dtype=dtype), normal(*w_shape, seed=1, dtype=dtype)
    b = normal(w_shape[0], seed=2, dtype=dtype)

    def gradients(x, w, b):
        return pb.value_and_grad(lambda *p: pb.sum(pb.relu(conv(*p, **how)) ** 2), argnums=(0, 1, 2))(x, w, b)

    expected, expected_bars = gradients(x, w, b)
    found, found_bars = pb.jit(gradients)(x, w, b)
    loose = 2e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(found, expected, rtol=loose)
    for mine, theirs in zip(found_bars, expected_bars, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, theirs, rtol=loose, atol=loose * np.abs(theirs).max())


def test_compiled_in_several_blocks(monkeypatch):
    """With little room for patches each image is a block of its own."""
    cpu_with(monkeypatch, patch_bytes=1)
    x, w, bar = normal(5, 2, 6, 6), normal(3, 2, 3, 3, seed=1), normal(5, 3, 6, 6, seed=2)
    f = pb.jit(lambda x, w, bar: pb.vjp(lambda x, w: pb.nn.conv2d(x, w, padding=1), x, w)[1](bar))
    assert "5 blocks" in f.lower(x, w, bar).explain()
    expected = pb.vjp(lambda x, w: pb.nn.conv2d(x, w, padding=1), x, w)[1](bar)
    for mine, theirs in zip(f(x, w, bar), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_compiled_with_one_array_twice():
    x = normal(2, 2, 3, 3)
    f = lambda x: pb.sum(pb.sin(pb.nn.conv2d(x, x, padding=1)))  # noqa: E731
    np.testing.assert_allclose(pb.jit(pb.grad(f))(x), pb.grad(f)(x), atol=1e-12)


def test_no_step_of_a_compiled_network_is_left_to_the_array_library():
    def loss(x, w, v):
        h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(x, w, padding=1)), 2)
        return pb.mean(pb.nn.avg_pool2d(pb.nn.conv2d(h, v), 2) ** 2)

    given_ = normal(2, 1, 12, 12), normal(4, 1, 3, 3), normal(3, 4, 3, 3)
    step = pb.jit(pb.value_and_grad(loss, argnums=(1, 2)))
    assert "by NumPy" not in step.lower(*given_).explain()
    expected, expected_bars = pb.value_and_grad(loss, argnums=(1, 2))(*given_)
    found, bars = step(*given_)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for mine, theirs in zip(bars, expected_bars, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_compiled_inside_a_loop():
    x, w = normal(2, 3, 6, 6), 0.2 * normal(3, 3, 3, 3, seed=1)

    def f(x, w):
        def body(h, _):
            h = pb.nn.max_pool2d(pb.tanh(pb.nn.conv2d(h, w, padding=1)), 3, 1, 1)
            return h, pb.sum(h)

        last, sums = pb.scan(body, x, np.arange(3))
        return pb.sum(last**2) + pb.sum(sums)

    gradient = pb.grad(f, argnums=(0, 1))
    for mine, theirs in zip(pb.jit(gradient)(x, w), gradient(x, w), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-11)
    np.testing.assert_allclose(pb.grad(pb.jit(f), argnums=1)(x, w), gradient(x, w)[1], atol=1e-11)


def test_compiled_results_may_be_looked_at_in_any_way():
    x, w = normal(4, 3, 6, 6), normal(3, 3, 3, 3, seed=1)

    def f(x, w):
        y = pb.nn.conv2d(x, w)
        moved = pb.permute_dims(y, (1, 0, 3, 2))
        sums = y.sum(axis=(2, 3)), y.mean(axis=1), pb.max(y, axis=(0, 1))
        return (
            y,
            pb.relu(y),
            moved,
            pb.reshape(y, (4, -1)),
            *sums,
            pb.concat([y, x[:, :, 1:5, 1:5]], axis=1),
            moved @ y[0, 0],
        )

    for mine, theirs in zip(pb.jit(f)(x, w), f(x, w), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_compiled_weights_given_away_are_updated_in_place():
    x, w = normal(4, 3, 6, 6), normal(2, 3, 3, 3, seed=1)
    step = lambda w, x: w - 0.1 * pb.grad(lambda w: pb.sum(pb.nn.conv2d(x, w, padding=1) ** 2))(w)  # noqa: E731
    expected, given_ = step(w, x), w.copy()
    found = pb.jit(step, donate_argnums=0)(given_, x)
    assert found is given_
    np.testing.assert_allclose(found, expected, atol=1e-11)
