"""A whole training step of a small convolutional network: forward, backward and update, float32, batch 32.

Images of 28x28, 3x3 convolutions of 32 and 64 channels, each with relu and 2x2 max pooling, a dense layer to 10
classes, softmax cross-entropy, SGD. The parameters are donated in both compilers; all get them in the
layouts they like best. `torch.compile` takes part where it finds a C++ compiler.
"""

from time import perf_counter

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

RATE = 0.001
EAGER, TORCH, COMPILED_TORCH, JAX = f"{OURS} eager", "PyTorch", "torch.compile", "JAX, compiled"
first_calls = {}


def data(batch):
    rng = np.random.default_rng(0)
    shapes = ((32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (64 * 7 * 7, 10), (10,))
    scales = (0.3, 0.0, 0.06, 0.0, 0.02, 0.0)
    params = [(scale * rng.normal(size=shape)).astype("f") for shape, scale in zip(shapes, scales, strict=True)]
    return params, rng.normal(size=(batch, 1, 28, 28)).astype("f"), rng.integers(0, 10, batch)


def loss(params, x, labels):
    w1, b1, w2, b2, w3, b3 = params
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(x, w1, b1, padding=1)), 2)
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(h, w2, b2, padding=1)), 2)
    z = pb.reshape(h, (len(x), -1)) @ w3 + b3
    return pb.mean(pb.logsumexp(z, axis=1) - z[np.arange(len(x)), labels])


def step(params, x, labels):
    value, gradients = pb.value_and_grad(loss)(params, x, labels)
    return value, [p - RATE * g for p, g in zip(params, gradients, strict=True)]


def timed(name, call):
    begin = perf_counter()
    answer = call()
    first_calls[name] = perf_counter() - begin
    return answer


def ours(params, x, labels):
    compiled = pb.jit(step, donate_argnums=0)
    state = [timed(OURS, lambda: compiled([p.copy() for p in params], x, labels))[1]]
    return runner(lambda p: compiled(p, x, labels), state)


def eager(params, x, labels):
    return runner(lambda p: step(p, x, labels), [step(params, x, labels)[1]])


def runner(call, state):
    def run():
        value, state[0] = call(state[0])
        return [value, *state[0]]

    return run


def torch_parts(params, x, labels):
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    leaves = [torch.tensor(p, requires_grad=True) for p in params]
    x, labels = torch.tensor(x), torch.tensor(labels)

    def loss(w1, b1, w2, b2, w3, b3):
        h = functional.max_pool2d(torch.relu(functional.conv2d(x, w1, b1, padding=1)), 2)
        h = functional.max_pool2d(torch.relu(functional.conv2d(h, w2, b2, padding=1)), 2)
        return functional.cross_entropy(h.reshape(len(x), -1) @ w3 + b3, labels)

    def run_with(loss):
        def run():
            value = loss(*leaves)
            gradients = torch.autograd.grad(value, leaves)
            with torch.no_grad():
                torch._foreach_add_(leaves, gradients, alpha=-RATE)
            return [value, *leaves]

        return run

    return torch, loss, run_with


def in_torch(*given):
    _, loss, run_with = torch_parts(*given)
    run = run_with(loss)
    run()
    return run


def in_compiled_torch(*given):
    torch, loss, run_with = torch_parts(*given)
    run = run_with(torch.compile(loss))
    try:
        timed(COMPILED_TORCH, run)
    except Exception as error:  # its back end raises many kinds where no compiler is found
        raise ModuleNotFoundError(name="a C++ compiler") from error
    return run


def in_jax(params, x, labels):
    import jax
    import jax.numpy as jnp
    from jax import lax

    def conv(h, w, b):
        return lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b

    def pool(h):
        return lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(params, x, labels):
        w1, b1, w2, b2, w3, b3 = params
        h = pool(jax.nn.relu(conv(x, w1, b1)))
        h = pool(jax.nn.relu(conv(h, w2, b2)))
        z = h.reshape(len(x), -1) @ w3 + b3
        return (jax.nn.logsumexp(z, axis=1) - z[jnp.arange(len(x)), labels]).mean()

    def step(params, x, labels):
        value, gradients = jax.value_and_grad(loss)(params, x, labels)
        return value, [p - RATE * g for p, g in zip(params, gradients, strict=True)]

    def inward(params):
        w1, b1, w2, b2, w3, b3 = params
        w3 = w3.reshape(64, 7, 7, 10).transpose(1, 2, 0, 3).reshape(-1, 10)
        return [jnp.asarray(p) for p in (w1.transpose(2, 3, 1, 0), b1, w2.transpose(2, 3, 1, 0), b2, w3, b3)]

    def outward(value, params):
        w1, b1, w2, b2, w3, b3 = params
        w3 = np.asarray(w3).reshape(7, 7, 64, 10).transpose(2, 0, 1, 3).reshape(-1, 10)
        return [value, w1.transpose(3, 2, 0, 1), b1, w2.transpose(3, 2, 0, 1), b2, w3, b3]

    compiled = jax.jit(step, donate_argnums=0)
    x, labels = jnp.asarray(x.transpose(0, 2, 3, 1)), jnp.asarray(labels)
    begin = inward(params)
    state = [timed(JAX, lambda: jax.block_until_ready(compiled(begin, x, labels)))]

    def run():
        state[0] = jax.block_until_ready(compiled(state[0][1], x, labels))
        return lambda: outward(*state[0])

    return run


def agree(steps):
    """All have done the same number of steps from the same start, so all stand at the same place."""
    found = {name: answer(run()) for name, run in steps.items()}
    check_agreement({name: lambda values=values: values for name, values in found.items()}, 1e-3)


def answer(found):
    return found() if callable(found) else found


MAKERS = {OURS: ours, EAGER: eager, TORCH: in_torch, COMPILED_TORCH: in_compiled_torch, JAX: in_jax}


def main():
    options = start(__doc__)
    print(machine())
    steps = gather(MAKERS, *data(32))
    agree(steps)
    limits = (Limit(TORCH, 1 / 1.5), Limit(JAX, 1 / 1.5))
    report("a training step of a small CNN, batch 32", race(steps, 3.0 if options.quick else 20.0), limits)
    print("  first call: " + ", ".join(f"{name} {1e3 * t:.0f} ms" for name, t in first_calls.items()))


if __name__ == "__main__":
    main()
