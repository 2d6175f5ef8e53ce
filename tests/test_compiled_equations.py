"""Equations inside of compiled programs: the search and the solve for the derivative are loops of the program."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import errors, implicit

RNG = np.random.default_rng(3)
W, X = RNG.normal(size=(4, 4)) / 5, RNG.normal(size=4)


def equilibrium(solver=None, adjoint=None):
    policy = implicit.Implicit(adjoint=adjoint)

    def f(w, x):
        z = pb.fixed_point(lambda z: pb.tanh(w @ z + x), np.zeros(4), solver=solver, derivative=policy)
        return pb.sum(z * z)

    return f


def cubic(a):
    return pb.sum(pb.root(lambda x, a: x**3 + x - a, np.ones(4), a))


def least(a):
    return pb.sum(pb.argmin(lambda x, a: pb.sum(pb.cosh(x - a)), np.zeros(4), a) ** 2)


def fitted(a):
    return pb.sum(pb.least_squares(lambda x, a: pb.concat([x - a, x * 0.5]), np.zeros(4), a))


def linear(a):
    matrix = np.eye(4) * 3 + W
    return pb.sum(pb.linear_solve(lambda v: matrix @ v + a * v, a) ** 2)


CASES = {
    "default": (equilibrium(), (W, X)),
    "Picard and Neumann": (equilibrium(implicit.Picard(), implicit.Neumann()), (W, X)),
    "Anderson and GMRES": (equilibrium(implicit.Anderson(), implicit.GMRES()), (W, X)),
    "BiCGStab": (equilibrium(None, implicit.BiCGStab()), (W, X)),
    "root": (cubic, (X,)),
    "argmin": (least, (X,)),
    "least_squares": (fitted, (X,)),
    "linear_solve": (linear, (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled_equations_agree_in_value_and_derivatives(name):
    f, args = CASES[name]
    for role in (
        lambda *a: f(*a),
        pb.grad(f),
        lambda *a: pb.jvp(f, a, a)[1],
        lambda *a: pb.jvp(pb.grad(f), a, a)[1],
        lambda x, *a: pb.vmap(lambda x: f(x, *a))(pb.stack([x, x * 0.5])),
    ):
        np.testing.assert_allclose(pb.jit(role)(*args), role(*args), rtol=1e-6, atol=1e-8)


def test_the_search_and_the_adjoint_are_native_loops():
    text = pb.jit(pb.grad(equilibrium(implicit.Picard(), implicit.Neumann()))).lower(W, X).explain()
    assert text.count("a loop while") == 2
    assert "fixed_point" not in text
    assert " root," not in text


def test_many_unknowns_take_a_plain_series_first():
    n = 300
    w = RNG.normal(size=(n, n)) / (4 * n**0.5)
    f = lambda w: pb.sum(pb.fixed_point(lambda z: pb.tanh(w @ z + 0.1), np.zeros(n)))  # noqa: E731
    np.testing.assert_allclose(pb.jit(pb.grad(f))(w), pb.grad(f)(w), rtol=1e-6, atol=1e-9)
    stiff = np.eye(n) * 0.97  # the series is too slow here
    np.testing.assert_allclose(pb.jit(pb.grad(f))(stiff), pb.grad(f)(stiff), rtol=1e-5, atol=1e-8)


def test_the_report_is_that_of_the_last_call():
    reports = []

    @pb.jit
    def f(b):
        found = implicit.solve.fixed_point(lambda x, b: 0.5 * x + b, np.zeros(2), b, solver=implicit.Picard())
        reports.append(found.report)
        return found.value

    f(np.ones(2))
    first = reports[-1].steps
    assert reports[-1].converged
    assert 20 < first < 60
    f(np.zeros(2))
    assert reports[-1].steps == 0


def test_no_convergence_raises_from_compiled_code():
    f = pb.jit(lambda b: pb.fixed_point(lambda x: 2 * x + b, np.ones(2), solver=implicit.Picard(), max_steps=20))
    with pytest.raises(errors.ConvergenceError, match="no convergence") as caught:
        f(np.ones(2))
    assert not caught.value.report.converged
    assert caught.value.report.steps == 20
    with pytest.raises(errors.ConvergenceError):  # and nothing of it is left behind
        f(np.ones(2))


def test_an_error_of_the_array_library_in_a_loop_reaches_the_caller():
    def body(i, x):
        return pb.linalg.inv(x - pb.astype(i, float) * np.eye(2))

    f = pb.jit(lambda x: pb.fori_loop(0, 3, body, x))
    with pytest.raises(errors.PullbackError):
        f(np.zeros((2, 2)))
    assert np.isfinite(f(np.array([[2.0, 0.3], [0.1, 5.0]]))).all()
