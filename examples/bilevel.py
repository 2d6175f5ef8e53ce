"""Tunes the weight decay of each feature by the error on held-out data: one minimum differentiated through another.

The inner problem fits a model for given weight decays; the outer one asks how the error on held-out data changes with
them. The solution of the inner problem is differentiated by its equation, so no step of the fit is stored.

Run it with: python examples/bilevel.py
"""

import numpy as np

import pullback as pb


def make_data(random, rows: int, truth):
    features = random.normal(size=(rows, truth.size))
    chances = 1 / (1 + np.exp(-features @ truth))
    return features, (random.uniform(size=rows) < chances).astype(float)


def error(w, data):
    """The mean negative log-likelihood of a logistic model."""
    features, labels = data
    scores = features @ w
    return pb.mean(pb.softplus(scores) - labels * scores)


def fitted(log_decay, data):
    def penalised(w, log_decay, data):
        return error(w, data) + 0.5 * pb.sum(pb.exp(log_decay) * w * w)

    return pb.argmin(penalised, np.zeros(log_decay.shape), log_decay, data)


def main(steps: int = 40, rate: float = 20.0) -> float:
    random = np.random.default_rng(1)
    truth = np.concatenate([[2.0, -1.5, 1.0], np.zeros(9)])  # nine of the twelve features say nothing
    train, held_out = make_data(random, 60, truth), make_data(random, 400, truth)

    def validation(log_decay):
        return error(fitted(log_decay, train), held_out)

    log_decay = np.full(truth.size, -4.0)
    eps = 1e-5 * np.eye(truth.size)[0]
    slope = pb.grad(validation)(log_decay)[0]
    by_differences = (validation(log_decay + eps) - validation(log_decay - eps)) / 2e-5
    print(f"slope of the held-out error by the first decay: {slope:.8f}, by differences {by_differences:.8f}")
    assert np.isclose(slope, by_differences, rtol=1e-4)

    print("step  held-out error")
    for step in range(steps + 1):
        value, gradient = pb.value_and_grad(validation)(log_decay)
        if step % 10 == 0:
            print(f"{step:4d}  {value:.4f}")
        log_decay = log_decay - rate * gradient
    print(f"decay of the features that matter: {np.exp(log_decay[:3]).mean():.4f} on average")
    print(f"decay of those that do not:        {np.exp(log_decay[3:]).mean():.4f}")
    return float(value)


if __name__ == "__main__":
    main()
