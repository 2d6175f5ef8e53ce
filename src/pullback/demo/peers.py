"""The same training step in PyTorch and JAX, and the race between them and ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

from .network import RATE

#: One training step; it returns the loss before the update.
Step = Callable[[], float]


def make_torch_step(params: Any, images: Any, labels: Any) -> Step:
    torch = import_module("torch")
    torch.set_num_threads(1)  # as ours: more threads only wait for each other
    functional = torch.nn.functional
    leaves = {n: {k: torch.tensor(x, requires_grad=True) for k, x in layer.items()} for n, layer in params.items()}
    optimizer = torch.optim.Adam([x for layer in leaves.values() for x in layer.values()], lr=RATE)
    x, y = torch.tensor(images), torch.tensor(labels)

    def step() -> float:
        one, two, dense = leaves["conv1"], leaves["conv2"], leaves["dense"]
        h = functional.max_pool2d(torch.relu(functional.conv2d(x, one["weight"], one["bias"], padding=1)), 2)
        h = functional.max_pool2d(torch.relu(functional.conv2d(h, two["weight"], two["bias"], padding=1)), 2)
        value = functional.cross_entropy(h.reshape(len(x), -1) @ dense["weight"] + dense["bias"], y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return float(value.item())

    return step


def make_jax_step(params: Any, images: Any, labels: Any) -> Step:
    """With channels last, which its compiler likes best on a CPU."""
    jax = import_module("jax")
    jnp, lax = jax.numpy, jax.lax

    def layer(h: Any, p: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(h, p["weight"], (1, 1), "SAME", dimension_numbers=layout) + p["bias"]
        return lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = layer(layer(x, params["conv1"]), params["conv2"]).reshape(len(x), -1)
        z = h @ params["dense"]["weight"] + params["dense"]["bias"]
        return jnp.mean(jax.nn.logsumexp(z, axis=1) - z[jnp.arange(len(x)), y])

    def step(params: Any, first: Any, second: Any, count: Any, x: Any, y: Any) -> Any:
        """Adam as published: bias-corrected averages of gradients and of their squares."""
        value, g = jax.value_and_grad(loss)(params, x, y)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)

        def adam_update(p: Any, m: Any, v: Any) -> Any:
            return p - RATE * m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return value, jax.tree.map(adam_update, params, first, second), first, second, count

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    start = jax.tree.map(jnp.asarray, _to_channels_last(params))
    zeros = [jax.tree.map(jnp.zeros_like, start) for _ in range(2)]
    state = [start, *zeros, jnp.zeros((), jnp.float32)]
    x, y = jnp.asarray(images.transpose(0, 2, 3, 1)), jnp.asarray(labels)

    def run() -> float:
        value, *state[:] = compiled(*state, x, y)
        return float(jax.block_until_ready(value))

    return run


def _to_channels_last(params: Any) -> Any:
    """The same network with weights as (height, width, in, out), and the dense layer's rows in that order."""
    found = {name: dict(layer) for name, layer in params.items()}
    for name in ("conv1", "conv2"):
        found[name]["weight"] = found[name]["weight"].transpose(2, 3, 1, 0)
    dense = found["dense"]["weight"]
    found["dense"]["weight"] = dense.reshape(-1, 2, 2, dense.shape[1]).transpose(1, 2, 0, 3).reshape(dense.shape)
    return found


#: Each with the package it needs.
PEERS: dict[str, tuple[str, Callable[[Any, Any, Any], Step]]] = {
    "PyTorch": ("torch", make_torch_step),
    "JAX, compiled": ("jax", make_jax_step),
}


def add_peer_steps(ours: dict[str, Step], params: Any, images: Any, labels: Any) -> tuple[dict[str, Step], list[str]]:
    """Our steps and those of the installed peers that compute the same loss; and which are left out, and why."""
    steps, missing = dict(ours), []
    wanted = {name: step() for name, step in ours.items()}
    expected = next(iter(wanted.values()))
    for name, (package, make) in PEERS.items():
        try:
            step = make(params, images, labels)
            found = step()
        except ImportError:
            missing.append(f"{name}: left out, the package {package} is not installed")
            continue
        if not math.isclose(found, expected, rel_tol=1e-3):
            missing.append(f"{name}: left out, its loss is {found:.6g} where ours is {expected:.6g}")
            continue
        steps[name] = step
    return steps, missing


def race(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """The best time of each step: short bursts in turn, so that a slow spell of the machine is shared by all."""
    best = dict.fromkeys(steps, math.inf)
    until = perf_counter() + seconds
    while perf_counter() < until or math.inf in best.values():
        for name, step in steps.items():
            step()  # uncounted: the caches belong to the one before
            times = []
            for _ in range(5):
                begin = perf_counter()
                step()
                times.append(perf_counter() - begin)
            best[name] = min(best[name], float(np.min(times)))
    return best
