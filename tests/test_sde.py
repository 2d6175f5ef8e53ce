"""Stochastic equations: orders of convergence on one path, moments, derivatives, and the meetings with transforms."""

import numpy as np
import pytest
import scipy.stats as st

import pullback as pb

O = pb.ode  # noqa: E741
KEY = pb.random.key(3)
KEYS = pb.random.split(KEY, 200)
RATE, NOISE = 0.7, 0.9


def growth(t, y):
    return RATE * y


def spread(t, y):
    return NOISE * y


def mean_errors(solve, exact, counts):
    """The mean distance at t = 1 from what is known of each path."""

    def one(key, n):
        path = O.BrownianTree(key, 0.0, 1.0, (1,))
        return pb.abs(solve(path, n) - exact(path(1.0)))[0]

    return [pb.jit(pb.vmap(lambda key: one(key, n)))(KEYS).mean() for n in counts]  # noqa: B023


def orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


@pytest.mark.parametrize(
    ("method", "order"),
    [(O.EulerMaruyama(), 0.5), (O.Milstein(), 1.0), (O.StochasticRungeKutta(), 1.5), (O.Heun(), 1.0)],
)
def test_strong_order_of_geometric_motion(method, order):
    drop = 0.0 if isinstance(method, O.Heun) else NOISE**2 / 2  # Stratonovich's, or Ito's
    found = mean_errors(
        lambda path, n: O.solve_sde(growth, spread, np.ones(1), (0.0, 1.0), steps=n, path=path, method=method).y,
        lambda w: pb.exp(RATE - drop + NOISE * w),
        (16, 128),
    )
    assert np.allclose(orders(found) / 3, order, atol=0.2)


@pytest.mark.parametrize(
    ("method", "order"),
    [(O.EulerMaruyama(), 1), (O.Milstein(), 1), (O.StochasticRungeKutta(), 2), (O.Heun(), 1)],
)
def test_weak_order_of_geometric_motion(method, order):
    """The first two moments after one step, by Gauss' rule instead of samples: they miss by a power of h more."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    w, area = (x.ravel() for x in np.meshgrid(nodes, nodes))
    mass = np.outer(weights, weights).ravel() / (2 * np.pi)
    drift = RATE + (NOISE**2 / 2 if isinstance(method, O.Heun) else 0.0)  # Stratonovich's, or Ito's

    def misses(h):
        noise = O.brownian.Noise(np.sqrt(h) * w, np.sqrt(h / 12) * area)
        y = method.advance(growth, spread, 0.0, np.ones(w.size), h, noise)
        return np.array([mass @ y - np.exp(drift * h), mass @ y**2 - np.exp((2 * drift + NOISE**2) * h)])

    found = np.log2(misses(0.01) / misses(0.005)) - 1
    assert np.abs(found - order).max() < 0.1


def test_strong_order_of_coupled_drift():
    """Additive noise on an oscillator, where drifts mix the noises: 3/2 against a fine path of Euler's, in NumPy."""
    pull, loud = np.array([[0.0, 1.0], [-4.0, -0.3]]), np.array([0.4, 0.7])

    def reference(path, n=4096):
        w = np.asarray(pb.jit(pb.vmap(path))(np.arange(n + 1) / n))
        y = np.array([1.0, 0.0])
        for i in range(n):
            y = y + pull @ y / n + loud * (w[i + 1] - w[i])
        return y

    paths = [O.BrownianTree(key, 0.0, 1.0, (2,), 12) for key in KEYS[:12]]
    ends = [reference(path) for path in paths]

    def error(n):
        solve = pb.jit(
            lambda path: O.solve_sde(
                lambda t, y: pb.stack([y[1], -4.0 * y[0] - 0.3 * y[1]]),
                lambda t, y: loud + 0.0 * y, np.array([1.0, 0.0]), (0.0, 1.0), steps=n, path=path,
            ).y
        )  # fmt: skip
        return np.mean([np.linalg.norm(solve(path) - end) for path, end in zip(paths, ends, strict=True)])

    assert orders([error(4), error(16)])[0] / 2 > 1.3


def test_a_path_has_the_law_of_brownian_motion():
    times = np.array([0.0, 0.3, 0.5, 1.1, 2.0])
    paths = pb.jit(pb.vmap(lambda key: pb.vmap(O.BrownianTree(key, 0.0, 2.0))(times)))(pb.random.split(KEY, 3000))
    assert np.all(paths[:, 0] == 0)
    rises = np.diff(paths, axis=1) / np.sqrt(np.diff(times))
    for column in rises.T:
        assert st.kstest(column, st.norm.cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(rises.T) - np.eye(4)).max() < 0.08
    noise = pb.jit(pb.vmap(lambda key: O.BrownianTree(key, 0.0, 2.0).noise(0.3, 1.1)))(pb.random.split(KEY, 3000))
    assert st.kstest(noise.area / np.sqrt(0.8 / 12), st.norm.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(noise.area, noise.increment)[0, 1]) < 0.08
    path = O.BrownianTree(KEY, 0.0, 2.0, (2,))
    left, right, whole = path.noise(0.25, 0.75), path.noise(0.75, 1.5), path.noise(0.25, 1.5)
    assert np.allclose(left.increment + right.increment, whole.increment)
    integral = 0.5 * (left.area + left.increment / 2) + 0.75 * (left.increment + right.area + right.increment / 2)
    assert np.allclose(integral, 1.25 * (whole.area + whole.increment / 2))


def euler_in_numpy(rate, noise, y, increments, h):
    for w in increments:
        y = y + h * rate * y + noise * np.sin(y) * w
    return y


def test_derivatives_are_those_of_the_steps():
    """By the parameters, the start and what a function closes over: by complex steps through plain NumPy."""
    n, h = 12, 1 / 12
    increments = [
        np.asarray(O.brownian.draw_noise(pb.random.fold_in(KEY, i), (2,), h, np.dtype(float)).increment)
        for i in range(n)
    ]
    start = np.array([0.4, 1.3])

    def end(rate, noise, y, **options):
        return pb.sum(
            O.solve_sde(
                lambda t, y, r: r * y, lambda t, y, r: noise * pb.sin(y), y, (0.0, 1.0), rate, steps=n, key=KEY,
                method=O.EulerMaruyama(), **options,
            ).y
        )  # fmt: skip

    exact = lambda rate, noise, y: euler_in_numpy(rate, noise, y, increments, h).sum()  # noqa: E731
    assert np.isclose(end(0.5, 0.8, start), exact(0.5, 0.8, start), rtol=1e-13)
    wanted = [
        exact(0.5 + 1e-30j, 0.8, start).imag * 1e30,
        exact(0.5, 0.8 + 1e-30j, start).imag * 1e30,
        [exact(0.5, 0.8, start + 1e-30j * e).imag * 1e30 for e in np.eye(2)],
    ]
    ways = {
        "grad": pb.grad(end, (0, 1, 2)),
        "jit of grad": pb.jit(pb.grad(end, (0, 1, 2))),
        "grad of jit": pb.grad(pb.jit(end), (0, 1, 2)),
        "snapshots": pb.grad(lambda *p: end(*p, snapshots=3), (0, 1, 2)),
        "compiled snapshots": pb.jit(pb.grad(lambda *p: end(*p, snapshots=3), (0, 1, 2))),
        "checkpoint": pb.grad(pb.checkpoint(end), (0, 1, 2)),
        "jvp": lambda *p: [
            pb.jvp(lambda r: end(r, *p[1:]), p[:1], (1.0,))[1],
            pb.jvp(lambda s: end(p[0], s, p[2]), p[1:2], (1.0,))[1],
            [pb.jvp(lambda y: end(*p[:2], y), p[2:], (e,))[1] for e in np.eye(2)],
        ],
    }
    for name, way in ways.items():
        for found, true in zip(way(0.5, 0.8, start), wanted, strict=True):
            assert np.allclose(found, true, rtol=1e-12), name
    slope = lambda r: exact(r + 1e-30j, 0.8, start).imag * 1e30  # noqa: E731
    second = pb.jit(pb.grad(pb.grad(end)))(0.5, 0.8, start)
    assert np.isclose(second, (slope(0.5 + 1e-5) - slope(0.5 - 1e-5)) / 2e-5, rtol=1e-7)


def test_trees_saved_states_and_tensors():
    drift = lambda t, y: {"a": -y["a"], "b": y["a"].sum() - y["b"]}  # noqa: E731
    loud = lambda t, y: {"a": 0.1 * y["a"], "b": 0.2 + 0.0 * y["b"]}  # noqa: E731
    start = {"a": np.ones((2, 2)), "b": 0.5}
    solve = lambda y, **options: O.solve_sde(drift, loud, y, (0.0, 2.0), steps=8, key=KEY, **options)  # noqa: E731
    end, saved = solve(start).y, solve(start, save_every=2)
    assert saved.y["a"].shape == (5, 2, 2)
    assert np.allclose(saved.t, [0.0, 0.5, 1.0, 1.5, 2.0])
    assert np.allclose(saved.y["a"][-1], end["a"])
    assert np.allclose(saved.y["a"][0], start["a"])
    x = pb.tensor(np.ones((2, 2)), requires_grad=True)
    pb.sum(solve({"a": x, "b": 0.5}).y["b"]).backward()
    assert np.allclose(x.grad, pb.grad(lambda a: pb.sum(solve({"a": a, "b": 0.5}).y["b"]))(np.ones((2, 2))))
    single = O.solve_sde(growth, spread, np.ones(3, "f4"), (0.0, 1.0), steps=4, key=KEY).y
    assert single.dtype == np.float32


def test_general_noise_and_its_moments():
    """Three noises on two numbers: the covariance is that of the matrix."""
    matrix = np.array([[1.0, 0.5, 0.0], [0.0, 0.3, -0.8]])

    def end(key):
        fall, loud = (lambda t, y: 0.0 * y), (lambda t, y: matrix)
        return O.solve_sde(fall, loud, np.zeros(2), (0.0, 2.0), steps=3, key=key, noises=3).y

    ends = pb.jit(pb.vmap(end))(pb.random.split(KEY, 20000))
    assert np.allclose(np.cov(ends.T), 2 * matrix @ matrix.T, atol=0.08)
    one = O.solve_sde(
        growth, lambda t, y: spread(t, y)[:, None], np.ones(1), (0.0, 1.0), steps=9, key=KEY, noises=1, method=O.Heun()
    ).y
    assert np.array_equal(one, O.solve_sde(growth, spread, np.ones(1), (0, 1), steps=9, key=KEY, method=O.Heun()).y)


def test_paths_end_where_their_tree_does():
    tree = O.BrownianTree(KEY, 0.0, 1.0)
    assert np.array_equal(np.isnan([tree(t) for t in (-0.1, 0.0, 1.0, 1.1)]), [True, False, False, True])
    with pytest.raises(pb.errors.ArgumentError, match=r"known from 0.0 to 1.0, the span is \(0.0, 2.0\)"):
        O.solve_sde(growth, spread, 1.0, (0.0, 2.0), steps=4, path=tree)
    late = pb.jit(lambda t: O.solve_sde(growth, spread, 1, (0.0, t), steps=3, path=tree).y)
    assert np.isnan(late(np.array(2.0)))
    assert np.isfinite(late(np.array(1.0)))


def test_wrong_arguments_are_named():
    solve = lambda **options: O.solve_sde(growth, spread, np.ones(2), (0.0, 1.0), **{"steps": 4, **options})  # noqa: E731
    for options, message in [
        ({}, "pass a key, or a path"),
        ({"key": KEY, "path": O.BrownianTree(KEY, 0.0, 1.0, (2,))}, "pass a key, or a path"),
        ({"path": O.BrownianTree(KEY, 0.0, 1.0, (3,))}, "shape"),
        ({"key": KEY, "steps": 0}, "steps"),
        ({"key": KEY, "method": O.Tsit5()}, "method"),
        ({"key": KEY, "noises": 2, "method": O.Milstein()}, "diagonal"),
        ({"key": KEY, "noises": 2}, "2 noises"),
        ({"key": KEY, "save_every": 3}, "divide"),
    ]:
        with pytest.raises(pb.errors.PullbackError, match=message):
            solve(**options)
    with pytest.raises(pb.errors.ArgumentError, match="after t0"):
        O.solve_sde(growth, spread, np.ones(2), (1.0, 0.0), steps=4, key=KEY)
    with pytest.raises(pb.errors.ArgumentError, match="depth"):
        O.BrownianTree(KEY, 0.0, 1.0, (), 99)
    with pytest.raises(pb.errors.ShapeError, match="wanted one time"):
        O.BrownianTree(KEY, 0.0, 1.0)(np.array([0.1, 0.2]))
