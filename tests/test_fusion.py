"""What may share a loop: programs once compiled to wrong numbers, and each condition of legality broken by hand."""

import os
import subprocess
import sys

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.spec import make_spec
from pullback.compile.cpu.kernel.render import kernel_key
from pullback.compile.legality import check_legality
from pullback.compile.loop_ir import Buffer, Kernel, KernelLine, Store
from pullback.errors import DtypeError
from pullback.ops.dispatch import apply
from pullback.ops.op import Op

pytest.importorskip("llvmlite")

RNG = np.random.default_rng(0)


def poison():
    """Leave memory behind that no right program returns."""
    for size in (3, 8, 24, 64, 300):
        np.full(size, 777.0)


def assert_same(f, *args, tolerance=1e-12):
    """Compiled equals eager: value, and gradients by both orders of grad and jit."""
    poison()
    wanted, found = f(*args), pb.jit(f)(*args)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    if np.asarray(args[0]).dtype.kind == "f":
        scalar = lambda *xs: pb.sum(pb.sin(f(*xs)))  # noqa: E731
        wanted = pb.grad(scalar)(*args)
        for found in (pb.jit(pb.grad(scalar))(*args), pb.grad(pb.jit(scalar))(*args)):
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(8, 3), (3, 3), (1, 4), (4, 1), (2, 2, 2), (4, 1, 4)])
@pytest.mark.parametrize("first", [-1, 0])
@pytest.mark.parametrize("second", [0, -1])
def test_a_fold_of_a_spread_fold(shape, first, second):
    x = RNG.normal(size=shape)
    folds = (pb.sum, pb.max, pb.min, pb.prod)

    def f(x):
        spread = [pb.broadcast_to(fold(x, axis=first, keepdims=True), x.shape) for fold in folds]
        return pb.stack([fold(y, axis=second) for fold, y in zip(folds, spread, strict=True)])

    assert_same(f, x)


@pytest.mark.parametrize("fold", [pb.any, pb.all])
def test_a_fold_of_spread_truths(fold):
    x = RNG.normal(size=(3, 3)) > 0
    assert_same(lambda x: fold(pb.broadcast_to(fold(x, axis=1, keepdims=True), x.shape), axis=0), x)


@pytest.mark.parametrize("activation", [pb.tanh, pb.relu])
@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: pb.nn.cross_entropy(z, y), lambda z, y: pb.nn.huber_loss(z, pb.zeros(z.shape)),
        lambda z, y: pb.sum(pb.clip(z, -0.1, 0.1)), lambda z, y: pb.sum(pb.max(z, axis=1)),
        lambda z, y: pb.sum(pb.nn.elu(z)), lambda z, y: pb.sum(pb.std(z, axis=1)), lambda z, y: pb.linalg.norm(z),
    ],
)  # fmt: skip
def test_networks_of_two_equal_widths(activation, loss):
    w, h, x, y = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=(8, 4)), RNG.integers(0, 3, 8)
    f = lambda w, h: loss(activation(x @ w) @ h, y)  # noqa: E731
    wanted = pb.grad(f, argnums=(0, 1))(w, h)
    for found in (pb.jit(pb.grad(f, argnums=(0, 1)))(w, h), pb.grad(pb.jit(f), argnums=(0, 1))(w, h)):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pool", [pb.nn.max_pool1d, pb.nn.avg_pool1d])
@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 3, 3), (1, 1, 3)])
def test_a_pooling_with_one_place_that_is_spread(pool, shape):
    x = RNG.normal(size=shape)
    assert_same(lambda x: x * pool(x, 3, 1), x)
    assert_same(lambda x: x - pool(x, 3, 1, 0), x)


def test_a_fold_of_a_long_row_that_is_spread_over_it():
    x = RNG.normal(size=400_000)
    wanted = float(np.sum(x))
    total, spread = pb.jit(lambda x: (pb.sum(x), pb.negative(pb.broadcast_to(pb.sum(x), x.shape))))(x)
    np.testing.assert_allclose([total, spread.min(), spread.max()], [wanted, -wanted, -wanted], rtol=1e-10)


def test_a_value_is_not_written_over_what_a_second_point_reads():
    """tanh is computed at two points for each place of the memory it is stored in."""
    x = RNG.normal(size=(3, 5))

    def f(x):
        spread = pb.broadcast_to(x, (2, 3, 5))
        return (pb.abs(spread) + 0.5) ** pb.tanh(spread)

    assert_same(f, x)


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2), (3, 1)])
def test_one_value_as_two_results_over_donated_arguments(shape):
    x, y = RNG.normal(size=shape), RNG.normal(size=shape)

    def f(x, y):
        found = pb.broadcast_to(pb.sum(x, axis=-1, keepdims=True), x.shape)
        return found, pb.broadcast_to(found, y.shape)

    poison()
    for a, b in zip(pb.jit(f, donate_argnums=(0, 1))(x.copy(), y.copy()), f(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_an_integer_stored_as_a_float_is_not_read_back_from_it():
    """Beyond the cut of a chain a value is read from where it is stored anyway, if nothing of it was lost there."""
    x = np.linspace(0.5, 1, 5)

    def f(x):
        odd = pb.astype(pb.tanh(x) * 1e18, pb.int64) + 1
        return pb.concat([odd, x]), pb.tanh(pb.astype(odd & 1, pb.float64))

    joined, of_one = pb.jit(f)(x)
    np.testing.assert_allclose(joined, np.concatenate([(np.tanh(x) * 1e18).astype(int) + 1, x]), rtol=1e-14)
    np.testing.assert_allclose(of_one, np.tanh(1.0), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32"])
def test_an_op_that_sees_bytes_as_another_dtype_is_no_view(dtype):
    """NumPy is asked with bytes whether an op is a view, and bytes seen as int8 are."""
    x = RNG.normal(size=(2, 3))
    made = make_spec((2, 24 // np.dtype(dtype).itemsize), np.dtype(dtype))
    bits = Op("bits", "general", ("x",), lambda xp, x: x.view(dtype), lambda x: made, {}, None, None, None)
    np.testing.assert_array_equal(pb.jit(lambda x: apply(bits, x * 2))(x), (x * 2).view(dtype))


@pytest.mark.parametrize("size", [3, 8, 15, 64])
def test_float64_beside_float32_in_one_kernel(size):
    """The process was aborted by LLVM on processors whose vectors have 32 bytes."""
    y = np.linspace(-1, 1, size)
    narrow, wide = pb.jit(lambda y: (pb.astype(pb.exp(y), pb.float32), pb.exp(y)))(y)
    np.testing.assert_allclose(wide, np.exp(y), rtol=1e-15)
    np.testing.assert_allclose(narrow, np.exp(y), rtol=1e-7)


def test_a_gradient_of_a_scan_that_reads_rows():
    f = lambda x: pb.sum(pb.scan(lambda c, i: (c + x[i], c * 1), x[0] * 0, np.zeros(5, int))[1])  # noqa: E731
    x = RNG.normal(size=(2, 300))
    np.testing.assert_array_equal(pb.jit(pb.grad(f))(x), pb.grad(f)(x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8", "float64"])
def test_the_count_of_a_loop_is_a_python_number(dtype):
    f = lambda x: pb.fori_loop(0, 3, lambda i, c: c + x * i, x)  # noqa: E731
    x = np.arange(3).astype(dtype)
    found = pb.jit(f)(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, f(x))


def test_a_gradient_through_a_loop_that_counts_in_float32():
    f = lambda x: pb.sum(pb.fori_loop(0, 4, lambda i, c: c + x * i * c, x))  # noqa: E731
    x = np.linspace(0.5, 1, 3, dtype=np.float32)
    for found in (pb.grad(pb.jit(f))(x), pb.jit(pb.grad(f))(x)):
        np.testing.assert_allclose(found, pb.grad(f)(x), rtol=1e-6)


def test_a_branch_of_constants():
    f = pb.jit(lambda x: pb.cond(x[0] > 0, lambda: np.ones(2), lambda: np.zeros(2)))
    np.testing.assert_array_equal(f(np.ones(3)), [1, 1])
    np.testing.assert_array_equal(f(-np.ones(3)), [0, 0])


def test_branches_of_two_dtypes_are_named():
    f = pb.jit(lambda x: pb.cond(x[0] > 0, lambda: pb.sum(x), lambda: pb.astype(pb.sum(x), "int32")))
    with pytest.raises(DtypeError, match="false_function and true_function must return one shape and dtype") as e:
        f(np.ones(3))
    assert "int32[]" in str(e.value)
    assert "float64[]" in str(e.value)


def test_python_integers_beyond_the_dtype():
    x = np.array([-100, 1, 100], np.int8)
    with pytest.raises(OverflowError):
        pb.jit(lambda x: x + 300)(x)
    for found, wanted in zip(pb.jit(lambda x: (x < 300, x > -200, x < -200))(x), (x < 300, x > -200, x < -200),
                             strict=True):  # fmt: skip
        np.testing.assert_array_equal(found, wanted)


CONDITIONS = {
    "depends on axes": lambda k, x, a, out: k.lines.append(KernelLine("cast", x.dtype, frozenset({0}), 0, (x,))),
    "in phase": lambda k, x, a, out: k.lines.append(KernelLine("cast", x.dtype, frozenset({0}), 0, (a,))),
    "differs along the row": lambda k, x, a, out: k.lines.append(
        KernelLine("fold", x.dtype, frozenset({0, 1}), 0, (x,), word="add")
    ),
}


def small_kernel():
    """A sum over the rows of (2, 3): its load, its fold, and memory for a result."""
    source, out = Buffer("input", 6, np.dtype(float), 0), Buffer("output", 6, np.dtype(float), 0)
    x = KernelLine("load", source.dtype, frozenset({0, 1}), buffer=source, strides=(3, 1))
    total = KernelLine("fold", source.dtype, frozenset({0}), 0, (x,), word="add")
    return Kernel((2, 3), 1, [x, total]), x, total, out


@pytest.mark.parametrize("message", CONDITIONS)
def test_lines_that_are_not_what_they_say(message):
    kernel, x, total, out = small_kernel()
    CONDITIONS[message](kernel, x, total, out)
    kernel.stores.append(Store(kernel.lines[-1], out, (3, 1)))
    with pytest.raises(AssertionError, match=message):
        check_legality([kernel])


def test_two_values_for_one_place():
    kernel, x, _, out = small_kernel()
    kernel.stores.append(Store(x, out, (1, 0)))
    with pytest.raises(AssertionError, match="stored along"):
        check_legality([kernel])
    kernel.stores[0] = Store(x, out, (1, 1))
    with pytest.raises(AssertionError, match="repeat a place"):
        check_legality([kernel])


def test_elements_that_are_counted_for_each_point_of_an_axis_they_do_not_have():
    kernel, _, total, out = small_kernel()
    kernel.stores.append(Store(total, out, (0, 0), word="add", points=2))
    with pytest.raises(AssertionError, match="2 elements folded at 6 points"):
        check_legality([kernel])


def test_memory_that_is_overwritten_and_read_elsewhere():
    kernel, x, _, _ = small_kernel()
    kernel.inner = 0
    kernel.stores.append(Store(x, x.buffer, (1, 2)))
    with pytest.raises(AssertionError, match="written over"):
        check_legality([kernel])


def test_memory_that_is_overwritten_a_little_further_on():
    """Two buffers with the same strides that begin at different bytes of the arena are not one place."""
    kernel, x, _, _ = small_kernel()
    kernel.inner = 0
    x.buffer = Buffer("arena", 6, x.dtype, 0, 0)
    kernel.stores.append(Store(x, Buffer("arena", 6, x.dtype, 1, 40), (3, 1)))
    with pytest.raises(AssertionError, match="written over"):
        check_legality([kernel])
    kernel.stores[0].buffer.offset = 48
    check_legality([kernel])


def test_a_fold_that_is_stored_before_it_is_known(monkeypatch):
    kernel, _, total, out = small_kernel()
    kernel.stores.append(Store(total, out, (1, 0)))
    monkeypatch.setattr(Store, "phase", property(lambda self: self.line.phase))
    with pytest.raises(AssertionError, match="its value is known in 1"):
        check_legality([kernel])


def test_kernels_that_differ_in_what_they_add_to_have_two_forms():
    """One begins with zeros, the other with what is there."""
    forms = []
    for onto in (False, True):
        kernel, x, _, out = small_kernel()
        kernel.stores.append(Store(x, out, (0, 1), word="add", points=6, accumulates=onto))
        forms.append(kernel_key(kernel)[0])
    assert forms[0] != forms[1]


def test_kernels_of_the_same_lines_that_store_them_in_another_order():
    """The first stores what the product reads before the other result."""
    x, w = RNG.normal(size=7), RNG.normal(size=(7, 7))

    def f(x, w):
        a = x + 1
        b = a * a
        c = w @ b + 1
        return a, b, c, c * c

    for found, wanted in zip(pb.jit(f)(x, w), f(x, w), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("n", [7, 8, 16])
def test_values_of_a_row_that_are_kept_side_by_side(n):
    def f(x):
        a, b, c = pb.tanh(x), pb.exp(x), pb.sin(x)
        total = pb.sum(a * b * c, axis=1, keepdims=True)
        return a * total + b / total - c

    assert_same(f, RNG.normal(size=(3, n)), tolerance=1e-11)


def test_the_right_kernel_is_legal():
    kernel, x, total, out = small_kernel()
    kernel.stores += [Store(total, out, (1, 0)), Store(x, Buffer("output", 1, out.dtype), (0, 0), word="add", points=6)]
    check_legality([kernel])


def run_script(text, *arguments):
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], env=env, capture_output=True, text=True, timeout=300
    )


FORK = """
import os, threading, time, numpy as np, pullback as pb
stop = threading.Event()
def compile_on():
    k = 0
    while not stop.is_set():
        k += 1
        pb.jit(lambda x: pb.sin(x) * float(k) + pb.exp(x))(np.ones(5 + k % 50))
thread = threading.Thread(target=compile_on)
pb.jit(pb.cos)(np.ones(3))
thread.start()
for i in range(3):
    time.sleep(0.05)
    child = os.fork()
    if not child:
        os._exit(0 if np.allclose(pb.jit(lambda x: pb.cos(x) * i)(np.ones(7)), np.cos(1) * i) else 3)
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
    assert done and not status, (done, status)
stop.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_while_another_thread_compiles():
    done = run_script(FORK)
    assert done.returncode == 0, done.stderr


UNPICKLED = """
import numpy as np, pullback as pb
x = np.ones(3, np.dtype(float, copy=True))  # a dtype object of its own, as unpickling in another process makes them
assert x.dtype is not np.dtype(float)
assert pb.jit(lambda x: pb.sum(x**2))(x) == 3
assert np.array_equal(pb.grad(pb.jit(lambda x: pb.sum(x**2)))(x), [2, 2, 2])
"""


def test_a_first_call_with_an_array_from_another_process():
    done = run_script(UNPICKLED)
    assert done.returncode == 0, done.stderr


HALF_IMPORTED = """
import importlib, importlib.abc, importlib.machinery, sys, threading
import numpy as np, pullback as pb
reached, go_on = threading.Event(), threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    # the module stands in sys.modules, and nothing is in it yet
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def wait(module):
            reached.set()
            assert go_on.wait(60)
            execute(module)
        spec.loader.exec_module = wait
        return spec
NAME = sys.argv[1]
for name in [name for name in sys.modules if name.startswith(NAME)]:
    del sys.modules[name]
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=importlib.import_module, args=(NAME,))
thread.start()
assert reached.wait(60)
slope = lambda x: np.sum(np.array([x[0], x[1]]) ** 2)
assert pb.grad(slope)(np.ones(2)).tolist() == [2, 2]
go_on.set()
thread.join()
sys.meta_path.pop(0)
CALL
"""
CALLS = {
    "numpy.polynomial.legendre": """
from numpy.polynomial.legendre import legval
assert pb.grad(lambda x: legval(x, [0.0, 1.0, 1.0]))(0.5) == 2.5
""",
    "scipy.linalg": """
import scipy.linalg
assert pb.grad(lambda x: np.sum(scipy.linalg.solve(np.eye(2) * x, np.ones(2))))(2.0) == -0.5
""",
    "scipy.stats": """
import scipy.stats
assert abs(pb.grad(lambda x: scipy.stats.norm.logpdf(x))(2.0) + 2.0) < 1e-12
""",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_while_another_thread_imports(name):
    """In CI a module that stood in sys.modules and was not run yet was read once."""
    script = HALF_IMPORTED.replace("CALL", CALLS[name])
    done = run_script(script, name)
    assert done.returncode == 0, done.stderr


FIRST = """
import threading, numpy as np, pullback as pb
failed, barrier = [], threading.Barrier(4)
calls = [
    lambda: pb.grad(lambda p: pb.sum(p["a"] ** 2))({"a": np.ones(3)}),
    lambda: pb.jit(lambda p: p["a"] * 2)({"a": np.ones(3)}),
    lambda: pb.optim.adam(1e-3).init({"a": np.ones(2)}),
    lambda: pb.scan(lambda c, x: (c + x, c), 0.0, np.ones(3)),
]
def first(call):
    barrier.wait()
    try:
        call()
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=first, args=(call,)) for call in calls]
for t in threads: t.start()
for t in threads: t.join()
assert not failed, failed
"""


def test_first_calls_from_several_threads():
    done = run_script(FIRST)
    assert done.returncode == 0, done.stderr
