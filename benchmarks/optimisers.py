"""One step of Adam over float32 parameters with gradients at hand: `pb.optim.Adam` as it is, op by op (`jit=False`) and
compiled for its shapes (`jit=True`), the rule in a compiled function with donated parameters, and PyTorch.

No limit: a step should be level with PyTorch's fused one. The first step is timed too, in processor time.
"""

from time import process_time

import numpy as np
from contest import OURS, gather, machine, race, report, start

import pullback as pb

CASES = {
    "a 8x8 and an 8": [(8, 8), (8,)],
    "a module 16-64-4": [(64, 16), (64,), (4, 64), (4,)],
    "a hundred 64x64 and 64": [(64, 64), (64,)] * 100,
    "four 256x256": [(256, 256)] * 4,
    "two 1024x1024": [(1024, 1024)] * 2,
}
first_steps = {}


def donated(params, grads):
    rule = pb.optim.adam(1e-3)
    kept = [[p.copy() for p in params], rule.init(params)]

    def update(params, state, grads):
        updates, state = rule.update(grads, state, params)
        return pb.optim.apply_updates(params, updates), state

    compiled = pb.jit(update, donate_argnums=(0, 1))

    def step():
        kept[:] = compiled(kept[0], kept[1], grads)

    return step


def ours(jit=None):
    def made(params, grads):
        tensors = [pb.tensor(p, requires_grad=True) for p in params]
        for tensor, g in zip(tensors, grads, strict=True):
            tensor.grad = pb.tensor(g)
        optimizer = pb.optim.Adam(tensors, lr=1e-3, jit=jit)
        begin = process_time()
        optimizer.step()
        first_steps[jit] = process_time() - begin
        return optimizer.step

    return made


def pytorch(**how):
    def made(params, grads):
        import torch

        tensors = [torch.tensor(p, requires_grad=True) for p in params]
        for tensor, g in zip(tensors, grads, strict=True):
            tensor.grad = torch.tensor(g)
        return torch.optim.Adam(tensors, lr=1e-3, **how).step

    return made


MAKERS = {
    OURS: ours(),
    "jit=True": ours(True),
    "jit=False": ours(False),
    "rule, donated": donated,
    "PyTorch fused": pytorch(fused=True),
    "PyTorch foreach": pytorch(foreach=True),
    "PyTorch": pytorch(foreach=False),
}


def main():
    options = start(__doc__)
    print(machine())
    rng = np.random.default_rng(0)
    for label, shapes in CASES.items():
        params, grads = ([rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(2))
        times = race(gather(MAKERS, params, grads), seconds=1 if options.quick else 8)
        report(f"a step of Adam, {label}, float32", times)
        print(f"  first step: {1e3 * first_steps[None]:.1f} ms; jit=True {1e3 * first_steps[True]:.1f} ms")


if __name__ == "__main__":
    main()
