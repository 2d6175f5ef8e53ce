"""Gradients of differential equations, compiled: 1,000 steps of Lorenz, and a small neural one; beside diffrax,
torchdiffeq and torchode where they are installed (they need not be: `--with PYTHON` names another interpreter that has
them). torchode gives each row of a batch steps of its own, so its work and its checksum differ a little.

    python benchmarks/ode.py
    python benchmarks/ode.py --with other/bin/python
"""

import json
import subprocess
import sys
import time

import numpy as np

STEPS, WIDTH, BATCH = 1000, 32, 64


def best_of(call, seconds=2.0):
    """The least time of a call, in milliseconds, after two calls that compile."""
    call(), call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def weights():
    random = np.random.default_rng(0)
    first = random.normal(size=(2, WIDTH)), random.normal(size=WIDTH), random.normal(size=(WIDTH, 2)) * 0.3, np.zeros(2)
    return [w.astype(np.float32) for w in first], random.normal(size=(BATCH, 2)).astype(np.float32)


def measure_pullback():
    import pullback as pb

    def lorenz(t, y, p):
        return pb.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])

    @pb.jit
    def lorenz_gradient(y0, p):
        control = pb.ode.FixedSteps(STEPS)
        return pb.grad(lambda y0, p: pb.ode.solve(lorenz, y0, (0.0, 5.0), p, control=control).y.sum(), (0, 1))(y0, p)

    @pb.jit
    def neural_gradient(y0, ws):
        def f(t, y, w, b, v, c):
            return pb.tanh(y @ w + b) @ v + c

        def loss(ws):
            return (pb.ode.solve(f, y0, (0.0, 1.0), *ws, rtol=1e-5, atol=1e-6, max_steps=256).y ** 2).sum()

        return pb.grad(loss)(ws)

    y0, p = np.ones(3), np.array([10.0, 28.0, 8 / 3])
    ws, start = weights()
    found = neural_gradient(start, tuple(ws))
    return {
        "lorenz": best_of(lambda: lorenz_gradient(y0, p)), "neural": best_of(lambda: neural_gradient(start, tuple(ws))),
        "check": [float(np.sum(lorenz_gradient(y0, p)[1])), float(np.abs(found[0]).sum())],
    }  # fmt: skip


def measure_diffrax():
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def lorenz(t, y, p):
        return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])

    def end(y0, p):
        term = diffrax.ODETerm(lorenz)
        found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 5.0, 5.0 / STEPS, y0, p, max_steps=4096)
        return found.ys[-1].sum()

    def f(t, y, ws):
        w, b, v, c = ws
        return jnp.tanh(y @ w + b) @ v + c

    def loss(ws, start):
        control = diffrax.PIDController(rtol=1e-5, atol=1e-6)
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(f), diffrax.Tsit5(), 0.0, 1.0, None, start, ws, stepsize_controller=control, max_steps=256
        )
        return (found.ys[-1] ** 2).sum()

    lorenz_gradient = jax.jit(jax.grad(end, (0, 1)))
    neural_gradient = jax.jit(jax.grad(loss))
    y0, p = jnp.ones(3), jnp.array([10.0, 28.0, 8 / 3])
    ws, start = weights()
    ws, start = [jnp.asarray(w) for w in ws], jnp.asarray(start)
    wait = jax.block_until_ready
    return {
        "lorenz": best_of(lambda: wait(lorenz_gradient(y0, p))),
        "neural": best_of(lambda: wait(neural_gradient(ws, start))),
        "check": [float(lorenz_gradient(y0, p)[1].sum()), float(abs(neural_gradient(ws, start)[0]).sum())],
    }


def measure_torchdiffeq():
    import torch
    from torchdiffeq import odeint

    torch.set_num_threads(2)
    p = torch.tensor([10.0, 28.0, 8 / 3], dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def lorenz(t, y):
        return torch.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])

    def lorenz_gradient():
        span = torch.tensor([0.0, 5.0], dtype=torch.float64)
        end = odeint(lorenz, y0, span, method="rk4", options={"step_size": 5.0 / STEPS})[-1].sum()
        return torch.autograd.grad(end, (y0, p))

    ws, start = weights()
    ws = [torch.tensor(w, requires_grad=True) for w in ws]
    begin = torch.tensor(start)

    def neural_gradient():
        def f(t, y):
            return torch.tanh(y @ ws[0] + ws[1]) @ ws[2] + ws[3]

        end = odeint(f, begin, torch.tensor([0.0, 1.0]), method="dopri5", rtol=1e-5, atol=1e-6)[-1]
        return torch.autograd.grad((end**2).sum(), ws)

    return {
        "lorenz": best_of(lorenz_gradient), "neural": best_of(neural_gradient),
        "check": [float(lorenz_gradient()[1].sum()), float(abs(neural_gradient()[0]).sum())],
    }  # fmt: skip


def measure_torchode():
    import torch
    import torchode

    torch.set_num_threads(2)
    p = torch.tensor([10.0, 28.0, 8 / 3], dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)

    def solve(f, start, end, make_control, first=None):
        term, count = torchode.ODETerm(f), len(start)
        solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), make_control(term))
        span = [torch.full((count,), t, dtype=start.dtype) for t in (0.0, end)]
        problem = torchode.InitialValueProblem(y0=start, t_start=span[0], t_end=span[1])
        return solver.solve(problem, dt0=None if first is None else torch.full_like(span[0], first)).ys[:, -1]

    def lorenz(t, y):
        a, b, c = y.unbind(-1)
        return torch.stack([p[0] * (b - a), a * (p[1] - c) - b, a * b - p[2] * c], -1)

    def lorenz_gradient():
        end = solve(lorenz, y0, 5.0, lambda term: torchode.FixedStepController(), 5.0 / STEPS).sum()
        return torch.autograd.grad(end, (y0, p))

    ws, start = weights()
    ws = [torch.tensor(w, requires_grad=True) for w in ws]
    begin = torch.tensor(start)

    def neural_gradient():
        def f(t, y):
            return torch.tanh(y @ ws[0] + ws[1]) @ ws[2] + ws[3]

        end = solve(f, begin, 1.0, lambda term: torchode.IntegralController(atol=1e-6, rtol=1e-5, term=term))
        return torch.autograd.grad((end**2).sum(), ws)

    return {
        "lorenz": best_of(lorenz_gradient), "neural": best_of(neural_gradient),
        "check": [float(lorenz_gradient()[1].sum()), float(abs(neural_gradient()[0]).sum())],
    }  # fmt: skip


def main():
    measures = {"pullback": measure_pullback, "diffrax": measure_diffrax, "torchdiffeq": measure_torchdiffeq}
    measures["torchode"] = measure_torchode
    if "--one" in sys.argv:
        print(json.dumps(measures[sys.argv[-1]]()))
        return
    other = sys.argv[sys.argv.index("--with") + 1] if "--with" in sys.argv else sys.executable
    print(f"{'gradient of':36} {'milliseconds':>14}")
    for name in measures:
        python = sys.executable if name == "pullback" else other
        done = subprocess.run([python, __file__, "--one", name], capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: not measured ({done.stderr.strip().splitlines()[-1]})")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"Lorenz, {STEPS} steps, {name:18} {found['lorenz']:14.3f}   checksum {found['check'][0]:.6g}")
        print(f"neural, adaptive, {name:18} {found['neural']:14.3f}   checksum {found['check'][1]:.6g}")


if __name__ == "__main__":
    main()
