"""Finds the posterior of failure rates from counts, by gradients through random numbers.

Each machine fails at some rate; the prior of rates is a gamma distribution, and so is the guess for each posterior.
Gamma variates come from a rejection method, which has no derivative; `pb.random.gamma` moves each draw as its quantile
moves, so the expectation under the guess is differentiated by its parameters, with little noise. For this model the
posterior is known in closed form, so the result can be checked.

Run it with: python examples/variational.py
"""

import numpy as np

import pullback as pb

PRIOR_SHAPE, PRIOR_RATE = 2.0, 1.0


def log_gamma_density(z, shape, rate):
    return shape * pb.log(rate) - pb.special.gammaln(shape) + (shape - 1) * pb.log(z) - rate * z


def parameters(guess):
    """Shape and rate of the guess, which is kept as logarithms of shape and mean: these hardly pull at each other."""
    shape = pb.exp(guess["shape"])
    return shape, shape / pb.exp(guess["mean"])


def evidence_bound(guess, counts, hours, key, draws):
    """E[log p(counts, z) - log q(z)] over draws z of the guess q; at most the logarithm of the evidence."""
    shape, rate = parameters(guess)
    z = pb.random.gamma(shape, 1.0 / rate, size=(draws, counts.size), key=key)
    likelihood = counts * pb.log(hours * z) - hours * z  # Poisson, less a constant
    prior = log_gamma_density(z, PRIOR_SHAPE, PRIOR_RATE)
    return pb.sum(pb.mean(likelihood + prior - log_gamma_density(z, shape, rate), axis=0))


def main(steps: int = 600, draws: int = 64) -> float:
    random = np.random.default_rng(0)
    hours = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    counts = random.poisson(hours * random.gamma(PRIOR_SHAPE, 1 / PRIOR_RATE, size=hours.size)).astype(float)

    guess = {"shape": np.zeros(hours.size), "mean": np.zeros(hours.size)}
    rule = pb.optim.adam(pb.optim.schedules.cosine(0.2, steps))
    state, key = rule.init(guess), pb.random.key(0)

    @pb.jit
    def step(guess, state, key):
        bound, slopes = pb.value_and_grad(evidence_bound)(guess, counts, hours, key, draws)
        updates, state = rule.update({name: -slope for name, slope in slopes.items()}, state, guess)
        return bound, pb.optim.apply_updates(guess, updates), state

    print(" step  bound on the log-evidence")
    for i in range(steps + 1):
        bound, guess, state = step(guess, state, pb.random.fold_in(key, i))
        if i % (steps // 5) == 0:
            print(f"{i:5d}  {bound:9.3f}")

    shape, rate = parameters(guess)
    true_shape, true_rate = PRIOR_SHAPE + counts, PRIOR_RATE + hours
    print("\nhours  failures   mean (exact)     spread (exact)")
    for row in zip(hours, counts, shape / rate, true_shape / true_rate, np.sqrt(shape) / rate,
                   np.sqrt(true_shape) / true_rate, strict=True):  # fmt: skip
        print("{:5.0f}  {:8.0f}  {:5.3f} ({:5.3f})     {:5.3f} ({:5.3f})".format(*row))
    error = max(np.abs(shape / true_shape - 1).max(), np.abs(rate / true_rate - 1).max())
    print(f"largest error of a parameter of the posterior: {error:.1%}")
    assert error < 0.1
    return float(error)


if __name__ == "__main__":
    main()
