"""Solutions and their derivatives against closed forms, SciPy and differences, and where they meet other features."""

import threading
import tracemalloc

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import pullback as pb

TIGHT = {"rtol": 1e-9, "atol": 1e-11}
POLICIES = [
    pb.ode.ThroughSteps(),
    pb.ode.ThroughSteps(snapshots=4),
    pb.ode.ContinuousAdjoint(),
    pb.ode.ForwardSensitivity(),
]
#: Problems of DETEST (Hull, Enright, Fellen, Sedgwick 1972), of which SciPy has the answer.
DETEST = {
    "A1": (lambda t, y: -y, np.array([1.0])),
    "A2": (lambda t, y: -(y**3) / 2, np.array([1.0])),
    "A3": (lambda t, y: y * pb.cos(t), np.array([1.0])),
    "A4": (lambda t, y: y / 4 * (1 - y / 20), np.array([1.0])),
    "B1": (lambda t, y: pb.stack([2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])]), np.array([1.0, 3.0])),
    "B5": (lambda t, y: pb.stack([y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]]), np.array([0.0, 1.0, 1.0])),
    "E2": (lambda t, y: pb.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0]]), np.array([2.0, 0.0])),
}


def lorenz(t, y, s, r, b):
    return pb.stack([s * (y[1] - y[0]), y[0] * (r - y[2]) - y[1], y[0] * y[1] - b * y[2]])


@pytest.mark.parametrize("name", DETEST)
def test_detest_problems_to_the_tolerance(name):
    f, y0 = DETEST[name]
    exact = solve_ivp(lambda t, y: np.asarray(f(t, y)), (0, 20), y0, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    for method in (pb.ode.Tsit5(), pb.ode.Dopri5(), pb.ode.Dopri8()):
        found = pb.ode.solve(f, y0, (0, 20), method=method, rtol=1e-8, atol=1e-8)
        assert np.abs(found.y - exact).max() < 1e-5, (name, method)  # a step errs by 1e-8, the whole by more
        assert 0 < found.report.error <= 1
        assert found.report.status == 0
        assert found.report.t == 20.0


def test_chains_and_orbits_of_detest():
    """Classes C (linear, beside exponentials) and D (ellipses, beside Kepler's equation), each as a batch."""
    ends, weights = np.r_[-np.ones(9), 0.0], np.arange(1.0, 10.0)
    chains = np.diag(np.ones(9), -1) + np.diag(ends), np.diag(weights, -1) + np.diag(np.r_[-weights, 0.0])
    chains = np.stack([*chains, np.diag(np.ones(9), -1) + np.diag(np.ones(9), 1) - 2 * np.eye(10)])
    options = {"method": pb.ode.Dopri8(), "rtol": 1e-9, "atol": 1e-9}
    decay = pb.jit(pb.vmap(lambda a: pb.ode.solve(lambda t, y, a: a @ y, np.eye(10)[0], (0, 20), a, **options).y))
    assert np.abs(decay(chains) - expm(20 * chains)[:, :, 0]).max() < 1e-8

    def orbit(e):
        start = (pb.stack([1 - e, 0.0]), pb.stack([0.0, pb.sqrt((1 + e) / (1 - e))]))
        return pb.ode.solve(lambda t, y: (y[1], -y[0] / pb.sum(y[0] ** 2) ** 1.5), start, (0, 20), **options)[1:3]

    e = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    (found, _), report = pb.jit(pb.vmap(orbit))(e)
    angle = 20 + e
    for _ in range(50):
        angle = angle - (angle - e * np.sin(angle) - 20) / (1 - e * np.cos(angle))
    assert np.abs(found - np.stack([np.cos(angle) - e, np.sqrt(1 - e**2) * np.sin(angle)], 1)).max() < 3e-7
    assert (np.diff(report.steps) > 0).all()  # the longer the ellipse, the more steps


def test_tighter_tolerances_give_smaller_errors():
    f, y0 = DETEST["B5"]
    exact = solve_ivp(lambda t, y: np.asarray(f(t, y)), (0, 20), y0, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    errors = [np.abs(pb.ode.solve(f, y0, (0, 20), rtol=tol, atol=tol).y - exact).max() for tol in (1e-4, 1e-6, 1e-8)]
    assert errors[0] > 20 * errors[1] > 400 * errors[2]


def test_saved_times_and_backward_time():
    def f(t, y):
        return pb.stack([y[1], -y[0]])

    times = np.linspace(0, 7, 29)
    for method in (pb.ode.Bosh3(), pb.ode.Tsit5(), pb.ode.Dopri5(), pb.ode.Dopri8()):
        there = pb.ode.solve(f, np.array([0.0, 1.0]), (0, 7), saveat=times, method=method, rtol=1e-7, atol=1e-9)
        assert there.y.shape == (29, 2)
        assert np.array_equal(there.t, times)
        assert np.abs(there.y - np.stack([np.sin(times), np.cos(times)], 1)).max() < 2e-5
        back = pb.ode.solve(f, there.y[-1], (7, 0), saveat=times[::-1], method=method, rtol=1e-7, atol=1e-9)
        assert np.abs(back.y[::-1] - there.y).max() < 4e-5


def test_the_report_counts_evaluations():
    calls = []

    def f(t, y):
        calls.append(float(t))  # not traceable, so it runs as it stands
        return -y * y

    with np.errstate(all="ignore"):
        report = pb.ode.solve(f, np.array([1.0, 2.0]), (0.0, 30.0)).report
    assert report.rejected + report.steps > 5
    assert report.evaluations == len([c for c in calls if c == c])
    assert "accepted" in str(report)
    assert "reached the end" in str(report)


def test_trees_numbers_and_shapes():
    y0 = {"q": np.ones((2, 3)), "p": [np.zeros(()), np.full(1, 2.0)]}

    def f(t, y, k):
        return {"q": -y["q"] * k, "p": [y["q"].sum() * 0.0 + 1.0, y["p"][1] * 0.0]}

    found = pb.ode.solve(f, y0, (0, 2), 0.5, saveat=[1, 2]).y
    assert found["q"].shape == (2, 2, 3)
    assert found["p"][0].shape == (2,)
    assert found["p"][1].shape == (2, 1)
    assert np.allclose(found["q"][1], np.exp(-1.0), atol=1e-6)
    assert np.allclose(found["p"][0], [1, 2])
    still = pb.ode.solve(f, y0, (1, 1), 0.5)
    assert np.array_equal(still.y["q"], y0["q"])
    assert still.report.steps == 0
    for dtype in (np.float32, np.float64):
        y = pb.ode.solve(lambda t, y: -t * y, np.ones(3, dtype), (0, 1)).y
        assert y.dtype == dtype
        assert np.allclose(y, np.exp(-0.5), atol=1e-4)
    single = pb.ode.solve(lambda t, y: -y, np.ones(2, np.float32), (0, 1), derivative=POLICIES[0])
    assert single.report.error <= 1


def test_mistakes_are_refused():
    def f(t, y):
        return -y

    for options, error, words in [
        ({"saveat": [0.0, 2.0]}, pb.errors.ArgumentError, "saveat"),
        ({"saveat": [0.5, 0.2]}, pb.errors.ArgumentError, "not in order"),
        ({"saveat": 0.5}, pb.errors.ShapeError, "saveat"),
        ({"method": "RK45"}, pb.errors.ArgumentError, "Tsit5"),
        ({"method": pb.ode.Tsit5}, pb.errors.ArgumentError, "Tsit5"),
        ({"control": 0.1}, pb.errors.ArgumentError, "PID"),
        ({"derivative": "adjoint"}, pb.errors.ArgumentError, "ThroughSteps"),
        ({"rtol": -1.0}, pb.errors.ArgumentError, "rtol"),
        ({"rtol": 0.0, "atol": 0.0}, pb.errors.ArgumentError, "both zero"),
        ({"max_steps": 0}, pb.errors.ArgumentError, "max_steps"),
        ({"method": pb.ode.Leapfrog()}, pb.errors.ArgumentError, "positions"),
    ]:
        with pytest.raises(error, match=words):
            pb.ode.solve(f, 1.0, (0, 1), **options)
    with pytest.raises(pb.errors.ArgumentError, match="span"):
        pb.ode.solve(f, 1.0, 1.0)
    with pytest.raises(pb.errors.ArgumentError, match="finite"):
        pb.ode.solve(f, 1.0, (0.0, np.inf))
    with pytest.raises(pb.errors.ShapeError, match="shape"):
        pb.ode.solve(lambda t, y: y.sum(), np.ones(3), (0, 1))
    with pytest.raises(pb.errors.ArgumentError, match="FixedSteps"):
        pb.ode.solve(lambda t, y: (y[1], -y[0]), (1.0, 0.0), (0, 1), method=pb.ode.Leapfrog())


@pytest.mark.parametrize("compiled", [False, True])
def test_solves_that_fail_say_where(compiled):
    wrap = pb.jit if compiled else lambda f: f
    blow_up = wrap(lambda y0: pb.ode.solve(lambda t, y: y * y, y0, (0.0, 2.0)).y)  # 1 / (1 - t)
    with pytest.raises(pb.errors.StepUnderflowError, match="t = 1"):
        blow_up(np.array(1.0))
    many = wrap(lambda y0: pb.ode.solve(lambda t, y: pb.cos(50 * t), y0, (0.0, 100.0), max_steps=40).y)
    with pytest.raises(pb.errors.TooManyStepsError, match="40 steps"):
        many(np.array(1.0))
    broken = wrap(lambda y0: pb.ode.solve(lambda t, y: pb.log(0.5 - t) + 0 * y, y0, (0.0, 1.0)).y)
    with pytest.raises(pb.errors.NonFiniteStateError, match=r"t = 0\.4|t = 0\.5"), np.errstate(all="ignore"):
        broken(np.array(1.0))
    # linear in the state: the gradient asks for none
    slope = wrap(pb.grad(lambda k: pb.ode.solve(lambda t, y, k: pb.cos(k * t), 0.0, (0.0, 9.0), k, max_steps=9).y))
    with pytest.raises(pb.errors.TooManyStepsError, match="9 steps"):
        slope(np.array(50.0))
    lax = wrap(lambda y0: pb.ode.solve(lambda t, y: y * y, y0, (0.0, 2.0), strict=False).report.status)
    assert int(lax(np.array(1.0))) == 2
    with pytest.raises(pb.errors.IntegrationError, match="element 1 of the batch"):
        pb.vmap(blow_up)(np.array([0.1, 1.0, 0.2]))


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_span_of_no_length_moves_with_its_times(policy):
    """Derivatives at t1 = t0 are those of the slope: a solve without steps had none."""

    def end(t0, t1, y0, k, at=None):
        times = None if at is None else pb.stack([at, at])
        y = pb.ode.solve(lambda t, y, k: pb.sin(t) - k * y, y0, (t0, t1), k, saveat=times, derivative=policy).y
        return y if at is None else y[1]

    x = tuple(map(np.asarray, (0.5, 0.5, 1.2, 0.7)))
    slope = np.sin(0.5) - 0.7 * 1.2
    assert np.allclose(pb.grad(end, (0, 1, 2, 3))(*x), [-slope, slope, 1.0, 0.0])
    assert np.allclose(pb.grad(end, (0, 1, 2, 4))(*x, x[0]), [-slope, 0.0, 1.0, slope])
    assert np.isclose(pb.jvp(end, x, (0.0, 2.0, 0.0, 0.0))[1], 2 * slope)
    second = pb.grad(lambda t1, k: pb.grad(end, 1)(0.5, t1, 1.2, k), (0, 1))(x[1], x[3])
    assert np.allclose(second, [np.cos(0.5) - 0.7 * slope, -1.2])
    found = pb.vmap(pb.grad(lambda t1: end(0.5, t1, 1.2, 0.7)))(np.array([0.5, 1.0]))
    assert np.isclose(found[0], slope)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_gradients_of_lorenz(policy):
    y0, p = np.array([1.0, 0.5, -0.3]), (10.0, 28.0, 8 / 3)

    def loss(y0, t0, t1, p):
        return (pb.ode.solve(lorenz, y0, (t0, t1), *p, derivative=policy, **TIGHT).y ** 2).sum()

    def exact(y0, t0, t1, p):
        def f(t, y):
            return np.asarray(lorenz(t, y, *p))

        return (solve_ivp(f, (t0, t1), y0, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1] ** 2).sum()

    found = pb.grad(loss, argnums=(0, 1, 2, 3))(y0, 0.0, 0.6, p)
    h = 1e-5
    wanted = [(exact(y0 + h * e, 0, 0.6, p) - exact(y0 - h * e, 0, 0.6, p)) / (2 * h) for e in np.eye(3)]
    assert np.allclose(found[0], wanted, rtol=2e-5)
    assert np.allclose(found[2], (exact(y0, 0, 0.6 + h, p) - exact(y0, 0, 0.6 - h, p)) / (2 * h), rtol=2e-5)
    assert np.allclose(found[1], (exact(y0, h, 0.6, p) - exact(y0, -h, 0.6, p)) / (2 * h), rtol=2e-5)

    def move(i, h):
        return tuple(x + h * (i == j) for j, x in enumerate(p))

    wanted = [(exact(y0, 0, 0.6, move(i, h)) - exact(y0, 0, 0.6, move(i, -h))) / (2 * h) for i in range(3)]
    assert np.allclose(found[3], wanted, rtol=2e-5)
    along = pb.jvp(lambda p: loss(y0, 0.0, 0.6, p), (p,), ((1.0, 0.5, -2.0),))[1]
    assert np.isclose(along, np.dot(found[3], (1.0, 0.5, -2.0)), rtol=1e-6)
    compiled = pb.jit(pb.grad(loss, argnums=(0, 1, 2, 3)))(y0, np.array(0.0), np.array(0.6), p)
    for a, b in zip(pb.tree.leaves(compiled), pb.tree.leaves(found), strict=True):
        assert np.allclose(a, b, rtol=1e-7)


@pytest.mark.parametrize("policy", [POLICIES[0], *POLICIES[2:]], ids=repr)
def test_second_derivatives_in_all_modes(policy):
    # y = exp(-k t + m t^2 / 2)
    def end(k, m):
        return pb.ode.solve(lambda t, y, k: (m * t - k) * y, 1.0, (0.0, 1.0), k, derivative=policy, **TIGHT).y

    value = np.exp(-2.0 + 0.15)
    wanted = value * np.array([[1.0, -0.5], [-0.5, 0.25]])
    assert np.allclose([pb.grad(pb.grad(end, i), (0, 1))(2.0, 0.3) for i in (0, 1)], wanted, rtol=1e-6)
    mixed = pb.jvp(pb.grad(end), (2.0, 0.3), (1.0, 0.0))[1]
    assert np.isclose(mixed, wanted[0, 0], rtol=1e-6)
    forward = pb.jvp(lambda k: pb.jvp(lambda k: end(k, 0.3), (k,), (1.0,))[1], (2.0,), (1.0,))[1]
    assert np.isclose(forward, wanted[0, 0], rtol=1e-6)
    over = pb.grad(lambda k: pb.jvp(lambda k: end(k, 0.3), (k,), (1.0,))[1])(2.0)
    assert np.isclose(over, wanted[0, 0], rtol=1e-6)
    compiled = pb.jit(pb.grad(pb.grad(end)))(np.array(2.0), np.array(0.3))
    assert np.isclose(compiled, wanted[0, 0], rtol=1e-6)


def test_third_derivative():
    def end(k):
        return pb.ode.solve(lambda t, y: -k * y, 1.0, (0.0, 1.0), **TIGHT).y

    assert np.isclose(pb.grad(pb.grad(pb.grad(end)))(2.0), -np.exp(-2.0), rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_at_saved_times(policy, compiled):
    times = np.array([0.0, 0.3, 0.3, 1.1, 2.0])  # twice the same, and both ends
    weights = np.array([1.0, -2.0, 0.5, 3.0, 0.7])

    def loss(k, times, y0):
        y = pb.ode.solve(lambda t, y: -k * y, y0, (0.0, 2.0), saveat=times, derivative=policy, **TIGHT).y
        return (weights * y * y).sum()

    call = pb.grad(loss, argnums=(0, 1, 2))
    k_bar, times_bar, y_bar = (pb.jit(call) if compiled else call)(np.array(0.8), times, np.array(1.5))
    y = 1.5 * np.exp(-0.8 * times)
    assert np.isclose(k_bar, (weights * 2 * y * -times * y).sum(), rtol=1e-6)
    assert np.allclose(times_bar, weights * 2 * y * -0.8 * y, rtol=2e-5, atol=1e-7)
    assert np.isclose(y_bar, (weights * 2 * y * y / 1.5).sum(), rtol=1e-6)


def test_compiled_is_equal_to_eager():
    p = (10.0, 28.0, 8 / 3)

    def run(y0):
        return pb.ode.solve(lorenz, y0, (0.0, 2.0), *p, saveat=np.linspace(0, 2, 7))

    eager, compiled = run(np.ones(3)), pb.jit(lambda y: run(y)[1:])(np.ones(3))
    assert np.allclose(eager.y, compiled[0], rtol=1e-9)
    assert compiled[1].steps == eager.report.steps
    assert compiled[1].rejected == eager.report.rejected


def test_batches_have_steps_of_their_own():
    rates = np.array([0.1, 3.0, 400.0])

    def solve(k):
        return pb.ode.solve(lambda t, y: -k * (y - pb.cos(t)), 0.5, (0.0, 1.0))

    alone = [solve(k) for k in rates]
    for run in (pb.vmap(solve), pb.jit(pb.vmap(solve))):
        _, y, report, *_ = run(rates)
        assert np.allclose(y, [s.y for s in alone], rtol=1e-9)
        assert np.array_equal(report.steps, [s.report.steps for s in alone])
    assert alone[2].report.steps > 5 * alone[0].report.steps

    def end(k):
        return solve(k).y

    one_by_one = np.array([pb.grad(end)(k) for k in rates])
    assert np.allclose(pb.vmap(pb.grad(end))(rates), one_by_one, rtol=1e-8)
    assert np.allclose(pb.grad(lambda k: pb.vmap(end)(k).sum())(rates), one_by_one, rtol=1e-8)
    assert np.allclose(pb.jit(pb.grad(lambda k: pb.vmap(end)(k).sum()))(rates), one_by_one, rtol=1e-8)
    square = rates[:2, None] + rates[None, :2]
    nested = pb.vmap(pb.vmap(pb.grad(end)))(square)
    assert np.allclose(nested, [[pb.grad(end)(k) for k in row] for row in square], rtol=1e-8)


def test_snapshots_hold_the_memory():
    w = np.random.default_rng(0).normal(size=(2_000,)) * 0.1
    control = pb.ode.FixedSteps(60)

    def peak(policy):
        def loss(w):
            return pb.ode.solve(
                lambda t, y, w: pb.tanh(w - y), w, (0, 1), w, control=control, derivative=policy
            ).y.sum()

        with pb.memory.profile() as profile:
            grad = pb.grad(loss)(w)
        return grad, profile.peak

    few, small = peak(pb.ode.ThroughSteps(snapshots=5))
    every, large = peak(pb.ode.ThroughSteps())
    assert np.allclose(few, every, rtol=1e-12)
    # five snapshots and the tape of one step of six stages, each of a few arrays of 16 kB
    assert small < large
    assert small < 60 * w.nbytes


def test_all_states_are_held_once():
    y, count = np.ones(1_000), 500
    tracemalloc.start()
    try:
        pb.grad(lambda y: pb.ode.solve(lambda t, y: -y, y, (0.0, 1.0), max_steps=count).y.sum())(y)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * count * y.nbytes
    finally:
        tracemalloc.stop()


def test_modules_tapes_checkpoints_and_optimizers():
    pb.random.seed(0)
    net = pb.nn.Sequential(pb.nn.Linear(2, 8), pb.nn.Tanh(), pb.nn.Linear(8, 2))
    y0 = np.array([[1.0, 0.0], [0.3, -0.2]], np.float32)
    target = y0 @ np.array([[0.5, 0.5], [-0.5, 0.5]], np.float32)
    control = pb.ode.FixedSteps(5)

    def loss():
        return ((pb.ode.solve(lambda t, y: net(y), y0, (0, 1), control=control).y - target) ** 2).mean()

    parameters = list(net.parameters())
    loss().backward()
    found = [p.grad.numpy().copy() for p in parameters]
    p, h = parameters[0], 1e-2
    direction = np.zeros(p.shape, np.float32)
    direction.flat[3] = h
    before = p.detach().numpy().copy()
    with pb.no_grad():
        p[...] = before + direction
        up = float(loss())
        p[...] = before - direction
        down = float(loss())
        p[...] = before
    assert np.isclose(found[0].flat[3], (up - down) / (2 * h), rtol=2e-2, atol=1e-4)
    optimizer = pb.optim.Adam(parameters, lr=0.02)
    first = float(loss())
    for _ in range(25):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert float(loss()) < 0.2 * first

    def inside(k):
        return pb.checkpoint(lambda k: pb.ode.solve(lambda t, y: -k * y, 1.0, (0.0, 1.0)).y)(k)

    assert np.isclose(pb.grad(inside)(2.0), -np.exp(-2.0), rtol=1e-5)


def test_fit_of_parameters_compiled():
    times = np.linspace(0.5, 8, 16)

    def f(t, y, a):
        return pb.stack([a[0] * y[0] - a[1] * y[0] * y[1], a[2] * y[0] * y[1] - a[3] * y[1]])

    true = np.array([1.0, 0.5, 0.4, 0.9])
    data = solve_ivp(
        lambda t, y: np.asarray(f(t, y, true)), (0, 8), [2.0, 1.0], t_eval=times, rtol=1e-10, atol=1e-10
    ).y.T

    def model(a):
        return pb.ode.solve(f, np.array([2.0, 1.0]), (0.0, 8.0), a, saveat=times).y

    residual = pb.jit(lambda a: model(a) - data)
    found = pb.least_squares(residual, np.array([0.9, 0.55, 0.35, 1.0]), tol=1e-6)
    assert np.allclose(found, true, atol=1e-4)


def test_solves_in_threads():
    grad = pb.grad(lambda k: pb.ode.solve(lambda t, y: -k * y, 1.0, (0.0, 1.0)).y)
    results = {}
    threads = [threading.Thread(target=lambda k=k: results.update({k: float(grad(k))})) for k in (0.5, 1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.isclose(results[k], -np.exp(-k), rtol=1e-4) for k in (0.5, 1.0, 2.0, 3.0))


def test_a_solve_inside_a_loop_and_inside_f():
    def chain(k):
        return pb.fori_loop(0, 3, lambda i, y: pb.ode.solve(lambda t, y: -k * y, y, (0.0, 1.0), **TIGHT).y, 1.0)

    for run in (chain, pb.jit(chain)):
        assert np.isclose(run(np.array(0.5)), np.exp(-1.5), rtol=1e-7)
        assert np.isclose(pb.grad(run)(np.array(0.5)), -3 * np.exp(-1.5), rtol=1e-7)

    def inner(t, y):
        return -pb.ode.solve(lambda s, x: y, 0.0, (0.0, 1.0)).y  # the integral of a constant

    assert np.isclose(pb.ode.solve(inner, 1.0, (0.0, 1.0)).y, np.exp(-1), rtol=1e-5)


@pytest.mark.parametrize("kind", [pb.ode.ContinuousAdjoint, pb.ode.InterpolatedAdjoint, pb.ode.ForwardSensitivity])
def test_further_equations_that_fail_say_so(kind):
    """A gradient whose own solve needs more steps than there may be is an error, or NaN: it was a number."""

    def end(k, strict):
        f = lambda t, y, k: pb.stack([-k * y[0] * pb.sin(3 * t) ** 2, pb.cos(y[0]) * y[1]])  # noqa: E731
        options = {"rtol": 1e-3, "derivative": kind(rtol=1e-7), "strict": strict, "max_steps": 13}
        return pb.ode.solve(f, np.ones(2), (0.0, 5.0), k, **options).y.sum()

    assert end(1.3, True) > 1
    with pytest.raises(pb.errors.TooManyStepsError, match=r"the solve (of its|backward)"):
        pb.grad(end)(1.3, True)
    assert np.isnan(pb.grad(end)(1.3, False))


@pytest.mark.parametrize("change", [lambda f: f, pb.jit, pb.vmap], ids=["eager", "compiled", "batch"])
def test_a_solve_backward_that_loses_its_way_says_so(change):
    """A limit cycle forgets its start: going back finds another state, and the gradient was any number."""
    f = lambda t, y, k: pb.stack([y[1], k * (1 - y[0] ** 2) * y[1] - y[0]])  # noqa: E731
    policy = pb.ode.ContinuousAdjoint()

    def slope(k, strict=True, span=(0.0, 20.0), saveat=None):
        args = np.array([k]) if change is pb.vmap else k
        loss = lambda k: pb.sum(  # noqa: E731
            pb.ode.solve(f, np.array([2.0, 0.0]), span, k, derivative=policy, strict=strict, saveat=saveat).y ** 2
        )
        return np.squeeze(change(pb.grad(loss))(args))

    with pytest.raises(pb.errors.IntegrationError, match=r"the solve backward .* came to another state"):
        slope(2.0)
    with pytest.raises(pb.errors.IntegrationError, match=r"came to another state"):
        slope(2.0, saveat=np.array([0.1, 19.0]))
    assert np.isnan(slope(2.0, strict=False))
    exact = pb.grad(lambda k: pb.sum(pb.ode.solve(f, np.array([2.0, 0.0]), (0.0, 2.0), k).y ** 2))(0.2)
    assert np.isclose(slope(0.2, span=(0.0, 2.0)), exact, rtol=1e-4)


def test_rejected_steps_that_overflow_leave_gradients_finite():
    # the first guess of a step is far too long, and the trial overflows; y = (y0^-6 + 6 t)^(-1/6)
    control, f = pb.ode.PID(first=1.0), lambda t, y: -(y**7)

    def end(y0):
        return pb.ode.solve(f, y0, (0.0, 1.0), control=control, rtol=1e-8).y

    for grad in (pb.grad(end), pb.jit(pb.grad(end)), lambda y: pb.vmap(pb.grad(end))(y[None])[0]):
        assert np.isclose(grad(np.array(2.0)), (2.0**-6 + 6) ** (-7 / 6) * 2.0**-7, rtol=1e-5)
    assert pb.ode.solve(f, 2.0, (0.0, 1.0), control=control).report.rejected > 1


@pytest.mark.parametrize("snapshots", [None, 3])
def test_a_solve_that_stops_early_has_the_derivative_of_what_it_returns(snapshots):
    policy, times = pb.ode.ThroughSteps(snapshots=snapshots), np.array([0.4, 2.0])

    def end(k, y0, t1, at=None):
        options = {"saveat": at, "derivative": policy, "max_steps": 20, "strict": False}
        return pb.ode.solve(lambda t, y: pb.cos(k * t) * k * y, y0, (0.0, t1), **options).y.sum()

    # linear in the start, and t1 has no part in it
    found = pb.grad(end, (1, 2))(50.0, 1.0, 2.0)
    assert np.isclose(found[0], end(50.0, 1.0, 2.0), rtol=1e-12)
    assert found[1] == 0
    # rows that were not reached are the start, beside an element of the batch that gets there
    gradient = pb.grad(lambda k: end(k, 1.0, 2.0, times))
    found = pb.vmap(gradient)(np.array([50.0, 0.5]))
    assert found[0] == 0
    assert np.isclose(found[1], gradient(0.5), rtol=1e-12)
    assert pb.jvp(lambda k: end(k, 1.0, 2.0, times), (50.0,), (1.0,))[1] == 0


def test_states_at_the_edge():
    assert pb.ode.solve(lambda t, y: -y, 1, (0, 1)).y == pb.ode.solve(lambda t, y: -y, 1.0, (0, 1)).y
    assert np.array_equal(*(pb.ode.solve(lambda t, y: -y, np.array([1, 2], d), (0, 1)).y for d in (int, float)))
    # without an atol, a number that stays zero has no error
    assert np.isclose(pb.ode.solve(lambda t, y: -y, np.array([0.0, 1.0]), (0, 1), atol=0.0).y, [0, np.exp(-1)]).all()
    empty = pb.ode.solve(lambda t, y: -y, np.zeros((0, 2)), (0.0, 1.0))
    assert (empty.y.shape, empty.report.status) == ((0, 2), 0)
    with pytest.raises(pb.errors.DtypeError, match="unknowns are real"):
        pb.ode.solve(lambda t, y: 1j * y, np.ones(2), (0.0, 1.0))


def test_functions_that_fill_one_array_or_write_to_their_state():
    """As code for SciPy does that saves allocations; such a function cannot be traced."""
    filled = np.zeros(2)

    def fill(t, y):
        filled[0], filled[1] = y[1], -y[0]
        return filled

    def overwrite(t, y, k):
        y *= k
        return np.array([float(y[1]), -float(y[0])])

    wanted = [[1.0, 0.0], [np.cos(1.0), -np.sin(1.0)]]
    for f, params in ((fill, ()), (overwrite, (np.ones(2),)), (overwrite, (np.array(1.0),))):
        found = pb.ode.solve(f, np.array([1.0, 0.0]), (0.0, 1.0), *params, saveat=[0.0, 1.0], **TIGHT)
        np.testing.assert_allclose(found.y, wanted, atol=1e-8)
    k = np.full(2, 1.5)
    found = pb.ode.solve(overwrite, np.array([1.0, 0.0]), (0.0, 1.0), k, **TIGHT).y
    np.testing.assert_allclose(found, [np.cos(1.5), -np.sin(1.5)], atol=1e-8)
    assert (k == 1.5).all()


@pytest.mark.parametrize("policy", [*POLICIES[2:], pb.ode.InterpolatedAdjoint()], ids=repr)
def test_compiled_gradients_of_a_parameter_more_precise_than_the_state(policy):
    def end(y, k):
        return pb.ode.solve(lambda t, y, k: -k * y, y, (0.0, 1.0), k, derivative=policy).y.sum()

    y, k = np.ones(2, np.float32), np.array([2.0, 1.0])
    found = pb.jit(pb.grad(end, (0, 1)))(y, k)
    assert [x.dtype for x in found] == [np.float32, np.float64]
    np.testing.assert_allclose(found, [np.exp(-k), -np.exp(-k)], rtol=2e-4)


def test_saved_times_in_a_compiled_batch():
    """An element that is done goes on, beyond its last time."""
    times, rates = np.array([0.0, 0.5, 1.0]), np.array([1.0, 40.0])

    def run(k):
        return pb.ode.solve(lambda t, y: -k * y, 1.0, (0.0, 1.0), saveat=times, method=pb.ode.Bosh3()).y

    assert np.allclose(pb.jit(pb.vmap(run))(rates), [run(k) for k in rates], rtol=1e-12)


def test_a_compiled_solve_keeps_states_for_a_gradient_alone():
    compiled = pb.jit(lambda y: pb.ode.solve(lambda t, y: -y, y, (0.0, 1.0), method=pb.ode.Bosh3()).y)
    assert compiled.find(np.ones(500)).memory().peak < 30 * 4000


def test_complex_states():
    """Schroedinger's equation in three dimensions, beside an exponential of the matrix."""
    rng = np.random.default_rng(0)
    h, v = (m + m.conj().T for m in rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3)))
    psi = rng.normal(size=3) + 1j * rng.normal(size=3)

    def measure(y):
        return pb.real(y[0]) * 2 + pb.imag(y[1]) + pb.abs(y[2]) ** 2

    def by_solve(u, psi, h, **options):
        found = pb.ode.solve(lambda t, y, u, h: -1j * (h + u * v) @ y, psi, (0.0, 1.0), u, h, **TIGHT, **options)
        return measure(found.y)

    def by_exponential(u, psi, h):
        return measure(pb.linalg.expm(-1j * (h + u * v)) @ psi)

    wanted = pb.grad(by_exponential, argnums=(0, 1, 2))(0.3, psi, h)
    policies = (
        pb.ode.ThroughSteps(),
        pb.ode.ContinuousAdjoint(),
        pb.ode.InterpolatedAdjoint(),
        pb.ode.ForwardSensitivity(),
    )
    for policy in policies:
        derive = pb.grad(lambda *xs, policy=policy: by_solve(*xs, derivative=policy), argnums=(0, 1, 2))
        found = (pb.jit(derive) if policy is policies[0] else derive)(0.3, psi, h)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    second = pb.hessian(by_exponential)(0.3, psi, h)
    np.testing.assert_allclose(pb.hessian(by_solve)(0.3, psi, h), second, rtol=1e-6)
    u = np.array([0.3, 0.4])
    found = pb.vmap(pb.grad(by_solve), (0, None, None))(u, psi, h)
    np.testing.assert_allclose(found, [pb.grad(by_exponential)(x, psi, h) for x in u], rtol=1e-6)


def test_complex_states_beside_real_ones():
    y0 = {"a": np.complex64(1), "b": np.ones(2, np.float32)}
    found = pb.ode.solve(lambda t, y: {"a": 1j * y["a"], "b": -y["b"]}, y0, (0.0, 1.0), saveat=np.array([0.0, 1.0]))
    assert found.y["a"].dtype == np.complex64
    assert found.y["b"].dtype == np.float32
    np.testing.assert_allclose(found.y["a"][1], np.exp(1j), rtol=1e-4)
    np.testing.assert_allclose(found.y["b"][1], np.exp(-np.ones(2)), rtol=1e-4)
    with pytest.raises(pb.errors.DtypeError, match=r"Begin with complex numbers"):
        pb.ode.solve(lambda t, y: 1j * y, 1.0, (0.0, 1.0))
    steps = {"method": pb.ode.Leapfrog(), "control": pb.ode.FixedSteps(3)}
    with pytest.raises(pb.errors.ArgumentError, match="two arrays of one shape"):
        pb.ode.solve(lambda t, y: y, (np.ones(2) + 0j, np.ones(2)), (0.0, 1.0), **steps)
