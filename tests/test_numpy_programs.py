"""Programs written for NumPy alone, differentiated as they stand: by `pb.grad`, by the tape, against differences."""

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(11)
POINTS = RNG.normal(size=(12, 2))
DESIGN = np.column_stack([np.ones(12), POINTS])
LABELS = RNG.integers(0, 3, size=12)
SERIES = np.sin(np.arange(24) / 3) + 0.1 * RNG.normal(size=24)


def heat_step(u):
    """An explicit step of the heat equation, boundaries held, by slices."""
    for _ in range(5):
        new = np.copy(u)
        new[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u = new
    return np.sum(u**2 * np.linspace(0, 1, len(u)))


def advection(u):
    """A periodic upwind scheme with a limiter."""
    for _ in range(4):
        slope = np.clip(np.roll(u, -1) - u, -0.5, 0.5)
        u = u - 0.4 * (u - np.roll(u, 1)) + 0.1 * (slope - np.roll(slope, 1))
    return np.max(u) + np.mean(np.abs(np.gradient(u)))


def k_means(flat):
    """The mean squared distance to the nearest centre."""
    centres = flat.reshape(3, 2)
    distances = np.sum((POINTS[:, np.newaxis, :] - centres[np.newaxis, :, :]) ** 2, axis=-1)
    return np.mean(np.min(distances, axis=1))


def gaussian_process(parameters):
    """The likelihood of a Gaussian process, with an elimination by hand."""
    length, amplitude, noise = np.exp(parameters)
    x = POINTS[:6, 0]
    kernel = amplitude * np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / length**2) + (noise + 0.1) * np.eye(6)
    rest, y, total = kernel, POINTS[:6, 1], 0.0
    for _ in range(6):  # pivot by pivot: y^T K^-1 y + log det K
        pivot = rest[0, 0]
        total = total + y[0] ** 2 / pivot + np.log(pivot)
        y = y[1:] - rest[1:, 0] * y[0] / pivot
        rest = rest[1:, 1:] - np.outer(rest[1:, 0], rest[0, 1:]) / pivot
    return 0.5 * total


def pendulum(state):
    """A double step per loop, into an array that is written place by place."""
    path = np.zeros_like(np.resize(state, (21, 2)))
    path[0] = state
    for i in range(20):
        angle, speed = path[i]
        speed = speed - 0.1 * np.sin(angle)
        path[i + 1] = np.stack([angle + 0.1 * speed, speed])
    return np.trapezoid(path[:, 0] ** 2, dx=0.1) + np.ptp(path[:, 1])


def softmax_regression(flat):
    weights = flat.reshape(3, 3)
    scores = DESIGN @ weights
    scores -= np.max(scores, axis=1, keepdims=True)
    probabilities = np.exp(scores) / np.sum(np.exp(scores), axis=1, keepdims=True)
    return -np.mean(np.log(probabilities[np.arange(12), LABELS])) + 1e-2 * np.vdot(weights, weights)


def spline(heights):
    """A curve through heights by straight pieces, smoothed, compared with a series."""
    grid = np.linspace(0, 23, len(heights))
    curve = np.interp(np.arange(24.0), grid, heights)
    smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.ones(5) / 5, mode="valid")
    return np.sqrt(np.average((smooth - SERIES) ** 2, weights=np.hanning(24) + 0.1))


def autoregression(coefficients):
    """The error of a linear prediction from windows."""
    windows = np.lib.stride_tricks.sliding_window_view(SERIES, 4)[:-1]
    residual = SERIES[4:] - windows @ np.tanh(coefficients)
    return np.std(residual, ddof=1) + np.percentile(np.abs(residual), 75)


def triangle_area(flat):
    """Areas and angles of triangles in space."""
    a, b, c = np.split(flat.reshape(9, 3), 3)
    normal = np.cross(b - a, c - a)
    area = 0.5 * np.sqrt(np.sum(normal**2, axis=-1))
    cosine = np.einsum("ij,ij->i", b - a, c - a) / (np.hypot.reduce(b - a, axis=1) * np.hypot.reduce(c - a, axis=1))
    return np.sum(area) + np.sum(np.arccos(np.clip(cosine, -1, 1)))


def phases(angles):
    """A quadrature signal, its phase unwrapped and its polynomial trend removed by hand."""
    turned = np.unwrap(np.arctan2(np.sin(angles * 3), np.cos(angles * 3)))
    trend = np.polyval(np.array([0.1, -0.2, 0.3]), turned)
    pieces = np.select([turned < -1, turned < 1], [turned**2, np.exp(turned)], default=trend)
    return np.sum(np.diff(pieces) ** 2) + np.logaddexp.reduce(np.sort(pieces))


def options(parameters):
    """A binomial tree, rolled back from its leaves."""
    up, rate = np.exp(parameters[0] * 0.1), parameters[1] * 0.01
    prices = 100 * up ** (2 * np.arange(9) - 8)
    values = np.maximum(prices - 100, 0)
    share = (np.exp(rate) - 1 / up) / (up - 1 / up)
    for _ in range(8):
        values = np.exp(-rate) * (share * values[1:] + (1 - share) * values[:-1])
    return values.item() if isinstance(values, np.ndarray) else values[0]


PROGRAMS = {
    heat_step: RNG.normal(size=9),
    advection: RNG.normal(size=8),
    k_means: RNG.normal(size=6),
    gaussian_process: np.array([0.1, -0.3, -1.0]),
    pendulum: np.array([0.8, 0.1]),
    softmax_regression: RNG.normal(size=9),
    spline: RNG.normal(size=7),
    autoregression: RNG.normal(size=4),
    triangle_area: RNG.normal(size=27),
    phases: RNG.normal(size=10),
    options: np.array([1.1, 0.7]),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_program_runs_unchanged_and_has_its_gradient(program):
    x = PROGRAMS[program]
    np.testing.assert_allclose(program(pb.tensor(x)).item(), program(x.copy()), rtol=1e-12)
    step = 1e-6
    slopes = [(program(x + step * e) - program(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    found = pb.grad(program)(x)
    np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-6)
    leaf = pb.tensor(x, requires_grad=True)
    program(leaf).backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), found)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not options], ids=lambda f: f.__name__)
def test_forward_mode_and_second_order_agree(program):
    x = PROGRAMS[program]
    direction = np.random.default_rng(2).normal(size=x.shape)
    _, tangent = pb.jvp(program, (x,), (direction,))
    gradient = pb.grad(program)
    np.testing.assert_allclose(tangent, gradient(x) @ direction, rtol=1e-9, atol=1e-11)
    _, second = pb.jvp(gradient, (x,), (direction,))
    step = 1e-6
    bend = (gradient(x + step * direction) - gradient(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(second, bend, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pb.hvp(program, (x,), (direction,)), second, rtol=1e-8, atol=1e-9)


def test_functions_of_hermitian_matrices_read_the_triangle_that_numpy_reads():
    x = np.array([[4.0, 9.0], [2.0, 5.0]])
    for f in (
        np.linalg.eigvalsh,
        np.linalg.cholesky,
        lambda a: np.linalg.eigvalsh(a, UPLO="U"),
        lambda a: np.linalg.eigh(a).eigenvalues,
    ):
        np.testing.assert_allclose(f(pb.tensor(x)).numpy(), f(x), rtol=1e-12)
    slope = pb.grad(lambda a: np.linalg.eigvalsh(a)[1])(x)
    assert slope[0, 1] == 0.0
    step = np.array([[0.0, 0.0], [1e-6, 0.0]])
    wanted = (np.linalg.eigvalsh(x + step) - np.linalg.eigvalsh(x - step))[1] / 2e-6
    assert slope[1, 0] == pytest.approx(wanted, rel=1e-6)


def filled(p, y):
    r = np.zeros(2)
    r[0] = np.sin(p[0] * y[1])
    r[1] += p[1] * y[0]
    return r


def filled_linear(p, v):
    r = np.zeros(2)
    r[0] = 2.0 * v[0] + p[0] * v[1]
    r[1] = 3.0 * v[1]
    return r


BODIES = {
    "scan": lambda p: pb.scan(lambda y, x: (filled(p, y) + x, filled(p, y)), p, np.ones(3))[1],
    "map": lambda p: pb.map(lambda x: filled(p, p * x), np.array([0.5, 1.0])),
    "cond": lambda p: pb.cond(p[0] > 0.0, lambda y: filled(p, y), lambda y: y, p),
    "while": lambda p: pb.while_loop(lambda y: y[0] < 1.5, lambda y: y + filled(p, y) ** 2, p),
    "fori": lambda p: pb.fori_loop(0, 3, lambda i, y: filled(p, y), p),
    "checkpoint_loop": lambda p: pb.checkpoint_loop(lambda i, y, p: filled(p, y), p, 4, p, snapshots=2),
    "root": lambda p: pb.root(lambda u, p: 0.2 * filled(p, u) - u + p, np.zeros(2), p),
    "linear_solve": lambda p: pb.linear_solve(lambda v: filled_linear(p, v), p),
    "sde": lambda p: pb.ode.solve_sde(
        lambda t, y, p: filled(p, y), lambda t, y, p: filled(p, y), np.ones(2), (0.0, 1.0), p, steps=3,
        key=pb.random.key(0),
    ).y,
    "sparsity": lambda p: pb.sparse.jacobian(lambda y: filled(p, y))(p).data,
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_arrays_are_filled_in_bodies_of_loops_and_in_solvers_also_on_a_tape(name):
    def f(p):
        return pb.sum(BODIES[name](p) ** 2)

    p, h = np.array([0.9, 0.4]), 1e-5
    wanted = [(float(f(p + h * e)) - float(f(p - h * e))) / (2 * h) for e in np.eye(2)]
    t = pb.tensor(p, requires_grad=True)
    f(t).backward()
    found = [t.grad.numpy(), pb.grad(f)(p)]
    if name != "sparsity":  # a pattern is found outside of `jit`
        found.append(pb.jit(pb.grad(f))(p))
    for slope in found:
        np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-8)


def test_tools_call_functions_that_fill_arrays_as_transforms_do():
    def f(p):
        return np.sum(filled(p, p) ** 2)

    p = np.array([0.9, 0.4])
    assert pb.gradcheck(f, p)
    assert pb.gradgradcheck(f, p)
    assert "finite" in str(pb.tools.find_nan(f, pb.tensor(p, requires_grad=True)))
    assert pb.memory.predict(f, p).peak > 0
