"""The training loop as people write it: forward, `backward`, update, op by op; float32, eager on both sides.

Networks of tanh layers with an update by hand, a module with cross-entropy and Adam (the loss and the optimizer's step
also alone), and the demo's CNN with Adam. All contestants take the same steps from the same start.
"""

from itertools import pairwise

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb
from pullback.demo.network import RATE, init_parameters
from pullback.demo.network import loss as cnn_loss

RNG = np.random.default_rng(0)
TORCH = "PyTorch"


def normal(*shape):
    return RNG.normal(size=shape).astype("f")


def layer_sizes(*sizes):
    """Weights and biases of dense layers."""
    return [p for a, b in pairwise(sizes) for p in (normal(a, b) / np.float32(a) ** 0.5, np.zeros(b, "f"))]


def predict(xp, params, x):
    h = x
    for i in range(0, len(params) - 2, 2):
        h = xp.tanh(h @ params[i] + params[i + 1])
    return h @ params[-2] + params[-1]


def hand_ours(params, x, y):
    params = [pb.tensor(p, requires_grad=True) for p in params]
    x, y = pb.tensor(x), pb.tensor(y)

    def step():
        loss = ((predict(pb, params, x) - y) ** 2).mean()
        loss.backward()
        with pb.no_grad():
            for p in params:
                p -= 0.001 * p.grad
                p.grad = None
        return [loss, *params]

    return step


def hand_torch(params, x, y):
    import torch

    torch.set_num_threads(1)
    params = [torch.tensor(p, requires_grad=True) for p in params]
    x, y = torch.tensor(x), torch.tensor(y)

    def step():
        loss = ((predict(torch, params, x) - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in params:
                p -= 0.001 * p.grad
                p.grad = None
        return [loss, *params]

    return step


class Net(pb.nn.Module):
    def __init__(self, params):
        keys = pb.random.split(pb.random.key(0))
        self.body, self.head = (pb.nn.Linear(*w.shape, key=k) for w, k in zip(params[::2], keys, strict=True))
        for layer, w, b in zip((self.body, self.head), params[::2], params[1::2], strict=True):
            layer.weight, layer.bias = pb.tensor(w.T.copy(), requires_grad=True), pb.tensor(b, requires_grad=True)

    def forward(self, x):
        return self.head(pb.relu(self.body(x)))


def module_parts(params, x, labels):
    """The module, its optimizer with gradients at hand, and the data."""
    net, x, labels = Net(params), pb.tensor(x), pb.tensor(labels)
    optimizer = pb.optim.Adam(net, lr=1e-3)
    pb.nn.cross_entropy(net(x), labels).backward()
    return net, optimizer, x, labels


def torch_parts(params, x, labels):
    import torch

    torch.set_num_threads(1)
    first, last = (torch.nn.Linear(*w.shape) for w in params[::2])
    for layer, w, b in zip((first, last), params[::2], params[1::2], strict=True):
        layer.weight, layer.bias = torch.nn.Parameter(torch.tensor(w.T.copy())), torch.nn.Parameter(torch.tensor(b))
    net = torch.nn.Sequential(first, torch.nn.ReLU(), last)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, labels = torch.tensor(x), torch.tensor(labels)
    torch.nn.functional.cross_entropy(net(x), labels).backward()
    return net, optimizer, x, labels


def module_step(cross_entropy, net, optimizer, x, labels):
    params = list(net.parameters())

    def step():
        optimizer.zero_grad()
        loss = cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return [loss, *params]

    return step


def module_ours(*data):
    return module_step(pb.nn.cross_entropy, *module_parts(*data))


def module_torch(*data):
    parts = torch_parts(*data)
    from torch.nn.functional import cross_entropy

    return module_step(cross_entropy, *parts)


def entropy_ours(*data):
    net, _, x, labels = module_parts(*data)
    z = net(x).detach()
    z.requires_grad = True
    return lambda: [pb.nn.cross_entropy(z, labels)]


def entropy_torch(*data):
    net, _, x, labels = torch_parts(*data)
    from torch.nn.functional import cross_entropy

    z = net(x).detach().requires_grad_(True)
    return lambda: [cross_entropy(z, labels)]


def adam_step(net, optimizer, x, labels):
    params = list(net.parameters())

    def step():
        optimizer.step()
        return params

    return step


def adam_ours(*data):
    return adam_step(*module_parts(*data))


def adam_torch(*data):
    return adam_step(*torch_parts(*data))


def cnn_ours(params, x, labels):
    layers = {n: {k: pb.tensor(p, requires_grad=True) for k, p in layer.items()} for n, layer in params.items()}
    optimizer = pb.optim.Adam(layers, lr=RATE)
    flat = [p for layer in layers.values() for p in layer.values()]

    def step():
        optimizer.zero_grad()
        loss = cnn_loss(layers, x, labels)
        loss.backward()
        optimizer.step()
        return [loss, *flat]

    return step


def cnn_torch(params, x, labels):
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    layers = {n: {k: torch.tensor(p, requires_grad=True) for k, p in layer.items()} for n, layer in params.items()}
    flat = [p for layer in layers.values() for p in layer.values()]
    optimizer = torch.optim.Adam(flat, lr=RATE)
    x, labels = torch.tensor(x), torch.tensor(labels)

    def step():
        optimizer.zero_grad()
        h = x
        for p in (layers["conv1"], layers["conv2"]):
            h = functional.max_pool2d(torch.relu(functional.conv2d(h, p["weight"], p["bias"], padding=1)), 2)
        z = h.reshape(len(x), -1) @ layers["dense"]["weight"] + layers["dense"]["bias"]
        loss = functional.cross_entropy(z, labels)
        loss.backward()
        optimizer.step()
        return [loss, *flat]

    return step


def contest(title, makers, limit, seconds, *data):
    """After three steps all must stand at the same place; then they race."""
    steps = gather(dict(zip((OURS, TORCH), makers, strict=True)), *data)
    for _ in range(3):
        found = {name: step() for name, step in steps.items()}
        check_agreement({name: lambda values=values: values for name, values in found.items()}, 1e-3)
    report(title, race(steps, seconds), () if limit is None else (Limit(TORCH, limit),))


def main():
    options = start(__doc__)
    print(machine())
    seconds = 1.0 if options.quick else 6.0
    for sizes, batch, limit in (
        ((8, 32, 32, 1), 1, 0.67),
        ((16, 64, 64, 4), 32, 0.67),
        ((784, 256, 128, 10), 64, 1.0),
    ):
        title = f"MLP {'-'.join(map(str, sizes))}, batch {batch}, update by hand"
        data = layer_sizes(*sizes), normal(batch, sizes[0]), normal(batch, sizes[-1])
        contest(title, (hand_ours, hand_torch), limit, seconds, *data)
    data = layer_sizes(16, 64, 4), normal(32, 16), RNG.integers(0, 4, 32)
    name = "Module 16-64-4, batch 32"
    contest(f"{name}, cross_entropy and Adam", (module_ours, module_torch), 0.67, seconds, *data)
    contest(f"{name}: cross_entropy alone, forward", (entropy_ours, entropy_torch), None, seconds, *data)
    contest(f"{name}: Adam.step alone", (adam_ours, adam_torch), None, seconds, *data)
    data = init_parameters(RNG), RNG.uniform(size=(64, 1, 8, 8)).astype("f"), RNG.integers(0, 10, 64)
    contest("the demo's CNN with Adam, batch 64", (cnn_ours, cnn_torch), 1.0, seconds, *data)


if __name__ == "__main__":
    main()
