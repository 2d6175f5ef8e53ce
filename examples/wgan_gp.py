"""Draws points of a ring of eight spots from noise: a Wasserstein GAN whose critic is kept smooth by its gradient.

The critic's loss holds the norm of the critic's gradient by its input, so training it differentiates a gradient:
`pb.grad` inside of `pb.grad`, nothing special. Five steps of the critic and one of the generator are one compiled call.

Run it with: python examples/wgan_gp.py
"""

import itertools

import numpy as np

import pullback as pb

NOISE, WEIGHT = 4, 0.1


def network(layers, x):
    for w, b in layers[:-1]:
        x = pb.nn.silu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def new_network(random, *sizes):
    shapes = itertools.pairwise(sizes)
    return [((random.normal(size=(m, n)) / np.sqrt(m)).astype(np.float32), np.zeros(n, np.float32)) for m, n in shapes]


def spots(random, count, spread=0.05):
    angle = random.integers(8, size=count) * np.pi / 4
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) + spread * random.normal(size=(count, 2))


def penalty(critic, points):
    """How far the slope of the critic is from one."""
    slopes = pb.grad(lambda x: pb.sum(network(critic, x)))(points)
    return pb.mean((pb.sqrt(pb.sum(slopes**2, axis=1) + 1e-12) - 1.0) ** 2)


def critic_loss(critic, real, fake, mix):
    between = mix * real + (1.0 - mix) * fake
    return pb.mean(network(critic, fake)) - pb.mean(network(critic, real)) + WEIGHT * penalty(critic, between)


def generator_loss(generator, critic, noise):
    return -pb.mean(network(critic, network(generator, noise)))


def trained(rule, loss, params, state, *data):
    value, slopes = pb.value_and_grad(loss)(params, *data)
    updates, state = rule.update(slopes, state, params)
    return value, pb.optim.apply_updates(params, updates), state


def main(rounds: int = 2000, batch: int = 128) -> float:
    random = np.random.default_rng(0)
    generator, critic = new_network(random, NOISE, 64, 64, 2), new_network(random, 2, 64, 64, 1)
    rule = pb.optim.adam(pb.optim.schedules.cosine(4e-3, 5 * rounds), betas=(0.5, 0.9))
    state = rule.init(generator), rule.init(critic)

    @pb.jit
    def play(networks, states, real, noise, mix):
        """Five steps of the critic, as one native loop, then one of the generator."""
        (generator, critic), (g_state, c_state) = networks, states

        def teach(carry, batch):
            real, noise, mix = batch
            loss, *carry = trained(rule, critic_loss, *carry, real, network(generator, noise), mix)
            return tuple(carry), loss

        (critic, c_state), losses = pb.scan(teach, (critic, c_state), (real, noise, mix))
        _, generator, g_state = trained(rule, generator_loss, generator, g_state, critic, noise[0])
        return losses[-1], (generator, critic), (g_state, c_state)

    networks = generator, critic
    print("round  critic's loss")
    for i in range(rounds + 1):
        real = spots(random, 5 * batch).reshape(5, batch, 2)
        noise, mix = random.normal(size=(5, batch, NOISE)), random.uniform(size=(5, batch, 1))
        loss, networks, state = play(networks, state, *(a.astype(np.float32) for a in (real, noise, mix)))
        if i % (rounds // 5) == 0:
            print(f"{i:5d}  {loss:8.4f}")

    points = network(networks[0], random.normal(size=(2000, NOISE)))
    centres = np.exp(1j * np.pi / 4 * np.arange(8))
    distances = np.abs((points[:, 0] + 1j * points[:, 1])[:, None] - centres)
    share = np.bincount(distances.argmin(axis=1), minlength=8) / len(points)
    print(f"share of the points at each spot: {share.round(3)}")
    print(f"distance to the nearest spot: {distances.min(axis=1).mean():.3f} on average (real points: 0.063)")
    assert share.min() > 0.03
    assert distances.min(axis=1).mean() < 0.2
    return float(distances.min(axis=1).mean())


if __name__ == "__main__":
    main()
