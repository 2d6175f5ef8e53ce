"""A layer that is an equation, z = tanh(W z + U x + b), 64 rows of 256, float64: forward, and gradients by W, U, b
and x, to 1e-6.

The limits: a scalar implicit gradient in under 0.3 ms, and an adjoint at contraction 0.95 with at most 60% of the
products that the plain Neumann series takes. Peers: `pip install jaxopt optimistix lineax torchdeq autograd`.
Each peer runs with the fastest of its solvers that reaches about this accuracy here (of those tried: Anderson, plain
iteration, Broyden; GMRES, BiCGStab, normal CG), pullback with its defaults; the errors are printed too.
"""

from functools import partial

import numpy as np
from contest import OURS, bare, check_agreement, gather, installed, machine, race, readable, report, start

import pullback as pb

ROWS, WIDTH = 64, 256
TOLERANCE = 1e-6
SCALAR_LIMIT = 0.3e-3
PRODUCTS_LIMIT = 0.6


def problem(contraction, symmetric=False):
    """W, U, b and x, with W of the given spectral norm."""
    random = np.random.default_rng(0)
    W = random.normal(size=(WIDTH, WIDTH))
    W = W + W.T if symmetric else W
    U = random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5
    W *= contraction / np.linalg.norm(W, 2)
    return W, U, 0.1 * random.normal(size=WIDTH), random.normal(size=(ROWS, WIDTH))


def layer(z, W, U, b, x):
    return pb.tanh(z @ W.T + x @ U.T + b)


def ours(W, U, b, x, tolerance=TOLERANCE):
    policy = pb.implicit.Implicit(tol=tolerance)

    def loss(W, U, b, x):
        z = pb.fixed_point(layer, np.zeros((ROWS, WIDTH)), W, U, b, x, tol=tolerance, derivative=policy)
        return pb.sum(z * z)

    gradient = pb.grad(loss, (0, 1, 2, 3))
    return lambda: gradient(W, U, b, x)


def compiled(W, U, b, x):
    def loss(W, U, b, x):
        policy = pb.implicit.Implicit(tol=TOLERANCE)
        z = pb.fixed_point(layer, np.zeros((ROWS, WIDTH)), W, U, b, x, tol=TOLERANCE, derivative=policy)
        return pb.sum(z * z)

    gradient = pb.jit(pb.grad(loss, (0, 1, 2, 3)))
    return lambda: gradient(W, U, b, x)


def in_jax(solved):
    """A step from a JAX solver of the fixed point, compiled."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def make(W, U, b, x):
        gradient = jax.jit(jax.grad(lambda p: jnp.sum(solved(jnp.zeros((ROWS, WIDTH)), p) ** 2)))
        p = tuple(jnp.asarray(a) for a in (W, U, b, x))
        return lambda: jax.block_until_ready(gradient(p))

    return make


def jax_layer(z, p):
    import jax.numpy as jnp

    W, U, b, x = p
    return jnp.tanh(z @ W.T + x @ U.T + b)


def with_optimistix(*data):
    import lineax
    import optimistix

    solver = optimistix.FixedPointIteration(rtol=TOLERANCE, atol=TOLERANCE)
    adjoint = optimistix.ImplicitAdjoint(lineax.BiCGStab(rtol=TOLERANCE, atol=TOLERANCE))

    def solved(z, p):
        return optimistix.fixed_point(jax_layer, solver, z, p, adjoint=adjoint, max_steps=1000).value

    return in_jax(solved)(*data)


def with_jaxopt(*data):
    import jaxopt

    # its tolerance is one of the norm, not of the root mean square
    tol = TOLERANCE * (ROWS * WIDTH) ** 0.5
    solver = jaxopt.FixedPointIteration(
        jax_layer, maxiter=1000, tol=tol, implicit_diff=True,
        implicit_diff_solve=partial(jaxopt.linear_solve.solve_bicgstab, tol=TOLERANCE),
    )  # fmt: skip
    return in_jax(lambda z, p: solver.run(z, p).params)(*data)


def with_torchdeq(W, U, b, x):
    import torch
    from torchdeq import get_deq

    p = [torch.tensor(a, requires_grad=True) for a in (W, U, b, x)]
    tol = TOLERANCE * WIDTH**0.5  # of the norm of a row
    deq = get_deq(
        f_solver="fixed_point_iter", b_solver="fixed_point_iter", f_max_iter=200, b_max_iter=200, f_tol=tol, b_tol=tol,
        f_stop_mode="abs", b_stop_mode="abs", ift=True,
    )  # fmt: skip

    def step():
        W, U, b, x = p
        z = deq(lambda z: torch.tanh(z @ W.T + x @ U.T + b), torch.zeros(ROWS, WIDTH, dtype=torch.float64))[0][-1]
        return torch.autograd.grad((z * z).sum(), p)

    return step


def with_hips_autograd(W, U, b, x):
    import autograd
    import autograd.numpy as anp
    from autograd.misc.fixed_points import fixed_point

    def of_parameters(p):
        W, U, b, x = p
        return lambda z: anp.tanh(anp.dot(z, W.T) + anp.dot(x, U.T) + b)

    def distance(z, w):
        return np.sqrt(np.mean((z - w) ** 2))

    def loss(p):
        return anp.sum(fixed_point(of_parameters, p, np.zeros((ROWS, WIDTH)), distance, TOLERANCE) ** 2)

    gradient = autograd.grad(loss)
    return lambda: gradient((W, U, b, x))


MAKERS = {
    OURS: ours,
    "pullback, compiled": compiled,
    "optimistix + lineax": with_optimistix,
    "jaxopt": with_jaxopt,
    "torchdeq": with_torchdeq,
    "HIPS autograd": with_hips_autograd,
}


def show_errors(steps, data):
    """How far each is from the gradients at a tolerance of 1e-12: times of different accuracies do not compare."""
    exact = ours(*data, tolerance=1e-12)()
    print("  largest relative error of a gradient")
    for name, step in steps.items():
        pairs = zip(map(bare, step()), exact, strict=True)
        print(f"  {name:22s}{max(np.linalg.norm(g - e) / np.linalg.norm(e) for g, e in pairs):10.1e}")


def scalar_gradients():
    """The gradient of one number found by an equation, by each way of posing it."""
    poses = {
        "fixed point": lambda b: pb.fixed_point(lambda x, b: 0.5 * x + b, 0.0, b),
        "root": lambda a: pb.root(lambda x, a: x * x - a, 1.0, a),
    }
    return {name: partial(pb.grad(f), 3.0) for name, f in poses.items()}


def scaled(symmetric, contraction):
    """A problem and its answer, W scaled so that the Jacobian at the answer has this spectral radius."""
    W, U, b, x = problem(1.0, symmetric)
    U, b = 0.05 * U, 0.05 * b  # nearly linear, or the largest eigenvalue would be that of one row only
    for _ in range(20):
        z = pb.fixed_point(layer, np.zeros((ROWS, WIDTH)), W, U, b, x, tol=1e-9, max_steps=10_000)
        slope = 1 - z**2
        radius = max(np.abs(np.linalg.eigvals(slope[row, :, None] * W)).max() for row in range(0, ROWS, 8))
        W = W * contraction / radius
        if abs(radius / contraction - 1) < 1e-4:
            break
    return (W, U, b, x), z, radius


def neumann_products(data, z, bar):
    """How many products y = bar + J^T y takes until its residual is small."""
    _, pull = pb.vjp(lambda z: layer(z, *data), z)
    term, products = bar, 0
    while np.linalg.norm(term) > TOLERANCE * np.linalg.norm(bar):
        (term,) = pull(term)
        products += 1
    return products


def our_products(data, bar):
    W, U, b, x = data
    tracked = pb.tensor(b, requires_grad=True)
    found = pb.implicit.solve.fixed_point(
        layer, np.zeros((ROWS, WIDTH)), W, U, tracked, x, tol=1e-9, max_steps=10_000,
        derivative=pb.implicit.Implicit(tol=TOLERANCE),
    )  # fmt: skip
    found.value.backward(bar)
    assert found.report.adjoint.converged
    return found.report.adjoint.products


def show_products():
    print(f"\nproducts of the adjoint at contraction 0.95, to {TOLERANCE:.0e}")
    for name, symmetric in (("symmetric W", True), ("random W", False)):
        data, z, radius = scaled(symmetric, 0.95)
        bar = np.random.default_rng(1).normal(size=z.shape)
        mine, plain = our_products(data, bar), neumann_products(data, z, bar)
        met = "met" if mine <= PRODUCTS_LIMIT * plain else "missed"
        print(f"  {name:14s} radius {radius:.4f}: {mine} products, Neumann {plain}; "
              f"{mine / plain:.2f}, limit {PRODUCTS_LIMIT:.2f} {met}")  # fmt: skip


def main():
    options = start(__doc__)
    print(machine())
    print(", ".join(f"{name} {installed(name)}" for name in ("optimistix", "lineax", "jaxopt", "torchdeq")))
    seconds = 4 if options.quick else 20
    for contraction in (0.5, 0.9):
        data = problem(contraction)
        steps = gather(MAKERS, *data)
        check_agreement(steps, tolerance=1e-4)
        report(f"equilibrium layer, 64 x 256, |W| = {contraction}, float64", race(steps, seconds))
        show_errors(steps, data)
    print("\nscalar implicit gradient")
    for name, time in race(scalar_gradients(), seconds / 4).items():
        met = "met" if time <= SCALAR_LIMIT else "missed"
        print(f"  {name:18s}{readable(time):>12s}  limit {readable(SCALAR_LIMIT)} {met}")
    show_products()


if __name__ == "__main__":
    main()
