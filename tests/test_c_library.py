"""Functions as libraries of C: called back by ctypes and by programs in C, and compared with what they compute here."""

import ctypes
import shutil
import subprocess
import threading

import numpy as np
import pytest
from exchange_cases import is_near, leaves_of, op_cases

import pullback as pb
from pullback.compile.cpu.export import compile_to_object, find_processor
from pullback.errors import ArgumentError, ExportError
from pullback.exchange.c_library import _link

pytest.importorskip("llvmlite")
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler links libraries")


def call(library, name, inputs, outputs):
    """The status of a function of C, which writes to the outputs."""
    arrays = [*inputs, *outputs]
    return getattr(library, name)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))


def run(made, name, *args):
    """The status and the results of a function of a library, on the leaves of arguments."""
    function = next(f for f in made.functions if f.name == name)
    outs = [np.full(a.shape, 77).astype(a.dtype) for a in function.arguments if a.is_output]
    given = [a for a in function.arguments if not a.is_output]
    leaves = [np.ascontiguousarray(x, a.dtype).reshape(a.shape) for x, a in zip(leaves_of(args), given, strict=True)]
    return call(ctypes.CDLL(str(made.library.resolve())), name, leaves, outs), outs


def loss(w, x, y):
    return pb.mean((pb.tanh(x @ w["a"] + w["b"]) - y) ** 2)


def arguments(n, d, m, dtype=np.float64):
    rng = np.random.default_rng(0)
    w = {"a": rng.normal(size=(d, m)).astype(dtype), "b": np.ones(m, dtype)}
    return w, rng.normal(size=(n, d)).astype(dtype), np.zeros((n, m), dtype)


@pytest.mark.parametrize("cpu", ["x86-64-v2", None, "native"])
@pytest.mark.parametrize("sizes", [(8, 3, 2), (1, 1, 1), (70, 300, 129), (5, 2000, 1), (2, 3, 1000)])
def test_value_and_gradient_from_c(tmp_path, cpu, sizes):
    args = arguments(*sizes)
    made = pb.exchange.to_c_library(loss, *args, path=tmp_path / "loss", gradient=[0, 2], cpu=cpu)
    value, gradients = pb.value_and_grad(loss, (0, 2))(*args)
    status, (out,) = run(made, "loss", *args)
    assert (status, out.dtype) == (0, np.float64)
    assert np.allclose(out, value, rtol=1e-13, atol=0)
    status, outs = run(made, "loss_gradient", *args)
    assert status == 0
    for a, b in zip(outs, leaves_of((value, gradients)), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-15)
    names = [a.name for a in made.functions[1].arguments]
    assert names == ["w_a", "w_b", "x", "y", "out", "gradient_w_a", "gradient_w_b", "gradient_y"]


def test_the_same_bits_as_jit_on_this_machine(tmp_path):
    def f(x, k):
        return pb.exp(pb.sin(x) * 2) / (1 + pb.abs(x)), k * 3, x[::-1, k], pb.sum(pb.log1p(x * x), axis=0)

    for dtype in (np.float32, np.float64):
        x, k = np.random.default_rng(1).normal(size=(5, 37)).astype(dtype), np.arange(4, dtype=np.int32)
        made = pb.exchange.to_c_library(f, x, k, path=tmp_path / f"f_{np.dtype(dtype).name}", cpu="native")
        status, outs = run(made, made.functions[0].name, x, k)
        assert status == 0
        for a, b in zip(outs, leaves_of(pb.jit(f)(x, k)), strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


def by_index(table, i):
    return table[i] * 2


def test_an_index_out_of_range_is_a_status(tmp_path):
    table = np.arange(6.0)
    made = pb.exchange.to_c_library(by_index, table, np.arange(3), path=tmp_path / "by_index")
    assert run(made, "by_index", table, np.array([5, -6, 0]))[0] == 0
    assert np.array_equal(run(made, "by_index", table, np.array([5, -6, 0]))[1][0], [10.0, 0.0, 0.0])
    assert run(made, "by_index", table, np.array([0, 6, 0]))[0] == 1
    assert run(made, "by_index", table, np.array([0, -7, 0]))[0] == 1


def test_small_systems_are_solved_and_singular_ones_a_status(tmp_path):
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    b = np.array([1.0, 2.0])
    made = pb.exchange.to_c_library(pb.linalg.solve, a, b, path=tmp_path / "solve")
    status, (x,) = run(made, "solve", a, b)
    assert status == 0
    assert np.allclose(x, np.linalg.solve(a, b))
    assert run(made, "solve", np.ones((2, 2)), b)[0] == 2


def test_differential_equations_are_native_and_unfinished_ones_a_status(tmp_path):
    def end(k):
        return pb.ode.solve(lambda t, y, k: -k * y * y, 1.0, (0.0, 2.0), k).y

    made = pb.exchange.to_c_library(end, 2.0, path=tmp_path / "end", gradient=True)
    status, found = run(made, "end_gradient", 2.0)
    assert status == 0
    np.testing.assert_allclose(found, pb.value_and_grad(end)(2.0), rtol=1e-12)
    assert run(made, "end", -1.0)[0] == 2  # it has a pole


def test_large_systems_are_loops(tmp_path):
    rng = np.random.default_rng(4)
    a, b, t = rng.normal(size=(12, 12)), rng.normal(size=(12, 2)), rng.normal(size=(9, 5))

    def fit(a, b):
        spd = a @ a.T + np.eye(12)
        n = pb.linalg
        lower = n.triangular_solve(n.cholesky(spd), b, lower=True)
        return pb.sum(pb.sin(n.solve(a, b))) + n.slogdet(a)[1] + pb.sum(lower**2)

    made = pb.exchange.to_c_library(fit, a, b, path=tmp_path / "fit", gradient=[0, 1])
    status, outs = run(made, "fit_gradient", a, b)
    assert status == 0
    for x, y in zip(outs, leaves_of(pb.value_and_grad(fit, (0, 1))(a, b)), strict=True):
        assert np.allclose(x, y, rtol=1e-11, atol=1e-12)
    assert run(made, "fit", np.ones((12, 12)), b)[0] == 2

    def factors(a, t):
        return pb.linalg.lu(a), pb.linalg.qr(t), pb.linalg.svdvals(t), pb.linalg.eigvalsh(a)

    made = pb.exchange.to_c_library(factors, a, t, path=tmp_path / "factors")
    status, outs = run(made, "factors", a, t)
    assert status == 0
    for x, y in zip(outs, leaves_of(factors(a, t)), strict=True):
        assert np.allclose(x, y, rtol=1e-12, atol=1e-14)


def test_loops_branches_constants_and_random_draws(tmp_path):
    weights = np.random.default_rng(2).normal(size=(600, 3))

    def f(x, n, key):
        def body(carry):
            i, y = carry
            return i + 1, pb.tanh(y @ weights.T @ weights * 0.01)

        i, y = pb.while_loop(lambda c: c[0] < n, body, (pb.zeros_like(n), x))
        noise = pb.random.uniform(size=(3,), key=key)
        return pb.cond(pb.sum(y) > 0, lambda: y + noise, lambda: y - noise), i

    x, key = np.array([0.3, -0.2, 0.9]), pb.random.key(3)
    made = pb.exchange.to_c_library(f, x, np.int64(1), key, path=tmp_path / "steps")
    for n in (0, 1, 7):
        status, outs = run(made, "steps", x, np.int64(n), key)
        assert status == 0
        for a, b in zip(outs, leaves_of(f(x, np.int64(n), key)), strict=True):
            assert np.allclose(a, b, rtol=1e-12)


def test_convolutions_and_dtypes_of_c(tmp_path):
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(2, 3, 9, 9)).astype(np.float32), rng.normal(size=(4, 3, 3, 3)).astype(np.float32)

    def net(w, x):
        return pb.sum(pb.nn.max_pool2d(pb.nn.relu(pb.nn.conv2d(x, w, padding=1)), 2))

    made = pb.exchange.to_c_library(net, w, x, path=tmp_path / "net", gradient=0)
    status, outs = run(made, "net_gradient", w, x)
    assert status == 0
    for a, b in zip(outs, leaves_of(pb.value_and_grad(net)(w, x)), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4)
    half = pb.astype(x, "bfloat16")
    made = pb.exchange.to_c_library(lambda x: x * 2, half, path=tmp_path / "half", shared=False)
    assert (made.library, made.functions[0].arguments[0].declaration) == (None, "const uint16_t *x")
    made = pb.exchange.to_c_library(lambda a, b: (a > 0, b + 1), np.ones(2), np.uint8(1), path=tmp_path / "kinds")
    assert [a.declaration for a in made.functions[0].arguments[2:]] == ["bool *out_0", "uint8_t *out_1"]
    assert [x.tolist() for x in run(made, "kinds", np.array([1.0, -1.0]), np.uint8(255))[1]] == [[True, False], 0]


def test_results_that_are_no_new_values_and_half_dtypes(tmp_path):
    table, x = np.arange(2.0), np.linspace(-3, 3, 37)

    def same(x, s):
        return x, x, x * s, 3.0, table, x[:0]

    def half(h):
        return pb.exp(h) * h, pb.sum(h), pb.astype(h, np.float64)

    for f, args in ((same, (x, 2.0)), (half, (pb.astype(x, "float16"),)), (half, (pb.astype(x, "bfloat16"),))):
        made = pb.exchange.to_c_library(f, *args, path=tmp_path / f"f{np.asarray(args[0]).dtype.name}", cpu="native")
        status, outs = run(made, made.functions[0].name, *args)
        assert status == 0
        for a, b in zip(outs, leaves_of(pb.jit(f)(*args)), strict=True):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


PROGRAM = r"""
#include <stdio.h>
#include "loss.h"
int main(void) {
    double a[6] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, b[2] = {1, -1}, x[12], y[8] = {0}, out, ga[6], gb[2];
    for (int i = 0; i < 12; i++) x[i] = i / 8.0;
    int status = loss_gradient(a, b, x, y, &out, ga, gb);
    printf("%d %.17g", status, out);
    for (int i = 0; i < 6; i++) printf(" %.17g", ga[i]);
    for (int i = 0; i < 2; i++) printf(" %.17g", gb[i]);
    return status != LOSS_OK;
}
"""


@pytest.mark.parametrize("how", ["object", "library", "C++"])
def test_a_program_in_c_without_python(tmp_path, how):
    w = {"a": np.arange(1, 7).reshape(3, 2) / 10, "b": np.array([1.0, -1.0])}
    x, y = np.arange(12).reshape(4, 3) / 8, np.zeros((4, 2))
    made = pb.exchange.to_c_library(loss, w, x, y, path=tmp_path / "loss", gradient=0)
    source = tmp_path / ("main.cpp" if how == "C++" else "main.c")
    source.write_text(PROGRAM)
    compiler = shutil.which("c++") if how == "C++" else CC
    if compiler is None:
        pytest.skip("no compiler of C++")
    code = [made.library, f"-Wl,-rpath,{tmp_path}"] if how == "library" else [made.object]
    strict = [] if how == "C++" else ["-std=c99", "-pedantic"]
    subprocess.run([compiler, *strict, "-Wall", "-Werror", source, *code, "-lm", "-o", tmp_path / "main"], check=True)
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True, env={}, check=True)
    status, *numbers = map(float, run.stdout.split())
    value, g = pb.value_and_grad(loss)(w, x, y)
    assert status == 0
    assert np.allclose(numbers, np.concatenate([[value], g["a"].ravel(), g["b"]]), rtol=1e-13)


def test_threads_share_nothing(tmp_path):
    args = arguments(40, 30, 20)
    made = pb.exchange.to_c_library(loss, *args, path=tmp_path / "loss", gradient=0)
    library = ctypes.CDLL(str(made.library))  # which releases the GIL while it runs
    inputs = [args[0]["a"], args[0]["b"], *args[1:]]
    wrong = []

    def work(number):
        scaled = [x * (1 + number) for x in inputs]
        outs = [np.empty(()), np.empty((30, 20)), np.empty(20)]
        assert call(library, "loss_gradient", scaled, outs) == 0
        first = [x.copy() for x in outs]
        for _ in range(200):
            bad = call(library, "loss_gradient", scaled, outs)
            if bad or not all(map(np.array_equal, outs, first)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def check_ops(tmp_path, every):
    """Samples of ops in one library; how many, and which were refused."""
    programs, cases, refused = {}, [], set()
    processor = find_processor("native")
    for i, (name, program, args, wanted) in enumerate(op_cases(every)):
        if wanted is None:
            continue
        try:
            compile_to_object({f"f{i}": program}, processor)
        except ExportError as error:
            refused.add(error.op)
            continue
        programs[f"f{i}"] = program
        cases.append((f"f{i}", name, args, wanted))
    compiled = tmp_path / "ops.o"
    compiled.write_bytes(compile_to_object(programs, processor))
    library = ctypes.CDLL(str(_link(CC, compiled, tmp_path / "libops.so")))
    unfinished = 0
    for function, name, args, wanted in cases:
        outs = [np.empty(w.shape, w.dtype) for w in wanted]
        given = [np.ascontiguousarray(a) for a in args]
        status = call(library, function, given, outs)
        unfinished += status == 2
        near = status == 2 or (status == 0 and all(map(is_near, outs, wanted)))
        assert near, (name, status, outs, wanted)
    assert "" not in refused
    return len(cases) - unfinished, refused


def test_ops_run_back_from_c(tmp_path):
    ran, refused = check_ops(tmp_path, 23)
    assert ran > 20
    assert refused


@pytest.mark.sweep
def test_every_op_runs_back_from_c(tmp_path):
    assert check_ops(tmp_path, 1)[0] > 500


def test_what_is_refused_is_named(tmp_path, monkeypatch):
    x = np.eye(40)
    with pytest.raises(ExportError, match="argsort") as caught:
        pb.exchange.to_c_library(lambda x: pb.sort(x)[1], x, path=tmp_path / "f")
    assert caught.value.op == "argsort"
    assert not list(tmp_path.iterdir())
    with pytest.raises(ExportError, match="dawsn"):
        pb.exchange.to_c_library(pb.special.dawsn, np.ones(3), path=tmp_path / "f")
    with pytest.raises(ExportError, match="draws random numbers"):
        pb.exchange.to_c_library(lambda x: x + pb.random.normal(), np.ones(3), path=tmp_path / "f")
    with pytest.raises(ArgumentError, match="no name in C"):
        pb.exchange.to_c_library(pb.sin, np.ones(3), path=tmp_path / "two-words")
    for name in ("sin", "malloc", "run0"):
        with pytest.raises(ArgumentError, match="taken by a function"):
            pb.exchange.to_c_library(pb.tanh, np.ones(3), path=tmp_path / name)
    with pytest.raises(ExportError, match="complex128"):
        pb.exchange.to_c_library(lambda z: z, np.ones(3, complex), path=tmp_path / "f")
    with pytest.raises(ArgumentError, match="gradient is True"):
        pb.exchange.to_c_library(pb.sum, np.ones(3), path=tmp_path / "f", gradient=0.5)
    with pytest.raises(ArgumentError, match="gradient is True"):
        pb.exchange.to_c_library(lambda x, k: pb.sum(x) * k, np.ones(3), 2, path=tmp_path / "f", gradient=[1])
    with pytest.raises(ArgumentError, match="cpu is"):
        pb.exchange.to_c_library(pb.sin, np.ones(3), path=tmp_path / "f", cpu="z80")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ArgumentError, match="shared=False"):
        pb.exchange.to_c_library(pb.sin, np.ones(3), path=tmp_path / "f")
    made = pb.exchange.to_c_library(pb.sin, np.ones(3), path=tmp_path / "f", shared=False)
    assert made.object.exists()


def test_parameters_of_a_module_are_constants(tmp_path):
    net = pb.nn.Sequential(pb.nn.Linear(3, 4), pb.nn.Tanh(), pb.nn.Linear(4, 1))
    w = pb.tensor(np.array([1.0, 2.0, 0.5], np.float32), requires_grad=True)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def f(x):
        rows = pb.scan(lambda c, r: (pb.tanh(c + r * w), c * w), x[0] * w, x)[1]
        return pb.sum(net(rows)) + pb.sum(rows)

    made = pb.exchange.to_c_library(f, x, path=tmp_path / "net", gradient=True)
    status, outs = run(made, "net_gradient", x)
    assert status == 0
    assert all(map(is_near, outs, leaves_of(pb.value_and_grad(f)(x))))


def classify(x, table):
    best = pb.scan(lambda c, r: (c + pb.prod(r), pb.argmax(r > 1, keepdims=True)), 0.0, x)[1]
    return (
        pb.argmax(x, axis=1),
        pb.argmin(x),
        pb.prod(x, axis=0),
        pb.searchsorted(table, x[0]),
        pb.special.xlogy(x, x),
        pb.grad(lambda x: pb.sum(pb.special.lgamma(x)))(x),
        pb.special.ndtri(x / 10),
        pb.convolve(x[0], x[2]),
        best,
    )


def test_what_numpy_executes_here_is_made_of_other_ops_there(tmp_path):
    x = np.array([[0.5, 2.0, 2.0], [3.0, np.nan, 9.0], [0.1, 0.2, 0.3]])
    made = pb.exchange.to_c_library(classify, x, np.array([0.0, 1.0, 2.0]), path=tmp_path / "classify")
    status, outs = run(made, "classify", x, np.array([0.0, 1.0, 2.0]))
    assert status == 0
    assert all(map(is_near, outs, leaves_of(classify(x, np.array([0.0, 1.0, 2.0])))))


def running(x):
    return pb.sum(pb.cumsum(x, axis=0) * pb.cumprod(x, axis=1)) + pb.prod(x)


def test_running_sums_and_products_are_loops(tmp_path):
    x = np.array([[0.5, 2.0, 0.0], [3.0, -1.0, 9.0]])
    made = pb.exchange.to_c_library(running, x, path=tmp_path / "running", gradient=True)
    status, outs = run(made, "running_gradient", x)
    assert status == 0
    assert all(map(is_near, outs, leaves_of(pb.value_and_grad(running)(x))))
    made = pb.exchange.to_c_library(lambda b: pb.cumsum(b, axis=1), x > 1, path=tmp_path / "counts")
    assert run(made, "counts", x > 1)[1][0].tolist() == [[0, 1, 1], [1, 1, 2]]


def test_names_of_arguments_that_mean_something_in_c(tmp_path):
    def f(typename, decltype, linux, int8_t, INT8_MAX, NULL, NAN):
        return typename + decltype + linux + int8_t + INT8_MAX + NULL + NAN

    made = pb.exchange.to_c_library(f, *[1.0] * 7, path=tmp_path / "f", shared=False)
    assert [a.name for a in made.functions[0].arguments[:2]] == ["typename_", "decltype_"]
    for compiler, ending in ((CC, "c"), (shutil.which("c++"), "cpp")):
        if compiler is not None:
            (source := tmp_path / f"g.{ending}").write_text(
                '#include <math.h>\n#include <stdio.h>\n#include "f.h"\n#include "f.h"\n'
            )
            strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
            subprocess.run([compiler, *strict, source], check=True)
    for name in ("main", "linux", "typename"):
        with pytest.raises(ArgumentError, match=r"taken by|no name in C"):
            pb.exchange.to_c_library(pb.sin, 1.0, path=tmp_path / name, shared=False)


def test_names_in_c(tmp_path):
    def f(double, x, *more):
        return {"a b": double + x[0], "a_b": x[1]["y"] * more[0]}

    args = 1.0, [np.ones(2), {"y": np.ones(2)}], 3.0
    made = pb.exchange.to_c_library(f, *args, path=tmp_path / "f", shared=False)
    names = [a.name for a in made.functions[0].arguments]
    assert names == ["double_", "x_0", "x_1_y", "x2", "out_a_b", "out_a_b_"]
    program = pb.stage(lambda x: pb.sum(x * x))(np.ones(3))
    made = pb.exchange.to_c_library(program, path=tmp_path / "p", gradient=True)
    assert np.array_equal(run(made, "p_gradient", np.array([1.0, 2.0, 3.0]))[1][1], [2.0, 4.0, 6.0])
