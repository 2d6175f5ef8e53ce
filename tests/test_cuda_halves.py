"""Half types on a GPU, on the emulator: what memory rounds, vectors of eight, sums, products, whole steps."""

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import EMULATED, has_compiler
from random_programs import program
from test_random_graphs import roles

import pullback as pb
from pullback.compile import targets
from pullback.compile.cuda.launch_plan import Choice, Launch, LibraryProduct
from pullback.compile.cuda.products import choose, join

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the text is compiled by g++")
HALVES = ("bfloat16", "float16")
#: The unit in the last place of one.
EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


@pytest.fixture
def emulated(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)


def drawn(dtype, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(getattr(pb, dtype))


def plan_of(f, *args):
    return pb.jit(f).lower(*args).code.compilation.code


@pytest.mark.usefixtures("emulated")
def test_every_number_is_rounded_as_numpy_rounds():
    """All half numbers and their midpoints, with neighbors of these; integers and float64 beside."""
    for name in HALVES:
        half = getattr(pb, name)
        every = np.arange(1 << 16, dtype=np.uint16).view(half)
        wide = every.astype(np.float32)
        with np.errstate(all="ignore"):
            middle = ((wide.astype(np.float64) + np.roll(wide, -1)) / 2).astype(np.float32)
            numbers = np.concatenate([wide, middle, *(np.nextafter(middle, to) for to in (np.float32(9e38), -np.inf))])
            doubles = np.nextafter(middle.astype(np.float64), 0)
            wanted = [numbers.astype(half), doubles.astype(half), np.arange(-300, 70000, 7).astype(half)]
        found = pb.jit(lambda *xs: [x.astype(half) for x in xs])(numbers, doubles, np.arange(-300, 70000, 7))  # noqa: B023
        for mine, theirs in zip(found, wanted, strict=True):
            mine, theirs = np.asarray(mine), np.asarray(theirs)
            both_nan = np.isnan(mine.astype(np.float32)) & np.isnan(theirs.astype(np.float32))
            assert (both_nan | (mine.view(np.uint16) == theirs.view(np.uint16))).all()
        assert np.array_equal(np.asarray(pb.jit(lambda x: x.astype("float32"))(every)), wide, equal_nan=True)


def results(x, y, table, rows):
    """Kernels of every kind, with the number of roundings of each result: what a kernel keeps is not rounded."""
    image = (x * y)[:16, :20].reshape(1, 1, 16, 20)
    return [
        (pb.tanh(x * y + 0.5) * pb.exp(-x), 3),
        (pb.nn.softmax(x * 2, axis=-1), 2),
        (pb.sum(x * y, axis=0), 2),
        (pb.sum(x * y), 2),
        (pb.max(x, axis=1), 1),
        (pb.permute_dims(x, (1, 0)) * 2, 1),
        (pb.tanh(x @ y.T), 3),
        (pb.sum(x @ y.T, axis=0), 4),
        (x.T @ (y * 0.5), 2),
        (pb.einsum("abc,abd->bcd", x.reshape(4, 40, 40), y.reshape(4, 40, 40)), 2),
        (table[rows] + 1, 1),
        (pb.grad(lambda t: pb.sum((t[rows] * x[0]).astype("float32")))(table), 3),
        (pb.nn.avg_pool2d(image, 3, stride=1), 3),
        (pb.cumsum(x[:4], axis=1), 5),
    ]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.usefixtures("emulated")
def test_kernels_of_every_kind(dtype):
    x, y = drawn(dtype, 160, 40), drawn(dtype, 160, 40, seed=1)
    table, rows = drawn(dtype, 9, 40, seed=2), np.random.default_rng(0).integers(0, 9, 100)
    found = pb.jit(lambda *args: [value for value, _ in results(*args)])(x, y, table, rows)
    wanted = results(*(a.astype(np.float64) for a in (x, y, table)), rows)
    for number, (mine, (theirs, roundings)) in enumerate(zip(found, wanted, strict=True)):
        assert np.asarray(mine).dtype == x.dtype
        mine, theirs = np.asarray(mine).astype(np.float64), np.asarray(theirs)
        scale = np.abs(theirs).max()
        assert np.abs(mine - theirs).max() <= roundings * EPSILON[dtype] * scale, number


@pytest.mark.usefixtures("emulated")
def test_eight_neighbors_are_loaded_at_once():
    text = plan_of(lambda x: pb.tanh(x) * 2, drawn("bfloat16", 64, 32)).text
    assert "Vec<bfloat16_, 8>" in text
    mixed = plan_of(lambda x: pb.tanh(x).astype("float32"), drawn("bfloat16", 64, 32)).text
    assert "Vec<bfloat16_, 4>" in mixed
    assert "Vec<float, 4>" in mixed


@pytest.mark.usefixtures("emulated")
def test_one_walk_makes_sums_over_all_axes_and_over_some():
    """What keeps fewer axes is folded to the places of what keeps more, and those once more."""
    x = np.random.default_rng(0).normal(size=(4, 300, 40))

    def f(x):
        y = pb.sin(x)
        return y, pb.sum(y), pb.sum(y, axis=(0, 1)), pb.max(y, axis=(0, 1))

    found, wanted = pb.jit(f)(x), f(x)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-12)
    assert plan_of(f, x).text.split('extern "C"', 1)[1].count("sin(") == 1


def step(p, x, y):
    """A step of a perceptron with gelu, as `benchmarks/gpu/mlp.py` has it."""

    def loss(p):
        return pb.mean((pb.gelu(x @ p[0] + p[1]) @ p[2] + p[3] - y) ** 2)

    value, slopes = pb.value_and_grad(loss)(p)
    return value, [a - 0.125 * g for a, g in zip(p, slopes, strict=True)]


@pytest.mark.parametrize("dtype", HALVES)
def test_a_step_by_tiles_and_by_the_library(dtype, monkeypatch):
    """The same step by tiles that take in what follows, and by the library: a weight is updated in its product."""
    p = [drawn(dtype, 32, 32, seed=n) / 4 if n % 2 == 0 else drawn(dtype, 32, seed=n) for n in range(4)]
    p = [a.astype(getattr(pb, dtype)) for a in p]
    x, y = drawn(dtype, 32, 32, seed=5), drawn(dtype, 32, 32, seed=6)
    wanted = step([a.astype(np.float64) for a in p], x.astype(np.float64), y.astype(np.float64))
    for large in (False, True):
        if large:
            for name in ("SMALL_PRODUCT", "SHARED_PRODUCT", "LARGE_PRODUCT", "CANDIDATES"):
                for module in (choose, join):
                    monkeypatch.setattr(module, name, 1, raising=False)
        with fake_cuda_driver.installed() as (cupy, driver):
            compiled = pb.jit(step, donate_argnums=0)
            for _ in range(3):
                value, new = compiled([cupy.asarray(a) for a in p], cupy.asarray(x), cupy.asarray(y))
            assert driver.log["products"] == (3 * 5 if large else 0)
            found = [cupy.asnumpy(a) for a in (value, *new)]
        for mine, theirs in zip(found, (wanted[0], *wanted[1]), strict=True):
            assert mine.dtype == p[0].dtype
            scale = np.abs(theirs).max()
            assert np.abs(mine.astype(np.float64) - theirs).max() <= 6 * EPSILON[dtype] * scale


@pytest.mark.usefixtures("emulated")
def test_sums_of_products_of_halves_stay_in_float32():
    """A long K in parts, whose sums are added up before they are rounded."""
    x = np.full((8, 4096), 1 / 64, pb.bfloat16)
    x[:, 0] = 16
    code = plan_of(lambda x: x @ x.T, x)
    products = [a for a in code.plan.actions if isinstance(a, (Choice, LibraryProduct, Launch))]
    assert len(products) == 2
    wanted = (x.astype(np.float64) @ x.astype(np.float64).T).astype(pb.bfloat16)
    assert (np.asarray(pb.jit(lambda x: x @ x.T)(x)) == wanted).all()


def taped(x, w):
    """Ops of each family by tape: products, elementwise kernels and their rules, sums."""
    a, b = (pb.tensor(v, requires_grad=True) for v in (x, w))
    y = pb.tanh(a @ b) * a[:, :16]
    z = pb.sum(y * y, axis=0)
    pb.sum(z * z).backward()
    return [v.value for v in (y.detach(), z.detach(), a.grad, b.grad)]


@pytest.mark.parametrize("dtype", HALVES)
def test_eager_ops_round_as_those_of_the_cpu(dtype):
    x, w = drawn(dtype, 24, 32), (drawn(dtype, 32, 16, seed=1) / 8).astype(getattr(pb, dtype))
    wanted = taped(x, w)
    with fake_cuda_driver.installed() as (cupy, driver):
        for _ in range(4):  # calls are planned when they come again
            before = dict(driver.log)
            found = [cupy.asnumpy(a) for a in taped(cupy.asarray(x), cupy.asarray(w))]
        assert driver.log["products"] - before["products"] == 3
        assert driver.log["launches"] - before["launches"] >= 6
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == x.dtype
        mine, theirs = mine.astype(np.float64), np.asarray(theirs).astype(np.float64)
        # sums have another order, so that what follows may be rounded to a neighbor
        assert np.abs(mine - theirs).max() <= 2 * EPSILON[dtype] * np.abs(theirs).max()


def check_random_program(seed):
    """Value, pull and push of a random program: all stages and the text against NumPy, within the noise of rounding."""
    f, args = program(seed)
    args = tuple(np.ascontiguousarray(a).astype(getattr(pb, HALVES[seed % 2])) for a in args)
    dots = tuple(drawn(HALVES[seed % 2], *a.shape, seed=i) for i, a in enumerate(args))
    with np.errstate(all="ignore"):
        pb.jit(roles(f), check=True)(args, dots)


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.usefixtures("emulated")
def test_random_programs(seed):
    check_random_program(seed)


@pytest.mark.sweep
@pytest.mark.usefixtures("emulated")
def test_many_random_programs():
    for seed in range(10, 110):
        check_random_program(seed)
