"""What goes along an axis on a GPU, without one: running sums and products, recurrences, rolls, positions."""

import numpy as np
import pytest

import pullback as pb

cuda_emulator = pytest.importorskip("cuda_emulator")
pytest.importorskip("fake_cupy")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

import fake_cuda_driver  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def gpu():
    with fake_cuda_driver.installed() as found:
        yield found


def compare(gpu, f, *args, near=1e-9):
    cupy, _ = gpu
    compiled, given = pb.jit(f), [cupy.asarray(a) for a in args]
    for _ in range(2):
        found = compiled(*given)
    for a, b in zip(pb.tree.leaves([found]), pb.tree.leaves([f(*args)]), strict=True):
        assert (a.shape, a.dtype) == (np.shape(b), b.dtype)
        np.testing.assert_allclose(a.get(), b, rtol=near, atol=near)
    text = compiled.lower(*given).explain()
    assert "by CuPy" not in text, text


SHAPES = [((5,), 0), ((3, 1), 1), ((300,), 0), ((2, 70, 3), 1), ((40, 4), 0), ((0, 3), 1), ((4, 0), 0)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES[2:4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_running_sums_and_products(gpu, shape, axis, dtype):
    x = (RNG.standard_normal(shape) * 2).astype(dtype)
    near = 1e-4 if dtype == "float32" else 1e-9
    compare(
        gpu,
        lambda x: (pb.cumsum(x * 1 if dtype != "bool" else x, axis=axis), pb.cumprod(x[..., ::-1], axis=axis)),
        x,
        near=near,
    )


@pytest.mark.parametrize(("shape", "axis"), [s for s in SHAPES if 0 not in s[0]])
def test_derivatives_of_running_sums(gpu, shape, axis):
    x = RNG.standard_normal(shape)
    f = lambda x: pb.sum(pb.sin(pb.cumsum(x, axis=axis)) * pb.cumprod(x * 0.9, axis=axis))  # noqa: E731
    compare(gpu, pb.grad(f), x)


def test_running_products_do_not_overflow_in_parts(gpu):
    x = np.array([0.0, 1e200, 1e200, 1e200] * 20)
    compare(gpu, lambda x: (pb.cumprod(x), pb.linear_recurrence(x, 0 * x)), x)


def test_recurrences(gpu):
    a, b = RNG.standard_normal((2, 3, 50))
    compare(gpu, lambda a, b: (pb.linear_recurrence(a, b), pb.linear_recurrence(a.T, b.T, axis=0)), a, b)
    compare(gpu, lambda a, b: pb.vmap(pb.linear_recurrence)(a, b), a, b)


def test_running_sums_in_loops(gpu):
    x = RNG.standard_normal((4, 40))
    compare(gpu, lambda x: pb.scan(lambda c, r: (pb.cumsum(c + r) * 0.1, pb.sum(c)), x[0], x), x)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_rolls_and_positions(gpu, axis):
    x = np.round(RNG.standard_normal((5, 7)), 1)
    x[2, 3] = x[4, 3] = np.nan
    compare(gpu, lambda x: (pb.argmax(x, axis=axis), pb.argmin(x, axis=axis, keepdims=True)), x)
    compare(gpu, lambda x: pb.argmax(x > 0, axis=axis), x)
    whole = np.arange(35).reshape(5, 7) % 6
    compare(gpu, lambda x: (pb.argmin(x, axis=axis), pb.roll(x, 9, axis=axis), pb.roll(x, -2, axis=axis)), whole)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_keep_the_order_of_equal_elements(gpu, dtype, descending):
    x = np.round(RNG.standard_normal((2, 75, 2)) * 3).astype(dtype)
    if dtype == "float32":
        x[0, 3:9] = np.nan, np.inf
    f = lambda x: pb.argsort(x, axis=1, descending=descending)  # noqa: E731
    compare(gpu, f, x)


def test_what_sorts(gpu):
    x = RNG.standard_normal((3, 33))
    compare(gpu, pb.grad(lambda x: pb.sum(pb.sort(x, axis=-1) * pb.sort(x.T, axis=0)[::-1].T ** 2)), x)
    compare(gpu, lambda x: pb.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, pb.sort(c[1] * -2)), (0, x))[1], x)
    compare(gpu, lambda x: (pb.argsort(x[:, :1], axis=1), pb.sort(x[:1], axis=0), pb.median(x, axis=1)), x)
