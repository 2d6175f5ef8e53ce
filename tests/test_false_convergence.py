"""A small residual is not yet an answer: roots that are none, starts returned as they were, maxima taken for minima."""

import numpy as np
import pytest

import pullback as pb
from pullback import implicit
from pullback.errors import ArgumentError, ConvergenceError, DtypeError


def test_a_coarse_tolerance_of_the_equation_is_not_that_of_the_derivative():
    for start in (np.ones(1), np.ones(3), 1.0):
        f = lambda a, x0=start: pb.sum(pb.fixed_point(lambda x: 0.5 * x + a, x0, tol=1.0))  # noqa: E731
        g = lambda a, x0=start: pb.sum(pb.root(lambda x: 2.0 * x - a, x0, tol=10.0))  # noqa: E731
        size = np.size(start)
        np.testing.assert_allclose(pb.grad(f)(8.0), 2.0 * size, rtol=1e-5)
        np.testing.assert_allclose(pb.jvp(f, (8.0,), (1.0,))[1], 2.0 * size, rtol=1e-5)
        np.testing.assert_allclose(pb.grad(g)(8.0), 0.5 * size, rtol=1e-5)


@pytest.mark.parametrize("tol", [0.0, -1.0, float("nan"), float("inf"), "small", True])
def test_tolerances_that_mean_nothing_are_refused(tol):
    for solve in (
        lambda: pb.root(lambda x: x * x - 2, 1.0, tol=tol),
        lambda: pb.argmin(lambda x: x * x, 1.0, tol=tol),
        lambda: implicit.Implicit(tol=tol),
        lambda: pb.linear_solve(np.eye(2), np.ones(2), tol=tol),
        lambda: implicit.custom_root(lambda x, a: x - a, tol=tol),
    ):
        with pytest.raises(ArgumentError, match="positive number"):
            solve()


def test_a_relative_tolerance_is_below_one():
    for solve in (lambda: implicit.Implicit(tol=1.0), lambda: pb.linear_solve(np.eye(2), np.ones(2), tol=2.0)):
        with pytest.raises(ArgumentError, match="below 1"):
            solve()


#: Equations without a root whose residual becomes small all the same.
NO_ROOT = {
    "x + 1": lambda x0: pb.fixed_point(lambda x: x + 1.0, x0),
    "x + 1, Picard": lambda x0: pb.fixed_point(lambda x: x + 1e-20, x0 * 1e10, solver=implicit.Picard()),
    "1 / x": lambda x0: pb.root(lambda x: 1 / x, x0),
    "a small constant": lambda x0: pb.root(lambda x: 0.0 * x + 1e-12, x0),
}


@pytest.mark.parametrize("name", NO_ROOT)
def test_an_equation_without_a_root_raises(name):
    for x0 in (0.3, np.array([0.3]), np.full(3, 0.3)):
        with pytest.raises(ConvergenceError):
            NO_ROOT[name](x0)


def test_what_speaks_against_an_answer_is_in_the_report():
    report = implicit.solve.root(lambda x: 1 / x, 1.0).report
    assert not report.converged
    assert report.residual <= report.tolerance
    assert "no root is near" in str(report)


SCALES = (1e-6, 1e-9, 1e-12)


#: (the problem at a scale, its answer): all residuals are below the default tolerance at the start.
SCALED = {
    "square": (lambda s: pb.root(lambda x: (x * s) ** 2 - 4 * s**2, 1.0), 2.0),
    "root": (lambda s: pb.root(lambda x: s * (x**2 - 4), np.ones(3)), 2.0),
    "fixed_point": (lambda s: pb.fixed_point(lambda x: x - s * (x - 3.0), np.ones(2)), 3.0),
    "argmin": (lambda s: pb.argmin(lambda x: s * pb.sum((x - 3) ** 2), np.zeros(1)), 3.0),
    "least_squares": (lambda s: pb.least_squares(lambda x: s * (x - 3.0), np.zeros(1)), 3.0),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SCALED)
def test_the_start_of_a_badly_scaled_problem_is_not_returned(name, scale):
    solve, wanted = SCALED[name]
    try:
        found = solve(scale)
    except ConvergenceError:
        assert name == "fixed_point"  # which no map so near the identity can be helped out of
        return
    np.testing.assert_allclose(found, wanted, rtol=0.05)


def test_a_badly_scaled_batch_or_program_raises():
    f = lambda s: pb.root(lambda x: s * ((x * 1e-9) ** 2 - 4e-18), np.ones(2))  # noqa: E731
    with pytest.raises(ConvergenceError):
        pb.vmap(f)(np.ones(2))
    with pytest.raises(ConvergenceError):
        pb.jit(f)(1.0)
    np.testing.assert_allclose(pb.jit(lambda s: pb.root(lambda x: x * x - s, np.ones(2)))(4.0), 2.0)


def test_large_answers_and_starts_at_the_root_are_accepted():
    np.testing.assert_array_equal(pb.fixed_point(lambda x: 0.5 * x + 1e8, np.zeros(2)), [2e8, 2e8])
    assert float(pb.root(lambda x: x - 3e12, 0.0)) == 3e12
    for start in (2.0, 2.0 + 1e-12, np.array([2.0, 2.0 + 1e-12])):
        np.testing.assert_allclose(pb.root(lambda x: x * x - 4, start), 2.0, rtol=1e-9)
    np.testing.assert_array_equal(pb.root(lambda x: x, np.zeros(2)), np.zeros(2))
    np.testing.assert_allclose(pb.argmin(lambda x: pb.sum(x**4), np.zeros(2)), 0.0)


def test_a_maximum_is_left():
    x = pb.argmin(lambda x: pb.cos(x[0]), np.array([0.0]))
    np.testing.assert_allclose(np.cos(x), -1.0)
    np.testing.assert_allclose(np.abs(pb.argmin(lambda x: (x * x - 1) ** 2, 0.0)), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.abs(pb.least_squares(lambda x: x * x - 1, np.zeros(2))), 1.0, rtol=1e-6)
    far = pb.argmin(lambda x: pb.sum((x**2 - 1) ** 2), np.zeros(100))  # more than the dense Hessian is made for
    np.testing.assert_allclose(np.abs(far), 1.0, rtol=1e-5)


def test_a_saddle_is_left_or_found_out():
    x = pb.argmin(lambda x: x[0] ** 2 - x[1] ** 2 + x[1] ** 4, np.array([1.0, 0.0]))
    np.testing.assert_allclose(np.abs(x), [0.0, np.sqrt(0.5)], atol=1e-8)
    with pytest.raises(ConvergenceError):
        pb.argmin(lambda x: x[0] ** 2 - x[1] ** 2, np.array([1.0, 0.0]))


def test_the_derivative_at_a_minimum_that_was_reached_from_a_saddle():
    f = lambda a: pb.sum(pb.argmin(lambda x, a: pb.sum((x**2 - a) ** 2), np.zeros(1), a) ** 2)  # noqa: E731
    np.testing.assert_allclose(pb.grad(f)(2.0), 1.0, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_unknowns_of_half_precision_are_refused_by_name(dtype):
    x0 = pb.tensor([1.0, 1.0]).astype(dtype).detach().numpy()
    for solve in (pb.root, pb.fixed_point, pb.least_squares):
        with pytest.raises(DtypeError, match="float32"):
            solve(lambda x: x * x - 2, x0)
