"""The likelihood of noisy measurements by a Kalman filter in plain NumPy, as one finds it.

Nothing here knows of derivatives. `numpy_code.py` imports this file and differentiates it as it stands.

Run it with: python examples/kalman_numpy.py
"""

import numpy as np


def dynamics(dt, jerkiness):
    """Position and speed after dt, and the covariance that random pushes add meanwhile."""
    move = np.array([[1.0, dt], [0.0, 1.0]])
    pushes = np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    return move, jerkiness * pushes


def log_likelihood(parameters, measured, dt=0.5):
    """How likely the measurements are; parameters are the logarithms of jerkiness and of the sensor's variance."""
    jerkiness, noise = np.exp(parameters)
    move, pushes = dynamics(dt, jerkiness)
    state, covariance = np.zeros(2), 10.0 * np.eye(2)
    total = 0.0
    for y in measured:
        state = move @ state
        covariance = move @ covariance @ move.T + pushes
        surprise, spread = y - state[0], covariance[0, 0] + noise
        total -= 0.5 * (surprise**2 / spread + np.log(2 * np.pi * spread))
        gain = covariance[:, 0] / spread
        state = state + gain * surprise
        covariance = covariance - np.outer(gain, covariance[0])
    return total


def simulate(jerkiness, noise, count, seed=0, dt=0.5):
    random = np.random.default_rng(seed)
    move, pushes = dynamics(dt, jerkiness)
    factor, state, measured = np.linalg.cholesky(pushes), np.zeros(2), np.zeros(count)
    for i in range(count):
        state = move @ state + factor @ random.normal(size=2)
        measured[i] = state[0] + np.sqrt(noise) * random.normal()
    return measured


def main():
    print(f"log-likelihood of the truth: {log_likelihood(np.log([0.3, 0.5]), simulate(0.3, 0.5, 200)):.3f}")


if __name__ == "__main__":
    main()
