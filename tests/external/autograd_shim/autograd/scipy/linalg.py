"""SciPy's matrix functions in ops of pullback."""

from typing import Any

import numpy as np

import pullback as pb

expm, logm = pb.linalg.expm, pb.linalg.logm


def sqrtm(a: Any) -> Any:
    """The square root, complex where there is no real one, as SciPy has it."""
    try:
        return pb.linalg.sqrtm(a)
    except pb.errors.ArgumentError:
        return pb.linalg.sqrtm(a.astype(complex))


def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, **options: Any) -> Any:
    """The solution of T x = b, T the triangle of a that is named, its transpose or its adjoint."""
    matrix = np.tril(a) if lower else np.triu(a)
    if trans in (1, "T", 2, "C"):
        matrix = np.swapaxes(np.conj(matrix) if trans in (2, "C") else matrix, -1, -2)
    return np.linalg.solve(matrix, b)


def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """A X + X B = Q, row by row: (A (x) 1 + 1 (x) B^T) vec X = vec Q."""
    m, n = np.shape(a)[0], np.shape(b)[0]
    matrix = np.kron(a, np.eye(n)) + np.kron(np.eye(m), np.swapaxes(b, 0, 1))
    return np.reshape(np.linalg.solve(matrix, np.reshape(q, (m * n,))), (m, n))


def solve_banded(bands: tuple[int, int], ab: Any, b: Any) -> Any:
    """A x = b, where row i of `ab` holds the i-th diagonal from above."""
    lower, upper = bands
    n = np.shape(ab)[1]
    i, j = np.indices((n, n))
    inside = (j - i <= upper) & (i - j <= lower)
    matrix = np.where(inside, ab[np.clip(upper + i - j, 0, lower + upper), j], 0.0)
    return np.linalg.solve(matrix, b)
