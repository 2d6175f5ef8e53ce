"""Causal attention of 8 heads, length 2,048, width 64, float32: the output and the pullback of a given cotangent."""

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    shape = (1, 2, 64, 16) if small else (1, 8, 2048, 64)
    *qkv, bar = (rng.standard_normal(shape, dtype="f4") for _ in range(4))
    return qkv, bar


def ours(qkv):
    return pb.nn.scaled_dot_product_attention(*qkv, is_causal=True)


def in_torch():
    from torch.nn import functional

    return lambda qkv: functional.scaled_dot_product_attention(*qkv, is_causal=True)


def in_jax():
    import jax

    def attend(qkv):
        q, k, v = (a.swapaxes(1, 2) for a in qkv)  # JAX has the heads after the length
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)

    return attend


TITLE = "attention 8 heads, length 2,048, width 64, both ways"
ROWS = (Workload("attention", TITLE, data, ours, in_torch, in_jax, is_array=True),)

if __name__ == "__main__":
    main(__doc__, ROWS)
