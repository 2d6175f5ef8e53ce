"""Backward differentiation formulas: SciPy's on the known stiff problems, orders, derivatives in all policies."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_ode_stiff import RATES, relax, relaxed, robertson, van_der_pol

import pullback as pb

BDF = pb.ode.BDF()
TIGHT = {"rtol": 1e-7, "atol": 1e-10, "max_steps": 600}
H = 1e-2


def slope_of_relaxed(k, t):
    return (relaxed(k + H, t) - relaxed(k - H, t)) / (2 * H)


def end(k, policy=None, method=BDF):
    return pb.ode.solve(relax, 0.0, (0.0, 1.0), k, method=method, derivative=policy, **TIGHT).y


@pytest.mark.parametrize(
    ("f", "y0", "until"),
    [(lambda t, y: robertson(t, y, RATES), [1.0, 0.0, 0.0], 400.0), (van_der_pol, [2.0, 0.0], 1000.0)],
    ids=["robertson", "van der pol"],
)
def test_stiff_problems_beside_scipy(f, y0, until):
    def by_scipy(method, rtol, atol):
        return solve_ivp(lambda t, y: np.asarray(f(t, y)), (0, until), y0, method=method, rtol=rtol, atol=atol)

    exact = by_scipy("Radau", 1e-10, 1e-13).y[:, -1]
    theirs = by_scipy("BDF", 1e-6, 1e-10)

    def run(y0, tol):
        return pb.ode.solve(f, y0, (0.0, until), method=BDF, rtol=tol, atol=tol * 1e-4)[1:3]

    y, report = pb.jit(lambda y0: run(y0, 1e-6))(np.array(y0))
    assert np.allclose(y, exact, rtol=1e-4)
    assert report.steps < 1.5 * theirs.t.size
    assert report.rejected < 0.1 * report.steps
    coarse, fine = (
        np.abs(pb.jit(lambda y0, t=tol: run(y0, t))(np.array(y0))[0] / exact - 1).max() for tol in (1e-4, 1e-7)
    )
    assert fine < 0.05 * coarse


def test_orders_rise_as_they_may():
    f = lambda t, y: pb.stack([y[1], -y[0]])  # noqa: E731
    steps = {}
    for highest in (1, 2, 3, 5):
        method = pb.ode.BDF(highest)
        found = pb.ode.solve(f, np.array([0.0, 1.0]), (0, 3), method=method, rtol=1e-5, atol=1e-7, dense=True)
        assert np.allclose(found.y, [np.sin(3), np.cos(3)], atol=6e-3)
        choices = found.dense._record[3][: found.report.steps]
        assert choices.max() == highest
        assert choices[0] == 1
        assert np.abs(np.diff(choices)).max() <= (highest > 1)
        steps[highest] = found.report.steps
    assert steps[1] > 4 * steps[2] > 8 * steps[3] > 8 * steps[5]
    for highest in (0, 6, 2.0):
        with pytest.raises(pb.errors.ArgumentError, match="highest"):
            pb.ode.BDF(highest)


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_polynomials_are_followed_exactly(tol):
    # order k is exact for polynomials of degree k, at any times in between as well
    f = lambda t, y: 3 * t * t - 2 * t + 0 * y  # noqa: E731
    times = np.linspace(0, 2, 9)
    found = pb.ode.solve(f, 1.0, (0, 2), method=BDF, saveat=times, rtol=tol, atol=tol)
    assert np.allclose(found.y, 1 + times**3 - times**2, atol=20 * tol)
    assert found.report.steps < 100


@pytest.mark.parametrize(
    "policy",
    [
        pb.ode.ThroughSteps(),
        pytest.param(pb.ode.ThroughSteps(snapshots=4), marks=pytest.mark.sweep),
        pytest.param(pb.ode.ForwardSensitivity(), marks=pytest.mark.sweep),
        pb.ode.InterpolatedAdjoint(),
    ],
    ids=repr,
)
def test_derivatives_by_each_policy(policy):
    wanted = slope_of_relaxed(30.0, 1.0)
    wrap = (lambda f: f) if policy == pb.ode.ThroughSteps(snapshots=4) else pb.jit
    assert np.isclose(wrap(pb.grad(lambda k: end(k, policy)))(np.array(30.0)), wanted, rtol=1e-5)


@pytest.mark.sweep
def test_tangents_second_derivatives_and_times():
    assert np.isclose(pb.jvp(end, (30.0,), (2.0,))[1], 2 * slope_of_relaxed(30.0, 1.0), rtol=1e-5)
    coarse = {"method": BDF, "rtol": 1e-3, "atol": 1e-5, "max_steps": 100}

    def early(k):
        return pb.ode.solve(relax, 0.0, (0.0, 0.2), k, **coarse).y

    wanted = (relaxed(30 + H, 0.2) - 2 * relaxed(30.0, 0.2) + relaxed(30 - H, 0.2)) / H**2
    assert np.isclose(pb.jit(pb.grad(pb.grad(early)))(np.array(30.0)), wanted, rtol=2e-2)
    k, times = 30.0, np.array([0.0, 0.1, 0.5, 1.0])

    def at(k, t0, t1, times, y0):
        return pb.ode.solve(relax, y0, (t0, t1), k, method=BDF, saveat=times, **TIGHT).y.sum()

    found = pb.jit(pb.grad(at, (0, 1, 2, 3, 4)))(*map(np.asarray, (k, 0.0, 1.0, times, 0.0)))
    assert np.isclose(found[0], slope_of_relaxed(k, times).sum(), rtol=1e-5)
    assert np.isclose(found[4], np.exp(-k * times).sum(), rtol=1e-4)
    # from t0: the start moves with the slope it has there
    assert np.isclose(found[1], -k * np.exp(-k * times).sum(), rtol=1e-3)
    slope = np.asarray(relax(times, relaxed(k, times), k))
    assert np.allclose(found[3][1:], slope[1:], atol=1e-4)
    event = pb.ode.Event(lambda t, y, k: y - 0.9, direction=-1)
    late = lambda k: pb.ode.solve(relax, 1.0, (0.0, 1.0), k, method=BDF, events=event, **TIGHT).t  # noqa: E731
    assert np.isclose(pb.grad(late)(1e3), (late(1e3 + 1) - late(1e3 - 1)) / 2, rtol=2e-3)


def test_a_terminal_event_of_several_numbers():
    """Two decays, stopped when the first is a half, at log(2) / k; the other has fallen to a power of it by then."""
    event = pb.ode.Event(lambda t, y, k: y[0] - 0.5)

    def late(k):
        found = pb.ode.solve(lambda t, y, k: -k * y, np.ones(2), (0.0, 3.0), k, method=BDF, events=event, **TIGHT)
        return pb.stack([found.t, found.y[1]])

    k = np.array([1.0, 1.7])
    assert np.allclose(late(k), [np.log(2), 0.5**1.7], atol=1e-6)
    wanted = [[-np.log(2), 0.0], [1.7 * np.log(2) * 0.5**1.7, -np.log(2) * 0.5**1.7]]
    assert np.allclose(pb.jacrev(late)(k), wanted, atol=1e-5)


def test_gradients_of_robertson():
    y0 = np.array([1.0, 0.0, 0.0])

    def product(k):
        return pb.ode.solve(robertson, y0, (0.0, 4.0), k, method=BDF, rtol=1e-6, atol=1e-10, max_steps=300).y[2]

    def exact(k):
        f = lambda t, y: np.asarray(robertson(t, y, k))  # noqa: E731
        return solve_ivp(f, (0, 4), y0, method="Radau", rtol=1e-10, atol=1e-14).y[2, -1]

    wanted = [(exact(RATES * (1 + 1e-3 * e)) - exact(RATES * (1 - 1e-3 * e))) / 2e-3 for e in np.eye(3)]
    assert np.allclose(pb.jit(pb.grad(product))(RATES) * RATES, wanted, rtol=2e-4)


@pytest.mark.parametrize(
    "method",
    [pytest.param(pb.ode.BDF(), marks=pytest.mark.sweep), pb.ode.Kvaerno3()],
    ids=["BDF", "Kvaerno3"],
)
def test_batches_whose_elements_take_different_numbers_of_steps(method):
    rates, coarse = np.array([30.0, 60.0, 300.0]), {"rtol": 1e-4, "atol": 1e-7}

    def run(k):
        return pb.ode.solve(relax, 0.0, (0.0, 0.3), k, method=method, **coarse)

    assert len(set(pb.vmap(run)(rates).report.steps)) > 1
    alone = [pb.grad(lambda k: run(k).y)(k) for k in rates]
    assert np.allclose(pb.vmap(pb.grad(lambda k: run(k).y))(rates), alone, rtol=1e-8)
    along = pb.vmap(lambda k: pb.jvp(lambda k: run(k).y, (k,), (np.ones(()),))[1])(rates)
    assert np.allclose(along, alone, rtol=1e-8)


def test_trees_single_precision_and_tensors():
    y0 = {"a": np.ones(2, np.float32), "b": np.float32(2.0)}
    found = pb.ode.solve(lambda t, y: {"a": -y["a"], "b": -100 * (y["b"] - y["a"][0])}, y0, (0, 1), method=BDF)
    assert found.y["a"].dtype == np.float32
    assert np.allclose(found.y["a"], np.exp(-1), rtol=2e-3)
    assert np.isclose(found.y["b"], np.exp(-1) / 0.99, rtol=2e-3)
    start = pb.tensor(np.ones(1), requires_grad=True)
    pb.ode.solve(lambda t, y: -y, start, (0, 1), method=BDF).y.sum().backward()
    assert np.isclose(start.grad, np.exp(-1), rtol=1e-3)
    still = pb.ode.solve(lambda t, y: -y, 1.0, (1.0, 1.0), method=BDF)
    assert still.y == 1.0
    back = pb.ode.solve(lambda t, y: -y, 1.0, (1.0, 0.0), method=BDF, rtol=1e-7)
    assert np.isclose(back.y, np.e, rtol=1e-5)


@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=pytest.mark.sweep), np.float32])
def test_at_rest_slopes_are_rounding_errors(dtype):
    def rest(k, method):
        return pb.ode.solve(lambda t, y, k: -k * (y - 1.0), dtype(0), (0.0, 1e4), k, method=method, max_steps=300)

    for method in (BDF, pb.ode.Kvaerno3(), pb.ode.Kvaerno5()):
        found = rest(dtype(1e3), method)
        assert np.isclose(found.y, 1.0, atol=1e-6)
        assert found.report.steps < 250
        assert abs(pb.grad(lambda k, method=method: rest(k, method).y)(dtype(1e3))) < 1e-6


@pytest.mark.parametrize("name", ["Kvaerno3", pytest.param("BDF", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("event", [None, pytest.param(pb.ode.Event(lambda t, y, k: y - 0.9, False), id="event")])
def test_a_batch_beside_an_element_whose_step_has_no_solution(name, event):
    """The first step is far too long for one element alone: its equations were solved again for the others' times."""
    rates, control = np.array([0.5, 50.0]), pb.ode.PID(first=0.5)
    options = {"method": getattr(pb.ode, name)(), "control": control, "events": event, "rtol": 1e-3, "atol": 1e-3}

    def run(k):
        times = np.array([0.3, 0.5]) if event is None else None
        found = pb.ode.solve(lambda t, y, k: -k * pb.sqrt(y) * y**2, 1.0, (0.0, 0.5), k, saveat=times, **options)
        return found.y if event is None else found.events[0].t

    # y^-3/2 = 1 + 3/2 k t
    found = pb.vmap(run)(rates)
    if event is None:
        assert np.allclose(found, (1 + 1.5 * rates[:, None] * [0.3, 0.5]) ** (-2 / 3), atol=1e-2)
    else:
        assert np.allclose(found[:, 0] * rates, (0.9**-1.5 - 1) / 1.5, rtol=6e-2)


def test_a_batch_with_an_element_that_has_no_step():
    def end(t):
        return pb.ode.solve(lambda t, y: -3 * y * y, 1.0, (0.0, t), method=BDF, rtol=1e-2, atol=1e-2).y

    assert np.allclose(pb.vmap(pb.grad(end))(np.array([0.0, 0.3])), [-3.0, -3 / 1.9**2], atol=0.05)
