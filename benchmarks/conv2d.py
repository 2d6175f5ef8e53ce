"""conv2d in eager, forward and with both gradients: 32x32x14x14 by 64x32x3x3, padding 1, and a few other shapes."""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

SHAPES = (
    ((32, 32, 14, 14), (64, 32, 3, 3), 1, 1),
    ((32, 1, 28, 28), (32, 1, 3, 3), 1, 1),
    ((32, 64, 14, 14), (64, 64, 1, 1), 0, 1),
    ((32, 64, 14, 14), (64, 1, 3, 3), 1, 64),
)


def forward_ours(x, w, bar, padding, groups):
    return lambda: [pb.nn.conv2d(x, w, padding=padding, groups=groups)]


def gradients_ours(x, w, bar, padding, groups):
    x, w = pb.tensor(x, requires_grad=True), pb.tensor(w, requires_grad=True)

    def run():
        x.grad = w.grad = None
        pb.nn.conv2d(x, w, padding=padding, groups=groups).backward(bar)
        return [x.grad, w.grad]

    return run


def tensors(x, w, bar):
    import torch

    torch.set_num_threads(1)
    return torch, torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True), torch.tensor(bar)


def forward_torch(x, w, bar, padding, groups):
    torch, x, w, _ = tensors(x, w, bar)
    x, w = x.detach(), w.detach()
    return lambda: [torch.nn.functional.conv2d(x, w, padding=padding, groups=groups)]


def gradients_torch(x, w, bar, padding, groups):
    torch, x, w, bar = tensors(x, w, bar)
    conv = torch.nn.functional.conv2d
    return lambda: torch.autograd.grad(conv(x, w, padding=padding, groups=groups), (x, w), bar)


def main():
    options = start(__doc__)
    print(machine())
    rng = np.random.default_rng(0)
    for x_shape, w_shape, padding, groups in SHAPES:
        x, w = rng.normal(size=x_shape).astype("f"), rng.normal(size=w_shape).astype("f")
        bar = rng.normal(size=pb.nn.conv2d(x, w, padding=padding, groups=groups).shape).astype("f")
        what = f"{'x'.join(map(str, x_shape))} by {'x'.join(map(str, w_shape))}"
        for title, makers in (
            (f"forward, {what}", {OURS: forward_ours, "PyTorch": forward_torch}),
            (f"forward and gradients, {what}", {OURS: gradients_ours, "PyTorch": gradients_torch}),
        ):
            steps = gather(makers, x, w, bar, padding, groups)
            check_agreement(steps, 1e-4)
            report(title, race(steps, 1.0 if options.quick else 5.0), (Limit("PyTorch", 1.0),))


if __name__ == "__main__":
    main()
