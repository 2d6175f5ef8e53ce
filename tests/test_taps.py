"""Interpolation and scatters to known places run as sums over taps, with the same numbers."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.loop_ir import Product

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(2, 3, 40, 48))
BAND = np.zeros((48, 90))
BAND[np.arange(90) * 48 // 90, np.arange(90)] = rng.normal(size=90)
BAND[np.minimum(np.arange(90) * 48 // 90 + 1, 47), np.arange(90)] += rng.normal(size=90)


def steps(f, *args):
    return pb.jit(f).lower(*args)._compilation().steps.steps


def has_product(f, *args):
    return any(isinstance(s, Product) for s in steps(f, *args))


def test_products_with_sparse_constants_stay_products():
    """Zero times infinity is NaN, also where the zeros of a matrix are known."""
    image = IMAGES.copy()
    image[0, 0, 20, 20] = np.inf
    f = pb.jit(lambda x: pb.matmul(x, BAND.copy()))
    with np.errstate(invalid="ignore"):
        want = image @ BAND
    np.testing.assert_array_equal(np.isnan(f(image)), np.isnan(want))
    np.testing.assert_allclose(f(IMAGES), IMAGES @ BAND, rtol=1e-12, atol=1e-12)


def test_compiled_interpolation_multiplies_no_matrices():
    assert not has_product(lambda x: pb.nn.interpolate(x, scale_factor=2, mode="bilinear"), IMAGES)


def test_an_infinite_element_stays_with_its_neighbors():
    image = IMAGES.copy()
    image[0, 0, 20, 20] = np.inf
    found = pb.nn.interpolate(image, scale_factor=2, mode="bilinear")
    assert 0 < np.count_nonzero(~np.isfinite(found)) <= 36


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "area"])
@pytest.mark.parametrize("size", [(80, 96), (70, 31), (13, 96), (40, 48)])
def test_interpolation_agrees_with_op_by_op_calls_in_every_derivative(mode, size):
    def f(x):
        return pb.nn.interpolate(x, size, mode=mode)

    bar = rng.normal(size=(2, 3, *size))
    x = pb.tensor(IMAGES, requires_grad=True)
    y = f(x)
    y.backward(bar)
    with pb.native(False):
        want, pull = pb.vjp(f, IMAGES)
        (slope,) = pull(bar)
        tangent = pb.jvp(f, (IMAGES,), (IMAGES**2,))[1]
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=0, atol=1e-12)
    np.testing.assert_allclose(pb.jit(lambda x, t: pb.jvp(f, (x,), (t,))[1])(IMAGES, IMAGES**2), tangent, atol=1e-12)
    second = pb.jit(pb.grad(lambda x: pb.sum(pb.grad(lambda v: pb.sum(f(v) ** 3))(x) ** 2)))(IMAGES)
    with pb.native(False):
        expected = pb.grad(lambda x: pb.sum(pb.grad(lambda v: pb.sum(f(v) ** 3))(x) ** 2))(IMAGES)
    np.testing.assert_allclose(second, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


PLACES = {
    "each twice": np.arange(96) // 2,
    "some twice, some never": np.minimum(np.arange(60) * 41 // 60, 47),
    "backwards": np.arange(48)[::-1].copy(),
    "one place often": np.r_[np.arange(48), np.zeros(10, int)],
    "counted from the end": np.arange(-48, 0),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_lookups_at_known_places(places, axis):
    x = rng.normal(size=(48, 90) if axis == 0 else (90, 48))
    bar = rng.normal(size=np.take(x, places, axis=axis).shape)
    (found,) = pb.jit(lambda x, bar: pb.vjp(lambda x: pb.take(x, places.copy(), axis=axis), x)[1](bar))(x, bar)
    want = np.zeros_like(x)
    np.add.at(want, places if axis == 0 else (slice(None), places), bar)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)


def test_places_out_of_range_are_refused():
    with pytest.raises(IndexError):
        pb.jit(lambda x: pb.take(x, np.array([0, 100]), axis=0))(IMAGES[0, 0])


@pytest.mark.parametrize(
    "how",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (2, 4), "stride": (3, 2), "dilation": (2, 1)},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": (1, 20), "stride": 5},  # a window too long to be staged
    ],
)
def test_fold_and_unfold_agree_with_op_by_op_calls(how):
    with pb.native(False):
        columns = pb.nn.unfold(IMAGES, **how)
        images = pb.nn.fold(columns, (40, 48), **how)
    x, y = pb.tensor(IMAGES, requires_grad=True), pb.tensor(columns, requires_grad=True)
    found, folded = pb.nn.unfold(x, **how), pb.nn.fold(y, (40, 48), **how)
    np.testing.assert_array_equal(found.detach().numpy(), columns)
    np.testing.assert_allclose(folded.detach().numpy(), images, rtol=0, atol=1e-13)
    # each is the other's transpose
    found.backward(columns)
    folded.backward(images)
    np.testing.assert_allclose(x.grad.numpy(), images, rtol=0, atol=1e-13)
    with pb.native(False):
        np.testing.assert_array_equal(y.grad.numpy(), pb.nn.unfold(images, **how))
