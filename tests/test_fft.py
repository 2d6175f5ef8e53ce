"""Fourier transforms: values as NumPy's for every axis, length and norm, gradients by their definition."""

import numpy as np
import pytest

import pullback as pb

NORMS = (None, "backward", "ortho", "forward")
REAL_INPUT = ("rfft", "ihfft", "rfftn", "rfft2")
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
TWO = ("fft2", "ifft2", "rfft2", "irfft2")


def draw(name, *shape):
    rng = np.random.default_rng(len(name) + sum(shape))
    x = rng.normal(size=shape)
    return x if name in REAL_INPUT else x + 1j * rng.normal(size=shape)


def close(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("n", "axis"), [(None, -1), (None, 0), (3, 1), (8, 1), (1, 0), (7, 2)])
@pytest.mark.parametrize("name", ONE)
def test_one_axis_is_numpys(name, n, axis, norm):
    x = draw(name, 4, 5, 3)
    close(getattr(pb.fft, name)(x, n, axis, norm), getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("s", "axes"),
    [(None, None), (None, (0,)), (None, (2, 0)), ((3, 6), (1, 2)), ((6, 2, 3), (0, 1, 2)), ((5, -1), (0, 1))],
)
@pytest.mark.parametrize("name", MANY)
def test_many_axes_are_numpys(name, s, axes, norm):
    x = draw(name, 4, 5, 3)
    close(getattr(pb.fft, name)(x, s=s, axes=axes, norm=norm), getattr(np.fft, name)(x, s=s, axes=axes, norm=norm))


@pytest.mark.parametrize("name", TWO)
def test_two_axes_are_numpys(name):
    x = draw(name, 2, 4, 5)
    close(getattr(pb.fft, name)(x), getattr(np.fft, name)(x))
    close(getattr(pb.fft, name)(x, (3, 7), (0, 2), "ortho"), getattr(np.fft, name)(x, (3, 7), (0, 2), "ortho"))


def test_an_axis_named_twice_is_transformed_twice():
    x = draw("fft", 3, 4)
    close(pb.fft.fftn(x, axes=(0, 0)), np.fft.fftn(x, axes=(0, 0)))


def test_shifts_and_frequencies():
    x = np.arange(30.0).reshape(5, 6)
    for axes in (None, 0, 1, (0, 1)):
        np.testing.assert_array_equal(pb.fft.fftshift(x, axes), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(pb.fft.ifftshift(x, axes), np.fft.ifftshift(x, axes))
    for n in (1, 4, 5):
        np.testing.assert_array_equal(pb.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5))
        single = pb.fft.rfftfreq(n, d=0.5, dtype="float32").numpy()
        np.testing.assert_array_equal(single, np.fft.rfftfreq(n, 0.5).astype("float32"))


@pytest.mark.parametrize("name", [*ONE, *MANY, *TWO])
def test_gradient_is_the_steepest_ascent(name):
    """Along each real and each imaginary direction, the loss grows as the gradient says."""
    x = draw(name, 3, 4)
    f = getattr(pb.fft, name)

    def loss(z):
        spectrum = f(z)
        return pb.sum(pb.sin(pb.real(spectrum)) + pb.imag(spectrum) * pb.real(spectrum))

    found = pb.grad(loss)(x)
    assert found.dtype == x.dtype
    step = 1e-6
    directions = [np.eye(12)[k].reshape(3, 4) for k in range(12)]
    for d in directions + ([1j * d for d in directions] if x.dtype.kind == "c" else []):
        slope = (loss(x + step * d) - loss(x - step * d)) / (2 * step)
        assert abs(np.vdot(d, found).real - slope) < 1e-6


def test_parseval_and_its_derivatives():
    x = np.random.default_rng(0).normal(size=7)

    def power(y):
        return pb.sum(pb.square(pb.abs(pb.fft.fft(y, norm="ortho"))))

    np.testing.assert_allclose(power(x), np.sum(x**2))
    np.testing.assert_allclose(pb.grad(power)(x), 2 * x, atol=1e-14)
    np.testing.assert_allclose(pb.hessian(power)(x), 2 * np.eye(7), atol=1e-13)


def test_convolution_theorem():
    rng = np.random.default_rng(1)
    x, kernel = rng.normal(size=8), rng.normal(size=8)

    def circular(a, b):
        return pb.fft.irfft(pb.fft.rfft(a) * pb.fft.rfft(b), 8)

    matrix = np.stack([np.roll(kernel[::-1], k + 1) for k in range(8)])
    np.testing.assert_allclose(circular(x, kernel), matrix @ x, atol=1e-13)
    np.testing.assert_allclose(pb.jacobian(circular)(x, kernel), matrix, atol=1e-13)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfft", "ihfft"])
def test_single_precision_stays_single(name):
    x = draw(name, 6).astype(np.float32 if name in REAL_INPUT else np.complex64)
    t = pb.tensor(x, requires_grad=True)
    out = getattr(pb.fft, name)(t)
    assert out.dtype == getattr(np.fft, name)(x).dtype
    pb.sum(pb.real(out)).backward()
    assert t.grad.dtype == x.dtype


def test_batches_and_empty_stacks():
    x = draw("fft", 3, 4)
    np.testing.assert_allclose(pb.vmap(pb.fft.fft)(x), np.fft.fft(x), atol=1e-14)
    np.testing.assert_allclose(pb.vmap(pb.fft.irfft, 1)(x), np.fft.irfft(x.T), atol=1e-14)
    assert pb.fft.fft(np.zeros((0, 4))).shape == (0, 4)
    assert pb.grad(lambda a: pb.sum(pb.abs(pb.fft.rfft(a))))(np.zeros((0, 4))).shape == (0, 4)


def test_what_makes_no_sense_is_said():
    with pytest.raises(pb.errors.DtypeError, match="rfft"):
        pb.fft.rfft(np.ones(4) + 1j)
    with pytest.raises(pb.errors.ArgumentError, match="norm"):
        pb.fft.fft(np.ones(4), norm="other")
    with pytest.raises(pb.errors.ArgumentError, match="at least one point"):
        pb.fft.fft(np.ones(4), n=0)
    with pytest.raises(pb.errors.ShapeError, match="no points"):
        pb.fft.fft(np.ones((2, 0)))
    with pytest.raises(pb.errors.ShapeError, match="axis"):
        pb.fft.fft(np.ones(4), axis=1)
    with pytest.raises(pb.errors.ShapeError, match="differ in number"):
        pb.fft.fftn(np.ones((4, 4)), s=(2,), axes=(0, 1))
    with pytest.raises(pb.errors.ArgumentError, match="at least one point"):
        pb.fft.irfft(np.ones(1))
