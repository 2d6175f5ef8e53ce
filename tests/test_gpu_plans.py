"""Planned calls on a GPU: eager ops and rules as kernels of ours, against the same on NumPy, in the emulator."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import fake_cuda_driver
import numpy as np
import pytest

import pullback as pb


@pytest.fixture
def gpu():
    with fake_cuda_driver.installed() as (cupy, driver):
        yield cupy, driver


def chain(x, w):
    y = x
    for _ in range(6):
        y = pb.tanh(y) * w + x * 1.5
        y = y / (pb.exp(-y) + 2.0) - w
    return y


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_has_the_cpus_gradients(gpu, shape, dtype):
    cupy, driver = gpu
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.2, 0.9, shape).astype(dtype) for _ in range(2))
    results = []
    for place in (np.asarray, cupy.asarray):
        for _ in range(4):  # the first calls go by the general path
            x, w = (pb.tensor(place(v), requires_grad=True) for v in (a, b))
            pb.sum(chain(x, w)).backward()
        results.append([x.grad, w.grad])
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5 if dtype == "float32" else 1e-12)
        assert mine.device == "cuda:0"
    assert driver.log["launches"] > 100


def test_a_rule_is_one_launch_and_adds_to_what_is_there(gpu):
    cupy, driver = gpu
    x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 7)), requires_grad=True)

    def step():
        x.grad = None
        y = pb.tanh(x)
        (pb.sin(x) + y).backward(cupy.asarray(np.ones(7)))

    for _ in range(4):
        step()
    before = driver.log["launches"]
    step()
    # three ops, and three rules: that of the sum has nothing to compute
    assert driver.log["launches"] - before <= 6
    np.testing.assert_allclose(
        x.grad.numpy(), np.cos(x.detach().numpy()) + 1 - np.tanh(x.detach().numpy()) ** 2, rtol=1e-12
    )


def test_an_argument_used_twice_by_one_op(gpu):
    cupy, _ = gpu
    for _ in range(4):
        x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 7)), requires_grad=True)
        y = x + 0.0
        pb.sum(y * y + y).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy() + 1, rtol=1e-14)


def test_views_and_broadcast_arguments_take_the_librarys_path(gpu):
    cupy, _ = gpu
    base = np.arange(12.0).reshape(3, 4) / 12
    bias = np.array([0.1, 0.2, 0.3])
    for _ in range(4):
        x, b = (pb.tensor(cupy.asarray(v), requires_grad=True) for v in (base, bias))
        y = pb.tanh(x.T) + b
        pb.sum(y * y).backward()
    t = np.tanh(base.T)
    np.testing.assert_allclose(x.grad.numpy(), (2 * (t + bias) * (1 - t * t)).T, rtol=1e-12)
    np.testing.assert_allclose(b.grad.numpy(), (2 * (t + bias)).sum(0), rtol=1e-12)


@pytest.mark.parametrize("reduce", [lambda y: pb.sum(y * 1.0), lambda y: pb.sum(pb.tanh(y) + y), pb.sum])
def test_cotangents_that_two_arguments_share_are_not_overwritten(gpu, reduce):
    cupy, _ = gpu
    a = np.linspace(0.1, 1, 8)
    results = []
    for place in (np.asarray, cupy.asarray):
        for _ in range(5):
            x = pb.tensor(place(a), requires_grad=True)
            y = x
            for _ in range(12):
                y = pb.tanh(y) * 1.5 + x
            reduce(y).backward()
        results.append(x.grad.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)


def test_a_cotangent_used_by_one_rule_is_overwritten(gpu, monkeypatch):
    cupy, _ = gpu
    made = []
    plain = cupy.ndarray.__init__
    monkeypatch.setattr(cupy.ndarray, "__init__", lambda self, *a, **k: (made.append(a), plain(self, *a, **k))[1])

    def allocations(count):
        x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 8)), requires_grad=True)
        y = x
        for _ in range(count):
            y = pb.tanh(y)
        made.clear()
        y.backward(cupy.asarray(np.ones(8)))
        return len(made)

    for _ in range(3):
        allocations(5)
    assert allocations(50) == allocations(5)


@pytest.mark.parametrize("bias", [(), (1,), (4,), (3, 4), (1, 4), (3, 1)])
def test_a_bias_of_any_shape(gpu, bias):
    cupy, _ = gpu
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=bias)
    results = []
    for place in (np.asarray, cupy.asarray):
        for _ in range(4):
            x, y = (pb.tensor(place(v), requires_grad=True) for v in (a, b))
            pb.sum(pb.sin(x * y + y) / (x * x + 2)).backward()
        results.append([x.grad.numpy(), y.grad.numpy()])
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14)


def test_second_order_hooks_and_no_grad(gpu):
    cupy, _ = gpu
    a = np.linspace(0.1, 1, 5)
    for _ in range(4):
        x = pb.tensor(cupy.asarray(a), requires_grad=True)
        seen = []
        y = pb.tanh(x)
        y.register_hook(lambda g, seen=seen: seen.append(g.detach().numpy()))
        (g,) = pb.gradients(pb.sum(y * y), [x], create_graph=True)
        pb.sum(g * g).backward()
        with pb.no_grad():
            assert pb.tanh(x).node is None
    t = np.tanh(a)
    first = 2 * t * (1 - t * t)
    second = 2 * (1 - t * t) ** 2 - 4 * t * t * (1 - t * t)
    np.testing.assert_allclose(x.grad.numpy(), 2 * first * second, rtol=1e-10)
    np.testing.assert_allclose(seen[0], 2 * t)


def test_fused_functions_run_compiled(gpu):
    cupy, driver = gpu
    rng = np.random.default_rng(1)
    a, scale, shift = rng.normal(size=(6, 8)), rng.normal(size=8), rng.normal(size=8)
    results = []
    for place in (np.asarray, cupy.asarray):
        for _ in range(3):
            x, s, t = (pb.tensor(place(v), requires_grad=True) for v in (a, scale, shift))
            pb.sum(pb.nn.layer_norm(pb.nn.gelu(x), s, t) ** 2).backward()
        results.append([v.grad.numpy() for v in (x, s, t)])
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    assert driver.log["modules"] >= 2


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 6, 3, 4), (2, 6, 4, 5)),
        ((1, 3, 4), (6, 4, 2)), ((1, 1), (1, 1)), ((3, 0), (0, 2)), ((2, 1, 3, 4), (6, 4, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lies", ["as made", "transposed", "in steps"])
def test_products_of_matrices_as_they_lie(gpu, x, y, lies):
    cupy, driver = gpu
    rng = np.random.default_rng(3)
    results = []
    for place in (np.asarray, cupy.asarray):
        a, b = rng.normal(size=x), rng.normal(size=y)
        rng = np.random.default_rng(3)
        if lies == "transposed":
            a, b = (place(np.ascontiguousarray(np.swapaxes(v, -1, -2))).swapaxes(-1, -2) for v in (a, b))
        elif lies == "in steps":
            a, b = (place(np.repeat(np.repeat(v, 2, -1), 2, -2))[..., ::2, ::2] for v in (a, b))
        p, q = (pb.tensor(place(v), requires_grad=True) for v in (a, b))
        pb.sum(pb.sin(p @ q)).backward()
        results.append([p.grad.numpy(), q.grad.numpy(), np.asarray((p @ q).detach().numpy())])
    for mine, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14)
    is_taken = 0 not in (*x, *y) and len(x) - 2 < 2 + (x[:2] == y[:2])  # one stride walks over all of the batch
    assert bool(driver.log["products"]) == is_taken


def test_a_fused_function_is_compiled_for_each_precision(gpu):
    cupy, driver = gpu
    q = pb.tensor(cupy.asarray(np.random.default_rng(4).normal(size=(2, 4, 8, 4)).astype("float32")))

    def attend():
        before = driver.log["modules"]
        pb.nn.scaled_dot_product_attention(q, q, q)
        return driver.log["modules"] - before

    assert [attend() > 0, attend() > 0] == [True, False]
    try:
        pb.set_matmul_precision("tf32")
        assert [attend() > 0, attend() > 0] == [True, False]
    finally:
        pb.set_matmul_precision("float32")
    assert attend() == 0


def mixed(x, w, b):
    return pb.sum(pb.tanh(x @ w + b) * 1.5 + pb.sin(x) / (x * x + 2.0))


def by_tape(*arrays, around=contextlib.nullcontext):
    leaves = [pb.tensor(a, requires_grad=True) for a in arrays]
    with around():
        mixed(*leaves).backward()
    return [leaf.grad.detach().numpy() for leaf in leaves]


def in_threads(*arrays):
    with ThreadPoolExecutor(4) as pool:
        return [g for found in pool.map(lambda _: by_tape(*arrays), range(4)) for g in found]


MEETINGS = {
    "vmap of grad": lambda x, w, b: [pb.vmap(pb.grad(lambda r: mixed(r[None], w, b)))(x)],
    "grad of vmap": lambda x, w, b: [
        pb.grad(lambda x: pb.sum(pb.vmap(lambda r: mixed(r[None], w, b))(x)))(x),
    ],
    "jvp of grad": lambda x, w, b: [pb.jvp(pb.grad(lambda x: mixed(x, w, b)), (x,), (x,))[1]],
    "grad of grad": lambda x, w, b: [pb.grad(lambda x: pb.sum(pb.grad(lambda x: mixed(x, w, b))(x) ** 2))(x)],
    "checkpoint": lambda *arrays: list(pb.grad(pb.checkpoint(mixed), argnums=(0, 1, 2))(*arrays)),
    "anomaly": lambda *arrays: by_tape(*arrays, around=pb.detect_anomaly),
    "threads": in_threads,
}


@pytest.mark.parametrize("name", MEETINGS)
def test_planned_calls_meet_other_features(gpu, name):
    cupy, _ = gpu
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=shape) for shape in ((4, 4), (4, 4), (4,))]  # sizes that are equal
    wanted = MEETINGS[name](*arrays)
    on_gpu = [cupy.asarray(a) for a in arrays]
    for _ in range(4):
        by_tape(*on_gpu)
        found = [a.get() if isinstance(a, cupy.ndarray) else a for a in MEETINGS[name](*on_gpu)]
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_kernel_that_cannot_be_compiled_is_logged_and_left_to_cupy(gpu, caplog):
    cupy, driver = gpu
    driver.refuses_module = True
    x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 5)), requires_grad=True)
    with caplog.at_level("WARNING", "pullback"):
        for _ in range(4):
            x.grad = None
            y = pb.tanh(x)
            y.backward(cupy.asarray(np.ones(5)))
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(np.linspace(0.1, 1, 5)) ** 2, rtol=1e-12)
    assert "CuPy runs them" in caplog.text


def test_a_launch_that_fails_is_logged_and_left_to_cupy(gpu, caplog, monkeypatch):
    cupy, driver = gpu
    x = pb.tensor(cupy.asarray(np.linspace(0.1, 1, 5)))
    for _ in range(3):
        pb.tanh(x)

    def fail(*arguments):
        raise RuntimeError("no launch")

    monkeypatch.setattr(driver, "launch", fail)
    with caplog.at_level("WARNING", "pullback"):
        np.testing.assert_allclose(pb.tanh(x).numpy(), np.tanh(np.linspace(0.1, 1, 5)), rtol=1e-15)
    assert "tanh: its planned call failed, CuPy ran it: no launch" in caplog.text


@pytest.mark.parametrize("factor", [2.0, 1e20, 0.5, -1.0, 3.0])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_factor_of_a_compiled_product_hides_no_overflow(gpu, factor, side):
    cupy, _ = gpu
    large, zeros = np.full((4, 4), 3e38, "float32"), np.zeros((4, 4), "float32")
    f = (lambda x, y: (x * factor) @ y) if side == "left" else (lambda x, y: y @ (x * factor))
    with np.errstate(all="ignore"):
        wanted = f(large, zeros)
    np.testing.assert_array_equal(pb.jit(f)(cupy.asarray(large), cupy.asarray(zeros)).get(), wanted)


@pytest.mark.parametrize("name", ["exp2", "tanh"])
def test_an_op_with_bits_of_its_own_has_them_in_every_call(gpu, name):
    (cupy, driver), f = gpu, getattr(pb, name)
    a = np.linspace(-3, 3, 7)
    x = pb.tensor(cupy.asarray(a))
    found = [f(x).numpy(), f(cupy.asarray(a)).get(), pb.vmap(f)(cupy.asarray(a)).get()]
    assert driver.log["launches"] == 3
    found += [f(x).numpy() for _ in range(3)]
    for each in found:
        np.testing.assert_array_equal(each, found[0])
    np.testing.assert_allclose(found[0], getattr(np, name)(a), rtol=1e-15)
