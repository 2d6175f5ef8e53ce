"""Numbers of eight bits on a GPU, on the emulator: memory rounds to them, and products take them where they are."""

import ctypes

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import EMULATED, EmulatedRunner, has_compiler

import pullback as pb
from pullback.compile import targets
from pullback.compile.cuda.launch_plan import Choice, LibraryProduct
from pullback.compile.cuda.products import library
from pullback.compile.cuda.runtime import link
from pullback.compile.cuda.target import make_cuda_target

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the text is compiled by g++")
BOTH = ("float8_e4m3fn", "float8_e5m2")
WITH_FLOAT8 = make_cuda_target(EmulatedRunner, min_float8_product=1)


@pytest.fixture(params=[WITH_FLOAT8, EMULATED], ids=["multiplied", "widened"])
def target(request, monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: request.param)
    return request.param


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.usefixtures("target")
def test_every_number_is_rounded_as_numpy_rounds(name):
    """All numbers, their midpoints with neighbors, and what is too large; back again they are the same."""
    dtype = getattr(pb, name)
    every = np.arange(256, dtype=np.uint8).view(dtype)
    wide = np.sort(every.astype(np.float32))
    wide = wide[np.isfinite(wide)]
    middle = ((wide[1:].astype(np.float64) + wide[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(to)) for to in (np.inf, -np.inf)]
    numbers = np.concatenate([wide, middle, *near, [np.nan, np.inf, -np.inf, 1e30, -449, 464, 1e-30, -0.0]])
    for given in (numbers.astype(np.float32), numbers.astype(np.float64)):
        found = np.asarray(pb.jit(lambda x: x.astype(dtype))(given))
        wanted = np.asarray(pb.asarray(given).astype(dtype))
        np.testing.assert_array_equal(found.astype("float32"), wanted.astype("float32"))
        assert (np.signbit(found.astype("float32")) == np.signbit(wanted.astype("float32")))[:-8].all()
    back = np.asarray(pb.jit(lambda x: x.astype("float32"))(every))
    np.testing.assert_array_equal(back, every.astype("float32"))


def product(a, b, left=BOTH[0], right=BOTH[0], **axes):
    q = pb.amp.quantize(a, left, axis=-1 if axes.get("rows") else None)
    r = pb.amp.quantize(b, right, axis=-2 if axes.get("rows") else None)
    return pb.amp.scaled_matmul(q, r)


def products_of(f, *args):
    actions = pb.jit(f).lower(*args).code.compilation.code.plan.actions
    ways = [part for a in actions for part in (a.ways[-1] if isinstance(a, Choice) else [a])]
    return [part.product for part in ways if isinstance(part, LibraryProduct)]


CASES = {
    "matrices": ((32, 48), (48, 16)),
    "a batch": ((3, 16, 32), (3, 32, 16)),
    "one right matrix": ((2, 16, 32), (32, 64)),
    "other sizes": ((7, 48), (48, 16)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtypes", [BOTH, BOTH[::-1], (BOTH[0],) * 2, (BOTH[1],) * 2], ids=str)
def test_products(target, case, dtypes):
    a, b = (drawn(*shape, seed=i) for i, shape in enumerate(CASES[case]))

    def f(a, b):
        return product(a, b, *dtypes), product(a, b, *dtypes, rows=True)

    found, wanted = pb.jit(f)(a, b), f(a, b)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-5, atol=1e-5)
    is_taken = target is WITH_FLOAT8 and case != "other sizes" and dtypes != (BOTH[1],) * 2
    made = products_of(f, a, b)
    assert [p.left.buffer.dtype.itemsize == 1 for p in made] == ([True, True] if is_taken else [])
    for p in made:
        # both with K innermost, rows aligned
        assert p.left.strides[-1] == p.right.strides[-2] == 1
        assert p.left.strides[-2] % 16 == p.right.strides[-1] % 16 == 0


@pytest.mark.usefixtures("target")
def test_they_meet_transforms():
    a, b = drawn(16, 32), drawn(32, 16, seed=1)

    def loss(a, b):
        return pb.sum(pb.tanh(product(a, b)) ** 2)

    slopes = pb.grad(loss, argnums=(0, 1))
    cases = {
        "gradient": slopes,
        "tangent": lambda a, b: pb.jvp(loss, (a, b), (a, b))[1],
        "rows": lambda a, b: pb.vmap(loss, in_axes=(0, None))(a.reshape(1, 16, 32), b),
        "second order": lambda a, b: pb.jvp(slopes, (a, b), (a, b))[1],
        "checkpoint": pb.grad(pb.checkpoint(loss), argnums=(0, 1)),
        "a loop": lambda a, b: pb.scan(lambda c, r: (c + loss(r * c, b), c), pb.sum(a) * 0 + 1, a.reshape(1, 16, 32)),
    }
    for name, f in cases.items():
        for mine, theirs in zip(pb.tree.leaves(pb.jit(f)(a, b)), pb.tree.leaves(f(a, b)), strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-4, atol=1e-4, err_msg=name)


def test_on_a_device(monkeypatch):
    """Nothing of eight bits leaves a program, since CuPy has no such arrays; fused functions are compiled."""
    monkeypatch.setattr(link, "MIN_FLOAT8_PRODUCT", 1)
    a, b = drawn(32, 32), drawn(32, 16, seed=1)
    wanted = product(a, b)
    with fake_cuda_driver.installed() as (cupy, driver):
        compiled = pb.jit(product)
        compiled(cupy.asarray(a), cupy.asarray(b))  # which tries several ways
        before = driver.log["products"]
        found = compiled(cupy.asarray(a), cupy.asarray(b))
        assert driver.log["products"] - before == 1
        np.testing.assert_allclose(cupy.asnumpy(found), wanted, rtol=1e-5, atol=1e-5)
        with pytest.raises(pb.errors.DeviceError, match="dequantize"):
            pb.jit(pb.amp.quantize)(cupy.asarray(a))
        with pytest.raises(pb.errors.DeviceError, match=r"pb\.jit"):
            pb.amp.quantize(cupy.asarray(a))
        x = pb.tensor(cupy.asarray(a), requires_grad=True)
        y = pb.jit(product)(x, cupy.asarray(b))
        y.backward(cupy.ones((32, 16), "float32"))
        slope = pb.vjp(lambda a: product(a, b), a)[1](np.ones((32, 16), "float32"))[0]
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("capability", "least"), [((8, 6), 1), ((9, 0), 1 << 30)])
def test_older_devices_and_small_products_widen(monkeypatch, capability, least):
    monkeypatch.setattr(fake_cuda_driver.FakeDriver, "capability", capability)
    monkeypatch.setattr(link, "MIN_FLOAT8_PRODUCT", least)
    a, b = drawn(32, 32), drawn(32, 16, seed=1)
    with fake_cuda_driver.installed() as (cupy, driver):
        found = pb.jit(product)(cupy.asarray(a), cupy.asarray(b))
        assert driver.log["products"] == 0
        np.testing.assert_allclose(cupy.asnumpy(found), product(a, b), rtol=1e-5, atol=1e-5)


class FakeLibrary:
    """Notes what is asked of cuBLASLt, and proposes one algorithm."""

    def __init__(self):
        self.layouts, self.transposes = [], {}

    def cublasLtMatrixLayoutCreate(self, layout, kind, rows, columns, leading):
        self.layouts.append((kind, rows.value, columns.value, leading.value))
        return 0

    def cublasLtMatmulDescSetAttribute(self, description, attribute, value, size):
        self.transposes[attribute] = ctypes.cast(value, ctypes.POINTER(ctypes.c_int32)).contents.value
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *args):
        ctypes.cast(args[-1], ctypes.POINTER(ctypes.c_int)).contents.value = 1
        return 0

    def __getattr__(self, name):
        return lambda *args: 0


def test_the_library_is_asked_for_transposed_left_matrices(monkeypatch):
    """In columns, A^T B with both of eight bits along K: the only form that it has for them."""
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: WITH_FLOAT8)
    (made,) = products_of(lambda a, b: product(a, b, *BOTH), drawn(32, 48), drawn(48, 16))
    fake = FakeLibrary()
    monkeypatch.setattr(library, "_library", lambda: (fake, None))
    plan = library.LibraryPlan(library.split_batch(made)[0])
    # right^T left^T: the right matrix (e5m2, 48 by 16), the left one (e4m3, 48 by 32), a float32 result
    assert fake.layouts == [(29, 48, 16, 48), (28, 48, 32, 48), (0, 16, 32, 16)]
    assert (fake.transposes[3], fake.transposes[4]) == (1, 0)
    del plan
