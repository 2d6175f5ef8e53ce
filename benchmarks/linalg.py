"""Gradients through linear algebra: value and gradient of one real loss of a 1,000 x 1,000 matrix, float64.

The limit: at most 1.1 times the derivative written by hand in NumPy.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

SIZE = 1000
LIMITS = (Limit("NumPy by hand", 1.1),)


def symmetric(x):
    return (x + x.T) / 2


def half_lower(x):
    x = np.tril(x)
    x[np.diag_indices_from(x)] /= 2
    return x


def solve_by_hand(a, b, bar):
    x = np.linalg.solve(a, b)
    b_bar = np.linalg.solve(a.T, bar)
    return x, np.outer(-b_bar, x)


def inv_by_hand(a, b, bar):
    out = np.linalg.inv(a)
    return out, -(out.T @ bar @ out.T)


def cholesky_by_hand(a, b, bar):
    from scipy.linalg import solve_triangular

    factor = np.linalg.cholesky(a)
    inner = half_lower(factor.T @ bar)
    right = solve_triangular(factor, inner.T, trans="T", lower=True, check_finite=False).T
    return factor, symmetric(solve_triangular(factor, right, trans="T", lower=True, check_finite=False))


def eigh_by_hand(a, b, bar):
    w, v = np.linalg.eigh(a)
    gaps = w - w[:, None]
    np.fill_diagonal(gaps, np.inf)
    inner = v.T @ bar
    inner = (inner - inner.T) / 2 / gaps
    return v, v @ inner @ v.T


def svd_by_hand(a, b, bar):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    x = u.T @ bar
    x = (x - x.T) / 2
    gaps = s - s[:, None]
    np.fill_diagonal(gaps, np.inf)
    inner = x / gaps + x / (s + s[:, None])
    return u, u @ inner @ vh


def det_by_hand(a, b, bar):
    out = np.linalg.det(a)
    return out, out * np.linalg.inv(a).T


#: The function in the words that all libraries share, and the hand-written value and derivative.
CASES = {
    "solve": (lambda m, a, b: m.solve(a, b), solve_by_hand),
    "inv": (lambda m, a, b: m.inv(a), inv_by_hand),
    "cholesky": (lambda m, a, b: m.cholesky(a), cholesky_by_hand),
    "eigh": (lambda m, a, b: m.eigh(a)[1], eigh_by_hand),
    "svd": (lambda m, a, b: m.svd(a, full_matrices=False)[0], svd_by_hand),
    "det": (lambda m, a, b: m.det(a), det_by_hand),
}


def data(case, n):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, n)) / np.sqrt(n)
    a = x @ x.T + np.eye(n) if case in ("cholesky", "eigh") else x + np.eye(n)
    if case == "det":
        a = x / 4 + np.eye(n)
    b = rng.normal(size=n)
    bar = (
        np.ones(()) if case == "det" else b[::-1].copy() if case == "solve" else np.tril(x) if case == "cholesky" else x
    )
    return a, b, bar


def ours(function, by_hand, a, b, bar):
    x = pb.tensor(a, requires_grad=True)
    return lambda: pb.gradients(function(pb.linalg, x, b), (x,), bar)


def numpy_by_hand(function, by_hand, a, b, bar):
    return lambda: by_hand(a, b, bar)[1:]


def pytorch(function, by_hand, a, b, bar):
    import torch

    x, right, seed = torch.tensor(a, requires_grad=True), torch.tensor(b), torch.tensor(bar)
    return lambda: torch.autograd.grad(function(torch.linalg, x, right), (x,), seed)


def jax_jitted(function, by_hand, a, b, bar):
    import jax

    jax.config.update("jax_enable_x64", True)
    x, right, seed = (jax.numpy.asarray(v) for v in (a, b, bar))
    step = jax.jit(jax.grad(lambda y: jax.numpy.sum(function(jax.numpy.linalg, y, right) * seed)))
    return lambda: [step(x).block_until_ready()]


def hips_autograd(function, by_hand, a, b, bar):
    import autograd
    import autograd.numpy as anp

    gradient = autograd.grad(lambda y: anp.sum(function(anp.linalg, y, b) * bar))
    return lambda: [gradient(a)]


MAKERS = {
    OURS: ours,
    "NumPy by hand": numpy_by_hand,
    "PyTorch": pytorch,
    "JAX, jit": jax_jitted,
    "HIPS autograd": hips_autograd,
}


def main():
    options = start(__doc__)
    print(machine())
    for case, (function, by_hand) in CASES.items():
        size = 300 if options.quick else SIZE
        steps = gather(MAKERS, function, by_hand, *data(case, size))
        check_agreement({OURS: steps[OURS], "NumPy by hand": steps["NumPy by hand"]}, tolerance=1e-6)
        times = race(steps, seconds=2 if options.quick else 12)
        report(f"{case}, {size} x {size}, float64", times, LIMITS, reference="NumPy by hand")


if __name__ == "__main__":
    main()
