"""Functions of networks with their gradients, float32: compiled and eager, beside PyTorch's own.

Each is multiplied by a random array and summed, so that no gradient is a constant. Cross-entropy and layer norm
may take no longer compiled than the same formulas written out by hand. Eager calls are given tensors, as PyTorch's
are; of bare arrays, which may change meanwhile, the tape saves copies.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

RNG = np.random.default_rng(0)
nn = pb.nn


def normal(*shape):
    return RNG.normal(size=shape).astype("f")


def entropy_by_hand(z, labels):
    shifted = z - pb.max(z, axis=1, keepdims=True)
    picked = pb.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    return pb.mean(pb.log(pb.sum(pb.exp(shifted), axis=1)) - picked)


def norm_by_hand(x, g, b):
    m = pb.mean(x, axis=-1, keepdims=True)
    v = pb.mean((x - m) ** 2, axis=-1, keepdims=True)
    return (x - m) / pb.sqrt(v + 1e-5) * g + b


IMAGE, GRID = normal(8, 16, 64, 64), np.clip(0.6 * normal(8, 64, 64, 2), -1, 1)
#: For each name: ours, PyTorch's (a function of F and its arguments), ours by hand, the arguments.
CASES = {
    "cross_entropy 256x1000": (
        nn.cross_entropy, lambda f, z, t: f.cross_entropy(z, t), entropy_by_hand,
        [normal(256, 1000), RNG.integers(0, 1000, 256)],
    ),
    "layer_norm 512x768": (
        nn.layer_norm, lambda f, x, g, b: f.layer_norm(x, (768,), g, b), norm_by_hand,
        [normal(512, 768), normal(768), normal(768)],
    ),
    "gelu": (nn.gelu, lambda f, x: f.gelu(x), None, [IMAGE]),
    "mish": (nn.mish, lambda f, x: f.mish(x), None, [IMAGE]),
    "group_norm": (lambda x: nn.group_norm(x, 4), lambda f, x: f.group_norm(x, 4), None, [IMAGE]),
    "batch_norm": (
        lambda x: nn.batch_norm(x, training=True)[0], lambda f, x: f.batch_norm(x, None, None, training=True),
        None, [IMAGE],
    ),
    "bilinear interpolation by 2": (
        lambda x: nn.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda f, x: f.interpolate(x, scale_factor=2, mode="bilinear"), None, [IMAGE],
    ),
    "grid_sample": (nn.grid_sample, lambda f, x, g: f.grid_sample(x, g, align_corners=False), None, [IMAGE, GRID]),
    "embedding 1000x64, 64x50": (
        lambda w, i: nn.embedding(i, w), lambda f, w, i: f.embedding(i, w), None,
        [normal(1000, 64), RNG.integers(0, 1000, (64, 50))],
    ),
}  # fmt: skip


def places(args):
    return tuple(i for i, a in enumerate(args) if a.dtype.kind == "f")


def gradient(function, args, weights):
    return pb.grad(lambda *a: pb.sum(function(*a[:-1]) * a[-1]), argnums=places(args)), [*args, weights]


def compiled(function, theirs, by_hand, args, weights):
    slopes, given = gradient(function, args, weights)
    fast = pb.jit(slopes)
    return lambda: fast(*given)


def eager(function, theirs, by_hand, args, weights):
    slopes, given = gradient(function, args, weights)
    given = [pb.tensor(a) for a in given]
    return lambda: slopes(*given)


def eager_of_arrays(function, theirs, by_hand, args, weights):
    slopes, given = gradient(function, args, weights)
    return lambda: slopes(*given)


def written_out(function, theirs, by_hand, args, weights):
    return None if by_hand is None else compiled(by_hand, theirs, None, args, weights)


def pytorch(function, theirs, by_hand, args, weights):
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(1)
    given = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in args]
    moving, seed = [given[i] for i in places(args)], torch.tensor(weights)
    return lambda: torch.autograd.grad((theirs(functional, *given) * seed).sum(), moving)


MAKERS = {
    OURS: compiled, "pullback, eager": eager, "eager, of arrays": eager_of_arrays,
    "written out, compiled": written_out, "PyTorch": pytorch,
}  # fmt: skip


def main():
    options = start(__doc__)
    print(machine())
    for name, (function, theirs, by_hand, args) in CASES.items():
        weights = np.asarray(RNG.normal(size=np.shape(function(*args))), "f")
        makers = {who: make for who, make in MAKERS.items() if make is not written_out or by_hand}
        steps = gather(makers, function, theirs, by_hand, args, weights)
        check_agreement(steps, 2e-3)
        limits = (Limit("written out, compiled", 1.05),) if by_hand else ()
        report(f"{name} with gradients", race(steps, 0.6 if options.quick else 4.0), limits)


if __name__ == "__main__":
    main()
