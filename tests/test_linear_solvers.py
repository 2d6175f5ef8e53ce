"""The methods for linear systems: against NumPy, on hard systems, in batches, and through derivatives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.errors import ArgumentError, ConvergenceError
from pullback.implicit import CG, GMRES, LSMR, MINRES, Auto, BiCGStab, Dense, Neumann, Sparse
from pullback.implicit.linear.operator import LinearOperator, LinearSystem, solve_operator

EVERY = (
    GMRES(), GMRES(restart=4), BiCGStab(), CG(), MINRES(), LSMR(), Dense(), Dense("cholesky"), Sparse(), Auto(),
    Auto(dense_up_to=0), Neumann(),
)  # fmt: skip
FOR_ANY = (GMRES(), BiCGStab(), LSMR(), Dense(), Sparse(), Auto(), Auto(dense_up_to=0))
FOR_SYMMETRIC = (*FOR_ANY, MINRES())
IN_BATCHES = tuple(m for m in EVERY if not isinstance(m, Sparse))


def matvec(v, matrix):
    return pb.matmul(matrix, v)


def operator(method, tolerance=1e-10, max_steps=2000, **known):
    return LinearOperator(matvec, method, tolerance, max_steps, "test", known)


def solve(matrix, b, method, tolerance=1e-10, max_steps=2000, **known):
    """The solution and its report."""
    asked = operator(method, tolerance, max_steps, **known)
    return asked.solve(b, matrix), asked.reports[-1]


def orthogonal(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def definite(rng, n):
    """Eigenvalues in (0, 2), so that Neumann's series converges too."""
    q = orthogonal(rng, n)
    return q @ np.diag(rng.uniform(0.5, 1.5, n)) @ q.T


def indefinite(rng, n):
    q = orthogonal(rng, n)
    return q @ np.diag(rng.uniform(1, 3, n) * np.where(np.arange(n) % 2, 1, -1)) @ q.T


def nonsymmetric(rng, n):
    return 2 * np.eye(n) + 0.6 * rng.normal(size=(n, n)) / math.sqrt(n)


def check(matrix, method, rng, rtol=1e-7, **known):
    b = rng.normal(size=len(matrix))
    x, report = solve(matrix, b, method, **known)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=0, atol=rtol * np.abs(x).max())
    assert report.converged
    assert report.residual <= 1e-10
    np.testing.assert_allclose(np.linalg.norm(b - matrix @ x) / np.linalg.norm(b), report.residual, atol=1e-15)


@pytest.mark.parametrize("method", EVERY, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 60])
def test_definite_systems(method, n):
    rng = np.random.default_rng(n)
    for _ in range(3):
        check(definite(rng, n), method, rng, symmetric=True, definite=True)


@pytest.mark.parametrize("method", FOR_SYMMETRIC, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 60])
def test_symmetric_indefinite_systems(method, n):
    rng = np.random.default_rng(n)
    for _ in range(3):
        check(indefinite(rng, n), method, rng, symmetric=True)


@pytest.mark.parametrize("method", FOR_ANY, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 60])
def test_nonsymmetric_systems(method, n):
    rng = np.random.default_rng(n)
    for _ in range(3):
        check(nonsymmetric(rng, n), method, rng)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_unit_and_diagonal_matrices(method):
    rng = np.random.default_rng(0)
    for n in (1, 5, 40):
        check(np.eye(n), method, rng)
        check(np.diag(np.linspace(0.4, 1.6, n)), method, rng)


@pytest.mark.parametrize("method", FOR_ANY, ids=repr)
def test_rotations(method):
    """r and A r are orthogonal, so methods that project on r alone stand still."""
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    b = np.array([1.0, 2.0])
    if isinstance(method, BiCGStab):
        with pytest.raises(ConvergenceError):
            solve(turn, b, method)
    else:
        np.testing.assert_allclose(solve(turn, b, method)[0], [2.0, -1.0], atol=1e-12)


def test_cyclic_shift_needs_the_whole_space():
    """GMRES gains nothing before its last vector, so with restarts it never does, and says so."""
    n = 12
    shift, b = np.roll(np.eye(n), 1, axis=0), np.eye(n)[0]
    np.testing.assert_allclose(solve(shift, b, GMRES())[0], shift.T @ b, atol=1e-12)
    with pytest.raises(ConvergenceError) as caught:
        solve(shift, b, GMRES(restart=5))
    assert caught.value.report.steps < 5


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_all_sizes(n, seed):
    rng = np.random.default_rng(seed)
    matrix, b = nonsymmetric(rng, n), rng.normal(size=n)
    for method in (GMRES(), GMRES(restart=7), Dense(), LSMR(), BiCGStab()):
        np.testing.assert_allclose(matrix @ solve(matrix, b, method)[0], b, atol=1e-8)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_single_precision(method):
    rng = np.random.default_rng(3)
    matrix, b = definite(rng, 20).astype(np.float32), rng.normal(size=20).astype(np.float32)
    x, report = solve(matrix, b, method, 1e-5, symmetric=True, definite=True)
    assert x.dtype == np.float32
    assert report.converged
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), atol=1e-4)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_right_sides_of_any_scale(method):
    rng = np.random.default_rng(4)
    matrix, b = definite(rng, 5), rng.normal(size=5)
    wanted = np.linalg.solve(matrix, b)
    for scale in (1e-180, 1e-30, 1e30, 1e140):
        np.testing.assert_allclose(solve(matrix, b * scale, method)[0], wanted * scale, rtol=1e-7)
    narrow = matrix.astype(np.float32), (b * 1e-30).astype(np.float32)
    np.testing.assert_allclose(solve(*narrow, method, 1e-5)[0], (wanted * 1e-30).astype(np.float32), rtol=1e-3)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_a_right_side_of_zeros(method):
    x, report = solve(definite(np.random.default_rng(0), 4), np.zeros(4), method)
    assert not x.any()
    assert report.steps == 0


def attempt(*args):
    """The answer or the best there was, the report, and whether the solve raised."""
    try:
        return *solve(*args), False
    except ConvergenceError as error:
        return error.best, error.report, True


def ill_conditioned(rng, n, condition):
    spread = np.logspace(0, -math.log10(condition), n)
    return orthogonal(rng, n) @ np.diag(spread) @ orthogonal(rng, n)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_no_false_success_on_ill_conditioned_systems(method):
    rng = np.random.default_rng(5)
    converged = 0
    for _ in range(200):
        n, tolerance = int(rng.integers(2, 20)), 10 ** rng.uniform(-12, -4)
        matrix, b = ill_conditioned(rng, n, 10 ** rng.uniform(0, 14)), rng.normal(size=n)
        if rng.random() < 0.5:
            b = matrix @ b
        x, report, raised = attempt(matrix, b, method, tolerance, 40)
        residual = np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)
        assert raised == (not report.converged) == (report.residual > tolerance)
        np.testing.assert_allclose(report.residual, residual, rtol=1e-6, atol=1e-14 * (1 + np.abs(x).max()))
        converged += not raised
    if type(method) in (GMRES, Dense, Sparse, Auto) and method not in (GMRES(restart=4), Dense("cholesky")):
        assert converged > 100


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_inconsistent_systems_raise(method):
    rng = np.random.default_rng(6)
    for n in (1, 2, 5, 20):
        half = rng.normal(size=(n, n - 1))
        b = rng.normal(size=n)
        with pytest.raises(ConvergenceError) as caught:
            solve(half @ half.T / n, b, method, max_steps=200)
        assert caught.value.report.residual > 1e-10
        assert np.isfinite(caught.value.best).all()


def test_a_singular_matrix_is_not_solved_with_even_where_a_solution_exists():
    rng = np.random.default_rng(7)
    for case in range(200):
        n = int(rng.integers(2, 40))
        matrix = rng.normal(size=(n, n - 1)) @ rng.normal(size=(n - 1, n))
        if case % 2:
            matrix *= 10.0 ** rng.integers(-6, 6, size=(n, 1))
        b = matrix @ rng.normal(size=n)
        for method in (Dense(), Auto()):
            with pytest.raises(ConvergenceError):
                solve(matrix, b, method, 1e-6)


def test_units_do_not_make_a_matrix_singular():
    rng = np.random.default_rng(8)
    matrix = nonsymmetric(rng, 5) * np.logspace(-20, 20, 5)[:, None]
    wanted = rng.normal(size=5)
    np.testing.assert_allclose(solve(matrix, matrix @ wanted, Dense(), 1e-12)[0], wanted, rtol=1e-9)
    np.testing.assert_allclose(solve(matrix.T.copy(), matrix.T @ wanted, Dense(), 1e-12)[0][-1], wanted[-1], rtol=1e-9)


def test_the_wrong_kind_of_matrix_is_no_success():
    rng = np.random.default_rng(9)
    b = rng.normal(size=10)
    for method in (CG(), MINRES(), Dense("cholesky"), Neumann()):
        with pytest.raises(ConvergenceError):
            solve(rng.normal(size=(10, 10)), b, method, max_steps=300)


@pytest.mark.parametrize("method", EVERY, ids=repr)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_numbers_in_the_system_raise(method, bad):
    rng = np.random.default_rng(10)
    matrix, b = definite(rng, 6), rng.normal(size=6)
    for at in ((0, 0), (2, 4)):
        spoilt = matrix.copy()
        spoilt[at] = bad
        with pytest.raises(ConvergenceError):
            solve(spoilt, b, method, max_steps=50)
    b[3] = bad
    with pytest.raises(ConvergenceError):
        solve(matrix, b, method, max_steps=50)


@pytest.mark.parametrize("method", [GMRES(), BiCGStab(), CG(), MINRES(), Neumann(), Auto(dense_up_to=0)], ids=repr)
def test_a_preconditioner_saves_products(method):
    rng = np.random.default_rng(11)
    n = 60
    base = rng.normal(size=(n, n))
    noise = (base + base.T) * 0.2 / math.sqrt(n)
    matrix = np.diag(np.logspace(0, 3, n)) + noise
    b = rng.normal(size=n)
    near = 1 / np.diagonal(matrix)
    known = {"symmetric": True, "definite": True}
    helped, with_it = solve(matrix, b, method, precondition=lambda v: v * near, **known)
    np.testing.assert_allclose(matrix @ helped, b, atol=1e-8)
    try:
        _, without = solve(matrix, b, method, **known)
    except ConvergenceError as error:
        without = error.report
        without.products = math.inf
    assert with_it.products < 0.5 * without.products


def test_a_preconditioner_takes_the_tree_of_the_right_side():
    def multiply(t):
        return {"a": (3 + 1j) * t["a"] + t["b"], "b": 5 * t["b"]}

    def precondition(t):
        assert t["a"].shape == (3,)
        return {"a": t["a"] / (3 + 1j), "b": t["b"] / 5}

    b = {"a": np.ones(3) + 2j, "b": 2.0}
    for method in (GMRES(), BiCGStab()):
        x = pb.linear_solve(multiply, b, method=method, preconditioner=precondition)
        np.testing.assert_allclose(x["a"], (b["a"] - 0.4) / (3 + 1j), atol=1e-9)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_complex_systems(method):
    rng = np.random.default_rng(12)
    unitary = np.linalg.qr(rng.normal(size=(7, 7)) + 1j * rng.normal(size=(7, 7)))[0]
    matrix, b = unitary @ np.diag(np.linspace(0.5, 1.5, 7)) @ unitary.conj().T, rng.normal(size=7) + 1j
    x = pb.linear_solve(matrix, b, method=method, definite=True)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), atol=1e-8)


def contraction(rng, n, radius):
    j = rng.normal(size=(n, n))
    return j * radius / np.abs(np.linalg.eigvals(j)).max()


def test_gmres_needs_fewer_products_than_neumann():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        matrix, b = np.eye(80) - contraction(rng, 80, 0.95), rng.normal(size=80)
        _, series = solve(matrix, b, Neumann(), 1e-6)
        _, krylov = solve(matrix, b, GMRES(), 1e-6)
        assert krylov.products <= 0.6 * series.products


def test_products_are_counted():
    calls = 0

    def multiply(v):
        nonlocal calls
        calls += 1
        return v * diagonal

    rng = np.random.default_rng(12)
    diagonal = rng.uniform(0.5, 1.5, 50)
    for method in (GMRES(), GMRES(5), CG(), MINRES(), BiCGStab(), Neumann()):
        calls = 0
        asked = LinearOperator(multiply, method, 1e-10, 500, "test")
        asked.solve(rng.normal(size=50))
        assert calls == asked.reports[0].products
    asked = LinearOperator(multiply, Dense(), 1e-10, 500, "test")
    asked.solve(rng.normal(size=50))
    assert asked.reports[0].products == 50 + 1
    asked = replace(asked, solver=Sparse(), reports=[])
    asked.solve(rng.normal(size=50))
    assert asked.reports[0].products == 1 + 1 + 1  # one colour, the check of it, the residual


def test_gmres_leaves_a_cycle_early():
    """A matrix with three eigenvalues needs three products, and two residuals are recomputed."""
    diagonal = np.repeat([1.0, 2.0, 5.0], 20)
    _, report = solve(np.diag(diagonal), np.random.default_rng(0).normal(size=60), GMRES())
    assert report.steps == 1
    assert report.products == 3 + 1


def test_auto_chooses_by_size_and_structure():
    def system(size, **known):
        return LinearSystem(lambda v: v, size, np.dtype(float), 1e-6, **known)

    assert Auto().choose(system(200)) == Dense()
    assert Auto().choose(system(201)) == GMRES()
    assert Auto().choose(system(201, symmetric=True)) == MINRES()
    assert Auto().choose(system(201, symmetric=True, definite=True)) == CG()
    assert Auto(dense_up_to=3).choose(system(4)) == GMRES()


@pytest.mark.parametrize(
    "wrong",
    [lambda: GMRES(restart=0), lambda: Dense("qr"), lambda: Auto(dense_up_to=-1)],
    ids=["GMRES", "Dense", "Auto"],
)
def test_wrong_parameters(wrong):
    with pytest.raises(ArgumentError):
        wrong()


def batch_of(rng, size, n):
    """Systems of unlike difficulty: random ones, the unit matrix, zeros on the right, and a hard one."""
    matrices = np.stack([definite(rng, n) for _ in range(size)])
    b = rng.normal(size=(size, n)) * 10.0 ** rng.integers(-20, 20, size=(size, 1))
    matrices[1], b[2] = np.eye(n), 0
    q = orthogonal(rng, n)
    matrices[3] = q @ np.diag(np.linspace(0.05, 1.9, n)) @ q.T
    return matrices, b


@pytest.mark.parametrize("method", IN_BATCHES, ids=repr)
def test_each_element_of_a_batch_converges_by_itself(method):
    rng = np.random.default_rng(13)
    matrices, b = batch_of(rng, 6, 9)
    asked = operator(method)
    together = pb.vmap(lambda b, a: solve_operator(asked, b, a))(b, matrices)
    for i in range(6):
        alone = solve(matrices[i], b[i], method)[0]
        np.testing.assert_allclose(together[i], alone, rtol=1e-9, atol=1e-14 * np.abs(alone).max())
        assert np.linalg.norm(b[i] - matrices[i] @ together[i]) <= 1.001e-10 * np.linalg.norm(b[i])


@pytest.mark.parametrize("method", IN_BATCHES, ids=repr)
def test_a_singular_element_does_not_spoil_the_rest(method):
    rng = np.random.default_rng(14)
    matrices, b = batch_of(rng, 5, 7)
    matrices[4] = np.outer(b[0], b[0]) / (b[0] @ b[0])
    asked = operator(method, max_steps=500)
    with pytest.raises(ConvergenceError) as caught:
        pb.vmap(lambda b, a: solve_operator(asked, b, a))(b, matrices)
    for i in range(4):
        alone = solve(matrices[i], b[i], method, max_steps=500)[0]
        np.testing.assert_allclose(caught.value.best[i], alone, rtol=1e-9, atol=1e-14 * np.abs(alone).max())


@pytest.mark.parametrize("method", IN_BATCHES, ids=repr)
def test_batches_of_batches_and_shared_matrices(method):
    rng = np.random.default_rng(15)
    matrices, b = np.stack([definite(rng, 4) for _ in range(3)]), rng.normal(size=(2, 3, 4))
    asked = operator(method)
    inner = pb.vmap(lambda b, a: solve_operator(asked, b, a))
    nested = pb.vmap(inner, (0, None))(b, matrices)
    crossed = pb.vmap(pb.vmap(lambda b, a: solve_operator(asked, b, a), (0, None)), (1, 0), 1)(b, matrices)
    np.testing.assert_allclose(crossed, nested, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(nested, np.linalg.solve(matrices, b[..., None])[..., 0], rtol=1e-7, atol=1e-8)
    shared = pb.vmap(lambda b: solve_operator(asked, b, matrices[0]))(b[0])
    np.testing.assert_allclose(shared, np.linalg.solve(matrices[0], b[0].T).T, rtol=1e-7, atol=1e-8)
    many = pb.vmap(lambda a: solve_operator(asked, b[0, 0], a), 2)(np.moveaxis(matrices, 0, 2))
    np.testing.assert_allclose(many, np.linalg.solve(matrices, b[0, 0][None, :, None])[..., 0], rtol=1e-7, atol=1e-8)


def test_sparse_says_that_it_takes_no_batches():
    rng = np.random.default_rng(16)
    with pytest.raises(ArgumentError, match="Dense or GMRES inside vmap"):
        pb.vmap(lambda b: solve_operator(operator(Sparse()), b, np.eye(3)))(rng.normal(size=(2, 3)))


def closed(b, theta, first, second):
    """x = A(theta)^-1 b with A = first + theta second, and its derivatives by formulas of the inverse."""
    inverse = np.linalg.inv(first + theta * second)
    x = inverse @ b
    return x, inverse, -inverse @ second @ x, 2 * inverse @ second @ inverse @ second @ x


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_derivatives_to_second_order(method):
    """s(b, t) = w . x(b, t)^2 / 2 in the four compositions of forward and reverse mode."""
    rng = np.random.default_rng(17)
    n = 4
    first, second = definite(rng, n), 0.1 * definite(rng, n)
    b, w, along = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    theta = 0.3
    asked = LinearOperator(
        lambda v, t: pb.matmul(first, v) + t * pb.matmul(second, v), method, 1e-13, 3000, "test",
        {"symmetric": True, "definite": True},
    )  # fmt: skip

    def s(b, t):
        return pb.sum(w * solve_operator(asked, b, t) ** 2) / 2

    x, inverse, x_t, x_tt = closed(b, theta, first, second)
    x_bt = -inverse @ second @ inverse
    slope_b, slope_t = inverse.T @ (w * x), w * x @ x_t
    bend_b = inverse.T @ (w * (inverse @ along))
    bend_t = w * x_t @ x_t + w * x @ x_tt
    cross = inverse.T @ (w * x_t) + x_bt.T @ (w * x)
    close = {"rtol": 1e-8, "atol": 1e-9}
    t = np.array(theta)

    np.testing.assert_allclose(pb.grad(s, (0, 1))(b, t)[0], slope_b, **close)
    np.testing.assert_allclose(pb.grad(s, (0, 1))(b, t)[1], slope_t, **close)
    one, none = np.array(1.0), np.zeros(n)
    np.testing.assert_allclose(pb.jvp(s, (b, t), (along, np.array(0.0)))[1], slope_b @ along, **close)
    np.testing.assert_allclose(pb.jvp(s, (b, t), (none, one))[1], slope_t, **close)

    def pushed(b, t, b_dot, t_dot):
        return pb.jvp(s, (b, t), (b_dot, t_dot))[1]

    wanted = along @ bend_b, cross @ along, bend_t
    gradient = pb.grad(s, (0, 1))
    # forward over reverse
    of_b = pb.jvp(gradient, (b, t), (along, np.array(0.0)))[1]
    of_t = pb.jvp(gradient, (b, t), (none, one))[1]
    np.testing.assert_allclose((along @ of_b[0], of_b[1], of_t[1]), wanted, **close)
    np.testing.assert_allclose(of_t[0], cross, **close)
    # reverse over forward
    of_b = pb.grad(lambda b, t: pushed(b, t, along, np.array(0.0)), (0, 1))(b, t)
    of_t = pb.grad(lambda b, t: pushed(b, t, none, one), (0, 1))(b, t)
    np.testing.assert_allclose((along @ of_b[0], of_b[1], of_t[1]), wanted, **close)
    # reverse over reverse
    of_b = pb.grad(lambda b, t: pb.sum(gradient(b, t)[0] * along), (0, 1))(b, t)
    of_t = pb.grad(lambda b, t: gradient(b, t)[1], (0, 1))(b, t)
    np.testing.assert_allclose((along @ of_b[0], of_b[1], of_t[1]), wanted, **close)
    # forward over forward
    twice = [
        pb.jvp(lambda b, t, d=d: pushed(b, t, *d), (b, t), e)[1]
        for d, e in (((along, np.array(0.0)),) * 2, ((along, np.array(0.0)), (none, one)), ((none, one),) * 2)
    ]
    np.testing.assert_allclose(twice, wanted, **close)


@pytest.mark.parametrize("method", [GMRES(), BiCGStab(), LSMR(), Dense(), Sparse()], ids=repr)
def test_the_derivative_solves_with_the_transpose(method):
    rng = np.random.default_rng(18)
    matrix, b, w = nonsymmetric(rng, 7), rng.normal(size=7), rng.normal(size=7)
    asked = operator(method, 1e-12)
    of_b, of_matrix = pb.grad(lambda b, a: pb.sum(w * solve_operator(asked, b, a)), (0, 1))(b, matrix)
    y, x = np.linalg.solve(matrix.T, w), np.linalg.solve(matrix, b)
    np.testing.assert_allclose(of_b, y, rtol=1e-8)
    np.testing.assert_allclose(of_matrix, -np.outer(y, x), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", [GMRES(), CG(), LSMR(), Dense()], ids=repr)
def test_gradients_in_a_batch(method):
    rng = np.random.default_rng(19)
    matrices, b = np.stack([definite(rng, 3) for _ in range(4)]), rng.normal(size=(4, 3))
    asked = operator(method, 1e-12)
    gradient = pb.grad(lambda b, a: pb.sum(solve_operator(asked, b, a) ** 2), (0, 1))
    of_b, of_matrix = pb.vmap(gradient)(b, matrices)
    for i in range(4):
        alone = gradient(b[i], matrices[i])
        np.testing.assert_allclose(of_b[i], alone[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(of_matrix[i], alone[1], rtol=1e-8, atol=1e-10)


def test_sparse_factorises_large_banded_systems():
    n = 5000
    b = np.random.default_rng(20).normal(size=n)

    def multiply(v, t):
        return t * v - pb.pad(v[1:], (0, 1)) - 0.5 * pb.pad(v[:-1], (1, 0))

    asked = LinearOperator(multiply, Sparse(), 1e-12, 5, "test")
    t = np.array(3.0)
    x = asked.solve(b, t)
    np.testing.assert_allclose(multiply(x, t), b, atol=1e-11)
    assert asked.reports[0].products <= 3 + 1 + 2
