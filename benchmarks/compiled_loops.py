"""Compiled programs of small parts: nested loops, a particle's path, bundle adjustment, a clustering cost.

Derivatives, `jit` against `jax.jit` and PyTorch, float64 but for the clustering (float32). The loops are `while_loop`s
whose rounds take a few numbers each, so what counts is what a round costs beside its arithmetic.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

JAX, TORCH, EAGER = "JAX, compiled", "PyTorch", "pullback, eager"
LIMITS = (Limit(JAX, 0.8), Limit(TORCH, 0.8))


class Pullback:
    """The names that a workload needs, ours."""

    np = pb
    grad = staticmethod(pb.grad)
    vmap = staticmethod(pb.vmap)
    jacobian = staticmethod(lambda f, at: pb.jacobian(f, argnums=at))
    while_loop = staticmethod(pb.while_loop)

    @staticmethod
    def push(f, x, along):
        return pb.jvp(f, (x,), (along,))


class Jax:
    """The same names in JAX."""

    def __init__(self):
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        self.jit, self.done = jax.jit, jax.block_until_ready
        self.np, self.grad, self.vmap, self.while_loop = jnp, jax.grad, jax.vmap, jax.lax.while_loop
        self.jacobian = lambda f, at: jax.jacrev(f, argnums=at)
        self.push = lambda f, x, along: jax.jvp(f, (x,), (along,))


def saddle(by):
    """min over p of max over q of p.p - q.q + p.q / 2, each descent until its slope is small; forward through the inner
    loop, whose own steps are reverse."""

    def value(p, q):
        return (p * p).sum() - (q * q).sum() + 0.5 * (p * q).sum()

    def best_reply(p):
        slope = by.grad(value, 1)
        start = (by.np.ones(2) + 0 * p, by.np.ones(2) + 0 * p)
        step = lambda s: (s[0] + 0.3 * s[1], slope(p, s[0] + 0.3 * s[1]))  # noqa: E731
        return by.while_loop(lambda s: (s[1] * s[1]).sum() > 1e-12, step, start)[0]

    def outer_slope(p):
        f = lambda p: value(p, best_reply(p))  # noqa: E731
        along = np.eye(2)
        return by.np.stack([by.push(f, p, along[0])[1], by.push(f, p, along[1])[1]])

    def solve(p):
        start = p, outer_slope(p)
        step = lambda s: (s[0] - 0.3 * s[1], outer_slope(s[0] - 0.3 * s[1]))  # noqa: E731
        return by.while_loop(lambda s: (s[1] * s[1]).sum() > 1e-12, step, start)[0]

    return solve


def particle(by):
    """A charge w steers a particle to the origin: Newton's method on where it lands, by two derivatives forward through
    the path, of accelerations that are reverse gradients."""

    def potential(x, w):
        near = by.np.sqrt((x[0] - 10.0) ** 2 + (x[1] - 10.0 + w) ** 2)
        far = by.np.sqrt((x[0] - 10.0) ** 2 + x[1] ** 2)
        return 1.0 / near + 1.0 / far

    def landing(w):
        start = (by.np.asarray(np.array([0.0, 8.0])) + 0 * w, by.np.asarray(np.array([0.75, 0.0])) + 0 * w)

        def step(s):
            x, v = s
            return x + 0.1 * v, v - 0.1 * by.grad(potential)(x, w)

        x, v = by.while_loop(lambda s: s[0][1] + 0.1 * s[1][1] > 0.0, step, start)
        fall = -x[1] / v[1]
        return (x[0] + fall * v[0]) ** 2

    def newton(w):
        first = lambda w: by.push(landing, w, np.ones(()))[1]  # noqa: E731
        for _ in range(3):
            slope, curve = by.push(first, w, np.ones(()))
            w = w - slope / curve
        return w

    return newton


def bundle(by):
    """Residuals of a camera model (rotation, center, focal length, principal point, distortion) and their Jacobian,
    one observation a row."""

    def cross(a, b):
        return by.np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])

    def residual(camera, point, weight, seen):
        angle2 = (camera[:3] * camera[:3]).sum()
        angle = by.np.sqrt(angle2)
        axis, moved = camera[:3] / angle, point - camera[3:6]
        c, s = by.np.cos(angle), by.np.sin(angle)
        there = moved * c + cross(axis, moved) * s + axis * ((axis * moved).sum() * (1.0 - c))
        flat = there[:2] / there[2]
        r2 = (flat * flat).sum()
        bent = flat * (1.0 + camera[9] * r2 + camera[10] * r2 * r2)
        return weight * (bent * camera[6] + camera[7:9] - seen)

    return by.vmap(by.jacobian(residual, (0, 1, 2)))


def clusters(by):
    """The k-means cost and its gradient by the centers: squared distances to the nearest of them, summed."""

    def cost(centers, points):
        distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(-1)
        return distances.min(1).sum()

    return by.grad(cost)


def curvature(by):
    """The same cost's second derivative along ones, forward over reverse."""
    slope = clusters(by)
    return lambda centers, points: by.push(lambda c: slope(c, points), centers, np.ones(centers.shape))[1]


def torch_clusters(centers, points):
    import torch

    c, x = torch.tensor(centers, requires_grad=True), torch.tensor(points)

    def run():
        return torch.autograd.grad(((x[:, None] - c[None]) ** 2).sum(-1).min(1).values.sum(), c)

    return run


def torch_bundle(*data):
    import torch

    torch.set_num_threads(1)
    given = [torch.tensor(a) for a in data]

    class Torch:
        np, vmap = torch, staticmethod(torch.func.vmap)
        jacobian = staticmethod(lambda f, at: torch.func.jacrev(f, argnums=at))

    f = bundle(Torch)
    return lambda: f(*given)


def ours(program, *data):
    f = pb.jit(program(Pullback))
    return lambda: flat(f(*data))


def eager(program, *data):
    f = program(Pullback)
    return lambda: flat(f(*data))


def in_jax(program, *data):
    by = Jax()
    f, given = by.jit(program(by)), [by.np.asarray(a) for a in data]
    return lambda: flat(by.done(f(*given)))


def flat(found):
    return found if isinstance(found, tuple | list) else [found]


def main():
    options = start(__doc__)
    print(machine())
    random = np.random.default_rng(0)
    cameras = random.normal(size=(300, 11)) * 0.1 + np.array([0.3, 0.2, 0.1, 0, 0, 0, 1, 0, 0, 0, 0])
    seen = random.normal(size=(300, 3)) + np.array([0, 0, 5.0]), random.normal(size=300), random.normal(size=(300, 2))
    points = random.normal(size=(10_000, 8)).astype("f")
    programs = {
        "a saddle point by two descents": (saddle, [np.array([1.0, -0.5])], {}),
        "a particle in a field, forward over reverse": (particle, [np.array(0.3)], {}),
        "bundle adjustment, Jacobian at 300 points": (
            bundle, [cameras, *seen], {EAGER: eager, TORCH: lambda program, *data: torch_bundle(*data)},
        ),
        "k-means cost 100 x 10,000 x 8 with gradient": (
            clusters, [points[:100] + 0.0, points], {TORCH: lambda program, *data: torch_clusters(*data)},
        ),
        "k-means cost 100 x 10,000 x 8, curvature": (
            curvature, [points[:100].astype("d"), points.astype("d")], {},
        ),
    }  # fmt: skip
    for title, (program, data, others) in programs.items():
        steps = gather({OURS: ours, JAX: in_jax, **others}, program, *data)
        check_agreement(steps, 1e-3 if data[0].dtype == np.float32 else 1e-7)
        report(title, race(steps, 1.0 if options.quick else 5.0), LIMITS)


if __name__ == "__main__":
    main()
