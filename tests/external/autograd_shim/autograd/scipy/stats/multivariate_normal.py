"""The normal distribution of vectors."""

from typing import Any

import numpy as np

import pullback as pb

TINY = 1e-12


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """The log-density; where the covariance may be singular, on its range."""
    away = x - mean
    if allow_singular:
        values = np.linalg.eigvalsh(cov)
        inside = pb.stop_gradient(values) > TINY
        rank, log_det = np.sum(inside), np.sum(np.log(np.where(inside, values, 1.0)))
        solved = away @ np.linalg.pinv(cov)
    else:
        rank, log_det = np.shape(cov)[0], np.linalg.slogdet(cov)[1]
        solved = np.swapaxes(np.linalg.solve(cov, np.swapaxes(np.atleast_2d(away), 0, 1)), 0, 1)
        solved = np.reshape(solved, np.shape(away))
    return -0.5 * (np.sum(away * solved, axis=-1) + log_det + rank * np.log(2 * np.pi))


def pdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """The density."""
    return np.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any, cov: Any) -> Any:
    """The entropy, which does not depend on the mean."""
    n = np.shape(cov)[0]
    return 0.5 * (n * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(cov)[1])
