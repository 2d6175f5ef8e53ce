"""Statistics of gradients and curvature of a 784-256-128-10 network, batch 64, float32: compiled, against BackPACK.

Norms of the gradients of samples may take twice as long as the gradient of the batch, compiled as well; nothing may
take longer than BackPACK where that is installed. `torch.func` is the recipe with vmap over grad, eager.
"""

import itertools
import warnings

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

SIZES, BATCH = (784, 256, 128, 10), 64
GRADIENT = "batch gradient"
LIMITS = (Limit("BackPACK", 1.0), Limit("torch.func", 1.0))


def data():
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(SIZES))
    weights = [(rng.normal(size=(n, m)) / np.sqrt(m)).astype("f") for m, n in pairs]
    params = [(w, np.zeros(len(w), "f")) for w in weights]
    return params, rng.normal(size=(BATCH, SIZES[0])).astype("f"), rng.integers(0, SIZES[-1], BATCH)


def model(params, x):
    for w, b in params[:-1]:
        x = pb.tanh(x @ w.T + b)
    w, b = params[-1]
    return x @ w.T + b


def loss(params, x, y):
    return pb.curvature.categorical(model(params, x), y)


def batch_gradient(params, x, y):
    step = pb.jit(pb.grad(lambda p, x, y: pb.nn.cross_entropy(model(p, x), y)))
    return lambda: pb.tree.leaves(step(params, x, y))


def compiled(function):
    def make(params, x, y):
        step = pb.jit(function)
        return lambda: pb.tree.leaves(step(params, x, y))

    return make


def backpack_network(params, x, y):
    import torch
    from backpack import extend

    layers = []
    for w, b in params:
        layer = torch.nn.Linear(*w.T.shape)
        layer.load_state_dict({"weight": torch.tensor(w), "bias": torch.tensor(b)})
        layers += [layer, torch.nn.Tanh()]
    torch.set_num_threads(1)
    net, error = extend(torch.nn.Sequential(*layers[:-1])), extend(torch.nn.CrossEntropyLoss())
    inputs, labels = torch.tensor(x), torch.tensor(y)
    return net, lambda: error(net(inputs), labels)


def backpack(name, read):
    """A step of BackPACK with one of its extensions, and what it leaves at the parameters."""

    def make(params, x, y):
        net, error = backpack_network(params, x, y)
        import backpack.extensions
        from backpack import backpack as extended

        extension = getattr(backpack.extensions, name)()

        def step():
            net.zero_grad()
            with extended(extension):
                error().backward()
            return read(list(net.parameters()))

        return step

    return make


def torch_per_sample(read):
    """vmap over grad, then what is wanted of the gradients."""

    def make(params, x, y):
        import torch

        torch.set_num_threads(1)
        leaves = [tuple(map(torch.tensor, pair)) for pair in params]

        def one(params, x, y):
            for w, b in params[:-1]:
                x = torch.tanh(x @ w.T + b)
            w, b = params[-1]
            return torch.nn.functional.cross_entropy((x @ w.T + b)[None], y[None])

        each = torch.func.vmap(torch.func.grad(one), (None, 0, 0))
        given = torch.tensor(x), torch.tensor(y)
        return lambda: read([g for pair in each(leaves, *given) for g in pair])

    return make


C = pb.curvature
#: title: our function of (params, x, y); BackPACK's extension, how its result is read, and what it is to be multiplied
#: by, since gradients of samples are divided by the batch size there; what is computed from torch.func's gradients
CASES = {
    "norms of gradients of samples": (
        C.per_sample_norms(loss), ("BatchL2Grad", lambda ps: [sum(p.batch_l2 for p in ps).sqrt()], BATCH),
        lambda gs: [sum((g.reshape(BATCH, -1) ** 2).sum(1) for g in gs).sqrt()],
    ),
    "second moment of gradients": (
        lambda *args: C.gradient_statistics(loss)(*args).second_moment,
        ("SumGradSquared", lambda ps: [p.sum_grad_squared for p in ps], BATCH),
        lambda gs: [(g**2).mean(0) for g in gs],
    ),
    "variance of gradients": (
        lambda *args: C.gradient_statistics(loss)(*args).variance,
        ("Variance", lambda ps: [p.variance for p in ps], BATCH**2),
        lambda gs: [g.var(0, correction=0) for g in gs],
    ),
    "gradients of samples": (
        C.per_sample_grad(loss), ("BatchGrad", lambda ps: [p.grad_batch for p in ps], BATCH), list,
    ),
    "diagonal of the Gauss-Newton matrix": (
        C.ggn_diagonal(model, C.categorical), ("DiagGGNExact", lambda ps: [p.diag_ggn_exact for p in ps], 1), None,
    ),
    "Kronecker factors (K-FLR)": (
        lambda *args: [
            side[0] for (w, b) in C.kfac_factors(model, C.categorical)(*args) for side in (w.right, w.left, b.right)
        ],
        ("KFLR", lambda ps: [f for p in ps for f in p.kflr], 1),
        None,
    ),
}  # fmt: skip


def multiply_results(steps, name, times):
    """The steps with the results of one multiplied, which is no part of its time."""
    step = steps.get(name)
    return steps if step is None else {**steps, name: lambda: [times * value for value in step()]}


def main():
    options = start(__doc__)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    print(machine())
    given = data()
    for title, (ours, (extension, read, times), recipe) in CASES.items():
        makers = {OURS: compiled(ours), "BackPACK": backpack(extension, read)}
        if recipe is not None:
            makers["torch.func"] = torch_per_sample(recipe)
        steps = gather(makers, *given)
        check_agreement(multiply_results(steps, "BackPACK", times), tolerance=2e-3 if "variance" in title else 1e-4)
        steps[GRADIENT] = batch_gradient(*given)
        limits = (*LIMITS, Limit(GRADIENT, 2.0)) if title.startswith("norms") else LIMITS
        report(title, race(steps, seconds=2 if options.quick else 10), limits, reference=GRADIENT)


if __name__ == "__main__":
    main()
