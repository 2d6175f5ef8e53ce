"""Gradients through stochastic equations, compiled: 256 paths of 200 steps of a small neural equation, the noise of
each step by itself, and the same noise from a virtual Brownian tree; beside diffrax and torchsde where installed
(`--with PYTHON` names another interpreter that has them). All take Euler-Maruyama's step; the noises differ, so that
what is compared is the mean of the loss, within its standard errors.

    python benchmarks/sde.py
    python benchmarks/sde.py --with other/bin/python
"""

import json
import subprocess
import sys

import numpy as np
from ode import best_of

STEPS, WIDTH, PATHS = 200, 16, 256


def weights():
    random = np.random.default_rng(0)
    return [random.normal(size=(2, WIDTH)), random.normal(size=WIDTH), random.normal(size=(WIDTH, 2)) * 0.3]


def measure_pullback():
    import pullback as pb

    def drift(t, y, w, b, v):
        return pb.tanh(y @ w + b) @ v

    def diffusion(t, y, w, b, v):
        return 0.2 * pb.cos(y)

    def loss_with(**noise):
        def loss(ws, keys):
            def end(key):
                given = {name: make(key) for name, make in noise.items()}
                method = pb.ode.EulerMaruyama()
                return pb.ode.solve_sde(
                    drift, diffusion, np.ones(2), (0.0, 1.0), *ws, steps=STEPS, method=method, **given
                ).y

            return pb.mean(pb.sum(pb.vmap(end)(keys) ** 2, axis=1))

        return pb.jit(pb.value_and_grad(loss))

    keys, ws = pb.random.split(pb.random.key(0), PATHS), tuple(weights())
    plain = loss_with(key=lambda key: key)
    tree = loss_with(path=lambda key: pb.ode.BrownianTree(key, 0.0, 1.0, (2,), 12))
    return {
        "steps": best_of(lambda: plain(ws, keys)), "tree": best_of(lambda: tree(ws, keys)),
        "check": float(plain(ws, keys)[0]),
    }  # fmt: skip


def measure_diffrax():
    import diffrax
    import jax
    import jax.numpy as jnp
    import lineax

    jax.config.update("jax_enable_x64", True)

    def drift(t, y, ws):
        w, b, v = ws
        return jnp.tanh(y @ w + b) @ v

    def loss_with(make_path):
        def loss(ws, keys):
            def end(key):
                field = lambda t, y, ws: lineax.DiagonalLinearOperator(0.2 * jnp.cos(y))  # noqa: E731
                terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(field, make_path(key)))
                return diffrax.diffeqsolve(
                    terms, diffrax.Euler(), 0.0, 1.0, 1.0 / STEPS, jnp.ones(2), ws, max_steps=STEPS + 8
                ).ys[-1]

            return jnp.mean(jnp.sum(jax.vmap(end)(keys) ** 2, axis=1))

        return jax.jit(jax.value_and_grad(loss))

    keys, ws = jax.random.split(jax.random.PRNGKey(0), PATHS), [jnp.asarray(w) for w in weights()]
    tree = loss_with(lambda key: diffrax.VirtualBrownianTree(0.0, 1.0, 2.0**-12, (2,), key))
    wait = jax.block_until_ready
    return {
        "steps": float("nan"),
        "tree": best_of(lambda: wait(tree(ws, keys))),
        "check": float(tree(ws, keys)[0]),
    }  # its adjoint wants a tree


def measure_torchsde():
    import torch
    import torchsde

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.ws = torch.nn.ParameterList([torch.as_tensor(w) for w in weights()])

        def f(self, t, y):
            return torch.tanh(y @ self.ws[0] + self.ws[1]) @ self.ws[2]

        def g(self, t, y):
            return 0.2 * torch.cos(y)

    equation, start = Equation(), torch.ones(PATHS, 2, dtype=torch.float64)
    found = {}

    def gradient():
        end = torchsde.sdeint(equation, start, torch.tensor([0.0, 1.0]), method="euler", dt=1.0 / STEPS)[-1]
        loss = (end**2).sum(1).mean()
        loss.backward()
        found["loss"] = float(loss)

    return {"steps": best_of(gradient), "tree": float("nan"), "check": found["loss"]}


MEASURES = {"pullback": measure_pullback, "diffrax": measure_diffrax, "torchsde": measure_torchsde}


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--only":
        print(json.dumps(MEASURES[sys.argv[2]]()))
        return
    others = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--with" else sys.executable
    print(f"{'':12s}{'steps, ms':>12s}{'tree, ms':>12s}{'mean loss':>12s}")
    for name in MEASURES:
        python = sys.executable if name == "pullback" else others
        done = subprocess.run([python, __file__, "--only", name], capture_output=True, text=True)
        if done.returncode:
            print(f"{name:12s} not measured: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        print(f"{name:12s}{row['steps']:12.2f}{row['tree']:12.2f}{row['check']:12.4f}")


if __name__ == "__main__":
    main()
