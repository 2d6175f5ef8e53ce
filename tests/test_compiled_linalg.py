"""Linear algebra in compiled programs: native routines agree with eager calls, fail as they do, and call no Python."""

import functools
import threading

import numpy as np
import pytest
from stub_target import STUB

import pullback as pb
from pullback import linalg
from pullback.compile import targets
from pullback.compile.cpu.linalg import lapack as lapack_text
from pullback.compile.cpu.linalg import matrix_text
from pullback.compile.cpu.linalg.routines import scratch_bytes
from pullback.compile.cpu.runtime import callbacks, lapack, link
from pullback.compile.reference.recording import find_hosts
from pullback.errors import GaugeError, SingularError
from pullback.ops.linalg.gauge import raise_where


@pytest.fixture
def calls(monkeypatch):
    """The ops that native code had NumPy execute."""
    found = []
    run = callbacks.HostCallbacks._run_host

    def counted(self, number, table):
        found.append(self._hosts[number][0].name)
        run(self, number, table)

    monkeypatch.setattr(callbacks.HostCallbacks, "_run_host", counted)
    return found


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def regular(*shape, seed=0):
    return normal(*shape, seed=seed) + (3 + shape[-1] ** 0.5) * np.eye(*shape[-2:])


def definite(x):
    return x @ np.swapaxes(x, -1, -2) + np.eye(x.shape[-1])


def leaves(x):
    return [y for part in x for y in leaves(part)] if isinstance(x, tuple) else [np.asarray(x)]


def close(found, wanted, tolerance=1e-9):
    for mine, theirs in zip(leaves(found), leaves(wanted), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(
            mine, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max(initial=0))
        )


def steps_of(f, *args):
    return find_hosts(pb.jit(f).lower(*args).code.compilation.planned.steps)


def check_native(f, *args, tolerance=1e-9):
    compiled = pb.jit(f)
    close(compiled(*args), f(*args), tolerance)
    hosts = find_hosts(compiled.last.code.compilation.planned.steps)
    assert [h.name for h in hosts if h.routine is None] == []


def every_routine(a, b):
    p, lower, upper = linalg.lu(a, p_indices=True)
    turned = pb.matrix_transpose(a)
    return (
        linalg.cholesky(definite(a)), linalg.inv(a), linalg.det(a), *linalg.slogdet(turned), p, lower, upper,
        linalg.solve(a, b), linalg.solve(turned, b), linalg.triangular_solve(a, b, lower=True),
        linalg.triangular_solve(a, b, trans=1, unit_diagonal=True), linalg.triangular_solve(turned, b),
        *linalg.qr(a), *linalg.eigh(a), *linalg.svd(a),
    )  # fmt: skip


SHAPES = [
    ((1, 1), (1, 1)), ((3, 3), (3, 2)), ((6, 6), (6, 16)), ((7, 7), (7, 1)), ((33, 33), (33, 40)),
    ((19, 2, 2), (19, 2, 3)), ((2, 3, 4, 4), (4, 1)), ((8, 8), (5, 8, 3)), ((2, 9, 9), (2, 9, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "right"), SHAPES)
def test_values_are_those_of_eager_calls(calls, shape, right):
    check_native(every_routine, regular(*shape), normal(*right))
    assert calls == []


@pytest.mark.parametrize("shape", [(4, 4), (9, 9), (17, 3, 3)])
def test_single_precision_is_computed_in_double_as_numpy_does(calls, shape):
    a, b = regular(*shape).astype(np.float32), normal(*shape[:-1], 2).astype(np.float32)
    check_native(every_routine, a, b, tolerance=2e-5)
    assert calls == []


def test_integers_and_mixed_dtypes(calls):
    a = np.array([[4, 1, 0], [1, 5, 2], [0, 2, 6]])
    check_native(lambda a, b: (linalg.inv(a), linalg.solve(a, b), linalg.det(a)), a, normal(3, 2).astype(np.float32))
    assert calls == []


@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (40, 7)])
def test_rectangles(calls, m, n):
    def factors(a):
        p, lower, upper = linalg.lu(a, p_indices=True)
        *_, values, _ = linalg.svd(a)
        return (
            p,
            lower,
            upper,
            *linalg.qr(a),
            *linalg.qr(a, mode="complete"),
            *linalg.svd(a, full_matrices=False),
            values,
        )

    check_native(factors, normal(m, n))
    assert calls == []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 12, 13, 31, 50, 101])
def test_vectors_by_native_reflections_are_numpys(calls, n):
    """Signs too; odd and even counts of reflections, and rows of whole vectors and of parts."""
    a = normal(n, n)
    compiled = pb.jit(lambda a: (*linalg.eigh(a), *linalg.svd(a)))(a)
    close(compiled, (*np.linalg.eigh((a + a.T) / 2), *np.linalg.svd(a)), 1e-8)
    assert calls == []


@pytest.mark.parametrize(("m", "n"), [(8, 7), (7, 8), (9, 5), (5, 9), (40, 33), (3, 2), (2, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_nearly_square_matrices_have_the_vectors_of_numpy(calls, m, n, full):
    a = normal(3, m, n)
    close(pb.jit(lambda a: tuple(linalg.svd(a, full_matrices=full)))(a), tuple(np.linalg.svd(a, full)), 1e-9)
    assert calls == []


def test_large_matrices_are_left_to_lapack(calls, monkeypatch):
    monkeypatch.setattr(lapack_text, "MAX_REFLECTED_ROWS", 7)
    check_native(lambda a: (*linalg.eigh(a), *linalg.svd(a), *linalg.svd(a[:7])), regular(8, 8))
    assert calls == []


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-120, 1e-70, 1e70, 1e120, 1e300])
def test_factors_of_badly_scaled_matrices_are_those_of_eager_calls(scale):
    a = scale * normal(6, 6)
    for f in (lambda a: tuple(linalg.eigh(a)), lambda a: tuple(linalg.svd(a))):
        for mine, theirs in zip(pb.jit(f)(a), f(a), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12 * np.abs(theirs).max())


def test_values_without_vectors(calls):
    a = normal(3, 9, 9)
    check_native(lambda a: (linalg.eigvalsh(a), linalg.svdvals(a[..., :4])), a)
    assert calls == []


def test_views_broadcasts_and_constants(calls):
    fixed = regular(4, 4, seed=3)

    def f(a, b):
        part, repeated = a[::2, 1:, 1:], pb.broadcast_to(a[0], (3, *a.shape[1:]))
        return linalg.solve(part, b), linalg.inv(repeated), linalg.solve(fixed, a[0, :4, :4]), linalg.det(pb.flip(a))

    check_native(f, regular(4, 5, 5), normal(4, 2))
    assert calls == []


def test_empty_matrices_are_left_to_numpy():
    for a, b in ((np.zeros((0, 0)), np.zeros((0, 2))), (np.zeros((0, 3, 3)), np.zeros((3, 1)))):
        close(pb.jit(linalg.solve)(a, b), linalg.solve(a, b))
        close(pb.jit(linalg.det)(a), linalg.det(a))


LOSSES = {
    "cholesky": lambda a: pb.sum(pb.sin(linalg.cholesky(definite(a)))),
    "inv": lambda a: pb.sum(pb.sin(linalg.inv(a))),
    "det": lambda a: pb.sum(pb.log(linalg.det(definite(a)))),
    "slogdet": lambda a: pb.sum(linalg.slogdet(a)[1] ** 2),
    "solve": lambda a: pb.sum(pb.sin(linalg.solve(a, a[..., :1] + 1))),
    "triangular": lambda a: pb.sum(pb.sin(linalg.triangular_solve(a, a[..., :2]))),
    "lu": lambda a: sum(pb.sum(pb.sin(x)) for x in linalg.lu(a, permute_l=True)),
    "qr": lambda a: sum(pb.sum(pb.sin(x)) for x in linalg.qr(a)),
    "eigh": lambda a: pb.sum(pb.sin(linalg.eigh(a)[0])) + pb.sum(linalg.eigh(a)[1] ** 4),
    "svd": lambda a: pb.sum(pb.sin(linalg.svd(a)[1])) + pb.sum(linalg.svd(a)[0] ** 4),
}


@pytest.mark.parametrize("shape", [(3, 3), (8, 8)])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients(calls, name, shape):
    a = regular(*shape) + np.diag(np.arange(shape[-1]))
    check_native(pb.grad(LOSSES[name]), a, tolerance=1e-7)
    assert calls == []


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives(calls, name):
    a, v = regular(3, 3) + np.diag(np.arange(3.0)), normal(3, 3, seed=5)
    check_native(lambda a, v: pb.grad(lambda a: pb.sum(pb.grad(LOSSES[name])(a) * v))(a), a, v, tolerance=1e-6)
    assert calls == []


def test_a_filter_in_a_loop_calls_no_python(calls):
    def likelihood(transition, observed):
        def step(carry, y):
            mean, spread, total = carry
            spread = transition @ spread @ transition.T + 0.1 * np.eye(4)
            gain = linalg.solve(spread + np.eye(4), spread).T
            miss = y - transition @ mean
            total = total + linalg.slogdet(spread)[1] + miss @ linalg.inv(spread + np.eye(4)) @ miss
            return (transition @ mean + gain @ miss, spread - gain @ spread, total), linalg.det(spread)

        (_, _, total), sizes = pb.scan(step, (pb.zeros(4), pb.eye(4), pb.asarray(0.0)), observed)
        return total + pb.sum(pb.log(sizes))

    args = 0.9 * np.eye(4) + 0.05 * normal(4, 4), normal(20, 4)
    check_native(pb.grad(likelihood), *args, tolerance=1e-8)
    assert calls == []


def test_loops_branches_and_batches(calls):
    def power(a):
        return pb.while_loop(lambda x: pb.sum(x**2) < 50, lambda x: linalg.inv(x) + x + 0.1, a)

    def branch(a):
        return pb.cond(pb.sum(a) > 0, linalg.inv, lambda x: linalg.cholesky(definite(x)), a)

    check_native(lambda a: (power(a), branch(a), branch(-a)), regular(3, 3))
    check_native(pb.vmap(lambda a, b: linalg.solve(a, b) + linalg.eigh(a)[0]), regular(11, 4, 4), normal(11, 4))
    check_native(pb.vmap(pb.grad(LOSSES["solve"])), regular(3, 8, 8))
    assert calls == []


@pytest.mark.parametrize("n", [3, 8])
def test_searches_for_roots_solve_their_systems_natively(calls, n):
    w = 0.3 * normal(n, n) / n**0.5

    def loss(a):
        return pb.sum(pb.root(lambda x, a: x - pb.tanh(w @ x + a), pb.zeros(n), a) ** 2)

    compiled = pb.jit(pb.grad(loss))
    close(compiled(np.ones(n)), pb.grad(loss)(np.ones(n)), 1e-8)
    assert calls == []
    close(pb.jit(pb.grad(loss), check=True)(np.ones(n)), pb.grad(loss)(np.ones(n)), 1e-8)
    hosts = find_hosts(compiled.last.code.compilation.planned.steps)
    assert {"guarded_solve"} < {h.routine.name for h in hosts if h.routine is not None}


def test_a_guarded_solve_of_many_unknowns_probes_the_inverse(calls):
    """A matrix that is nearly singular is left to NumPy, which finds it so; of others no inverse is computed."""
    n = 40
    a, b, compiled = regular(n, n), normal(n), pb.jit(lambda a, b: pb.linear_solve(a, b))
    close(compiled(a, b), np.linalg.solve(a, b), 1e-9)
    assert "dense_solve" not in calls
    hosts = find_hosts(compiled.last.code.compilation.planned.steps)
    (step,) = (h for h in hosts if h.routine is not None and h.routine.name == "guarded_solve")
    assert scratch_bytes(step, 32) < 8 * 1.5 * n * n
    left, _, right = np.linalg.svd(a)
    nearly = left @ np.diag([*np.linspace(1, 2, n - 1), 1e-16]) @ right
    with pytest.raises(pb.errors.ConvergenceError):
        compiled(nearly, b)


@pytest.mark.parametrize("n", [2, 9])
def test_a_root_with_a_singular_derivative_ends_as_in_eager_calls(n):
    loss = lambda a: pb.sum(pb.root(lambda x, a: (x - a) ** 3, pb.zeros(n), a, tol=1e-12))  # noqa: E731

    def outcome_of(f):
        try:
            return float(np.sum(f(np.ones(n))))
        except pb.errors.PullbackError as error:
            return type(error)

    assert outcome_of(pb.jit(pb.grad(loss))) == outcome_of(pb.grad(loss))


def test_systems_with_one_matrix_or_its_transpose_share_its_factors():
    f = pb.grad(lambda a, b: linalg.slogdet(a)[1] + pb.sum(linalg.solve(a, b) ** 2))
    names = [h.routine.name for h in steps_of(f, regular(8, 8), normal(8))]
    assert names.count("factor") == 1
    assert names.count("solve_by_factors") == 2
    # matrices that are unrolled need no factors
    assert "factor" not in [h.routine.name for h in steps_of(f, regular(4, 4), normal(4))]


def test_numbers_of_matrices_share_machine_code(monkeypatch):
    made, compile_object = [], link.compile_object
    monkeypatch.setattr(link, "compile_object", lambda *args: made.append(args) or compile_object(*args))
    monkeypatch.setattr(link.cache, "fetch", lambda key: None)
    f = pb.jit(pb.vmap(lambda a, b: linalg.solve(a, b) * linalg.det(a)))
    for count in range(9, 40, 3):
        a, b = regular(count, 3, 3), normal(count, 3)
        close(f(a, b), np.linalg.solve(a, b[..., None])[..., 0] * np.linalg.det(a)[:, None])
    assert len(made) <= 5


def outcome(f, *args):
    try:
        return f(*args)
    except np.linalg.LinAlgError as error:
        return type(error), str(error)


def with_number(x, number):
    x = np.array(x)
    x[..., 1, 1] = number
    return x


@pytest.mark.parametrize("n", [3, 9])
def test_failures_are_those_of_eager_calls(n):
    singular, indefinite = np.ones((n, n)), -np.eye(n)
    for f, *args in [
        (linalg.solve, singular, normal(n, 1)), (linalg.inv, singular), (linalg.cholesky, indefinite),
        (linalg.inv, np.stack([np.eye(n), singular])),
        (lambda a, b: linalg.triangular_solve(a, b), np.zeros((n, n)), normal(n, 1)),
    ]:  # fmt: skip
        compiled = pb.jit(f)
        with pytest.raises(SingularError):
            f(*args)
        assert outcome(compiled, *args) == outcome(f, *args)
        close(compiled(definite(args[0]), *args[1:]), f(definite(args[0]), *args[1:]), 1e-8)  # it still works


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("n", [3, 9])
def test_numbers_that_are_not_finite_end_as_in_eager_calls(n, number):
    a, b = with_number(regular(n, n), number), normal(n, 2)
    calls = (linalg.inv, linalg.det, linalg.cholesky, linalg.eigh, linalg.svd, linalg.qr, linalg.slogdet)
    for f in (*(lambda a, g=g: g(a) for g in calls), lambda a: linalg.solve(a, b)):
        with np.errstate(all="ignore"):
            found, wanted = outcome(pb.jit(f), a), outcome(f, a)
        if isinstance(wanted, tuple) and isinstance(wanted[0], type):
            assert found == wanted
        else:
            for mine, theirs in zip(leaves(found), leaves(wanted), strict=True):
                np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(theirs))


@pytest.mark.parametrize("n", [4, 8])
def test_determinants_of_singular_and_of_badly_scaled_matrices(n):
    singular = regular(n, n)
    singular[0] = singular[1]
    for a in (np.ones((n, n)), np.zeros((n, n)), 1e200 * np.eye(n), 1e-200 * np.eye(n)):
        with np.errstate(all="ignore"):
            close(pb.jit(lambda a: (linalg.det(a), *linalg.slogdet(a)))(a), (linalg.det(a), *linalg.slogdet(a)))
    # a scale whose products over- and underflow on the way
    a = np.diag([1e-200, 1e-200, 1e300, 1e100, *[1.0] * (n - 4)])
    np.testing.assert_allclose(pb.jit(linalg.det)(a), 1.0, rtol=1e-12)
    close(pb.jit(pb.grad(linalg.det))(singular), pb.grad(linalg.det)(singular), 1e-7)


def test_an_error_ends_a_loop_whose_condition_would_hold_for_ever():
    def forever(a):
        return pb.while_loop(lambda x: pb.sum(x) > -1.0, lambda x: linalg.inv(x) * 0, a)

    for _ in range(2):
        with pytest.raises(SingularError, match=r"inv: Singular matrix \(shape \(3, 3\)\)"):
            pb.jit(forever)(np.eye(3))


def test_bases_that_matter_are_refused():
    f = pb.jit(pb.grad(lambda a: pb.sum(linalg.eigh(a)[1] * np.arange(9.0).reshape(3, 3))))
    close(f(np.diag([1.0, 2.0, 4.0])), pb.grad(lambda a: pb.sum(linalg.eigh(a)[1] * np.arange(9.0).reshape(3, 3)))(
        np.diag([1.0, 2.0, 4.0])))  # fmt: skip
    with pytest.raises(GaugeError, match="basis of equal eigenvalues"):
        f(np.eye(3))


@pytest.mark.parametrize("shape", [(1,), (9,), (4, 4), (3, 5)])
def test_every_flag_is_looked_at(shape):
    whole = pb.jit(lambda x, bad: raise_where(2 * x, bad, "refused") + 1)
    flipped = pb.jit(lambda x, bad: raise_where(2 * x, bad[::-1], "refused") + 1)
    x, none = np.ones(shape), np.zeros(shape, bool)
    for f in (whole, flipped):
        close(f(x, none), 2 * x + 1)
        for index in np.ndindex(shape):
            bad = none.copy()
            bad[index] = True
            with pytest.raises(GaugeError, match="refused"):
                f(x, bad)
            close(f(0 * x, bad), x)  # zero is no cotangent


def test_threads_have_workspaces_of_their_own():
    f = pb.jit(lambda a: (linalg.eigh(a)[0], linalg.svd(a)[1], linalg.solve(a, a[:, :3])))
    matrices = [regular(24, 24, seed=i) for i in range(6)]
    wanted = [f(a) for a in matrices]
    wrong = []

    def run(a, expected):
        for _ in range(10):
            wrong.extend(x for x, y in zip(f(a), expected, strict=True) if not np.array_equal(x, y))

    threads = [threading.Thread(target=run, args=pair) for pair in zip(matrices, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("n", [3, 8])
def test_the_reference_agrees(n):
    loss = lambda a: sum(LOSSES[name](a) for name in ("cholesky", "solve", "slogdet", "eigh", "svd", "qr"))  # noqa: E731
    a = regular(n, n) + np.diag(np.arange(n))
    close(pb.jit(pb.grad(loss), check=True)(a), pb.grad(loss)(a), 1e-7)


def test_memory_budgets_repeat_routines():
    def loss(a):
        x = a
        for _ in range(4):
            x = linalg.inv(pb.sin(x) + 9 * np.eye(40)) + x
        return pb.sum(x**2)

    a = regular(40, 40)
    memory = pb.jit(pb.grad(loss)).lower(a).memory()
    limit = memory.peak - 40 * 40 * 8
    tight = pb.jit(pb.grad(loss), memory_budget=limit)
    close(tight(a), pb.grad(loss)(a))
    assert tight.last.memory().peak <= limit


def test_a_target_without_routines_leaves_them_to_numpy(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: STUB)
    a, b = regular(3, 3), normal(3, 1)
    assert all(h.routine is None for h in steps_of(linalg.solve, a, b))
    close(pb.jit(pb.grad(LOSSES["eigh"]))(a), pb.grad(LOSSES["eigh"])(a))


def test_explain_names_routines():
    text = pb.jit(lambda a: linalg.inv(a) @ linalg.eigh(a)[1]).lower(regular(8, 8)).explain()
    assert "routine" in text
    assert "NumPy" not in text


def test_integers_of_32_bits(monkeypatch, calls):
    """Where NumPy's library has other names, SciPy's functions are called, whose integers are shorter."""
    names = [f"{kind}{name}" for name in lapack.FUNCTIONS for kind in "sd"]
    found = lapack.Functions(lapack._scipy_addresses(names), np.dtype(np.int32))
    clear = (lapack.query_workspace.cache_clear, link._register_lapack.cache_clear)
    for module in (lapack, matrix_text, link):
        monkeypatch.setattr(module, "find_lapack", lambda: found)
    try:
        for forget in clear:
            forget()
        f = functools.partial(every_routine)
        check_native(lambda a, b: f(a, b), regular(7, 7), normal(7, 2))
    finally:
        monkeypatch.undo()
        for forget in clear:
            forget()
        link._register_lapack()
