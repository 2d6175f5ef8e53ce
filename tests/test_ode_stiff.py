"""Implicit pairs for stiff systems: order conditions, stability, SciPy's Radau on the known problems, derivatives."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_ode_tableaux import defects

import pullback as pb
from pullback.ode import tableaux

STIFF = {"Kvaerno3": tableaux.KVAERNO3, "Kvaerno5": tableaux.KVAERNO5}
RATES = np.array([0.04, 1e4, 3e7])


def robertson(t, y, k):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] * y[1]
    return pb.stack([-a + b, a - b - c, c])


def van_der_pol(t, y):
    return pb.stack([y[1], 1000.0 * (1 - y[0] ** 2) * y[1] - y[0]])


def by_radau(f, y0, end, rtol=1e-10, atol=1e-14):
    return solve_ivp(lambda t, y: np.asarray(f(t, y)), (0, end), y0, method="Radau", rtol=rtol, atol=atol).y[:, -1]


def square(table):
    a = np.zeros((len(table.b), len(table.b)))
    for i, row in enumerate(table.a):
        a[i, : len(row)] = row
    return a


@pytest.mark.parametrize("name", STIFF)
def test_order_conditions_and_stability(name):
    table = STIFF[name]
    a, b = square(table), np.array(table.b)
    assert np.allclose(a.sum(1), table.c, rtol=0, atol=1e-14)
    assert np.array_equal(a[-1], b)
    assert np.all(np.diag(a)[1:] == table.diagonal)
    assert np.abs(defects(b, a, table.order)).max() < 1e-14
    assert np.abs(defects(b, a, table.order + 1)).max() > 1e-5
    other = b - np.array(table.error)
    assert np.abs(defects(other, a, table.error_order)).max() < 1e-14
    assert np.abs(defects(other, a, table.error_order + 1)).max() > 1e-6
    # R(z) = 1 + z b (I - z A)^-1 1: at most 1 on the imaginary axis, and 0 at infinity
    growth = lambda z: 1 + z * b @ np.linalg.solve(np.eye(len(b)) - z * a, np.ones(len(b)))  # noqa: E731
    assert max(abs(growth(1j * y)) for y in np.geomspace(1e-2, 1e4, 200)) < 1 + 1e-12
    assert abs(growth(-1e8)) < 1e-6


@pytest.mark.parametrize("name", STIFF)
def test_order_of_convergence(name):
    method = getattr(pb.ode, name)()
    f = lambda t, y: pb.stack([y[1], -pb.sin(y[0]) + 0.3 * pb.cos(2 * t)])  # noqa: E731
    exact = by_radau(f, [1.0, 0.2], 3.0, 1e-13, 1e-14)
    counts = (20, 60)
    errors = [
        np.abs(pb.ode.solve(f, np.array([1.0, 0.2]), (0, 3), method=method, control=pb.ode.FixedSteps(n)).y - exact)
        for n in counts
    ]
    assert np.log(errors[0].max() / errors[1].max()) / np.log(3) > method.order - 0.4


def test_robertson_and_van_der_pol():
    y0 = np.array([1.0, 0.0, 0.0])
    exact = by_radau(lambda t, y: robertson(t, y, RATES), y0, 400)
    for name, most in (("Kvaerno3", 500), ("Kvaerno5", 80)):
        method = getattr(pb.ode, name)()
        found = pb.ode.solve(robertson, y0, (0, 400), RATES, method=method, rtol=1e-6, atol=1e-10)
        assert np.allclose(found.y, exact, rtol=1e-5, atol=0)
        assert found.report.steps < most
        assert np.isclose(found.y.sum(), 1, atol=1e-12)  # mass is conserved
    exact = by_radau(van_der_pol, [2.0, 0.0], 500.0)
    run = lambda y0: pb.ode.solve(van_der_pol, y0, (0.0, 500.0), method=pb.ode.Kvaerno5()).y  # noqa: E731
    assert np.allclose(run(np.array([2.0, 0.0])), exact, rtol=1e-4)
    with pytest.raises(pb.errors.TooManyStepsError, match="Kvaerno5"):
        pb.ode.solve(van_der_pol, np.array([2.0, 0.0]), (0.0, 500.0), max_steps=500)


@pytest.mark.parametrize("name", STIFF)
def test_iterations_that_diverge_reject_the_step(name):
    """Stiff from 0.5 on, where the Jacobian at the start of a step knows nothing of it: the state became 1e117."""
    f = lambda t, y: -1e4 * (y - 1) * pb.maximum(t - 0.5, 0.0)  # noqa: E731
    found = pb.ode.solve(f, 0.5, (0.0, 1.0), method=getattr(pb.ode, name)(), rtol=1e-4)
    assert np.isclose(found.y, 1.0, rtol=1e-4)
    assert found.report.rejected > 5


@pytest.mark.parametrize("name", [*STIFF, "BDF"])
def test_a_step_whose_matrix_is_singular_is_rejected(name):
    """1 + h k and h k are one number where h k > 2^53."""
    f = lambda t, y: pb.stack([y[1] - y[0], y[0] - y[1]]) * 1e14  # noqa: E731
    solve = pb.jit(lambda y: pb.ode.solve(f, y, (0.0, 1e3), method=getattr(pb.ode, name)(), rtol=1e-3))
    found = solve(np.array([1.0, 0.0]))
    assert np.allclose(found.y, 0.5, rtol=1e-6)
    assert found.report.rejected > 0


@pytest.mark.sweep
def test_adjoint_along_the_solution_where_stages_lie_before_the_start():
    """y^-3/2 = 1 + 3/2 k t, which has no past; stages of Kvaerno5 lie beyond the ends of their steps."""

    def end(k):
        f = lambda t, y, k: -k * pb.sqrt(y) * y**2  # noqa: E731
        options = {"method": pb.ode.Kvaerno5(), "rtol": 1e-4, "atol": 1e-4}
        return pb.ode.solve(f, 1.0, (0.0, 1.0), k, derivative=pb.ode.InterpolatedAdjoint(), **options).y

    assert np.isclose(pb.jit(pb.grad(end))(np.array(100.0)), -(151.0 ** (-5 / 3)), rtol=1e-3)


def test_gradients_of_robertson():
    y0, method = np.array([1.0, 0.0, 0.0]), pb.ode.Kvaerno5()

    def end(k):
        return pb.ode.solve(robertson, y0, (0.0, 4.0), k, method=method, rtol=1e-6, atol=1e-10, max_steps=100).y[2]

    def exact(k):
        return by_radau(lambda t, y: robertson(t, y, k), y0, 4.0)[2]

    wanted = [(exact(RATES * (1 + 1e-3 * e)) - exact(RATES * (1 - 1e-3 * e))) / 2e-3 for e in np.eye(3)]
    assert np.allclose(pb.grad(end)(RATES) * RATES, wanted, rtol=2e-4)
    along = pb.jvp(end, (RATES,), (RATES * np.array([1.0, -1.0, 2.0]),))[1]
    assert np.isclose(along, np.dot(wanted, [1.0, -1.0, 2.0]), rtol=2e-4)


def relax(t, y, k):
    return -k * (y - pb.cos(t))


def relaxed(k, t):
    s = k / (1 + k * k)
    return s * (k * np.cos(t) + np.sin(t)) - s * k * np.exp(-k * t)


def test_saved_times_compiled():
    times, k, h = np.array([0.0, 0.1, 0.5, 1.0]), 30.0, 1e-2

    def run(k):
        return pb.ode.solve(relax, 0.0, (0.0, 1.0), k, method=pb.ode.Kvaerno3(), saveat=times, rtol=1e-5).y

    assert np.allclose(run(k), relaxed(k, times), atol=1e-4)
    slope = (relaxed(k + h, times) - relaxed(k - h, times)) / (2 * h)
    assert np.isclose(pb.jit(pb.grad(lambda k: run(k).sum()))(np.array(k)), slope.sum(), atol=1e-4)


def test_second_derivative():
    def end(k):
        return pb.ode.solve(relax, 0.0, (0.0, 0.2), k, method=pb.ode.Kvaerno3(), control=pb.ode.FixedSteps(4)).y

    h = 1e-3
    wanted = (pb.grad(end)(30.0 + h) - pb.grad(end)(30.0 - h)) / (2 * h)
    assert np.isclose(pb.grad(pb.grad(end))(30.0), wanted, rtol=1e-5)


@pytest.mark.sweep
def test_batches_compiled():
    rates = np.array([30.0, 300.0])

    def end(k):
        return pb.ode.solve(relax, 0.0, (0.0, 1.0), k, method=pb.ode.Kvaerno3(), rtol=1e-5).y

    assert np.allclose(pb.vmap(end)(rates), relaxed(rates, 1.0), atol=1e-4)
    assert np.allclose(pb.jit(pb.vmap(pb.grad(end)))(rates), [pb.grad(end)(r) for r in rates], rtol=1e-6)
