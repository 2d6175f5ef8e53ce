"""Compiled code on several threads: the same bits for any number, other threads go on, and nothing hangs."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from machines import IN_BLOCKS, cpu_with
from records import cases, name

import pullback as pb
from pullback import errors
from pullback.arrays.trees import flatten
from pullback.compile.computed_once import computed_once
from pullback.compile.cpu.runtime import blas
from pullback.compile.cpu.runtime.pool import POOL
from pullback.ops.dispatch import apply

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="one thread on this system")

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def as_before():
    before = pb.get_num_threads()
    yield
    pb.set_num_threads(before)


@pytest.fixture
def in_blocks(monkeypatch):
    """Every kernel that can be cut is cut, however short."""
    cpu_with(monkeypatch, **IN_BLOCKS)


def normal(*shape, dtype="f"):
    return RNG.normal(size=shape).astype(dtype)


def bits(found):
    return [np.asarray(x).tobytes() for x in flatten(found)[0]]


def on_any_number(f, *args, parallel=True, scale=1e-5):
    """Compiled f: the same bits on 1, 2, 3 and 4 threads, close to what eager ops say."""
    compiled = pb.jit(f)
    pb.set_num_threads(1)
    found = compiled(*args)
    assert compiled.last.code.uses_pool is parallel
    for count in (2, 3, 4):
        pb.set_num_threads(count)
        for _ in range(3):
            assert bits(compiled(*args)) == bits(found), count
    for x, y in zip(flatten(found)[0], flatten(f(*args))[0], strict=True):
        size = np.max(np.abs(y), initial=0, where=np.isfinite(y))
        np.testing.assert_allclose(x, y, rtol=scale, atol=scale * size)
    return found


def some_cases():
    """Cases of different ops, a few from each end of the library."""
    return cases(lambda op: op.spec is not None and op.family in ("elementwise", "reduction", "linear"))[::9]


@pytest.mark.parametrize("case", some_cases(), ids=name)
def test_ops_in_blocks(case, in_blocks):
    def f(*args):
        return apply(case.op, *args, **case.static)

    many = [np.stack([np.asarray(x)] * 37) for x in case.args]
    compiled = pb.jit(pb.vmap(f))
    pb.set_num_threads(1)
    found = compiled(*many)
    pb.set_num_threads(3)
    assert bits(compiled(*many)) == bits(found)
    for x, y in zip(flatten(found)[0], flatten(pb.vmap(f)(*many))[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12 * np.max(np.abs(y), initial=1))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("fold", ["sum", "max", "min"])
def test_folds_over_every_axis(axis, fold, in_blocks):
    x = 1 + 0.01 * normal(33, 37, 70, dtype="d")
    on_any_number(lambda x: getattr(pb, fold)(x * 1.5, axis=axis), x, scale=1e-11)


@pytest.mark.parametrize(
    "shape", [(1_000_003,), (1, 1_000_003), (1009, 997), (3, 400_000), (400_000, 3), (2, 500, 601)]
)
def test_sums_and_values_of_large_arrays(shape):
    x, y = normal(*shape), normal(shape[-1])
    on_any_number(lambda x, y: (pb.sum(pb.sin(x) * y), pb.mean(x), pb.exp(x) + y), x, y, scale=1e-4)


def test_truths_and_integers():
    x = RNG.integers(-9, 9, size=(700, 900))
    on_any_number(
        lambda x: (pb.any(x > 8), pb.all(x > -10, axis=0), pb.sum(x * x), pb.max(x, axis=1), x > 3), x, scale=0
    )


def test_not_a_number_is_found_by_every_fold():
    x = normal(1_500_000)
    x[1_234_567] = np.nan
    total, top = on_any_number(lambda x: (pb.sum(pb.tanh(x)), pb.max(pb.tanh(x))), x)
    assert np.isnan(total)
    assert np.isnan(top)


def test_softmax_and_layer_norm_with_gradients():
    x, g, d = normal(300, 500), normal(500), normal(300, 500)

    def f(x, g):
        m = pb.mean(x, axis=-1, keepdims=True)
        v = pb.mean((x - m) ** 2, axis=-1, keepdims=True)
        return pb.sum(pb.softmax((x - m) / pb.sqrt(v + 1e-5) * g, axis=-1) * d)

    on_any_number(pb.value_and_grad(f, argnums=(0, 1)), x, g, scale=1e-4)


def test_a_whole_row_that_is_walked_twice_stays_on_one_thread():
    on_any_number(lambda x: x / pb.sum(pb.exp(x)), normal(300_000), parallel=False)


def test_training_step_with_arguments_given_away():
    sizes = (300, 400, 200)
    params = [normal(a, b) / np.float32(a) ** 0.5 for a, b in pairwise(sizes)] + [normal(400)]
    x, y = normal(512, 300), normal(512, 200)

    def step(params, x, y):
        def loss(p):
            return pb.mean((pb.tanh(x @ p[0] + p[2]) @ p[1] - y) ** 2)

        return [p - 0.1 * q for p, q in zip(params, pb.grad(loss)(params), strict=True)]

    found = []
    compiled = pb.jit(step, donate_argnums=0)
    for count in (1, 2, 3, 4):
        pb.set_num_threads(count)
        state = [p.copy() for p in params]
        for _ in range(3):
            state = compiled(state, x, y)
        found.append(bits(state))
    assert compiled.last.code.uses_pool
    assert all(b == found[0] for b in found)


def test_batches_of_products():
    a, b = normal(24, 64, 48), normal(24, 48, 80)
    say = blas_says()
    before = say()
    on_any_number(pb.matmul, a, b)
    on_any_number(pb.grad(lambda a, b: pb.sum((a @ b) ** 2), argnums=(0, 1)), a, b, scale=1e-4)
    assert say() == before


def blas_says():
    import ctypes

    found = blas.blas_thread_functions()
    if found is None:
        pytest.skip("a BLAS whose threads we cannot count")
    return ctypes.CFUNCTYPE(ctypes.c_int)(found[0])


def test_loops_inside_a_program():
    x, g = normal(300, 400), normal(400)

    def f(x, g):
        return pb.sum(pb.fori_loop(0, 5, lambda i, h: pb.tanh(h * g) + pb.mean(h, axis=0), x), axis=0)

    on_any_number(f, x, g)
    on_any_number(pb.grad(lambda x: pb.sum(f(x, g) ** 2)), x, scale=1e-4)


def test_an_index_out_of_range_is_found_by_any_thread():
    table, rows = normal(1000), RNG.integers(0, 1000, 900_000)
    f = pb.jit(lambda t, i: pb.sin(t[i]) * 2)
    pb.set_num_threads(3)
    f(table, rows)
    assert f.last.code.uses_pool
    for place in (0, 450_000, 899_999):
        wrong = rows.copy()
        wrong[place] = 1000
        with pytest.raises(errors.IndexingError):
            f(table, wrong)
    np.testing.assert_allclose(f(table, rows), np.sin(table[rows]) * 2, rtol=1e-6)


def long_work():
    """A compiled function that takes long, and what it is called on; it runs without the interpreter's lock."""
    f = pb.jit(lambda x: pb.sum(pb.sin(pb.exp(pb.sin(x))), axis=-1))
    x = normal(400, 4000, dtype="d")
    f(x)
    assert f.last.code.is_long()
    return f, x


def progress_during(call):
    """How far another thread of Python comes while something is called: not at all if the call keeps the lock."""
    steps, stop = [0], []

    def count():
        while not stop:
            steps[0] += 1
            time.sleep(0)  # lets go by itself, so that nobody waits for it

    before = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody is made to let go
    thread = threading.Thread(target=count, daemon=True)
    try:
        thread.start()
        begin = steps[0]
        call()
        return steps[0] - begin
    finally:
        stop.append(True)
        sys.setswitchinterval(before)
        thread.join()


def test_other_threads_go_on_during_a_long_call():
    f, x = long_work()
    assert any(progress_during(lambda: f(x)) > 0 for _ in range(50))


def test_short_calls_keep_the_lock():
    f, x = pb.jit(lambda x: pb.sin(x)), normal(100)
    f(x)
    assert not f.last.code.is_long()
    code, out = f.last.code, np.empty_like(x)
    assert all(progress_during(lambda: code.call(x, out)) == 0 for _ in range(20))


def calls_at_once(f, inputs, meanwhile=lambda: None):
    """f called on each input by a thread of its own, many times; the answers that differ from those of one thread."""
    wanted = [f(x).tobytes() for x in inputs]
    wrong, start = [], threading.Barrier(len(inputs))

    def call(i):
        start.wait()
        wrong.extend(i for _ in range(10) if f(inputs[i]).tobytes() != wanted[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    meanwhile()
    for t in threads:
        t.join(300)
    assert not any(t.is_alive() for t in threads)
    return wrong


@pytest.mark.parametrize("count", [1, 3])
def test_many_threads_of_python_call_at_once(count):
    f, x = long_work()
    pb.set_num_threads(count)

    def change():
        for _ in range(5):
            pb.set_num_threads(2)
            pb.set_num_threads(count)

    assert not calls_at_once(f, [x + i for i in range(4)], change)


def test_programs_in_pieces_on_many_threads():
    f = pb.jit(lambda x: pb.sum(pb.sin(pb.sort(pb.cos(x), axis=-1)), axis=-1))
    inputs = [normal(200, 300, dtype="d") for _ in range(4)]
    f(inputs[0])
    assert not f.last.code.is_one_piece
    assert not calls_at_once(f, inputs)


def test_loops_that_call_python_on_many_threads():
    f = pb.jit(lambda x: pb.fori_loop(0, 4, lambda i, h: pb.sort(pb.cos(h) + x, axis=-1), x))
    inputs = [normal(60, 50, dtype="d") for _ in range(4)]
    f(inputs[0])
    assert f.last.code.callbacks is not None
    assert not calls_at_once(f, inputs)


def test_a_call_inside_itself():
    depth = []

    @pb.custom_op
    def again(x):
        if len(depth) == 3:
            return np.asarray(x)
        depth.append(True)
        return compiled(x)

    again.def_spec(lambda x: x)
    x = normal(50, 60, dtype="d")
    compiled = pb.jit(lambda x: pb.exp(-again(pb.cos(x))) + pb.sin(x))
    depth += [True] * 3
    compiled(x)
    depth.clear()
    found = compiled(x)
    levels = [x]
    for _ in range(3):
        levels.append(np.cos(levels[-1]))
    wanted = np.cos(levels[-1])
    for level in reversed(levels):
        wanted = np.exp(-wanted) + np.sin(level)
    assert len(depth) == 3
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def run_alone(program, **environment):
    """A program in a process of its own, which must end by itself."""
    text = "import numpy as np, pullback as pb\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", text], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


WORK = """
x = np.linspace(0, 1, 1_000_000)
f = pb.jit(lambda x: pb.sum(pb.sin(x)))
"""


def test_a_child_of_fork_has_threads_of_its_own():
    program = """
    import os
    from pullback.compile.cpu.runtime.pool import POOL
    pb.set_num_threads(3)
    first = f(x)
    child = os.fork()
    if not child:
        began_without = not POOL.workers
        same = all(f(x).tobytes() == first.tobytes() for _ in range(20))
        os._exit(0 if same and began_without and len(POOL.workers) == 2 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), f(x).tobytes() == first.tobytes())
    """
    assert run_alone(WORK + textwrap.dedent(program)) == ["0", "True"]


def test_fork_while_others_are_at_work():
    program = """
    import os, threading
    pb.set_num_threads(2)
    first = f(x).tobytes()
    stop = []
    def call():
        while not stop:
            f(x)
    others = [threading.Thread(target=call) for _ in range(2)]
    for t in others: t.start()
    codes = []
    for _ in range(5):
        child = os.fork()
        if not child:
            os._exit(0 if all(f(x).tobytes() == first for _ in range(3)) else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.append(1)
    for t in others: t.join()
    print(max(codes))
    """
    assert run_alone(WORK + textwrap.dedent(program)) == ["0"]


def test_the_process_ends_while_a_thread_is_at_work():
    program = """
    import threading, time
    pb.set_num_threads(3)
    f(x)
    def call():
        while True:
            f(x)
    threading.Thread(target=call, daemon=True).start()
    time.sleep(0.1)
    print("end")
    """
    assert run_alone(WORK + textwrap.dedent(program)) == ["end"]


def test_signals_reach_python():
    program = """
    import signal, threading, os
    pb.set_num_threads(3)
    f(x)
    heard = []
    signal.signal(signal.SIGUSR1, lambda *a: heard.append(threading.current_thread() is threading.main_thread()))
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        f(x)
    print(len(heard) > 0 and all(heard))
    """
    assert run_alone(WORK + textwrap.dedent(program)) == ["True"]


def test_the_environment_says_how_many():
    assert run_alone("print(pb.get_num_threads())", PULLBACK_NUM_THREADS="3") == ["3"]
    told = """
    try:
        pb.get_num_threads()
    except pb.errors.ArgumentError as e:
        print(str(e).split(":")[0])
    """
    assert run_alone(told, PULLBACK_NUM_THREADS="many") == ["PULLBACK_NUM_THREADS"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert 1 <= int(run_alone("print(pb.get_num_threads())", PULLBACK_NUM_THREADS="")[0]) <= cores


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2", None, True])
def test_wrong_numbers(wrong):
    with pytest.raises(errors.ArgumentError, match="at least 1"):
        pb.set_num_threads(wrong)


def test_numbers_are_kept():
    pb.set_num_threads(3)
    assert pb.get_num_threads() == 3
    pb.set_num_threads(np.int64(1))
    assert pb.get_num_threads() == 1
    assert not POOL.workers


@pytest.mark.parametrize(("path", "text"), [("", "fine"), ("/nowhere/libblas.so", "cannot be loaded")])
def test_another_blas_can_be_named(path, text):
    """SciPy's own module, which is linked to its BLAS, stands for another one here."""
    from scipy.linalg import cython_blas

    code = (
        "import numpy as np, pullback as pb\n"
        "x = np.random.default_rng(0).normal(size=(1500, 700))\n"
        "try:\n"
        "    assert np.allclose(pb.jit(lambda x: x @ x.T)(x), x @ x.T)\n"
        "    print('fine')\n"
        "except pb.errors.ArgumentError as error:\n"
        "    print(error)\n"
    )
    around = {**os.environ, "PULLBACK_BLAS": path or cython_blas.__file__}
    done = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
    assert text in done.stdout


def test_two_threads_that_ask_first_get_the_same_thing():
    """Native code keeps the address of what is cached, which another one must not replace."""
    made, start = [], threading.Barrier(8)

    @computed_once
    def make(name):
        made.append(name)
        time.sleep(0.01)
        return object()

    def ask(name):
        start.wait(10)
        return make(name)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, ["a", "b"] * 4))
    assert sorted(made) == ["a", "b"]
    assert len(set(found)) == 2
