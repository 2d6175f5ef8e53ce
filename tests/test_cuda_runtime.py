"""Compiled functions on a GPU from end to end, without one: CuPy's arrays are stand-ins, launches are emulated."""

import re
import threading

import numpy as np
import pytest

import pullback as pb

cuda_emulator = pytest.importorskip("cuda_emulator")
pytest.importorskip("fake_cupy")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

import fake_cuda_driver  # noqa: E402

from pullback.compile.cuda.launch_plan import HostCall  # noqa: E402
from pullback.compile.cuda.products import choose  # noqa: E402
from pullback.compile.cuda.runtime import driver as driver_module  # noqa: E402
from pullback.compile.cuda.runtime import nvrtc, runner, tune  # noqa: E402

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))


@pytest.fixture
def gpu():
    with fake_cuda_driver.installed() as found:
        yield found


@pytest.fixture
def cupy(gpu):
    return gpu[0]


@pytest.fixture
def driver(gpu):
    return gpu[1]


def loss(w, x):
    return pb.sum(pb.tanh(x @ w) ** 2)


def to_numpy(x):
    return x.detach().numpy() if isinstance(x, pb.Tensor) else x.get()


def assert_same(found, wanted):
    """Leaves of two trees agree, and the first has all of its own on the GPU."""
    found, wanted = (pb.tree.leaves(t) if isinstance(t, (list, tuple, dict)) else [t] for t in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        assert getattr(a, "device", None) != "cpu"
        np.testing.assert_allclose(to_numpy(a), np.asarray(b), rtol=1e-10, atol=1e-12)


def on_gpu(cupy, *arrays):
    return [cupy.asarray(a) for a in arrays]


# Values and derivatives


@pytest.mark.parametrize(
    "f",
    [
        loss,
        pb.grad(loss),
        pb.value_and_grad(loss),
        lambda w, x: pb.grad(pb.jit(loss))(w, x),
        lambda w, x: pb.jvp(pb.jit(loss), (w, x), (w, x))[1],
        pb.hessian(loss),
        lambda w, x: pb.vmap(pb.jit(lambda row: pb.nn.softmax(row @ w)))(x),
        lambda w, x: pb.vmap(pb.grad(loss), in_axes=(None, 0))(w, x[:, None]),
        lambda w, x: (x[:, ::-1].T @ x, {"sum": pb.sum(w, axis=0)}),
        lambda w, x: pb.jacobian(lambda w: pb.sin(x @ w))(w),
    ],
    ids=["value", "grad", "value and grad", "grad of jit", "jvp of jit", "hessian", "vmap of jit", "vmap of grad",
         "trees", "jacobian"],
)  # fmt: skip
def test_transforms_agree_with_numpy(cupy, f):
    assert_same(pb.jit(f)(*on_gpu(cupy, W, X)), f(W, X))


def test_a_tape_goes_through_a_compiled_function(cupy):
    compiled, wanted = pb.jit(loss), pb.grad(loss)(W, X)
    for _ in range(3):
        w = pb.tensor(cupy.asarray(W), requires_grad=True)
        found = compiled(w, cupy.asarray(X))
        assert found.device == "cuda:0"
        found.backward()
        assert_same(w.grad, wanted)
    (second,) = (pb.grad(lambda w: pb.sum(pb.grad(compiled)(w, cupy.asarray(X)) ** 2))(cupy.asarray(W)),)
    assert_same(second, pb.grad(lambda w: pb.sum(pb.grad(loss)(w, X) ** 2))(W))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (5, 1)])
def test_few_elements_or_none(cupy, shape, dtype):
    x = np.ones(shape, dtype)
    f = lambda x: (pb.where(x > 0, x, x), pb.sum(x))  # noqa: E731
    assert_same(pb.jit(f)(cupy.asarray(x)), f(x))


def test_arguments_are_taken_in_any_layout(cupy):
    compiled = pb.jit(lambda x, y: pb.sin(x) + y)
    base = cupy.asarray(RNG.standard_normal((5, 5)))
    for x, y in [(base.T, base), (base[1:, 1:], base[:4, :4]), (base[:, ::2], base[:, 1:4]), (base, base)]:
        for _ in range(3):
            assert_same(compiled(x, y), np.sin(x.get()) + y.get())
    flat = base.reshape(-1)[1:]  # eight bytes off
    assert_same(compiled(flat, flat), np.sin(flat.get()) + flat.get())


def test_numbers_of_the_host_are_arguments(cupy):
    compiled = pb.jit(lambda x, a, b: x * a + b)
    for a, b in [(2.5, 1), (np.float64(3.0), np.array(4.0)), (-1.0, True)]:
        assert_same(compiled(cupy.asarray(X), a, b), X * a + b)


def test_captured_arrays_are_read_at_each_call(cupy):
    scale = cupy.asarray(np.arange(3.0))
    compiled = pb.jit(lambda x: pb.sum(x * scale, axis=0))
    for _ in range(3):
        assert_same(compiled(cupy.asarray(X)), np.sum(X * scale.get(), axis=0))
        scale[0] = scale[0] + 1


def test_gathers_and_scatters(cupy):
    index = np.array([3, 0, 3])
    f = pb.value_and_grad(lambda x, i: pb.sum(pb.sin(x[i]) ** 2))
    assert_same(pb.jit(f)(*on_gpu(cupy, X, index)), f(X, index))


# Donated arguments, addresses and graphs


def test_donated_arguments_are_overwritten(cupy, driver):
    step = lambda w, x: w - 0.1 * pb.grad(loss)(w, x)  # noqa: E731
    compiled, given, wanted = pb.jit(step, donate_argnums=0), cupy.asarray(W), W
    w, x = given, cupy.asarray(X)
    for _ in range(6):
        w, wanted = compiled(w, x), step(wanted, X)
        assert w is given
    assert_same(w, wanted)
    assert driver.log["captures"] == 1
    assert driver.log["graph launches"] == 5


def test_a_donated_argument_that_is_another_is_copied(cupy):
    compiled = pb.jit(lambda a, b: (a + 1, a * b), donate_argnums=0)
    for _ in range(3):
        x = cupy.asarray(X)
        total, product = compiled(x, x)
        assert_same([total, product, x], [X + 1, X * X, X])
        base = cupy.asarray(RNG.standard_normal(7))
        before = base.get()
        assert_same(compiled(base[:4], base[2:6]), [before[:4] + 1, before[:4] * before[2:6]])
        assert_same(base, before)


def test_a_donated_argument_may_lie_anywhere(cupy):
    compiled = pb.jit(lambda a: pb.sin(a), donate_argnums=0)
    for _ in range(3):
        base = cupy.asarray(X.reshape(-1))
        found = compiled(base[1:6])
        assert_same(found, np.sin(X.reshape(-1)[1:6]))
        assert_same(base[1:6], np.sin(X.reshape(-1)[1:6]))


def test_addresses_that_change_are_followed(cupy, driver):
    compiled = pb.jit(lambda x: pb.prod(x, axis=0) * 2)
    arrays = [cupy.asarray(X + i) for i in range(12)]
    results = []  # all alive, so that every call has other addresses
    for _ in range(3):
        for i, x in enumerate(arrays):
            results.append(compiled(x))
            assert_same(results[-1], np.prod(X + i, axis=0) * 2)
    for i, found in enumerate(results):
        assert_same(found, np.prod(X + i % 12, axis=0) * 2)
    assert driver.log["modules"] == 1


@pytest.mark.parametrize("can_update", [True, False])
def test_few_graphs_are_kept(cupy, driver, can_update, monkeypatch):
    monkeypatch.setattr(runner, "MAX_NODES", 8)
    driver.can_update = can_update
    compiled = pb.jit(lambda x: pb.sin(x) + 1, donate_argnums=0)
    arrays = [cupy.asarray(X + i) for i in range(12)]
    wanted = [X + i for i in range(12)]
    for _ in range(4):
        for i in range(12):
            assert compiled(arrays[i]) is arrays[i]
            wanted[i] = np.sin(wanted[i]) + 1
    assert_same(arrays, wanted)
    assert len(driver.graphs) <= 8
    assert driver.log["updates"] > 0
    assert driver.log["captures"] == 8 if can_update else driver.log["captures"] > 24


def test_a_list_of_results_needs_one_graph(cupy, driver):
    step = lambda w, x: (pb.sum(pb.sin(w) * x), w - 0.1 * pb.cos(w) * x)  # noqa: E731
    compiled = pb.jit(step, donate_argnums=0)
    w, wanted, losses, others = cupy.asarray(X), X, [], []
    for _ in range(20):
        found, w = compiled(w, cupy.asarray(X))
        value, wanted = step(wanted, X)
        losses.append(found)
        others.append(value)
    assert_same(losses, others)
    assert_same(w, wanted)
    assert driver.log["captures"] <= 2
    assert driver.log["moves"] >= 17
    assert driver.log["graph launches"] == 19


def run_threads(work, count):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_on_one_stream(cupy, driver):
    driver.delay = 3e-4
    f = lambda a: pb.nn.softmax(pb.sin(a) @ a.T, axis=0) * 2  # noqa: E731
    compiled, faults = pb.jit(f), []

    def work(number):
        try:
            for i in range(6):
                assert_same(compiled(cupy.asarray(X + number + i)), f(X + number + i))
        except BaseException as error:
            faults.append(error)

    run_threads(work, 6)
    assert not faults, faults[0]


def test_threads_train_and_differentiate(cupy):
    compiled = pb.jit(pb.value_and_grad(loss))
    faults = []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(10):
                w, x = rng.standard_normal((3, 2)), rng.standard_normal((4, 3))
                assert_same(compiled(*on_gpu(cupy, w, x)), pb.value_and_grad(loss)(w, x))
        except BaseException as error:
            faults.append(error)

    run_threads(work, 4)
    assert not faults, faults[0]


def test_two_devices_have_code_and_memory_of_their_own(cupy):
    compiled = pb.jit(lambda x: pb.sin(x) * 2)
    for number in (0, 1, 0):
        with cupy.cuda.Device(number):
            x = cupy.asarray(X)
        found = compiled(x)
        assert found.device.id == number
        np.testing.assert_allclose(found.get(), np.sin(X) * 2)


# Loops and ops of the array library


def test_loops(cupy, driver):
    def scanned(x):
        return pb.scan(lambda c, row: (c * 0.5 + row, pb.sin(c)), pb.zeros_like(x[0]), x)

    f = pb.value_and_grad(lambda x: pb.sum(scanned(x)[0] ** 2) + pb.sum(scanned(x)[1]))
    for _ in range(3):
        assert_same(pb.jit(f)(cupy.asarray(X)), f(X))
    assert driver.log["reads"] == 0  # the rounds are written out


def test_loops_while_a_condition_holds_and_branches(cupy):
    double = lambda x: pb.while_loop(lambda a: pb.sum(a * a) < 1e3, lambda a: a * 2 + 1, x)  # noqa: E731
    choose = lambda x: pb.cond(pb.sum(x) > 0, lambda a: pb.sin(a), lambda a: a - 1, x)  # noqa: E731
    for f in (double, choose, lambda x: choose(double(x))):
        compiled = pb.jit(f)
        for x in (X, X + 1, X, -X - 1, X):
            assert_same(compiled(cupy.asarray(x)), f(x))


def test_a_loop_inside_a_loop(cupy):
    def inner(c, row):
        return pb.while_loop(lambda a: pb.sum(a * a) < 50, lambda a: a * 1.5 + 0.1, c + row), pb.sum(c)

    f = lambda x: pb.scan(inner, pb.zeros_like(x[0]), x)  # noqa: E731
    compiled = pb.jit(f)
    for _ in range(3):
        assert_same(compiled(cupy.asarray(X)), f(X))


def test_ops_between_graphs(cupy, driver):
    f = lambda x: pb.prod(pb.sin(x), axis=1)[::-1] * 2 + pb.sum(x)  # noqa: E731
    compiled = pb.jit(f)
    for _ in range(4):
        x = cupy.asarray(X)
        assert_same(compiled(x), f(X))
        assert_same(compiled(x), f(X))
    assert "by CuPy" in compiled.lower(cupy.asarray(X)).explain()


# Optimizers, networks


def test_adam_compiled_for_its_parameters(cupy):
    def train(array, device, **options):
        net = pb.nn.Linear(3, 2).to(device)
        net.load_state_dict({"weight": array(W.T), "bias": array(np.zeros(2))})
        optimizer = pb.optim.Adam(net, lr=0.1, **options)
        x = array(X.astype(np.float32))
        for _ in range(4):
            optimizer.zero_grad()
            pb.sum(net(pb.tensor(x)) ** 2).backward()
            optimizer.step()
        assert all(p.device == device for p in net.parameters())
        return [to_numpy(p) for p in net.parameters()]

    for found, wanted in zip(train(cupy.asarray, "cuda:0", jit=True), train(np.array, "cpu", jit=False), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


# Errors and what is shown


def test_an_index_out_of_range_raises_when_one_looks(cupy):
    compiled = pb.jit(lambda x, i: x[i] * 2)
    x, good, bad = on_gpu(cupy, X, np.array([0, 1]), np.array([9, 1]))
    compiled(x, bad)
    with pytest.raises(IndexError, match=r"(?s)out of range.*earlier call of <lambda>\(float64"):
        compiled(x, good)
    assert_same(compiled(x, good), X[[0, 1]] * 2)
    found = pb.tensor(compiled(x, bad))
    with pytest.raises(IndexError, match="out of range"):
        found.numpy()
    found.numpy()
    found = pb.sum(pb.tensor(compiled(x, bad)))
    with pytest.raises(IndexError, match="out of range"):
        found.item()


def rows_at(x, i, j):
    taken = x[i] * 2
    across = pb.take(x, j, axis=1)

    def step(c, k):
        return c + pb.sum(x[k]), c

    return taken, across, pb.scan(step, pb.zeros_like(x[0, 0]), i)[0]


@pytest.mark.parametrize(("i", "j", "line"), [([0, 9], [1], "taken = x[i] * 2"), ([0, 1], [7], "across = pb.take")])
def test_an_index_out_of_range_is_shown_with_its_line(cupy, i, j, line):
    compiled = pb.jit(rows_at)
    compiled(*on_gpu(cupy, X, np.array(i), np.array(j)))
    with pytest.raises(IndexError, match=rf"(?s)out of range.*at .*test_cuda_runtime.py:\d+: {re.escape(line)}"):
        pb.cuda.synchronize()
    assert_same(compiled(*on_gpu(cupy, X, np.array([1]), np.array([0]))), rows_at(X, np.array([1]), np.array([0])))


def test_code_that_is_refused_falls_back(cupy, driver):
    driver.refuses_module = True
    compiled = pb.jit(lambda x: pb.sin(x) * 2)
    assert_same(compiled(cupy.asarray(X)), np.sin(X) * 2)
    assert "CuPy" in repr(compiled)
    with pytest.raises(pb.errors.ArgumentError, match=r"runs on CuPy, .*: NVRTC refused"):
        compiled.lower(cupy.asarray(X)).explain()


def test_out_of_memory_says_what_holds_it(cupy, monkeypatch):
    first = pb.jit(lambda x: pb.cumsum(pb.sin(x) @ x.T, axis=0))
    first(cupy.asarray(X))
    compiled = pb.jit(lambda x: pb.sin(x))
    x = cupy.asarray(X)
    held = compiled(x)  # else its memory is used again

    def refuse(*args, **options):
        raise MemoryError("out of memory")

    runner = compiled.last.code
    monkeypatch.setattr(runner.results[0], "_new", refuse)
    wanted = r"(?s)results of 96 B do not fit.*CuPy's pool has .*workspace of the compiled"
    with pytest.raises(MemoryError, match=wanted):
        runner.call([x.data.ptr])
    assert_same(held, np.sin(X))


def test_what_cupy_runs_says_so_when_memory_is_short(cupy, monkeypatch):
    compiled, x = pb.jit(lambda x: pb.prod(x, axis=0) * 2), cupy.asarray(X)
    compiled(x)
    (call,) = [a for a in compiled.last.code.code.plan.actions if isinstance(a, HostCall)]

    def refuse(*args, **options):
        raise MemoryError("out of memory")

    monkeypatch.setattr(call.step, "call", refuse)
    with pytest.raises(MemoryError, match=r"(?s)the arrays that CuPy makes for prod do not fit.*CuPy's pool has"):
        compiled(x)


def test_a_rule_decides_instead_of_a_clock(cupy, driver, monkeypatch):
    monkeypatch.setattr(choose, "SMALL_PRODUCT", 0)
    monkeypatch.setattr(driver, "time", lambda run: 1 / 0)
    a = RNG.standard_normal((24, 24)).astype("f4")
    monkeypatch.setenv(tune.TUNING, "0")
    for largest, products in ((0, 1), (1 << 26, 0)):
        monkeypatch.setattr(tune, "SHARED_PRODUCT", largest)
        before = driver.log["products"]
        np.testing.assert_allclose(pb.jit(lambda x: x @ x + 1)(cupy.asarray(a)).get(), a @ a + 1, rtol=1e-4, atol=1e-4)
        assert driver.log["products"] == before + products
    monkeypatch.delenv(tune.TUNING)
    with pytest.raises(ZeroDivisionError):
        pb.jit(lambda x: x @ x + 2)(cupy.asarray(a))


def test_what_a_compiled_function_shows(cupy):
    compiled = pb.jit(lambda w, x: pb.tanh(x @ w))
    form = compiled.lower(*on_gpu(cupy, W, X))
    assert "compiled for cuda" in form.explain()
    assert form.memory().inputs == W.nbytes + X.nbytes
    assert "__global__" in form.text
    assert "launched as 1 graph of " in form.explain()
    assert "native code" in repr(form)


def test_a_memory_budget_is_kept(cupy):
    def deep(x):
        for _ in range(8):
            x = pb.cumsum(pb.sin(x), axis=0) / 8
        return pb.sum(x)

    x = RNG.standard_normal((64, 8))
    free = pb.jit(pb.grad(deep)).lower(cupy.asarray(x)).memory().peak
    tight = pb.jit(pb.grad(deep), memory_budget=int(free * 0.7))
    assert tight.lower(cupy.asarray(x)).memory().peak <= free * 0.7
    assert_same(tight(cupy.asarray(x)), pb.grad(deep)(x))


def test_calls_are_checked_against_the_reference(cupy):
    f = pb.grad(loss)
    assert_same(pb.jit(f, check=True)(*on_gpu(cupy, W, X)), f(W, X))


# NVRTC, with a stand-in that compiles nothing


class FakeNvrtc:
    """CuPy's binding as far as it is used; texts with `#error` are refused."""

    class NVRTCError(Exception):
        pass

    def __init__(self):
        self.compiled = []

    def getVersion(self):
        return 13, 0

    def createProgram(self, text, name, headers, names):
        return text

    def compileProgram(self, text, options):
        assert "--fmad=false" in options
        if "#error" in text:
            raise self.NVRTCError("NVRTC_ERROR_COMPILATION")
        self.compiled.append(text)

    def getCUBIN(self, text):
        return text.encode()

    def getProgramLog(self, text):
        return "line 1: an error"

    def destroyProgram(self, text):
        pass


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    found = FakeNvrtc()
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "load_nvrtc", lambda: found)
    monkeypatch.setattr(nvrtc.os, "cpu_count", lambda: 3)
    return found


def kernels_text(count):
    return "template <class T> struct shared {};\n" + "".join(
        f'extern "C" __global__ void __launch_bounds__(64) kernel{i}(float* x) {{ x[{i}] = f(x); }}\n'
        for i in range(count)
    )


def test_a_module_is_compiled_in_parts_that_have_every_kernel_once(compiler):
    parts, source = nvrtc.compile_parts(kernels_text(14), "sm_90", False)
    assert source == "the compiler"
    assert sorted(name for names, _ in parts for name in names) == sorted(f"kernel{i}" for i in range(14))
    assert len(parts) == len(compiler.compiled) == 3
    for names, cubin in parts:
        text = cubin.decode()
        assert text.startswith("template")
        assert all((f"kernel{i}(" in text) == (f"kernel{i}" in names) for i in range(14))


def test_machine_code_is_found_on_disk(compiler):
    assert nvrtc.compile_parts(kernels_text(2), "sm_90", False)[1] == "the compiler"
    assert nvrtc.compile_parts(kernels_text(2), "sm_90", False)[1] == "the disk cache"
    assert nvrtc.compile_parts(kernels_text(2), "sm_80", False)[1] == "the compiler"
    assert len(compiler.compiled) == 2


def test_what_is_refused_is_shown(compiler):
    with pytest.raises(nvrtc.CudaCompileError, match=r"(?s)NVRTC refused .*line 1: an error"):
        nvrtc.compile_parts("#error\n" + kernels_text(1), "sm_90", False)


def test_a_thread_has_a_context_before_it_calls_the_driver():
    """CUDA's driver, unlike its runtime, knows no device in a thread that is new."""
    machine, entered = object.__new__(driver_module.CudaDriver), []
    machine._quick, machine._slow, machine._thread = "quick", "slow", driver_module._OfThread()
    machine.use_device = lambda: entered.append(threading.get_ident())
    found = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append((machine.quick, machine.slow, machine.slow)))
        thread.start()
        thread.join()
    assert (found, len(entered)) == ([("quick", "slow", "slow")] * 2, 2)
