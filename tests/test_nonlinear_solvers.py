"""Methods for roots, fixed points and minima: where they arrive, how fast, in batches, and their derivatives."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ConvergenceError
from pullback.implicit import (
    BFGS,
    LBFGS,
    Anderson,
    Bisection,
    Broyden,
    Chord,
    Dense,
    Dogleg,
    GaussNewton,
    GradientDescent,
    LevenbergMarquardt,
    Newton,
    NewtonKrylov,
    Picard,
    Report,
)
from pullback.implicit.equation.implicit_equation import ImplicitEquation
from pullback.implicit.equation.root_op import find_root
from pullback.implicit.solvers.method_loop import SolverProblem, run_method
from pullback.implicit.solvers.method_tools import fit_dense

ROOTS = [Newton(), NewtonKrylov(), Broyden(), Chord(), Dogleg()]
FIXED = [Picard(), Anderson()]
MINIMA = [GradientDescent(), BFGS(), LBFGS(), Dogleg(2.0)]
SQUARES = [GaussNewton(), LevenbergMarquardt(), Dogleg(0.5)]
EVERY = [*ROOTS, *FIXED, *MINIMA, *SQUARES]


def named(method):
    return type(method).__name__


def posed(function, method, tol=1e-10, steps=1000, strict=True, **extras):
    """An equation and the report of its last solve."""
    report = Report(named(method), tol)
    equation = ImplicitEquation(
        function, method, Dense(), tol, 1e-9, steps, "test", report, strict=strict, extras=extras
    )
    return equation, report


# The equations. Kepler's is one for every method: E - e sin E = M is a root, a fixed point, the gradient of
# E^2 / 2 + e cos E - M E, and a residual whose square is least.
ECCENTRICITY = 0.4


def kepler(E, M):
    return E - ECCENTRICITY * pb.sin(E) - M


def kepler_for(method, tol=1e-10, **options):
    if named(method) in ("Picard", "Anderson"):
        return posed(lambda E, M: -kepler(E, M), method, tol, **options)
    if method in SQUARES:
        gradient = lambda E, M: kepler(E, M) * (1 - ECCENTRICITY * pb.cos(E))  # noqa: E731
        return posed(gradient, method, tol, inner=kepler, **options)
    if method in MINIMA:
        objective = lambda E, M: pb.sum(E * E / 2 + ECCENTRICITY * pb.cos(E) - M * E)  # noqa: E731
        return posed(kepler, method, tol, objective=objective, **options)
    return posed(kepler, method, tol, **options)


def kepler_root(M):
    E = np.array(M, float)
    for _ in range(50):
        E = E - (E - ECCENTRICITY * np.sin(E) - M) / (1 - ECCENTRICITY * np.cos(E))
    return E


def circle_and_hyperbola(x, p):
    return pb.stack([x[0] ** 2 + x[1] ** 2 - p[0], x[0] * x[1] - p[1]])


def tridiagonal(x, p):
    end = np.zeros(1, x.dtype)
    return (3 - 2 * x) * x - pb.concat([end, x[:-1]]) - 2 * pb.concat([x[1:], end]) + p


def powell(x, p):
    return pb.stack(
        [x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2 - p[0]]
    )


def rosenbrock_parts(x, p):
    return pb.concat([p - x[:-1], 10 * (x[1:] - x[:-1] ** 2)])


def rosenbrock(x, p):
    return 0.5 * pb.sum(rosenbrock_parts(x, p) ** 2)


def gradient_of(objective):
    return lambda x, p: pb.grad(lambda y: objective(y, p))(x)


def contraction(size, factor, seed=0):
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    matrix = matrix + matrix.T
    return matrix * (factor / np.abs(np.linalg.eigvalsh(matrix)).max())


# One by one.


@pytest.mark.parametrize("method", EVERY, ids=named)
@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_kepler(method, size):
    M = np.linspace(0.1, 3.0, size)
    equation, report = kepler_for(method)
    found = find_root(equation, np.zeros(size), M)
    np.testing.assert_allclose(found, kepler_root(M), rtol=0, atol=1e-9)
    assert report.converged
    assert 0 < report.steps < 60


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_a_start_at_the_root_takes_no_step(method):
    M = np.array([0.3, 1.0])
    equation, report = kepler_for(method)
    start = kepler_root(M)
    np.testing.assert_array_equal(find_root(equation, start, M), start)
    assert report.steps == 0
    assert report.functions <= 3


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_single_precision(method):
    M = np.linspace(0.1, 2.0, 4, dtype=np.float32)
    equation, report = kepler_for(method, tol=3e-6)
    found = find_root(equation, np.zeros(4, np.float32), M)
    assert found.dtype == np.float32
    assert report.converged
    np.testing.assert_allclose(found, kepler_root(M), atol=2e-5)
    both = pb.vmap(lambda M: find_root(equation, np.zeros(4, np.float32), M))(np.stack([M, M + np.float32(0.5)]))
    assert both.dtype == np.float32
    np.testing.assert_allclose(both[1], kepler_root(M + np.float32(0.5)), atol=2e-5)


@pytest.mark.parametrize("method", FIXED, ids=named)
def test_cosine(method):
    equation, _ = posed(lambda x: pb.cos(x) - x, method)
    np.testing.assert_allclose(find_root(equation, np.ones(1)), [0.7390851332151607], atol=1e-9)


@pytest.mark.parametrize("method", [*ROOTS, Anderson()], ids=named)
def test_coupled_polynomials(method):
    equation, _ = posed(circle_and_hyperbola, method)
    np.testing.assert_allclose(find_root(equation, np.array([2.2, 0.8]), np.array([5.0, 2.0])), [2, 1], atol=1e-8)


@pytest.mark.parametrize("method", ROOTS, ids=named)
@pytest.mark.parametrize("size", [2, 10, 50])
def test_tridiagonal_system(method, size):
    equation, report = posed(tridiagonal, method)
    found = find_root(equation, -np.ones(size), np.ones(size))
    assert np.linalg.norm(tridiagonal(found, np.ones(size))) <= 1e-10
    assert report.functions < 80


@pytest.mark.parametrize("method", [Newton(), NewtonKrylov()], ids=named)
def test_a_root_where_the_jacobian_is_singular(method):
    equation, report = posed(powell, method, tol=1e-8)
    found = find_root(equation, np.array([3.0, -1.0, 0.0, 1.0]), np.zeros(1))
    np.testing.assert_allclose(found, np.zeros(4), atol=1e-3)
    assert report.functions < 1500


def test_picard_on_a_slow_contraction():
    matrix, b = contraction(10, 0.99), np.ones(10)
    equation, report = posed(lambda x, b: pb.matmul(matrix, x) + b - x, Picard(), tol=1e-8, steps=5000)
    found = find_root(equation, np.zeros(10), b)
    np.testing.assert_allclose(found, np.linalg.solve(np.eye(10) - matrix, b), atol=1e-5)
    assert report.contraction == pytest.approx(0.99, abs=1e-3)


def test_damping_makes_picard_converge():
    fast, _ = posed(lambda x: -1.5 * x + 1 - x, Picard(damping=0.5))
    np.testing.assert_allclose(find_root(fast, np.zeros(1)), [0.4], atol=1e-9)
    with pytest.raises(ConvergenceError):
        find_root(posed(lambda x: -1.5 * x + 1 - x, Picard())[0], np.zeros(1))


@pytest.mark.parametrize("factor", [0.95, 0.99])
def test_anderson_needs_far_fewer_evaluations_than_picard(factor):
    matrix, b = contraction(40, factor), np.ones(40)
    counts = {}
    for method in (Picard(), Anderson(), Anderson(memory=15)):
        equation, report = posed(lambda x, b: pb.matmul(matrix, x) + b - x, method, steps=5000)
        found = find_root(equation, np.zeros(40), b)
        np.testing.assert_allclose(found, np.linalg.solve(np.eye(40) - matrix, b), atol=1e-7)
        counts[method] = report.functions
    assert counts[Anderson()] < counts[Picard()] / 3
    assert counts[Anderson(memory=15)] < counts[Anderson()]


def test_anderson_ends_on_a_linear_map_when_its_memory_spans_the_space():
    matrix, b = contraction(4, 0.95), np.ones(4)
    equation, report = posed(lambda x, b: pb.matmul(matrix, x) + b - x, Anderson(memory=6), tol=1e-9)
    find_root(equation, np.zeros(4), b)
    assert report.steps <= 8


def test_anderson_converges_where_the_map_expands():
    equation, _ = posed(lambda x, p: p * x + 1 - x, Anderson())
    p = np.array([-3.0, 2.0, 0.5])
    np.testing.assert_allclose(find_root(equation, np.zeros(3), p), 1 / (1 - p), atol=1e-8)


def test_anderson_starts_anew_where_a_step_leaves_the_domain():
    function = lambda x: pb.where(x > 3.0, np.nan, 0.5 * pb.sqrt(pb.abs(x)) + 1.0) - x  # noqa: E731
    equation, _ = posed(function, Anderson(), tol=1e-9)
    found = find_root(equation, np.array([0.01]))
    np.testing.assert_allclose(found, 0.5 * np.sqrt(found) + 1, atol=1e-8)


def test_newton_doubles_the_digits():
    equation, report = posed(lambda x, p: x**3 - p, Newton(), tol=1e-13)
    find_root(equation, np.array([1.5]), np.array([2.0]))
    sizes = np.array(report.history)
    assert len(sizes) <= 5
    assert (sizes[1:] <= np.maximum(0.5 * sizes[:-1] ** 2, 1e-15)).all()


def test_newton_krylov_multiplies_less_often_than_newton():
    counts = []
    for method in (Newton(), NewtonKrylov()):
        equation, report = posed(tridiagonal, method)
        find_root(equation, -np.ones(50), np.ones(50))
        counts.append(report.products)
    assert counts[1] < counts[0] / 3


def test_newton_krylov_takes_any_linear_method():
    equation, report = posed(tridiagonal, NewtonKrylov(inner=Dense()))
    find_root(equation, -np.ones(6), np.ones(6))
    assert report.converged
    assert report.steps <= 6


def test_chord_makes_one_jacobian():
    equation, report = posed(tridiagonal, Chord())
    find_root(equation, -np.ones(12), np.ones(12))
    assert report.products == 12


def test_broyden_multiplies_by_the_jacobian_once():
    equation, report = posed(tridiagonal, Broyden())
    find_root(equation, -np.ones(20), np.ones(20))
    assert report.products == 1
    assert report.functions < 50


# From afar.


@pytest.mark.parametrize("method", [Newton(), NewtonKrylov(), Broyden()], ids=named)
@pytest.mark.parametrize(("start", "size"), [(3.0, 3), (-10.0, 3), (50.0, 1), (-1e4, 1)])
def test_an_arctangent_from_afar(method, start, size):
    """Without shorter steps Newton's method diverges from 1.4 on."""
    equation, _ = posed(lambda x, p: pb.atan(x - p), method)
    p = np.arange(float(size))
    np.testing.assert_allclose(find_root(equation, np.full(size, start), p), p, atol=1e-8)


@pytest.mark.parametrize("method", [Newton(), NewtonKrylov(), Broyden()], ids=named)
def test_polynomials_from_afar(method):
    equation, _ = posed(circle_and_hyperbola, method, steps=300)
    found = find_root(equation, np.array([30.0, 4.0]), np.array([5.0, 2.0]))
    np.testing.assert_allclose(circle_and_hyperbola(found, np.array([5.0, 2.0])), 0, atol=1e-9)


@pytest.mark.parametrize("method", [*MINIMA, Newton(), NewtonKrylov(), Broyden()], ids=named)
def test_the_curved_valley(method):
    equation, report = posed(gradient_of(rosenbrock), method, tol=1e-8, steps=2000, objective=rosenbrock)
    np.testing.assert_allclose(find_root(equation, np.array([-1.2, 1.0]), np.ones(1)), [1, 1], atol=1e-6)
    assert report.functions < 1500


@pytest.mark.parametrize("method", [BFGS(), LBFGS()], ids=named)
@pytest.mark.parametrize("size", [2, 10, 50])
@pytest.mark.parametrize("known", [True, False])
def test_a_long_valley_with_and_without_the_objective(method, size, known):
    extras = {"objective": rosenbrock} if known else {}
    equation, report = posed(gradient_of(rosenbrock), method, tol=1e-7, **extras)
    found = find_root(equation, np.full(size, 0.5), np.ones(size - 1))
    np.testing.assert_allclose(found, np.ones(size), atol=1e-5)
    assert report.functions < 500


@pytest.mark.parametrize("method", SQUARES, ids=named)
@pytest.mark.parametrize("size", [2, 10])
def test_the_valley_as_least_squares(method, size):
    start = np.tile([-1.2, 1.0], size // 2)
    equation, report = posed(gradient_of(rosenbrock), method, tol=1e-8, steps=300, inner=rosenbrock_parts)
    found = find_root(equation, start, np.ones(size - 1))
    assert np.linalg.norm(gradient_of(rosenbrock)(found, np.ones(size - 1))) <= 1e-8
    assert report.steps < 150


def decay(w, y):
    return w[0] * pb.exp(-w[1] * np.linspace(0, 1, 8)) - y


@pytest.mark.parametrize("method", SQUARES, ids=named)
def test_a_fit_with_residuals_that_stay(method):
    y = 2 * np.exp(-3 * np.linspace(0, 1, 8)) + 0.1 * np.cos(np.arange(8.0))
    gradient = gradient_of(lambda w, y: 0.5 * pb.sum(decay(w, y) ** 2))
    equation, report = posed(gradient, method, tol=1e-10, inner=decay)
    found = find_root(equation, np.array([1.0, 1.0]), y)
    assert report.residual <= 1e-10
    assert np.sum(decay(found, y) ** 2) < 0.06


def test_levenberg_marquardt_with_fewer_residuals_than_unknowns_and_an_unused_one():
    inner = lambda x, p: pb.stack([x[0] + x[1] - p[0]])  # noqa: E731
    equation, _ = posed(gradient_of(lambda x, p: 0.5 * pb.sum(inner(x, p) ** 2)), LevenbergMarquardt(), inner=inner)
    found = find_root(equation, np.array([0.0, 0.0, 7.0]), np.array([4.0]))
    np.testing.assert_allclose(found, [2, 2, 7], atol=1e-8)


@pytest.mark.parametrize("method", SQUARES, ids=named)
def test_singular_least_squares(method):
    inner = lambda x, p: powell(x, p)  # noqa: E731
    equation, _ = posed(gradient_of(lambda x, p: 0.5 * pb.sum(inner(x, p) ** 2)), method, tol=1e-8, inner=inner)
    found = find_root(equation, np.array([3.0, -1.0, 0.0, 1.0]), np.zeros(1))
    np.testing.assert_allclose(found, np.zeros(4), atol=0.02)


@pytest.mark.parametrize("known", [True, False])
def test_gradient_descent_on_a_stretched_bowl(known):
    weights = np.logspace(0, 3, 10)
    bowl = lambda x, p: 0.5 * pb.sum(weights * (x - p) ** 2)  # noqa: E731
    extras = {"objective": bowl} if known else {}
    equation, report = posed(lambda x, p: weights * (x - p), GradientDescent(), tol=1e-8, steps=3000, **extras)
    np.testing.assert_allclose(find_root(equation, np.zeros(10), np.ones(10)), np.ones(10), atol=1e-7)
    assert report.steps < 1000


def test_gradient_descent_of_a_given_rate():
    equation, report = posed(lambda x, p: x - p, GradientDescent(rate=0.5), tol=1e-6)
    np.testing.assert_allclose(find_root(equation, np.zeros(1), np.ones(1)), [1], atol=1e-6)
    assert report.steps == 20


@pytest.mark.parametrize("method", [BFGS(), LBFGS(), GradientDescent()], ids=named)
def test_the_gradient_becomes_smaller_than_the_objective_can_show(method):
    objective = lambda x, p: 1e6 + pb.sum(pb.cosh(x - p))  # noqa: E731
    equation, report = posed(lambda x, p: pb.sinh(x - p), method, tol=1e-11, objective=objective)
    np.testing.assert_allclose(find_root(equation, np.zeros(3), np.arange(3.0)), np.arange(3.0), atol=1e-10)
    assert report.converged


@pytest.mark.parametrize("method", [BFGS(), LBFGS(), GradientDescent()], ids=named)
def test_a_minimum_and_not_a_maximum(method):
    objective = lambda x, p: pb.sum(pb.cos(x) + 0 * p)  # noqa: E731
    equation, _ = posed(lambda x, p: -pb.sin(x) + 0 * p, method, objective=objective)
    found = find_root(equation, np.array([0.1, -0.2]), np.zeros(2))
    np.testing.assert_allclose(np.cos(found), [-1, -1], atol=1e-12)


# In batches.


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_each_element_of_a_batch_stops_by_itself(method):
    """The tolerance is coarse, so that one step too many would be seen."""
    many = np.array([[0.0, 0.0], [0.4, 0.1], [1.5, 3.0], [2.9, 0.01]])
    equation, report = kepler_for(method, tol=1e-2)
    alone = [find_root(equation, np.zeros(2), M) for M in many]
    together = pb.vmap(lambda M: find_root(equation, np.zeros(2), M))(many)
    np.testing.assert_allclose(together, np.stack(alone), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(together[0], 0)
    assert report.steps > 0


@pytest.mark.parametrize("method", [Newton(), Anderson(), Broyden(), NewtonKrylov(), LBFGS()], ids=named)
def test_batches_of_batches(method):
    many = np.linspace(0.1, 3.0, 12).reshape(2, 3, 2)
    equation, _ = kepler_for(method)
    solve = lambda M: find_root(equation, np.zeros(2), M)  # noqa: E731
    np.testing.assert_allclose(pb.vmap(pb.vmap(solve))(many), kepler_root(many), atol=1e-9)
    np.testing.assert_allclose(pb.vmap(pb.vmap(solve), 1, 1)(many), kepler_root(many), atol=1e-9)


def test_starts_may_differ_by_element():
    equation, _ = posed(lambda x, p: x * x - p, Newton())
    found = pb.vmap(lambda start: find_root(equation, start, np.full(1, 4.0)))(np.array([[1.0], [-1.0], [30.0]]))
    np.testing.assert_allclose(found, [[2], [-2], [2]], atol=1e-9)


@pytest.mark.parametrize("method", [Newton(), NewtonKrylov(), Broyden(), Chord()], ids=named)
def test_an_element_without_a_root_harms_no_other(method):
    """x^2 = p for p = -1: reported, and the rest is right."""
    function = lambda x, p: x * x - p  # noqa: E731
    many = np.array([[4.0], [-1.0], [2.25]])
    equation, report = posed(function, method, steps=100, strict=False)
    found = pb.vmap(lambda p: find_root(equation, np.full(1, 1.9), p))(many)
    np.testing.assert_allclose(found[[0, 2]], [[2], [1.5]], atol=1e-9)
    assert not report.converged
    assert report.residual >= 1
    strict, _ = posed(function, method, steps=100)
    with pytest.raises(ConvergenceError) as caught:
        pb.vmap(lambda p: find_root(strict, np.full(1, 1.9), p))(many)
    np.testing.assert_allclose(caught.value.best[[0, 2]], [[2], [1.5]], atol=1e-9)


@pytest.mark.parametrize("method", [Picard(), GradientDescent(rate=1.0)], ids=named)
def test_an_element_that_diverges_harms_no_other(method):
    sign = 1 if named(method) == "Picard" else -1
    equation, report = posed(lambda x, p: sign * (p * x + 1 - x), method, steps=2000, strict=False)
    found = pb.vmap(lambda p: find_root(equation, np.zeros(1), p))(np.array([[0.5], [3.0], [0.0]]))
    np.testing.assert_allclose(found[[0, 2]], [[2], [1]], atol=1e-9)
    assert report.residual == np.inf
    assert report.steps < 2000


def test_a_singular_matrix_harms_no_other():
    matrices = np.array([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]])
    found = pb.vmap(fit_dense, (0, None))(matrices, np.array([2.0, 2.0]))
    np.testing.assert_allclose(found[:2], [[1, 0.5], [1, 1]], atol=1e-12)
    assert np.isnan(found[2]).any()
    np.testing.assert_allclose(fit_dense(np.zeros((2, 2)), np.ones(2)), [0, 0])


# What does not converge says so.


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_a_start_outside_the_domain(method):
    extras = {"objective": lambda x: pb.sum(pb.log(x))} if method in MINIMA else {}
    extras |= {"inner": lambda x: pb.log(x)} if method in SQUARES else {}
    equation, report = posed(lambda x: pb.log(x) + 2, method, steps=10_000, **extras)
    with pytest.raises(ConvergenceError):
        find_root(equation, np.array([-1.0, 1.0]))
    assert report.residual == np.inf
    assert report.steps < 5


@pytest.mark.parametrize("method", [Picard(), GradientDescent(rate=1.0)], ids=named)
def test_iterates_that_overflow(method):
    sign = 1 if named(method) == "Picard" else -1
    equation, report = posed(lambda x: sign * (x * x - x), method, steps=10_000)
    with pytest.raises(ConvergenceError):
        find_root(equation, np.full(2, 10.0))
    assert report.steps < 20


@pytest.mark.parametrize("method", [BFGS(), LBFGS(), GradientDescent()], ids=named)
def test_an_objective_without_a_minimum(method):
    equation, report = posed(lambda x: 3 * x**2, method, steps=500, objective=lambda x: pb.sum(x**3))
    with pytest.raises(ConvergenceError):
        find_root(equation, np.full(2, -1.0))
    assert not report.converged


@pytest.mark.parametrize("method", [Newton(), NewtonKrylov(), Chord(), Broyden()], ids=named)
def test_where_no_step_helps_the_method_ends(method):
    equation, report = posed(lambda x: x * x + 1, method, steps=10_000)
    with pytest.raises(ConvergenceError):
        find_root(equation, np.zeros(1))
    assert report.steps < 5
    assert report.residual == 1


def test_newton_does_not_take_a_least_residual_for_a_root():
    equation, report = posed(lambda x: x * x + 1, Newton(), steps=200)
    with pytest.raises(ConvergenceError):
        find_root(equation, np.array([0.7]))
    assert report.residual >= 1


def test_a_method_stays_at_its_last_good_point():
    problem = SolverProblem(lambda x: pb.where(x > 1.5, np.nan, x - 1.4), 1, np.dtype(float), 1e-12)
    state, _ = run_method(Newton(), problem, np.array([0.0]), 100)
    np.testing.assert_allclose(Newton().value(state), [1.4])


# Bisection.


def test_bisection():
    equation, report = posed(lambda x, p: x**3 - p, Bisection(0, 10))
    np.testing.assert_allclose(find_root(equation, np.zeros(1), np.array([2.0])), [2 ** (1 / 3)], atol=1e-9)
    assert report.steps < 50
    many = np.array([[2.0], [27.0], [0.0], [1000.0]])
    found = pb.vmap(lambda p: find_root(equation, np.full(1, 5.0), p))(many)
    np.testing.assert_allclose(found[:, 0] ** 3, many[:, 0], atol=1e-9)


def test_bisection_of_a_falling_function_and_a_root_at_an_end():
    falling, _ = posed(lambda x: pb.cos(x), Bisection(0, 3))
    np.testing.assert_allclose(find_root(falling, np.array([99.0])), [np.pi / 2], atol=1e-9)
    for low, high in ((2, 5), (-1, 2)):
        at_end, report = posed(lambda x: x - 2, Bisection(low, high))
        np.testing.assert_array_equal(find_root(at_end, np.zeros(1)), [2])
        assert report.steps == 0


def test_bisection_starts_at_a_root_that_it_is_given():
    equation, report = posed(lambda x: pb.sin(x), Bisection(-1, 2))
    np.testing.assert_array_equal(find_root(equation, np.zeros(1)), [0])
    assert report.steps == 0


def test_bisection_wants_a_change_of_sign():
    equation, _ = posed(lambda x: x * x + 1, Bisection(-1, 1))
    with pytest.raises(ArgumentError, match="same sign at both ends: 2 at -1 and 2 at 1"):
        find_root(equation, np.zeros(1))
    with pytest.raises(ArgumentError, match="one unknown, got 2"):
        find_root(equation, np.zeros(2))
    batch, report = posed(lambda x, p: x - p, Bisection(0, 1), strict=False)
    found = pb.vmap(lambda p: find_root(batch, np.zeros(1), p))(np.array([[0.25], [7.0]]))
    np.testing.assert_allclose(found[0], [0.25], atol=1e-9)
    assert not report.converged


def test_bisection_does_not_take_a_pole_for_a_root():
    equation, report = posed(lambda x: 1 / (x - 0.3), Bisection(-1, 1), steps=10_000)
    with pytest.raises(ConvergenceError):
        find_root(equation, np.zeros(1))
    assert report.steps < 100


def test_derivatives_of_a_bisected_root():
    equation, _ = posed(lambda x, p: x * x - p, Bisection(0, 10), tol=1e-13)
    root = lambda p: find_root(equation, np.ones(1), p)[0]  # noqa: E731
    p = np.array([2.0])
    np.testing.assert_allclose(pb.grad(root)(p), [0.5 / np.sqrt(2)], rtol=1e-9)
    np.testing.assert_allclose(pb.grad(lambda p: pb.grad(root)(p)[0])(p), [-0.25 * 2**-1.5], rtol=1e-9)


# Derivatives: dE/dM = 1 / (1 - e cos E), and once more -e sin E / (1 - e cos E)^3.


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_derivatives_of_the_root(method):
    M = np.array([0.3, 1.1, 2.5])
    equation, _ = kepler_for(method, tol=1e-11)
    solve = lambda M: find_root(equation, np.zeros(3), M)  # noqa: E731
    E = kepler_root(M)
    first = 1 / (1 - ECCENTRICITY * np.cos(E))
    second = -ECCENTRICITY * np.sin(E) * first**3
    v = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(pb.grad(lambda M: pb.sum(solve(M)))(M), first, rtol=1e-8)
    np.testing.assert_allclose(pb.jvp(solve, (M,), (v,))[1], first * v, rtol=1e-8)
    np.testing.assert_allclose(pb.jvp(pb.grad(lambda M: pb.sum(solve(M))), (M,), (v,))[1], second * v, rtol=1e-7)
    twice = pb.grad(lambda M: pb.sum(pb.grad(lambda M: pb.sum(solve(M)))(M) * v))
    np.testing.assert_allclose(twice(M), second * v, rtol=1e-7)


@pytest.mark.parametrize("method", EVERY, ids=named)
def test_derivatives_in_a_batch(method):
    many = np.array([[0.3, 1.1], [2.5, 0.1], [0.0, 1.0]])
    equation, _ = kepler_for(method, tol=1e-11)
    found = pb.vmap(pb.grad(lambda M: pb.sum(find_root(equation, np.zeros(2), M))))(many)
    np.testing.assert_allclose(found, 1 / (1 - ECCENTRICITY * np.cos(kepler_root(many))), rtol=1e-8)


# Parameters.


@pytest.mark.parametrize(
    "make",
    [
        lambda: Picard(damping=0), lambda: Picard(damping=1.5), lambda: Picard(damping=float("nan")),
        lambda: Picard(damping="half"), lambda: Anderson(memory=0), lambda: Anderson(memory=2.5),
        lambda: Anderson(memory=True), lambda: Anderson(regularization=-1e-3), lambda: Anderson(damping=-1.0),
        lambda: Broyden(memory=0), lambda: LBFGS(memory=-1), lambda: GradientDescent(rate=0.0),
        lambda: GradientDescent(rate=float("inf")), lambda: LevenbergMarquardt(damping=0), lambda: Bisection(1, 1),
        lambda: Bisection(2, 1), lambda: Bisection(0, float("inf")), lambda: Bisection(None, 1),
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize("method", [GaussNewton(), LevenbergMarquardt()], ids=named)
def test_least_squares_methods_want_a_sum_of_squares(method):
    equation, _ = posed(lambda x: x - 1, method)
    with pytest.raises(ArgumentError, match="wants a sum of squares"):
        find_root(equation, np.zeros(2))


def test_methods_are_values():
    assert Anderson(memory=3) == Anderson(memory=3)
    assert hash(Newton()) == hash(Newton())
    with pytest.raises(AttributeError):
        Picard().damping = 0.5


@pytest.mark.parametrize("radius", [1e-3, 1.0, 1e3])
def test_a_dogleg_does_not_follow_a_wild_step(radius):
    """At a saddle of |F|^2 nearby Newton's steps are huge; Powell's badly scaled pair has its root at (0, 9.1)."""

    def powell(x):
        return pb.stack([1e4 * x[0] * x[1] - 1, pb.exp(-x[0]) + pb.exp(-x[1]) - 1.0001])

    x = pb.root(powell, np.array([0.0, 1.0]), solver=Dogleg(radius), max_steps=3000)
    np.testing.assert_allclose(x, [1.098159e-5, 9.106146], rtol=1e-5)


def test_a_dogleg_leaves_a_maximum_and_a_region_that_curves_down():
    x = pb.argmin(lambda x: pb.sum(pb.cos(x)) + 0.1 * x[0] * x[1], np.array([0.0, 0.3]), solver=Dogleg())
    h = np.diag(-np.cos(x)) + 0.1 * np.array([[0, 1], [1, 0]])
    np.testing.assert_allclose(-np.sin(x) + 0.1 * np.asarray(x)[::-1], 0, atol=1e-9)
    assert np.linalg.eigvalsh(h)[0] > 0


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, "1"])
def test_a_dogleg_wants_a_radius(radius):
    with pytest.raises(ArgumentError, match="radius"):
        Dogleg(radius)
