"""A training step of a transformer: 4 layers, 128 wide, 4 heads, pre-norm, a perceptron of four times the width.

float32, batch 16, length 64, 64 tokens, causal; the loss is the cross-entropy of the next token, the update is gradient
descent. Each contestant writes it as its users would, with its own attention, layer norm, gelu and cross-entropy.
Compiled contestants give their parameters away (donate) where they can.
"""

import functools
import math

import numpy as np
from contest import OURS, Limit, bare, gather, machine, race, report, start

import pullback as pb

LAYERS, WIDTH, HEADS, BATCH, LENGTH, TOKENS = 4, 128, 4, 16, 64, 64
RATE = 0.01
COMPILED, EAGER = OURS, "pullback, eager"


def parameters(rng):
    """Weights by name; matrices act from the right."""
    found = {"embed": rng.normal(size=(TOKENS, WIDTH)) * 0.02, "places": rng.normal(size=(LENGTH, WIDTH)) * 0.02}
    for i in range(LAYERS):
        for name, (a, b) in {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}.items():
            found[f"{name}{i}"] = rng.normal(size=(a * WIDTH, b * WIDTH)) / math.sqrt(a * WIDTH)
            found[f"{name}_bias{i}"] = np.zeros(b * WIDTH)
        for name in ("first", "second"):
            found[f"{name}_scale{i}"], found[f"{name}_shift{i}"] = np.ones(WIDTH), np.zeros(WIDTH)
    found |= {"scale": np.ones(WIDTH), "shift": np.zeros(WIDTH), "head": rng.normal(size=(WIDTH, TOKENS)) / 16}
    return {name: x.astype(np.float32) for name, x in found.items()}


def network(p, x, norm, gelu, attend, take):
    """The logits, over what differs between libraries."""
    h = take(p["embed"], x) + p["places"]
    for i in range(LAYERS):
        y = norm(h, p[f"first_scale{i}"], p[f"first_shift{i}"])
        y = attend(y @ p[f"qkv{i}"] + p[f"qkv_bias{i}"])
        h = h + y @ p[f"out{i}"] + p[f"out_bias{i}"]
        y = norm(h, p[f"second_scale{i}"], p[f"second_shift{i}"])
        h = h + gelu(y @ p[f"up{i}"] + p[f"up_bias{i}"]) @ p[f"down{i}"] + p[f"down_bias{i}"]
    return norm(h, p["scale"], p["shift"]) @ p["head"]


def loss_ours(p, x, y):
    def attend(qkv):
        return pb.nn.multi_head_attention(*pb.split(qkv, 3, axis=-1), HEADS, is_causal=True)

    gelu, take = functools.partial(pb.gelu, approximate=True), lambda table, i: pb.nn.embedding(i, table)
    logits = network(p, x, pb.nn.layer_norm, gelu, attend, take)
    return pb.nn.cross_entropy(logits, y, axis=-1)


def compiled_ours(p, x, y):
    def step(p, x, y):
        value, g = pb.value_and_grad(loss_ours)(p, x, y)
        return value, {name: p[name] - RATE * g[name] for name in p}

    compiled = pb.jit(step, donate_argnums=0)
    state = [{name: w.copy() for name, w in p.items()}]

    def run():
        value, state[0] = compiled(state[0], x, y)
        return [value]

    return run


def eager_ours(p, x, y):
    leaves = {name: pb.tensor(w, requires_grad=True) for name, w in p.items()}

    def run():
        value = loss_ours(leaves, x, y)
        value.backward()
        with pb.no_grad():
            for w in leaves.values():
                w -= RATE * w.grad
                w.grad = None
        return [value]

    return run


def jax_compiled(p, x, y):
    import jax
    import jax.numpy as jnp

    def norm(h, scale, shift):
        return jax.nn.standardize(h, epsilon=1e-5) * scale + shift

    def attend(qkv):
        q, k, v = jnp.moveaxis(qkv.reshape(BATCH, LENGTH, 3, HEADS, -1), 2, 0)
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, LENGTH, WIDTH)

    def loss(p, x, y):
        logits = network(p, x, norm, jax.nn.gelu, attend, lambda table, i: table[i])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1).mean()

    def step(p, x, y):
        value, g = jax.value_and_grad(loss)(p, x, y)
        return value, {name: p[name] - RATE * g[name] for name in p}

    compiled = jax.jit(step, donate_argnums=0)
    state = [{name: jnp.asarray(w) for name, w in p.items()}]
    x, y = jnp.asarray(x), jnp.asarray(y)

    def run():
        value, state[0] = jax.block_until_ready(compiled(state[0], x, y))
        return [value]

    return run


def torch_eager(p, x, y, compiler=lambda step: step):
    import torch
    from torch.nn import functional as torch_nn

    torch.set_num_threads(1)
    leaves = {name: torch.tensor(w, requires_grad=True) for name, w in p.items()}
    x, y = torch.tensor(x), torch.tensor(y)

    def norm(h, scale, shift):
        return torch_nn.layer_norm(h, (WIDTH,), scale, shift)

    def attend(qkv):
        q, k, v = qkv.reshape(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        out = torch_nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)

    @compiler
    def loss(leaves, x, y):
        logits = network(
            leaves,
            x,
            norm,
            lambda h: torch_nn.gelu(h, approximate="tanh"),
            attend,
            lambda t, i: torch_nn.embedding(i, t),
        )
        return torch_nn.cross_entropy(logits.reshape(-1, TOKENS), y.reshape(-1))

    def run():
        value = loss(leaves, x, y)
        grads = torch.autograd.grad(value, list(leaves.values()))
        with torch.no_grad():
            torch._foreach_add_(list(leaves.values()), grads, alpha=-RATE)
        return [value]

    return run


def torch_compiled(p, x, y):
    import torch

    return torch_eager(p, x, y, torch.compile)


MAKERS = {
    COMPILED: compiled_ours, EAGER: eager_ours, "JAX, compiled": jax_compiled, "PyTorch": torch_eager,
    "PyTorch, compiled": torch_compiled,
}  # fmt: skip


def first_loss(name, step):
    """The loss of the first step, which all must agree on; None for a compiler that does not work here."""
    try:
        return float(bare(step()[0]))
    except Exception as error:
        if name != "PyTorch, compiled":
            raise
        print(f"  {name}: left out, {type(error).__name__}")  # it needs a C++ compiler
        return None


if __name__ == "__main__":
    options = start(__doc__)
    print(machine())
    rng = np.random.default_rng(0)
    data = parameters(rng), *(rng.integers(0, TOKENS, size=(BATCH, LENGTH)) for _ in range(2))
    steps = gather(MAKERS, *data)
    first = {name: loss for name, step in steps.items() if (loss := first_loss(name, step)) is not None}
    if max(first.values()) - min(first.values()) > 1e-3:
        raise AssertionError(f"the losses differ: {first}")
    steps = {name: steps[name] for name in first}
    times = race(steps, 5 if options.quick else 60)
    report(
        "transformer step, 4 layers of 128",
        times,
        tuple(Limit(n, 1 / 1.5) for n in times if n not in (COMPILED, EAGER)),
    )
    print(f"  eager, of PyTorch's: {times[EAGER] / times['PyTorch']:.3f}")
