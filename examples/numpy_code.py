"""Fits a program in plain NumPy by maximum likelihood, with error bars: derivatives of code not written for them.

`kalman_numpy.py` imports NumPy and nothing else. NumPy's functions dispatch on the values they are called with, so its
gradient and its Hessian can be taken as it stands, exactly, for SciPy's optimizer and for the errors of the estimate.

Run it with: python examples/numpy_code.py
"""

import kalman_numpy
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def main(count: int = 200) -> float:
    truth = np.array([0.3, 0.5])
    measured = kalman_numpy.simulate(*truth, count)

    def misfit(parameters):
        return -kalman_numpy.log_likelihood(parameters, measured)

    start = np.array([-3.0, 1.0])
    slope, eps = pb.grad(misfit)(start), 1e-6
    differences = [(misfit(start + d) - misfit(start - d)) / (2 * eps) for d in eps * np.eye(2)]
    print(f"gradient        {slope}")
    print(f"by differences  {np.array(differences)}")
    assert np.allclose(slope, differences, rtol=1e-6)

    fit = minimize(pb.value_and_grad(misfit), start, jac=True, method="BFGS")
    # the curvature of the likelihood at its top says how well the data fix the parameters
    errors = np.sqrt(np.diag(np.linalg.inv(pb.hessian(misfit)(fit.x))))
    print("\nparameter        truth  estimate  one standard error up and down")
    for name, true, at, error in zip(("jerkiness", "sensor variance"), truth, fit.x, errors, strict=True):
        print(f"{name:15s} {true:6.3f}  {np.exp(at):8.3f}  {np.exp(at - error):.3f} to {np.exp(at + error):.3f}")
    off = np.abs(fit.x - np.log(truth)) / errors
    assert np.all(off < 3), "the truth should lie within three standard errors"
    return float(off.max())


if __name__ == "__main__":
    main()
