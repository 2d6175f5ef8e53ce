"""Equations on a GPU, without one: searches and solves are part of the graph, and the device notes what failed."""

import numpy as np
import pytest

import pullback as pb
from pullback.implicit.linear import direct, krylov
from pullback.implicit.solvers import method_tools
from pullback.ops.dispatch import apply

cuda_emulator = pytest.importorskip("cuda_emulator")
pytest.importorskip("fake_cupy")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

import fake_cuda_driver  # noqa: E402

RNG = np.random.default_rng(0)
M, B = RNG.standard_normal((5, 5)) / 8 + 2 * np.eye(5), RNG.standard_normal(5)


SWEEP = pytest.mark.sweep


@pytest.fixture(scope="module")
def gpu():
    with fake_cuda_driver.installed() as found:
        yield found


def on_gpu(cupy, f, *args):
    """The results of three compiled calls, all the same, and the last line of `explain` that tells of launches."""
    compiled, given = pb.jit(f), [cupy.asarray(a) for a in args]
    found = [[x.get() for x in pb.tree.leaves([compiled(*given)])] for _ in range(3)]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    text = compiled.lower(*given).explain()
    return found[0], next(line for line in text.splitlines() if line.startswith("launched"))


def newton(m, b):
    return pb.root(lambda x, m, b: m @ x + pb.sin(x) - b, b, m, b)


def settle(m, b):
    return pb.fixed_point(lambda x, m, b: 0.2 * pb.tanh(m @ x) + b, b, m, b)


EQUATIONS = {
    "root": (newton, M, B),
    "fixed point": (settle, M, B),
    "gradients": (pb.grad(lambda m, b: pb.sum(newton(m, b) ** 2), (0, 1)), M, B),
    "gradients of a fixed point": (pb.grad(lambda m, b: pb.sum(settle(m, b) ** 2), (0, 1)), M, B),
    "batch": (lambda m, b: pb.vmap(newton, (None, 0))(m, b), M, np.stack([B, 2 * B, -B])),
    "second order": (pb.grad(lambda b, m: pb.sum(pb.grad(lambda c: pb.sum(newton(m, c) ** 3))(b) ** 2)), B, M),
    "minimum": (lambda m, b: pb.argmin(lambda x: pb.sum((m @ x - b) ** 2) + pb.sum(pb.cosh(x)), b), M, B),
}


@pytest.mark.parametrize(
    "name", [n if n in ("gradients of a fixed point", "batch") else pytest.param(n, marks=SWEEP) for n in EQUATIONS]
)
def test_an_equation_is_one_graph(gpu, name):
    f, *args = EQUATIONS[name]
    found, launches = on_gpu(gpu[0], f, *args)
    for a, b in zip(found, pb.tree.leaves([f(*args)]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert launches.startswith("launched as 1 graph of")
    assert "between" not in launches


def singular(n, rank):
    return RNG.standard_normal((n, rank)) @ RNG.standard_normal((rank, n))


FITS = {
    "regular": (RNG.standard_normal((7, 7)), RNG.standard_normal((7, 3))),
    "larger than a warp": (RNG.standard_normal((40, 40)), RNG.standard_normal((40, 1))),
    "a zero row": (np.diag([1e200, 2.0, 0.0, 1e190]), RNG.standard_normal((4, 2))),
    "zeros": (np.zeros((3, 3)), np.ones((3, 1))),
    "one number": (np.array([[4.0]]), np.array([[2.0]])),
    "a stack": (RNG.standard_normal((2, 3, 3)), RNG.standard_normal((2, 3, 2))),
    "a stack of which one is singular": (np.stack([np.eye(3), np.diag([1.0, 0.0, 2.0])]), np.ones((2, 3, 1))),
    "equal rows": (np.ones((4, 4)), np.arange(4.0)[:, None]),
}


@pytest.mark.parametrize("name", FITS)
def test_dense_fits(gpu, name):
    matrix, right = FITS[name]
    f = lambda a, b: apply(method_tools._dense_fit_op, a, b)  # noqa: E731
    (found,), launches = on_gpu(gpu[0], f, matrix, right)
    np.testing.assert_allclose(found, f(matrix, right), rtol=1e-8, atol=1e-11)
    assert "between" not in launches


def test_a_fit_of_what_is_not_finite(gpu):
    matrix = np.eye(3)
    matrix[1, 1] = np.inf
    (found,), _ = on_gpu(gpu[0], lambda a, b: method_tools.fit_dense(a, b), matrix * np.nan, np.ones(3))
    assert np.isnan(found).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_guarded_solves(gpu, dtype):
    cases = np.stack([M, M * 1e30, np.diag([1e-30, 1.0, 1e20, 3.0, 5.0]), singular(5, 4), np.zeros((5, 5))])
    right = np.stack([B] * len(cases))
    f = lambda a, b: apply(direct._dense_solve_op, a, b, kind="lu")  # noqa: E731
    (found,), launches = on_gpu(gpu[0], f, cases.astype(dtype), right.astype(dtype))
    assert np.isnan(found[3:]).all()
    wanted = np.linalg.solve(cases[:3].astype(dtype).astype(float), right[:3, :, None])[..., 0]
    np.testing.assert_allclose(found[:3], wanted, rtol=1e-5 if dtype == "float32" else 1e-12)
    assert "between" not in launches


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_two(gpu, dtype):
    tiny = np.finfo(dtype).tiny
    sizes = np.array([[1.0, 0], [0.75, -3], [0, 0], [np.inf, 1], [np.nan, 1], [tiny, 0], [1e30, 5], [-7, 8]], dtype)
    f = lambda b: apply(krylov._power_near_op, b)  # noqa: E731
    (found,), _ = on_gpu(gpu[0], f, sizes)
    np.testing.assert_array_equal(found, f(sizes))
    np.testing.assert_array_equal(pb.jit(f)(sizes), f(sizes))


def test_a_search_that_fails_is_noted_by_the_device(gpu):
    cupy, _ = gpu
    diverge = pb.jit(lambda b: pb.fixed_point(lambda x, b: 2 * x + b, b, b, solver=pb.implicit.Picard(), max_steps=9))
    found = diverge(cupy.asarray(B))
    with pytest.raises(pb.errors.ConvergenceError, match=r"fixed_point: no convergence \(tolerance 2.2e-10\)"):
        pb.cuda.synchronize()
    assert np.isnan(found.get()).all()
    diverge(cupy.asarray(B))
    with pytest.raises(pb.errors.ConvergenceError):  # the next call, too
        diverge(cupy.asarray(B))
    pull = pb.jit(pb.grad(lambda b: pb.sum(pb.linear_solve(b[:, None] * b, b))))
    pull(cupy.asarray(B))
    with pytest.raises(pb.errors.ConvergenceError, match="the linear solve did not converge"):
        pb.cuda.synchronize()


def test_a_report_is_filled_in_at_once(gpu):
    cupy, _ = gpu
    reports = []

    def f(b):
        found = pb.implicit.solve.fixed_point(lambda x, b: 0.5 * x + b, b, b, solver=pb.implicit.Picard(), max_steps=4)
        reports.append(found.report)
        return found.value

    compiled = pb.jit(f)
    compiled(cupy.asarray(B))
    assert (reports[-1].steps, reports[-1].converged) == (4, False)
    assert "check_root" in compiled.lower(cupy.asarray(B)).explain()
