"""What chains tell of themselves: effective sample size and split R-hat."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ops.concrete import as_bare_array


def _split_halves(draws: Any, what: str) -> Any:
    """Each chain as two, of its first and second half: (2 chains, half of the draws, ...)."""
    x = np.asarray(as_bare_array(draws, what), float)
    if x.ndim < 2 or x.shape[1] < 4:
        raise ShapeError(f"{what}: wants draws with axes (chains, draws, ...) and 4 draws or more, got {x.shape}.")
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def split_rhat(draws: Any) -> Any:
    """The potential scale reduction of split chains, for draws with axes (chains, draws, ...): near 1 where the chains
    agree; above 1.01 they have not mixed.

    >>> import numpy as np, pullback as pb
    >>> good = pb.random.normal(size=(4, 500), key=pb.random.key(0))
    >>> apart = good + np.arange(4)[:, None]
    >>> bool(pb.distributions.split_rhat(good) < 1.02), bool(pb.distributions.split_rhat(apart) > 1.5)
    (True, True)
    """
    x = _split_halves(draws, "split_rhat")
    count = x.shape[1]
    with np.errstate(all="ignore"):
        within, between = x.var(axis=1, ddof=1).mean(axis=0), x.mean(axis=1).var(axis=0, ddof=1)
        return np.sqrt(((count - 1) / count * within + between) / within)


def effective_sample_size(draws: Any) -> Any:
    """How many independent draws would tell the mean as well, for draws with axes (chains, draws, ...): by the
    autocorrelations of split chains, summed in pairs as long as these are positive and fall (Geyer). NaN where no draw
    differs from another, or one is not finite.

    >>> import pullback as pb
    >>> x = pb.random.normal(size=(4, 500), key=pb.random.key(0))
    >>> bool(1500 < pb.distributions.effective_sample_size(x) < 2500)
    True
    """
    x = _split_halves(draws, "effective_sample_size")
    with np.errstate(all="ignore"):
        return _count_effective(x)


def _count_effective(x: Any) -> Any:
    chains, count = x.shape[:2]
    centered = x - x.mean(axis=1, keepdims=True)
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centered, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :count].mean(axis=0) / count
    within = covariance[0] * count / (count - 1)
    pooled = within * (count - 1) / count + (x.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0.0)
    correlation = 1.0 - (within - covariance * count / (count - 1)) / pooled
    found = np.minimum(chains * count / _sum_correlations(correlation), chains * count * np.log10(chains * count))
    return np.where((pooled > 0) & (pooled < np.inf), found, np.nan)[()]  # draws that never move tell nothing


def _sum_correlations(correlation: Any) -> Any:
    """1 + 2 times the sum of correlations, by Geyer's initial monotone sequence of pairs."""
    even = len(correlation) // 2 * 2
    pairs = correlation[0:even:2] + correlation[1:even:2]
    alive = np.logical_and.accumulate(pairs > 0, axis=0)
    falling = np.minimum.accumulate(np.where(alive, pairs, np.inf), axis=0)
    return np.maximum(2.0 * np.where(alive, falling, 0.0).sum(axis=0) - 1.0, 1e-10)
