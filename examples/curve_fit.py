"""Fits the parameters of a damped oscillation to noisy points: least squares by gradient descent on the tape.

Run it with: python examples/curve_fit.py
"""

import numpy as np

import pullback as pb


def model(t, parameters):
    amplitude, decay, frequency = parameters
    return amplitude * pb.exp(-decay * t) * pb.cos(frequency * t)


def main(steps: int = 2000, rate: float = 0.05) -> np.ndarray:
    random = np.random.default_rng(0)
    truth = np.array([2.0, 0.3, 1.5])
    t = np.linspace(0.0, 6.0, 80)
    measured = model(t, truth) + 0.05 * random.normal(size=t.shape)

    parameters = pb.tensor([1.0, 0.1, 1.2], requires_grad=True)
    for _ in range(steps):
        loss = pb.mean_squared_error(model(t, parameters), measured)
        loss.backward()
        with pb.no_grad():
            parameters -= rate * parameters.grad
        parameters.grad = None

    fitted = parameters.detach().numpy()
    print("parameter   truth  fitted")
    for name, true, found in zip(("amplitude", "decay", "frequency"), truth, fitted, strict=True):
        print(f"{name:10s} {true:6.3f}  {found:6.3f}")
    print(f"mean squared error {loss.item():.5f} (the noise alone has 0.0025)")
    assert np.allclose(fitted, truth, atol=0.1)
    return fitted


if __name__ == "__main__":
    main()
