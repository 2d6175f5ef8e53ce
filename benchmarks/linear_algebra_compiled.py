"""Compiled gradients through small linear algebra, float64: loops of 4 x 4 matrices, factorizations, batches of solves.

The limit: at most 0.8 of JAX's compiled time. Last, the time to compile a 6 x 6 determinant by minors, which is one
long program of scalars.
"""

import os
import tempfile
from time import perf_counter

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

LIMITS = (Limit("JAX, jit", 0.8),)


class Words:
    """What the cases are written in, by one library: its functions, linear algebra and loop."""

    def __init__(self, functions, scan):
        self.np, self.la, self.scan = functions, functions.linalg, scan


def kalman(w, transition, noise, observed):
    """The log likelihood of observations by a Kalman filter."""
    xp, n = w.np, transition.shape[0]
    read = np.eye(2, n)

    def step(carry, y):
        mean, covariance, total = carry
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + noise @ noise.T + 0.01 * np.eye(n)
        miss, spread = y - read @ mean, read @ covariance @ read.T + 0.1 * np.eye(2)
        gain = w.la.solve(spread, read @ covariance).T
        total = total - 0.5 * (miss @ w.la.solve(spread, miss) + w.la.slogdet(spread)[1])
        return (mean + gain @ miss, covariance - gain @ spread @ gain.T, total), None

    start = (xp.zeros(n), xp.eye(n), xp.asarray(0.0))
    return w.scan(step, start, observed)[0][2]


def kalman_inverse(w, transition, noise, observed):
    """The same with inverses, determinants and 4 x 4 observations."""
    xp, n = w.np, transition.shape[0]

    def step(carry, y):
        mean, covariance, total = carry
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + noise @ noise.T + 0.01 * np.eye(n)
        miss, spread = y - mean, covariance + 0.1 * np.eye(n)
        inverse = w.la.inv(spread)
        gain = covariance @ inverse
        total = total - 0.5 * (miss @ inverse @ miss + xp.log(w.la.det(spread)))
        return (mean + gain @ miss, (np.eye(n) - gain) @ covariance, total), None

    start = (xp.zeros(n), xp.eye(n), xp.asarray(0.0))
    return w.scan(step, start, observed)[0][2]


def eigen(w, a, weights):
    values, vectors = w.la.eigh(a + a.T)
    return w.np.sum(w.np.sin(values)) + w.np.sum(weights * vectors**2)


def gaussian_process(w, scale, x, y):
    xp = w.np
    distances = ((x[:, None, :] - x[None, :, :]) / scale) ** 2
    covariance = xp.exp(-0.5 * xp.sum(distances, axis=-1)) + 0.1 * np.eye(len(y))
    factor = w.la.cholesky(covariance)
    alpha = w.la.solve(covariance, y)
    return 0.5 * y @ alpha + xp.sum(xp.log(xp.diagonal(factor)))


def solves(w, a, b):
    return w.np.sum(w.la.solve(a, b[..., None]) ** 2)


def orthogonal(w, a, weights):
    q, r = w.la.qr(a)
    return w.np.sum(weights * q**2) + w.np.sum(w.np.sin(r))


def singular(w, a, weights):
    u, s, vh = w.la.svd(a, full_matrices=False)
    return w.np.sum(weights * u**2) + w.np.sum(w.np.sin(s)) + w.np.sum(weights * vh.T**2)


def matrices(*shape):
    return np.random.default_rng(0).normal(size=shape)


def filter_data(rows):
    n = 4
    return 0.9 * np.eye(n) + 0.02 * matrices(n, n), 0.3 * matrices(n, n), matrices(200, rows)


def process_data(n):
    x = matrices(n, 3)
    return np.array([1.0, 1.5, 2.0]), x, np.sin(x.sum(axis=1))


def graded(n):
    return matrices(n, n) + np.diag(np.arange(1.0, n + 1))


#: The function, its arguments, and how many of them are differentiated.
CASES = {
    "Kalman filter, 200 steps of 4 x 4": (kalman, filter_data(2), 2),
    "Kalman filter by inverses": (kalman_inverse, filter_data(4), 2),
    "eigh, n = 8": (eigen, (matrices(8, 8), matrices(8, 8)), 1),
    "eigh, n = 32": (eigen, (matrices(32, 32), matrices(32, 32)), 1),
    "eigh, n = 100": (eigen, (matrices(100, 100), matrices(100, 100)), 1),
    "Gaussian process, n = 60": (gaussian_process, process_data(60), 1),
    "Gaussian process, n = 400": (gaussian_process, process_data(400), 1),
    "1000 solves of 4 x 4": (solves, (matrices(1000, 4, 4) + 3 * np.eye(4), matrices(1000, 4)), 2),
    "qr, n = 8": (orthogonal, (graded(8), matrices(8, 8)), 1),
    "qr, n = 32": (orthogonal, (graded(32), matrices(32, 32)), 1),
    "svd, n = 8": (singular, (graded(8), matrices(8, 8)), 1),
    "svd, n = 32": (singular, (graded(32), matrices(32, 32)), 1),
}  # fmt: skip


def ours(function, args, count):
    words = Words(pb, pb.scan)
    step = pb.jit(pb.grad(lambda *a: function(words, *a), argnums=tuple(range(count))))
    return lambda: step(*args)


def ours_eager(function, args, count):
    words = Words(pb, pb.scan)
    step = pb.grad(lambda *a: function(words, *a), argnums=tuple(range(count)))
    return lambda: step(*args)


def jax_jitted(function, args, count):
    import jax

    jax.config.update("jax_enable_x64", True)
    words = Words(jax.numpy, jax.lax.scan)
    step = jax.jit(jax.grad(lambda *a: function(words, *a), argnums=tuple(range(count))))
    given = [jax.numpy.asarray(a) for a in args]
    return lambda: jax.block_until_ready(step(*given))


MAKERS = {OURS: ours, "pullback, eager": ours_eager, "JAX, jit": jax_jitted}


def determinant(rows):
    """By minors along the first row, each computed again wherever it occurs."""
    if len(rows) == 1:
        return rows[0][0]
    total = 0.0
    for j, x in enumerate(rows[0]):
        minor = determinant([row[:j] + row[j + 1 :] for row in rows[1:]])
        total = total + (x * minor if j % 2 == 0 else -(x * minor))
    return total


def unrolled(a):
    n = a.shape[0]
    return determinant([[a[i, j] for j in range(n)] for i in range(n)])


def report_compile_times():
    """The first call, tracing included, with an empty cache on disk."""
    os.environ["PULLBACK_CACHE_DIR"] = tempfile.mkdtemp()
    n, found = 6, {}
    a = matrices(n, n)
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
        begin = perf_counter()
        theirs = jax.block_until_ready(jax.jit(jax.grad(unrolled))(jax.numpy.asarray(a)))
        found["JAX, jit"] = perf_counter() - begin
    except ModuleNotFoundError:
        theirs = np.linalg.det(a) * np.linalg.inv(a).T
    begin = perf_counter()
    mine = pb.jit(pb.grad(unrolled))(a)
    found[OURS] = perf_counter() - begin
    np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    report("compiling the gradient of an unrolled 6 x 6 determinant", found)


def main():
    options = start(__doc__)
    print(machine())
    for case, (function, args, count) in CASES.items():
        steps = gather(MAKERS, function, args, count)
        check_agreement(steps, tolerance=1e-6)
        times = race(steps, seconds=1 if options.quick else 6)
        report(case, times, LIMITS, reference="JAX, jit" if "JAX, jit" in times else None)
    report_compile_times()


if __name__ == "__main__":
    main()
