"""Quadratic programs as layers: value and gradient with respect to all six arrays, compiled, one program and batches,
and how far both are from the exact ones; beside qpax, jaxopt (OSQP) and cvxpylayers where they are installed (they need
not be: `--with PYTHON` names another interpreter that has them).

    python benchmarks/qp.py
    python benchmarks/qp.py --with other/bin/python
"""

import functools
import json
import os
import subprocess
import sys

import numpy as np
from ode import best_of

#: Unknowns, equations and inequalities of a program, and how many programs at once.
CASES = {
    "10 unknowns": (10, 3, 20, 1), "50 unknowns": (50, 10, 100, 1), "64 times 10 unknowns": (10, 3, 20, 64),
    "30 unknowns, 300 rows": (30, 5, 300, 1), "100 unknowns, 200 rows": (100, 20, 200, 1),
    "200 unknowns, 400 rows": (200, 20, 400, 1),
}  # fmt: skip


def draw_programs(n, equations, rows, count):
    """P, q, A, b, G, h of programs that have a point inside, stacked."""
    rng = np.random.default_rng(n + count)
    L, A, G = rng.normal(size=(count, n, n)), rng.normal(size=(count, equations, n)), rng.normal(size=(count, rows, n))
    x, q, slack = rng.normal(size=(count, n)), rng.normal(size=(count, n)), rng.uniform(0.1, 1, size=(count, rows))
    P = L @ L.transpose(0, 2, 1) / n + np.eye(n)
    return P, q, A, np.einsum("kij,kj->ki", A, x), G, np.einsum("kij,kj->ki", G, x) + slack


def exact(P, q, A, b, G, h, active):
    """x, and the gradients of |x|^2 with respect to q and h, with these rows of G as equations, by NumPy."""
    n, rows = len(q), np.concatenate([A, G[active]])
    matrix = np.block([[P, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    x = np.linalg.solve(matrix, np.concatenate([-q, b, h[active]]))
    adjoint = np.linalg.solve(matrix, np.concatenate([2 * x[:n], np.zeros(len(rows))]))
    by_h = np.zeros(len(h))
    by_h[active] = adjoint[n + len(b) :]
    return x[:n], -adjoint[:n], by_h


def errors(data, x, by_q, by_h):
    """The largest differences from the exact solution and gradient. The active rows are those that x shows, and the
    exact solution fulfills the rest, so that a wrong guess would be seen.
    """
    worst = [0.0, 0.0]
    for *one, x_one, q_one, h_one in zip(*data, x, by_q, by_h, strict=True):
        G, h = one[4], one[5]
        found = exact(*one, np.abs(h - G @ x_one) < 1e-4)
        assert (h - G @ found[0] > -1e-9).all()
        worst[0] = max(worst[0], np.abs(x_one - found[0]).max())
        worst[1] = max(worst[1], np.abs(q_one - found[1]).max(), np.abs(h_one - found[2]).max())
    return worst


def measure(make, to_numpy=np.asarray):
    """Milliseconds and errors for each case; `make(data)` returns a call for x and the gradients of sum(x^2)."""
    found = {}
    for name, sizes in CASES.items():
        data = draw_programs(*sizes)
        call = make(data)
        x, gradients = call()
        by_q, by_h = (to_numpy(gradients[i]) for i in (1, 5))
        found[name] = [best_of(call, seconds=0.5), *errors(data, to_numpy(x), by_q, by_h)]
    return found


def measure_pullback():
    import pullback as pb

    def make(data):
        @pb.jit
        def value_and_gradients(*data):
            def loss(*data):
                x = pb.vmap(pb.implicit.qp)(*data)
                return pb.sum(x * x), x

            (_, x), gradients = pb.value_and_grad(loss, tuple(range(6)), has_aux=True)(*data)
            return x, gradients

        return lambda: value_and_gradients(*data)

    return measure(make)


def measure_jax(solve):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def make(data):
        data = [jnp.asarray(x) for x in data]

        @jax.jit
        def value_and_gradients(*data):
            def loss(*data):
                x = jax.vmap(solve)(*data)
                return jnp.sum(x * x), x

            (_, x), gradients = jax.value_and_grad(loss, tuple(range(6)), has_aux=True)(*data)
            return x, gradients

        return lambda: jax.block_until_ready(value_and_gradients(*data))

    return measure(make)


def measure_qpax():
    import qpax

    return measure_jax(lambda *data: qpax.solve_qp_primal(*data, solver_tol=1e-10, target_kappa=1e-10))


def measure_jaxopt():
    import jaxopt

    # its own tolerance for derivatives leaves errors of 0.05 to 7
    adjoint = functools.partial(jaxopt.linear_solve.solve_normal_cg, tol=1e-14, maxiter=2000)
    solver = jaxopt.OSQP(tol=1e-9, maxiter=20_000, implicit_diff_solve=adjoint)

    def solve(P, q, A, b, G, h):
        return solver.run(params_obj=(P, q), params_eq=(A, b), params_ineq=(G, h)).params.primal

    return measure_jax(solve)


def measure_cvxpylayers():
    import cvxpy
    import torch
    from cvxpylayers.torch import CvxpyLayer

    def make(data):
        n, (equations, rows) = data[1].shape[1], (data[3].shape[1], data[5].shape[1])
        x, root = cvxpy.Variable(n), cvxpy.Parameter((n, n))
        q, A, b, G, h = (cvxpy.Parameter(s) for s in (n, (equations, n), equations, (rows, n), rows))
        least = cvxpy.Minimize(0.5 * cvxpy.sum_squares(root @ x) + q @ x)
        layer = CvxpyLayer(cvxpy.Problem(least, [A @ x == b, G @ x <= h]), [root, q, A, b, G, h], [x])
        # its parameters must make a disciplined program, so P goes in as its root
        first = np.linalg.cholesky(data[0]).transpose(0, 2, 1)
        leaves = [torch.tensor(x, requires_grad=True) for x in (first, *data[1:])]

        def call():
            (x,) = layer(*leaves, solver_args={"eps": 1e-10, "mode": "dense"})
            return x, torch.autograd.grad((x * x).sum(), leaves)

        return call

    return measure(make, lambda x: x.detach().numpy())


def main():
    measures = {
        "pullback": measure_pullback, "qpax": measure_qpax, "jaxopt": measure_jaxopt,
        "cvxpylayers": measure_cvxpylayers,
    }  # fmt: skip
    if "--one" in sys.argv:
        print(json.dumps(measures[sys.argv[-1]]()))
        return
    other = sys.argv[sys.argv.index("--with") + 1] if "--with" in sys.argv else sys.executable
    print(f"{'':34} {'milliseconds':>12} {'error of x':>12} {'of gradient':>12}")
    for name in measures:
        python = sys.executable if name == "pullback" else other
        # matrices are small: threads would only wait for each other
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PULLBACK_NUM_THREADS")
        one = os.environ | dict.fromkeys(names, "1") | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        done = subprocess.run([python, __file__, "--one", name], capture_output=True, text=True, env=one)
        if done.returncode:
            print(f"{name}: not measured ({done.stderr.strip().splitlines()[-1]})")
            continue
        for case, (taken, of_x, of_gradient) in json.loads(done.stdout.splitlines()[-1]).items():
            print(f"{case:22} {name:11} {taken:12.3f} {of_x:12.1e} {of_gradient:12.1e}")


if __name__ == "__main__":
    main()
