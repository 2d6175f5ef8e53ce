"""Dense output and the adjoint that reads it: values and derivatives against closed forms, in all policies."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import pullback as pb

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
TIMES = np.array([[0.0, 3.0, 1.0], [6.0, 2.0, 2.0]])
WEIGHTS = np.arange(6.0).reshape(2, 3)
POLICIES = [
    pb.ode.ThroughSteps(),
    pytest.param(pb.ode.ThroughSteps(snapshots=3), marks=pytest.mark.sweep),
    pytest.param(pb.ode.ContinuousAdjoint(), marks=pytest.mark.sweep),
    pytest.param(pb.ode.ForwardSensitivity(), marks=pytest.mark.sweep),
    pytest.param(pb.ode.InterpolatedAdjoint(), marks=pytest.mark.sweep),
]


def wave(w, **options):
    """sin(w t) and cos(w t)."""
    return pb.ode.solve(lambda t, y: (w * y[1], -w * y[0]), (0.0, 1.0), (0.0, 6.0), dense=True, **{**TIGHT, **options})


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_solution_is_a_function_with_derivatives(policy):
    def at(t, w):
        return wave(w, derivative=policy)(t)[0]

    solution, w = wave(1.3, derivative=policy), 1.3
    assert np.allclose(solution(TIMES)[0], np.sin(w * TIMES), atol=1e-9)
    assert solution(TIMES)[1].shape == (2, 3)
    assert np.isclose(solution(6.0)[0], solution.y[0], atol=1e-12)
    assert np.isclose(pb.grad(lambda t: solution(t)[0])(2.0), w * np.cos(2 * w), rtol=1e-7)
    wanted = (WEIGHTS * TIMES * np.cos(w * TIMES)).sum()
    assert np.isclose(pb.grad(lambda w: (at(TIMES, w) * WEIGHTS).sum())(w), wanted, rtol=1e-7)
    assert np.isclose(pb.jit(pb.grad(lambda w: (at(TIMES, w) * WEIGHTS).sum()))(np.array(w)), wanted, rtol=1e-7)
    assert np.isclose(pb.jvp(at, (3.0, w), (0.5, 2.0))[1], (0.5 * w + 2 * 3) * np.cos(3 * w), rtol=1e-7)
    mixed = np.cos(3 * w) - 3 * w * np.sin(3 * w)
    assert np.allclose(pb.grad(pb.grad(at, 1), (0, 1))(3.0, w), [mixed, -9 * np.sin(3 * w)], rtol=1e-6)
    assert np.isclose(pb.jvp(lambda w: pb.grad(at, 0)(3.0, w), (w,), (1.0,))[1], mixed, rtol=1e-6)


def test_dense_output_as_a_tree_in_batches_and_backward():
    rates = np.array([1.0, 2.0])
    both = pb.vmap(wave)(rates).dense
    found = pb.vmap(lambda solution, t: solution(t)[0])(both, np.array([1.0, 3.0]))
    assert np.allclose(found, np.sin(rates * [1.0, 3.0]), atol=1e-9)
    slopes = pb.vmap(pb.grad(lambda w: wave(w)(3.0)[0]))(rates)
    assert np.allclose(slopes, 3 * np.cos(3 * rates), rtol=1e-7)

    def reach(c):
        return pb.vmap(lambda w: wave(w, rtol=1e-4)(3.0)[0])(c * rates)

    spread = [jacobian(reach)(1.0) for jacobian in (pb.jacfwd, pb.jacrev)]
    assert np.allclose(spread, 3 * rates * np.cos(3 * rates), rtol=1e-2)
    outside = pb.jit(wave)(np.array(1.3))  # a compiled solve returns it
    assert np.isclose(outside(3.0)[0], np.sin(3.9), atol=1e-9)
    assert np.isclose(pb.vmap(outside)(np.array([3.0, 1.0]))[0][1], np.sin(1.3), atol=1e-9)
    times = np.linspace(-1, 1, 5)
    for method in (pb.ode.Bosh3(), pb.ode.Dopri8(), pb.ode.Kvaerno5()):
        back = pb.ode.solve(lambda t, y: -y, np.float64(1), (1.0, -1.0), dense=True, method=method, rtol=1e-6)
        assert np.allclose(back(times), np.exp(1 - times), rtol=2e-5)
    assert pb.ode.solve(lambda t, y: -y, 2.0, (1.0, 1.0), dense=True)(1.0) == 2.0
    single = pb.ode.solve(lambda t, y: -y, np.ones(3, np.float32), (0, 1), dense=True)
    assert single(0.5).dtype == np.float32
    tensor = pb.tensor(np.ones(2), requires_grad=True)
    pb.ode.solve(lambda t, y: -y, tensor, (0, 1), dense=True, **TIGHT)(0.5).sum().backward()
    assert np.allclose(tensor.grad, np.exp(-0.5), rtol=1e-8)


def test_up_to_an_event_and_no_further():
    event = pb.ode.Event(lambda t, y: y[0], direction=-1)

    def solve(g):
        return pb.ode.solve(lambda t, y: (y[1], -g), (20.0, 0.0), (0.0, 9.0), events=event, dense=True, **TIGHT)

    solution = solve(9.81)
    assert np.isclose(solution(solution.t / 2)[0], 15.0)
    # half way in time, which moves with g: y stays 15
    assert abs(pb.grad(lambda g: (lambda s: s(s.t / 2)[0])(solve(g)))(9.81)) < 1e-8
    with pytest.raises(pb.errors.ArgumentError, match="known from"):
        solution(2.5)


def test_times_outside_are_refused():
    solution = wave(1.0)
    for t in (6.1, -1e-9, np.nan, np.array([1.0, 7.0])):
        with pytest.raises(pb.errors.ArgumentError, match="known from"):
            solution(t)
    with pytest.raises(pb.errors.ArgumentError, match="known from"):
        pb.jit(lambda w: wave(w)(7.0)[0])(np.array(1.0))
    with pytest.raises(pb.errors.ArgumentError, match="no times"):
        solution(np.zeros(0))
    with pytest.raises(pb.errors.ArgumentError, match=r"pb\.vmap"):
        pb.vmap(wave)(np.ones(2))(1.0)
    with pytest.raises(pb.errors.ArgumentError, match="dense=True"):
        pb.ode.solve(lambda t, y: -y, 1.0, (0, 1))(0.5)
    with pytest.raises(pb.errors.ArgumentError, match="dense must be"):
        pb.ode.solve(lambda t, y: -y, 1.0, (0, 1), dense=100)
    short = pb.ode.solve(lambda t, y: y * y, 1.0, (0.0, 2.0), dense=True, strict=False)  # 1 / (1 - t)
    assert np.isclose(short(0.5), 2.0, rtol=1e-5)
    with pytest.raises(pb.errors.ArgumentError, match="known from"):
        short(1.5)


def test_adjoint_along_the_solution_in_all_modes():
    # y = exp(-k t + m t^2 / 2)
    def end(k, m):
        policy = pb.ode.InterpolatedAdjoint()
        return pb.ode.solve(lambda t, y, k: (m * t - k) * y, 1.0, (0.0, 1.0), k, derivative=policy, **TIGHT).y

    value = np.exp(-2.0 + 0.15)
    wanted = value * np.array([[1.0, -0.5], [-0.5, 0.25]])
    assert np.allclose([pb.grad(pb.grad(end, i), (0, 1))(2.0, 0.3) for i in (0, 1)], wanted, rtol=1e-8)
    assert np.isclose(pb.jvp(pb.grad(end), (2.0, 0.3), (1.0, 0.0))[1], value, rtol=1e-8)
    assert np.isclose(pb.grad(lambda k: pb.jvp(lambda k: end(k, 0.3), (k,), (1.0,))[1])(2.0), value, rtol=1e-8)
    assert np.isclose(pb.jit(pb.grad(pb.grad(end)))(np.array(2.0), np.array(0.3)), value, rtol=1e-8)
    assert np.isclose(pb.grad(pb.grad(pb.grad(end)))(2.0, 0.3), -value, rtol=1e-8)
    rates = np.array([1.0, 2.0])
    for wrap in (lambda f: f, pb.jit):
        assert np.allclose(wrap(pb.vmap(pb.grad(end), (0, None)))(rates, 0.3), -np.exp(0.15 - rates), rtol=1e-8)
    with pytest.raises(pb.errors.ArgumentError, match="rtol"):
        pb.ode.InterpolatedAdjoint(rtol=-1.0)


@pytest.mark.sweep
def test_adjoint_along_the_solution_is_stable_where_going_back_is_not():
    # a damped oscillator with a nonlinear force: what the start was, the end has forgotten
    def f(t, y, k):
        return pb.stack([y[1], -k * y[0] ** 3 - 8.0 * y[1] + pb.cos(t)])

    def end(k, policy):
        y0 = np.array([1.0, 0.0])
        return pb.ode.solve(f, y0, (0.0, 12.0), k, derivative=policy, rtol=1e-7, atol=1e-9).y[0]

    def exact(k):
        return solve_ivp(lambda t, y: np.asarray(f(t, y, k)), (0, 12), [1.0, 0.0], rtol=1e-12, atol=1e-13).y[0, -1]

    h = 1e-3
    wanted = (exact(2 + h) - exact(2 - h)) / (2 * h)
    assert np.isclose(pb.grad(end)(2.0, pb.ode.InterpolatedAdjoint()), wanted, rtol=1e-5)
    try:
        drifted = pb.grad(end)(2.0, pb.ode.ContinuousAdjoint())
    except pb.errors.IntegrationError:
        return
    assert not np.isclose(drifted, wanted, rtol=1e-2)


def test_further_equations_have_no_positions_and_velocities():
    options = {"method": pb.ode.Leapfrog(), "control": pb.ode.FixedSteps(400)}

    def end(k, policy):
        f = lambda t, y: (y[1], -k * y[0])  # noqa: E731
        return pb.ode.solve(f, (1.0, 0.0), (0.0, 2.0), derivative=policy, **options).y[0]

    w = np.sqrt(1.3)
    assert np.isclose(pb.grad(end)(1.3, pb.ode.ThroughSteps()), -np.sin(2 * w) / w, rtol=1e-5)
    for policy in (pb.ode.ContinuousAdjoint(), pb.ode.ForwardSensitivity(), pb.ode.InterpolatedAdjoint()):
        with pytest.raises(pb.errors.ArgumentError, match="symplectic"):
            pb.grad(end)(1.3, policy)
