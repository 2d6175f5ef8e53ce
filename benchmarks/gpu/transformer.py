"""A training step of a transformer: 4 layers of 128, 4 heads, batch 16, length 64; as `../transformer.py`. In float32,
and with products and attention in bfloat16 (autocast).
"""

import math
import operator
from functools import partial

import numpy as np
from arena import Workload, main

import pullback as pb

LAYERS, WIDTH, HEADS, BATCH, LENGTH, TOKENS = 4, 128, 4, 16, 64, 64


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
    return {name: x.astype("f4") for name, x in found.items()}


NAMES = tuple(parameters(np.random.default_rng(0)))


def data(small):
    rng = np.random.default_rng(0)
    return list(parameters(rng).values()), *(rng.integers(0, TOKENS, size=(BATCH, LENGTH)) for _ in range(2))


def network(norm, gelu, attend, take, weights, x, matmul=operator.matmul):
    """The logits, over what differs between libraries."""
    p = dict(zip(NAMES, weights, strict=True))
    h = take(p["embed"], x) + p["places"]
    for i in range(LAYERS):
        y = norm(h, p[f"first_scale{i}"], p[f"first_shift{i}"])
        y = attend(matmul(y, p[f"qkv{i}"]) + p[f"qkv_bias{i}"])
        h = h + matmul(y, p[f"out{i}"]) + p[f"out_bias{i}"]
        y = norm(h, p[f"second_scale{i}"], p[f"second_shift{i}"])
        h = h + matmul(gelu(matmul(y, p[f"up{i}"]) + p[f"up_bias{i}"]), p[f"down{i}"]) + p[f"down_bias{i}"]
    return matmul(norm(h, p["scale"], p["shift"]), p["head"])


def ours(weights, x, y):
    def attend(qkv):
        return pb.nn.multi_head_attention(*pb.split(qkv, 3, axis=-1), HEADS, is_causal=True)

    gelu, take = partial(pb.gelu, approximate=True), lambda table, i: pb.nn.embedding(i, table)
    logits = network(pb.nn.layer_norm, gelu, attend, take, weights, x)
    return pb.nn.cross_entropy(logits, y, axis=-1)


def in_torch():
    from torch.nn import functional

    def norm(h, scale, shift):
        return functional.layer_norm(h, (WIDTH,), scale, shift)

    def attend(qkv):
        q, k, v = qkv.reshape(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)

    gelu, take = partial(functional.gelu, approximate="tanh"), lambda table, i: functional.embedding(i, table)

    def loss(weights, x, y):
        logits = network(norm, gelu, attend, take, weights, x)
        return functional.cross_entropy(logits.reshape(-1, TOKENS), y.reshape(-1))

    return loss


def in_torch_autocast():
    import torch

    loss = in_torch()

    def cast_loss(weights, x, y):
        with torch.autocast(x.device.type, torch.bfloat16):
            return loss(weights, x, y)

    return cast_loss


def in_jax(low=None):
    """With `low`, products and attention have operands of that dtype, as autocast has them."""
    import jax
    import jax.numpy as jnp

    def norm(h, scale, shift):
        return jax.nn.standardize(h, epsilon=1e-5) * scale + shift

    def matmul(x, y):
        return x @ y if low is None else x.astype(low) @ y.astype(low)

    def attend(qkv):
        qkv = qkv if low is None else qkv.astype(low)
        q, k, v = jnp.moveaxis(qkv.reshape(BATCH, LENGTH, 3, HEADS, -1), 2, 0)
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, LENGTH, WIDTH)

    def loss(weights, x, y):
        logits = network(norm, jax.nn.gelu, attend, lambda table, i: table[i], weights, x, matmul)
        logits = logits.astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1).mean()

    return loss


TITLE = "transformer, 4 layers of 128, batch 16, length 64"
ROWS = (
    Workload("transformer", TITLE, data, ours, in_torch, in_jax, must_reach=550, eager_ratio=1.0, rate=0.01),
    Workload(
        "autocast transformer",
        f"{TITLE}, autocast to bfloat16",
        data,
        pb.autocast("bfloat16")(ours),
        in_torch_autocast,
        partial(in_jax, "bfloat16"),
        rate=0.01,
        tolerance=8e-2,
        wide=ours,
        wide_ratio=1.3,
    ),
)

if __name__ == "__main__":
    main(__doc__, ROWS)
