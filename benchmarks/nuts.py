"""Effective draws a second of NUTS, one chain of 1,000 draws after 1,000 of warmup, float64: a Gaussian of 100
coordinates whose scales differ by ten, the eight schools (non-centered), and a logistic regression of 500 rows by 20.

The least effective coordinate counts, over the time of warmup and draws without that of compiling (later calls, with
other keys). Peers: `pip install numpyro blackjax`. The effective draws of all are counted by the same function; each
sampler adapts by its own rules, to an acceptance of 0.8.
"""

from time import perf_counter

import numpy as np
from contest import OURS, gather, machine, start

import pullback as pb

DRAWS = WARMUP = 1000
SCALES = np.linspace(0.1, 1.0, 100)
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def regression():
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 20))
    labels = (random.random(500) < 1 / (1 + np.exp(-rows @ random.normal(size=20)))).astype(float)
    return rows, labels


ROWS, LABELS = regression()


def problems(np_like, softplus):
    """Log-densities up to a constant, written once for both array libraries."""
    total, exp = np_like.sum, np_like.exp

    def gaussian(x):
        return -0.5 * total((x / SCALES) ** 2)

    def schools(x):
        # mean N(0, 5), spread HalfCauchy(5) by its logarithm, eight standard normal effects
        mean, log_spread, effects = x[0], x[1], x[2:]
        spread = exp(log_spread)
        prior = -0.5 * (mean / 5) ** 2 - np_like.log1p((spread / 5) ** 2) + log_spread - 0.5 * total(effects**2)
        return prior - 0.5 * total(((EFFECTS - mean - spread * effects) / ERRORS) ** 2)

    def logistic(x):
        score = ROWS @ x
        return total(LABELS * score - softplus(score)) - 0.5 * total(x**2)

    return {"Gaussian, 100": (gaussian, 100), "eight schools": (schools, 10), "regression, 20": (logistic, 20)}


def ours(name):
    density, size = problems(pb, pb.softplus)[name]
    run = pb.distributions.compile_chain(density, draws=DRAWS, warmup=WARMUP)

    def chain(seed):
        found = run(pb.random.key(seed), np.zeros(size))
        return found.positions, int(found.slopes.sum())

    return chain


def in_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax, problems(jax.numpy, jax.nn.softplus)


def in_numpyro(name):
    jax, found = in_jax()
    from numpyro.infer import MCMC, NUTS

    density, size = found[name]
    chains = MCMC(NUTS(potential_fn=lambda x: -density(x)), num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)

    def chain(seed):
        chains.run(jax.random.PRNGKey(seed), init_params=jax.numpy.zeros(size), extra_fields=("num_steps",))
        return np.asarray(chains.get_samples()), int(chains.get_extra_fields()["num_steps"].sum())

    return chain


def in_blackjax(name):
    jax, found = in_jax()
    import blackjax

    density, size = found[name]

    @jax.jit
    def run(key, position):
        first, second = jax.random.split(key)
        warmup = blackjax.window_adaptation(blackjax.nuts, density, target_acceptance_rate=0.8)
        (state, parameters), _ = warmup.run(first, position, num_steps=WARMUP)
        step = blackjax.nuts(density, **parameters).step

        def draw(state, key):
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(draw, state, jax.random.split(second, DRAWS))[1]

    def chain(seed):
        positions, steps = run(jax.random.PRNGKey(seed), jax.numpy.zeros(size))
        return np.asarray(positions), int(steps.sum())

    return chain


def measure(chain, seeds):
    """Medians of effective draws a second, effective draws, slopes a draw; the best time, that of the first call."""
    begin = perf_counter()
    chain(0)
    first = perf_counter() - begin
    rates, counts, slopes = [], [], []
    for seed in seeds:
        begin = perf_counter()
        positions, steps = chain(seed)
        time = perf_counter() - begin
        counts.append(pb.distributions.effective_sample_size(positions[None]).min())
        rates.append((counts[-1] / time, time))
        slopes.append(steps / DRAWS)
    return (
        np.median([rate for rate, _ in rates]),
        min(time for _, time in rates),
        np.median(counts),
        np.median(slopes),
        first,
    )


def main():
    options = start(__doc__)
    print(machine())
    for name in problems(pb, pb.softplus):
        columns = f"{'effective/s':>12s}{'run':>10s}{'effective':>11s}{'slopes/draw':>13s}{'first call':>12s}"
        print(f"\n{name}\n  {'':12s}{columns}")
        chains = gather({OURS: ours, "NumPyro": in_numpyro, "BlackJAX": in_blackjax}, name)
        for peer, chain in chains.items():
            rate, time, count, slopes, first = measure(chain, range(1, 3 if options.quick else 8))
            print(f"  {peer:12s}{rate:12,.0f}{time:9.3f}s{count:11,.0f}{slopes:13.1f}{first:11.2f}s")


if __name__ == "__main__":
    main()
