"""Loops and branches on a GPU, without one: conditional nodes of graphs, and derivatives."""

import re

import numpy as np
import pytest

import pullback as pb
from pullback.compile.cuda import render, small_loops

cuda_emulator = pytest.importorskip("cuda_emulator")
pytest.importorskip("fake_cupy")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

import fake_cuda_driver  # noqa: E402

X = np.random.default_rng(0).standard_normal((4, 3))
ROOTS = np.array([4.0, 9.0, 1e4])


@pytest.fixture(scope="module")
def gpu():
    with fake_cuda_driver.installed() as found:
        yield found


def double(x):
    return pb.while_loop(lambda a: pb.sum(a * a) < 1e3, lambda a: a * 2 + 1, x)


def choose(x):
    return pb.cond(pb.sum(x) > 0, pb.sin, lambda a: a * a - 1, x)


def root(a):
    return pb.while_loop(lambda x: abs(x * x - a) > 1e-9 * a, lambda x: (x + a / x) / 2, a)


def nest(x):
    """A branch and a loop, in a loop while a condition holds, in a scan."""

    def step(c, row):
        grow = lambda a: pb.while_loop(lambda b: pb.sum(b * b) < 50, lambda b: choose(b) * 0.1 + b * 1.5 + 0.1, a)  # noqa: E731
        return pb.cond(pb.sum(row) > 0, grow, lambda a: a - 1, c + row), pb.sum(c)

    return pb.scan(step, pb.zeros_like(x[0]), x)


def cube_root(x):
    return pb.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 0.9 + x / 10), (0, x))[1]


LOOPS = {
    "while": (double, X),
    "while of no rounds": (double, X * 1e3),
    "branch": (choose, X),
    "other branch": (choose, -abs(X)),
    "nested": (nest, X),
    "jvp": (lambda x: pb.jvp(double, (x,), (x,)), X),
    "grad": (pb.grad(lambda x: pb.sum(double(x) ** 2)), X),
    "grad of nested": (pb.grad(lambda x: pb.sum(nest(x)[0])), X),
    "grad of a branch": (pb.grad(lambda x: pb.sum(choose(x))), X),
    "counted": (cube_root, X),
    "vmap": (pb.vmap(root), ROOTS),
    "vmap of grad": (pb.vmap(pb.grad(root)), ROOTS),
    "jvp of grad": (lambda x: pb.jvp(pb.grad(lambda y: pb.sum(double(y) ** 3)), (x,), (x,))[1], X),
}


def agree(found, wanted):
    for a, b in zip(pb.tree.leaves([found]), pb.tree.leaves([wanted]), strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-9, atol=1e-12)


@pytest.fixture
def large(monkeypatch):
    """No loop is small enough for one launch."""
    monkeypatch.setattr(small_loops, "MAX_LAUNCHES", 0)


@pytest.mark.parametrize("name", LOOPS)
def test_the_device_decides(gpu, name, large):
    (cupy, driver), (f, x) = gpu, LOOPS[name]
    compiled, wanted, given = pb.jit(f), f(x), cupy.asarray(x)
    kept = [compiled(given)]  # all of them, so that each call has addresses of its own
    before = dict(driver.log)
    for _ in range(4):
        kept.append(compiled(given))
        agree(kept[-1], wanted)
    assert driver.log["reads"] == before["reads"]
    assert driver.log["captures"] == before["captures"] + 1
    assert driver.log["graph launches"] == before["graph launches"] + 4
    assert driver.log["conditions"] > before["conditions"]
    agree(kept, [wanted] * 5)
    assert "launched as 1 graph of" in compiled.lower(given).explain()


@pytest.mark.parametrize("name", ["while", "while of no rounds", "other branch", "nested", "vmap of grad"])
def test_small_loops_are_one_launch(gpu, name):
    (cupy, driver), (f, x) = gpu, LOOPS[name]
    compiled, wanted, given = pb.jit(f), f(x), cupy.asarray(x)
    before = dict(driver.log)
    agree([compiled(given) for _ in range(3)], [wanted] * 3)
    assert driver.log["reads"] == before["reads"]
    assert driver.log["conditions"] == before["conditions"]


ROWS = np.random.default_rng(2).standard_normal((7, 5, 6))


def recur(rows, **options):
    """A recurrence whose carry is multiplied, and overwritten by what follows the product."""
    w = pb.matmul(rows[0].T, rows[0]) / 20
    step = lambda c, x: ((new := pb.tanh(c @ w + x)), pb.sum(new * x, -1))  # noqa: E731
    return pb.scan(step, rows[0] * 2, rows, **options)


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_rounds_at_once(gpu, large, count, reverse):
    cupy, _ = gpu
    f = lambda x: recur(x, reverse=reverse)  # noqa: E731
    compiled, given = pb.jit(f), cupy.asarray(ROWS[:count].astype("f4"))
    kept = [compiled(given) for _ in range(3)]
    for a, b in zip(pb.tree.leaves(kept), pb.tree.leaves([f(ROWS[:count])] * 3), strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-4, atol=1e-5)
    # a round is a product with what follows it, and a sum; the last one of an odd number takes one more
    launches = int(re.search(r"launched as 1 graph of (\d+)", compiled.lower(given).explain())[1])
    assert launches <= 2 + 2 * count + count % 2


SCANS = {
    "rows of three bytes": (lambda x: pb.scan(lambda c, r: (c ^ r, c & r), x[0], x), (X > 0)[np.arange(11) % 4]),
    "backwards": (lambda x: recur(x, reverse=True), ROWS),
    "grad": (pb.grad(lambda x: pb.sum(recur(x)[0] ** 2)), ROWS),
    "a count": (lambda x: pb.fori_loop(0, 23, lambda i, a: a * 0.9 + i, x), X),
    "two rows of a round": (
        lambda x: pb.scan(lambda c, r: ((d := pb.tanh(c @ x[:3] + r)), d), x[0], x, reverse=True),
        X[np.arange(11) % 4],
    ),
    "in a loop": (lambda x: pb.while_loop(lambda a: pb.sum(a * a) < 1e3, lambda a: recur(x)[0] + a * 2, x[0]), ROWS),
    "in each other": (lambda x: pb.scan(lambda c, r: (recur(x + c)[0] + r, r), x[0], x)[0], ROWS),
}


@pytest.mark.parametrize("name", SCANS)
def test_long_scans_are_chunks(gpu, large, monkeypatch, name):
    (cupy, driver), (f, x) = gpu, SCANS[name]
    monkeypatch.setattr(render, "MAX_UNROLLED", 8)
    monkeypatch.setattr(render, "CHUNK_LAUNCHES", 5)
    compiled, wanted, given = pb.jit(f), f(x), cupy.asarray(x)
    before = dict(driver.log)
    agree([compiled(given) for _ in range(4)], [wanted] * 4)
    assert driver.log["conditions"] > before["conditions"]
    # the first call too, unless the scan is done once, before the loop around it
    assert driver.log["graph launches"] == before["graph launches"] + (3 if name == "in a loop" else 4)
    assert "launched as 1 graph of" in compiled.lower(given).explain()
    driver.version = 12020
    try:
        text = (older := pb.jit(f)).lower(given).explain()
        agree([older(given) for _ in range(2)], [wanted] * 2)
    finally:
        driver.version = 13000
    assert "(it comes to" in text or name == "in a loop"


def scan(step, start, xs):
    return pb.scan(step, start, xs)


WHOLE = np.arange(20).reshape(5, 4)
FIVE = np.random.default_rng(3).standard_normal((5, 4))
KINDS = {
    "a number": (lambda a: pb.while_loop(lambda c: c < 100, lambda c: c * 3 + 1, a), np.array(2.0)),
    "integers": (lambda a: scan(lambda c, r: (c * 3 + r, c // 2), a[0], a), WHOLE),
    "booleans": (lambda a: scan(lambda c, r: (pb.logical_xor(c, r), pb.any(c)), a[0], a), WHOLE % 3 == 0),
    "complex": (lambda a: scan(lambda c, r: (c * r, c + 1), a[0], a), FIVE + 1j),
    "an empty carry": (lambda a: scan(lambda c, r: (c * 2, pb.sum(r) + pb.sum(c)), a[0, :0], a), FIVE),
    "no rounds": (lambda a: scan(lambda c, r: (c * r, c), a[0], a[:0]), FIVE),
    "several carries": (
        lambda a: scan(
            lambda c, r: ((c[0] + 1, c[1] @ a[:4] + r, c[2] | (r > 0)), (c[0], c[2])), (0, a[0], a[1] > 0), a
        ),
        FIVE,
    ),
    "branches": (
        pb.grad(
            lambda a: pb.sum(
                scan(
                    lambda c, r: pb.cond(
                        pb.sum(r) > 0, lambda c: (pb.tanh(c @ a[:4]) + r, pb.sum(c)), lambda c: (c * r, pb.sum(r)), c
                    ),
                    a[0],
                    a,
                )[0]
                ** 2
            )
        ),
        FIVE,
    ),
    "indices": (
        pb.grad(lambda a: pb.sum(scan(lambda c, j: (pb.tanh(c) + a[j], c[0]), a[0], WHOLE[:, 1] % 5)[0] ** 2)),
        FIVE,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("mode", ["one launch", "nodes", "chunks"])
def test_loops_of_every_kind(gpu, monkeypatch, name, mode):
    (cupy, _), (f, x) = gpu, KINDS[name]
    if mode != "one launch":
        monkeypatch.setattr(small_loops, "MAX_LAUNCHES", 0)
    if mode == "chunks":
        monkeypatch.setattr(render, "MAX_UNROLLED", 4)
        monkeypatch.setattr(render, "CHUNK_LAUNCHES", 3)
    compiled, wanted, given = pb.jit(f), f(x), cupy.asarray(x)
    for _ in range(3):
        agree(compiled(given), wanted)


def test_products_in_small_loops(gpu):
    cupy, driver = gpu
    for f in (lambda x: recur(x), pb.grad(lambda x: pb.sum(recur(x)[0] ** 2))):
        for dtype, near in (("f4", 1e-4), ("f8", 1e-11)):
            compiled, before = pb.jit(f), driver.log["conditions"]
            found = compiled(cupy.asarray(ROWS.astype(dtype)))
            for a, b in zip(pb.tree.leaves([found]), pb.tree.leaves([f(ROWS)]), strict=True):
                np.testing.assert_allclose(a.get(), b, rtol=near, atol=near)
            assert driver.log["conditions"] == before


def test_one_graph_goes_every_way(gpu):
    cupy, _ = gpu
    compiled, given = pb.jit(lambda x: choose(double(x))), cupy.asarray(X)
    for i in range(12):
        x = np.roll(X, i) * (-1) ** i
        given[...] = cupy.asarray(x)
        agree(compiled(given), choose(double(x)))


def test_a_driver_that_is_too_old(gpu, large):
    cupy, driver = gpu
    try:
        for version, count in ((12020, 0), (12040, 1)):
            driver.version = version
            compiled, given = pb.jit(lambda x: choose(double(x))), cupy.asarray(X)
            before = driver.log["conditions"]
            for _ in range(4):
                agree(compiled(given), choose(double(X)))
            text = compiled.lower(given).explain()
            assert f"a branch (the driver of CUDA {version} cannot have it in a graph)" in text
            assert ("a loop while a condition holds (the driver" in text) == (version < 12040)
            assert (driver.log["conditions"] > before) == bool(count)
    finally:
        driver.version = 13000


def test_what_keeps_a_loop_on_the_host(gpu):
    cupy, _ = gpu
    f = lambda x: pb.while_loop(lambda a: pb.sum(a * a) < 1e3, lambda a: a * 2 + pb.prod(a, axis=0), x)  # noqa: E731
    compiled, given = pb.jit(f), cupy.asarray(X)
    for _ in range(3):
        agree(compiled(given), f(X))
    assert "a loop while a condition holds (CuPy runs prod)" in compiled.lower(given).explain()


def test_a_branch_that_does_not_exist(gpu):
    cupy, _ = gpu
    compiled = pb.jit(lambda x, i: pb.switch(i, [pb.sin, pb.cos], x) * 2)
    given, number = cupy.asarray(X), cupy.asarray(1)
    for _ in range(3):
        agree(compiled(given, number), np.cos(X) * 2)
    number[...] = cupy.asarray(2)
    compiled(given, number)
    with pytest.raises(IndexError, match="out of range"):
        pb.cuda.synchronize()
    number[...] = cupy.asarray(0)
    agree(compiled(given, number), np.sin(X) * 2)


def test_bounds_that_differ_by_element(gpu):
    cupy, _ = gpu
    counts = np.array([1, 2, 0, 5])
    power = pb.vmap(lambda x, n: pb.fori_loop(0, n, lambda i, y: y * x + 1, x))
    agree(pb.jit(power)(cupy.asarray(X), cupy.asarray(counts)), power(X, counts))
    ways = pb.vmap(lambda x, i: pb.switch(i, [pb.sin, pb.cos, lambda a: a], x))
    agree(pb.jit(ways)(cupy.asarray(X), cupy.asarray(counts % 3)), ways(X, counts % 3))


# Scatters


def rows_loss(x, i):
    return pb.sum(pb.sin(x[i]) * 2)


def test_scatters_have_one_order_unless_any_will_do(gpu):
    cupy, _ = gpu
    x, i = np.random.default_rng(1).standard_normal((8, 5)), np.arange(300) % 7
    wanted = pb.grad(rows_loss)(x, i)
    for deterministic in (True, False):
        compiled = pb.jit(pb.grad(rows_loss), deterministic=deterministic)
        given = cupy.asarray(x), cupy.asarray(i)
        agree(compiled(*given), wanted)
        text = compiled.lower(*given).text
        assert ("atomicAdd(&b" in text) == (not deterministic)
    assert pb.jit(rows_loss, deterministic=False)(x, i) == pytest.approx(rows_loss(x, i))
    with pytest.raises(TypeError, match="deterministic is True or False"):
        pb.jit(rows_loss, deterministic=1)


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((5,), (np.arange(70) % 5 - 2,)),
        ((3, 4), (np.zeros(100, int),)),
        ((4, 5, 6), (slice(None), np.arange(40) % 5)),
        ((4, 5, 6), (np.arange(40) % 4, -(np.arange(40) % 5))),
        ((4, 5, 6), (np.arange(40) % 4, slice(None), np.arange(40) % 6)),
        ((4, 5, 6), (slice(1, 3), np.arange(40) % 5)),
        ((4, 5, 6), (2, np.arange(40).reshape(8, 5) % 5, None)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_eager_scatters_add_in_order(gpu, shape, index, dtype):
    cupy, driver = gpu
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    given = tuple(cupy.asarray(e) if isinstance(e, np.ndarray) else e for e in index)
    before = driver.log["launches"]
    pull = lambda a, at: pb.vjp(lambda y: y[at] * 2, a)[1](a[at])[0]  # noqa: E731
    found, wanted = pull(cupy.asarray(x), given), pull(x, index)
    np.testing.assert_allclose(found.get(), wanted, rtol=1e-5, atol=1e-6)
    assert driver.log["launches"] > before


def test_an_eager_scatter_of_nothing(gpu):
    cupy, _ = gpu
    none = cupy.asarray(np.zeros(0, int))
    (found,) = pb.vjp(lambda x: x[none], cupy.asarray(X))[1](cupy.asarray(np.zeros((0, 3))))
    agree(found, np.zeros((4, 3)))


# Arguments of the host, fallbacks, memory


def test_keys_of_the_host_are_arguments(gpu):
    cupy, _ = gpu
    f = lambda x, key: pb.nn.dropout(x, 0.5, key=key)  # noqa: E731
    compiled, x = pb.jit(f), X.astype("float32")
    for seed in range(4):
        key = pb.random.key(seed)
        agree(compiled(cupy.asarray(x), key), f(x, key))
        agree(compiled(cupy.asarray(x), cupy.asarray(key)), f(x, key))
    assert "launched as 1 graph of 2 launches" in compiled.lower(cupy.asarray(x), key).explain()
    both = pb.jit(lambda x, key: (pb.sum(x), pb.random.split(key)))
    _, keys = both(cupy.asarray(x), key)
    assert type(keys) is np.ndarray
    assert np.array_equal(keys, pb.random.split(key))


def test_loops_fall_back_with_their_constants(gpu):
    cupy, driver = gpu
    weights = [W.astype("float32") for W in (np.ones((8, 3)) / 4, np.eye(8, 2) / 2, np.zeros(8))]
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype("float32")
    f = pb.value_and_grad(lambda w, x: pb.sum(pb.nn.lstm(x, *w)[0] ** 2))
    driver.refuses_module = True
    try:
        compiled = pb.jit(f)
        found = compiled([cupy.asarray(w) for w in weights], cupy.asarray(x))
    finally:
        driver.refuses_module = False
    for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(f(weights, x)), strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-3, atol=1e-4)


def test_a_memory_budget_counts_scratch_memory(gpu):
    cupy, _ = gpu
    f, given = pb.grad(rows_loss), (cupy.asarray(X), cupy.asarray(np.arange(500) % 4))
    free = pb.jit(f).lower(*given)
    peak = free.memory().peak
    scratch = free.code.compilation.scratch
    assert scratch
    assert pb.jit(f, memory_budget=peak).lower(*given).memory().peak <= peak
    with pytest.raises(pb.errors.MemoryBudgetError, match="the least that was reached"):
        pb.jit(f, memory_budget=peak - scratch).lower(*given).memory()


def test_windows_of_chunks_count(gpu, large, monkeypatch):
    cupy, _ = gpu
    f, given = recur, cupy.asarray(ROWS)
    whole = pb.jit(f).lower(given).memory().peak
    monkeypatch.setattr(render, "MAX_UNROLLED", 8)
    monkeypatch.setattr(render, "CHUNK_LAUNCHES", 5)
    form = pb.jit(f).lower(given)
    form.code.run([given])
    assert form.memory().peak > whole + ROWS[0].nbytes
    assert form.code.held_bytes() >= form.memory().arena
    with pytest.raises(pb.errors.MemoryBudgetError):
        pb.jit(f, memory_budget=whole).lower(given).memory()


def test_functions_of_cupy_get_a_copy_and_operators_a_tensor(gpu):
    cupy, _ = gpu
    x = pb.tensor(cupy.asarray(X))
    assert not hasattr(x, "__cupy_get_ndarray__")  # asked from a line that is not CuPy's, as its operators do
    agree(cupy.asarray(x), X)
    assert type(cupy.asarray(X.T) @ x) is pb.Tensor
