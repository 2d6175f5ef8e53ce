"""Events: their times, states and derivatives of both against closed forms, elliptic integrals and each other."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import pullback as pb

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
POLICIES = [
    pb.ode.ThroughSteps(),
    pb.ode.ThroughSteps(snapshots=4),
    pytest.param(pb.ode.ContinuousAdjoint(), marks=pytest.mark.sweep),
    pytest.param(pb.ode.ForwardSensitivity(), marks=pytest.mark.sweep),
    pytest.param(pb.ode.InterpolatedAdjoint(), marks=pytest.mark.sweep),
]
GRAVITY = 9.81


def throw(t, y, g):
    return pb.stack([y[1], -g])


def pendulum(t, y):
    return pb.stack([y[1], -pb.sin(y[0])])


def landed(t, y, *params):
    return y[0]


def flight(height, speed, g):
    """When what is thrown upward lands."""
    return (speed + np.sqrt(speed**2 + 2 * g * height)) / g


def land(x, policy=None, **options):
    height, speed, g = x[0], x[1], x[2]
    start, event = pb.stack([height, speed]), pb.ode.Event(landed, direction=-1)
    return pb.ode.solve(throw, start, (0.0, 20.0), g, events=event, derivative=policy, **{**TIGHT, **options})


def by_complex_steps(function, x):
    return np.array([function(*(x + 1e-30j * e)).imag / 1e-30 for e in np.eye(len(x))])


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_flight_of_a_ball_in_all_modes(policy):
    x = np.array([20.0, 3.0, GRAVITY])

    def when(x):
        return land(x, policy).t

    def crash(x):
        return land(x, policy).y[1]

    def exact_crash(height, speed, g):
        return -np.sqrt(speed**2 + 2 * g * height)

    found = land(x, policy)
    assert abs(found.t - flight(*x)) < 1e-12
    assert abs(found.y[0]) < 1e-12
    assert found.report.status == 5
    assert "event" in str(found.report)
    assert found.events[0].count == 1
    assert found.events[0].t[0] == found.t
    slope, direction = by_complex_steps(flight, x), np.array([0.3, -1.0, 0.2])
    assert np.allclose(pb.grad(when)(x), slope, rtol=1e-8)
    assert np.allclose(pb.grad(crash)(x), by_complex_steps(exact_crash, x), rtol=1e-8)
    assert np.isclose(pb.jvp(when, (x,), (direction,))[1], slope @ direction, rtol=1e-8)
    h = 1e-4  # differences of complex steps
    curve = [(by_complex_steps(flight, x + h * e) - by_complex_steps(flight, x - h * e)) / (2 * h) for e in np.eye(3)]
    along = np.array(curve) @ direction
    assert np.allclose(pb.jvp(pb.grad(when), (x,), (direction,))[1], along, rtol=1e-6, atol=1e-9)
    assert np.allclose(pb.grad(lambda x: pb.grad(when)(x) @ direction)(x), along, rtol=1e-6, atol=1e-9)
    assert np.allclose(pb.jit(pb.grad(when))(x), slope, rtol=1e-8)
    if policy != POLICIES[1]:  # the same compiled
        over = pb.grad(lambda x: pb.jvp(when, (x,), (direction,))[1])
        assert np.allclose(pb.jit(over)(x), along, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("compiled", [False, True])
def test_each_element_of_a_batch_has_an_event_of_its_own(compiled):
    wrap = pb.jit if compiled else lambda f: f
    xs = np.array([[20.0, 3.0, 9.81], [0.1, 0.0, 9.81], [500.0, 3.0, 1.6]])  # the last one does not land

    def end(x):
        found = land(x)
        return found.t, found.y, found.events[0].count

    t, y, count = wrap(pb.vmap(end))(xs)
    assert np.allclose(t[:2], [flight(*x) for x in xs[:2]], rtol=1e-12)
    assert t[2] == 20.0
    assert np.array_equal(count, [1, 1, 0])
    assert np.isclose(y[2, 0], 500.0 + 60 - 0.8 * 400)
    slopes = wrap(pb.vmap(pb.grad(lambda x: land(x).t)))(xs)
    assert np.allclose(slopes, [*(by_complex_steps(flight, x) for x in xs[:2]), [0, 0, 0]], rtol=1e-8)
    nested = wrap(pb.vmap(pb.vmap(pb.grad(lambda x: land(x).t))))(xs[None, :2])
    assert np.allclose(nested[0], slopes[:2], rtol=1e-10)


def test_a_bouncing_ball():
    bounces, span = 5, 10.0

    def bounce(height, keep):
        """The time of the last bounce, and where the ball is half a second later."""

        def once(carry, _):
            t, y = carry
            found = pb.ode.solve(throw, y, (t, span), GRAVITY, events=pb.ode.Event(landed, direction=-1), **TIGHT)
            return (found.t, found.y * pb.stack([0.0, -keep])), found.t

        start = (np.array(0.0), pb.stack([height, 0.0]))
        (t, y), times = pb.scan(once, start, None, length=bounces)
        return times, pb.ode.solve(throw, y, (t, t + 0.5), GRAVITY, **TIGHT).y[0]

    def exact(height, keep):
        fall = np.sqrt(2 * height / GRAVITY)
        times = fall * np.array([1 + 2 * sum(keep**i for i in range(1, n + 1)) for n in range(bounces)])
        return times, keep**bounces * GRAVITY * fall * 0.5 - GRAVITY * 0.125

    x = np.array([5.0, 0.9])
    times, height = bounce(*x)
    assert np.allclose(times, exact(*x)[0], rtol=1e-11)
    assert np.isclose(height, exact(*x)[1], rtol=1e-10)
    for which in (lambda f: lambda *x: f(*x)[0][-1], lambda f: lambda *x: f(*x)[1]):
        slope = by_complex_steps(which(exact), x)
        for wrap in (lambda f: f, pb.jit):
            assert np.allclose(wrap(pb.grad(which(bounce), (0, 1)))(*x), slope, rtol=1e-8)


def test_period_of_a_pendulum():
    # from rest at the angle a: a quarter of the period is K(sin^2(a / 2)) after
    quarter = pb.ode.Event(lambda t, y: y[0])

    def period(a):
        return 4 * pb.ode.solve(pendulum, pb.stack([a, 0.0]), (0.0, 50.0), events=quarter, **TIGHT).t

    def exact(a):
        return 4 * mpmath.ellipk(mpmath.sin(a / 2) ** 2)

    for method in (pb.ode.Tsit5(), pb.ode.Dopri8()):
        found = pb.ode.solve(pendulum, np.array([2.0, 0.0]), (0.0, 50.0), events=quarter, method=method, **TIGHT)
        assert abs(4 * found.t - float(exact(2.0))) < 1e-8
        assert abs(found.y[0]) < 1e-13
    assert np.isclose(pb.grad(period)(2.0), float(mpmath.diff(exact, 2.0)), rtol=1e-7)
    assert np.isclose(pb.jit(pb.grad(pb.grad(period)))(np.array(2.0)), float(mpmath.diff(exact, 2.0, 2)), rtol=1e-6)


@pytest.mark.parametrize("policy", [*POLICIES[:1], *POLICIES[2:]], ids=repr)
@pytest.mark.parametrize("ahead", [1.0, pytest.param(-1.0, marks=pytest.mark.sweep)])
def test_crossings_on_the_way(policy, ahead):
    # cos(w t) falls through c at arccos(c) / w, and it ends where the sine is -0.9
    times = ahead * np.array([0.0, 1.0, 1.0, 6.0, 6.4])

    def solve(c, w):
        f = lambda t, y: pb.stack([-w * y[1], w * y[0]])  # noqa: E731
        events = [
            pb.ode.Event(lambda t, y: y[0] - c, terminal=False, most=3),
            pb.ode.Event(lambda t, y: y[1] * ahead + 0.9),
            pb.ode.Event(lambda t, y: y[0] - c, terminal=False, direction=1, most=1),
        ]
        start, span = np.array([1.0, 0.0]), (0.0, ahead * 7.0)
        options = {"saveat": times, "derivative": policy, **TIGHT}
        return pb.ode.solve(f, start, span, events=events, **options)

    def exact(c, w):
        a = ahead * np.arccos(c) / w
        end = ahead * (np.pi + np.arcsin(0.9)) / w
        return a, end

    c, w = 0.3, 1.1
    found, (a, end) = solve(c, w), exact(c, w)
    both, stop, upward = found.events
    assert (both.count, stop.count) == (1, 1)
    assert np.allclose(both.t, [a, np.nan, np.nan], rtol=1e-8, equal_nan=True)
    assert np.allclose(both.y[0], [c, np.sin(w * a)], rtol=1e-8)
    assert np.isnan(both.y[1:]).all()
    assert np.isclose(stop.t[0], end, rtol=1e-8)
    assert upward.count == (ahead < 0)  # back in time, the crossing is upward in time
    clipped = np.where(abs(times) > abs(end), end, times)
    assert np.allclose(found.t, clipped, rtol=1e-8)
    assert np.allclose(found.y, np.stack([np.cos(w * clipped), np.sin(w * clipped)], 1), atol=1e-8)

    def mix(c, w):
        s = solve(c, w)
        return s.events[0].t[0] * 2 + s.events[0].y[0, 1] + (s.y[:, 0] * np.arange(5.0)).sum() + s.t.sum() * 0.1

    def mixed(c, w):
        a, end = exact(c, w)
        t = [end if abs(t) > abs(end) else t for t in times]
        return 2 * a + np.sin(w * a) + sum(i * np.cos(w * s) for i, s in enumerate(t)) + 0.1 * sum(t)

    slope = by_complex_steps(mixed, np.array([c, w]))
    assert np.allclose(pb.grad(mix, (0, 1))(c, w), slope, rtol=1e-6)
    assert np.isclose(pb.jvp(mix, (c, w), (1.0, -0.4))[1], slope @ [1.0, -0.4], rtol=1e-6)
    if ahead > 0:
        assert np.allclose(pb.jit(pb.grad(mix, (0, 1)))(np.array(c), np.array(w)), slope, rtol=1e-6)


def test_directions_starts_on_the_surface_and_scipy():
    swing = lambda e: pb.ode.solve(pendulum, np.array([0.0, 1.0]), (0.0, 12.0), events=e, **TIGHT)  # noqa: E731

    def crossing(t, y):
        return y[0]

    for direction in (0, 1, -1):
        crossing.direction = direction
        wanted = solve_ivp(
            lambda t, y: [y[1], -np.sin(y[0])], (0, 12), [0.0, 1.0], events=crossing, method="DOP853", rtol=1e-11,
            atol=1e-12,
        ).t_events[0]  # fmt: skip
        wanted = wanted[wanted > 1e-9]  # SciPy counts the start
        record = swing(pb.ode.Event(lambda t, y: y[0], False, direction, 4)).events[0]
        assert record.count == len(wanted)
        assert np.allclose(record.t[: len(wanted)], wanted, atol=1e-8)
        assert np.isnan(record.t[len(wanted) :]).all()
    # more crossings than are recorded are counted
    record = swing(pb.ode.Event(lambda t, y: y[0], False, 0, 1)).events[0]
    assert record.count == 3
    # the nearer of two terminal events, whatever their order
    events = [pb.ode.Event(lambda t, y: y[0] - 0.5), pb.ode.Event(lambda t, y: y[0] - 0.4)]
    for order in (events, events[::-1]):
        assert np.isclose(swing(order).y[0], 0.4, atol=1e-10)
    # an event exactly at the end of a step, and of the solve
    exact = pb.ode.solve(
        lambda t, y: 1.0, 0.0, (0.0, 1.0), events=pb.ode.Event(lambda t, y: t - 0.5), control=pb.ode.FixedSteps(4)
    )
    assert exact.t == 0.5
    assert exact.report.steps == 2
    assert pb.ode.solve(lambda t, y: 1.0, 0.0, (0.0, 1.0), events=pb.ode.Event(lambda t, y: t - 1.0)).t == 1.0


def test_trees_tensors_single_precision_and_closures():
    event = pb.ode.Event(lambda t, y, k: y["height"] - k["floor"])

    def f(t, y, k):
        return {"height": y["speed"], "speed": -k["g"]}

    def when(k):
        start = {"height": np.float32(20), "speed": np.float32(0)}
        return pb.ode.solve(f, start, (0.0, 9.0), k, events=event).t

    k = {"floor": np.float32(1.0), "g": np.float32(GRAVITY)}
    found = pb.grad(when)(k)
    assert when(k).dtype == np.float32
    assert np.isclose(when(k), np.sqrt(2 * 19 / GRAVITY), rtol=1e-5)
    assert np.isclose(found["floor"], -1 / np.sqrt(2 * GRAVITY * 19), rtol=1e-4)
    floor = pb.tensor(1.0, requires_grad=True)
    closed = pb.ode.Event(lambda t, y: y[0] - floor)
    t = pb.ode.solve(lambda t, y: (y[1], -GRAVITY), (20.0, 0.0), (0.0, 9.0), events=closed, **TIGHT).t
    t.backward()
    assert np.isclose(floor.grad, -1 / np.sqrt(2 * GRAVITY * 19), rtol=1e-8)
    stiff = pb.ode.Event(lambda t, y: y - 0.9, direction=-1)
    options = {"events": stiff, "method": pb.ode.Kvaerno5(), **TIGHT}

    def late(k):
        return pb.ode.solve(lambda t, y: -k * (y - pb.cos(t)), 1.0, (0.0, 1.0), **options).t

    h = 1.0  # y = (k^2 cos t + k sin t) / (1 + k^2) once the start is forgotten
    assert np.isclose(pb.grad(late)(1e3), (late(1e3 + h) - late(1e3 - h)) / (2 * h), rtol=1e-4)
    inside = lambda h: pb.checkpoint(lambda h: land(pb.stack([h, 0.0, GRAVITY])).t)(h)  # noqa: E731
    assert np.isclose(pb.grad(inside)(20.0), 1 / np.sqrt(2 * GRAVITY * 20), rtol=1e-8)


def test_mistakes_are_refused():
    with pytest.raises(pb.errors.ArgumentError, match="direction"):
        pb.ode.Event(landed, direction=2)
    with pytest.raises(pb.errors.ArgumentError, match="terminal"):
        pb.ode.Event(landed, terminal=1)
    with pytest.raises(pb.errors.ArgumentError, match="most=3"):
        pb.ode.Event(landed, most=3)
    with pytest.raises(pb.errors.ArgumentError, match="Event"):
        pb.ode.solve(lambda t, y: -y, 1.0, (0, 1), events=landed)
    with pytest.raises(pb.errors.ShapeError, match="one number"):
        pb.ode.solve(lambda t, y: -y, np.ones(2), (0, 1), events=pb.ode.Event(lambda t, y: y))
    with pytest.raises(pb.errors.DtypeError, match=r"bool.*whose sign changes"):
        pb.ode.solve(lambda t, y: -y, 1.0, (0, 1), events=pb.ode.Event(lambda t, y: y < 0.5))
    for wrap in (lambda f: f, pb.jit):
        lost = wrap(lambda y: pb.ode.solve(lambda t, y: -1.0, y, (0, 1), events=pb.ode.Event(lambda t, y: pb.log(y))).y)
        with pytest.raises(pb.errors.NonFiniteStateError, match="condition"), np.errstate(all="ignore"):
            lost(np.array(0.5) - 0.7)


@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_times_outside_or_out_of_order_are_refused_where_they_are_known_late(span):
    """Before an event too, and in a span of no length: these were the end, and the start."""
    half = pb.ode.Event(lambda t, y: t - 0.5)
    late = pb.jit(lambda times: pb.ode.solve(lambda t, y: -y, 1.0, span, saveat=times, events=half))
    for times in ([-0.5, 0.75], [0.25, 0.125, 0.25], [2.0, 2.0], [0.25, np.nan]):
        with pytest.raises(pb.errors.ArgumentError, match="outside, or out of order"):
            late(np.array(times))
    assert late(np.array(span)).t[0] == span[0]
