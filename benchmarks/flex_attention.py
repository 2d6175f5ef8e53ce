"""Attention with a mask or a bias of distances, forward and backward: 8 heads of 64, 2,048 positions, float32.

Causal, a causal window of 256 keys, and causal with ALiBi's slopes: `flex_attention` with a block mask, compiled and
eager, against attention with the whole mask as an array, ours compiled and PyTorch's. (PyTorch's own `flex_attention`
has no backward pass on a CPU.)
"""

import numpy as np
from contest import OURS, check_agreement, gather, machine, race, report, start

import pullback as pb

HEADS, LENGTH, WIDTH = 8, 2048, 64
SLOPES = (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32)


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 256)


def alibi(score, b, h, i, j):
    return score + pb.take(pb.tensor(SLOPES), h) * pb.astype(j - i, score.dtype)


def case(name):
    """The mask of pairs, the function of scores, and both as an array for attention with a mask."""
    i = np.arange(LENGTH)[:, None]
    allowed = window(0, 0, i, i.T) if name == "window" else causal(0, 0, i, i.T)
    if name != "alibi":
        return window if name == "window" else causal, None, allowed
    bias = SLOPES[:, None, None] * (i.T - i).astype(np.float32)
    return causal, alibi, np.where(allowed, bias, np.float32(-np.inf))


def ours(name, q, k, v, bar, compiled=True):
    mask, mod, _ = case(name)
    blocks = pb.nn.create_block_mask(mask, None, None, LENGTH, LENGTH)
    step = lambda *xs: pb.vjp(lambda *xs: pb.nn.flex_attention(*xs, mod, blocks), *xs)[1](bar)  # noqa: E731
    step = pb.jit(step) if compiled else step
    return lambda: step(q, k, v)


def eager(*case):
    return ours(*case, compiled=False)


def whole(name, q, k, v, bar):
    mask = case(name)[2]
    step = pb.jit(lambda *xs: pb.vjp(lambda *xs: pb.nn.scaled_dot_product_attention(*xs, mask), *xs)[1](bar))
    return lambda: step(q, k, v)


def pytorch(name, q, k, v, bar):
    import torch

    mask, bar = torch.tensor(case(name)[2]), torch.tensor(bar)
    inputs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    attention = torch.nn.functional.scaled_dot_product_attention
    return lambda: [g.numpy() for g in torch.autograd.grad(attention(*inputs, attn_mask=mask), inputs, bar)]


MAKERS = {OURS: ours, "ours eager": eager, "ours, the whole mask": whole, "PyTorch, the whole mask": pytorch}


def main():
    options = start(__doc__)
    print(machine())
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(1, HEADS, LENGTH, WIDTH)).astype(np.float32) for _ in range(4)]
    for name in ("causal", "window", "alibi"):
        steps = gather(MAKERS, name, *arrays)
        check_agreement(steps, tolerance=1e-4)
        report(f"{name}, gradients of q, k and v", race(steps, seconds=5 if options.quick else 30), ())


if __name__ == "__main__":
    main()
