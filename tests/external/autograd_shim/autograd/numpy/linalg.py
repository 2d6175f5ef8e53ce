"""NumPy's `linalg`; `eigh` reads one triangle, as NumPy's does, which pullback does when it is named."""

from typing import Any

import numpy as np

import pullback as pb

from .lists import taking_lists

norm = taking_lists(np.linalg.norm)


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors from one triangle."""
    return pb.linalg.eigh(a, UPLO)


def T(x: Any) -> Any:
    """Matrices transposed."""
    return np.swapaxes(x, -1, -2)


def _dot(a: Any, b: Any) -> Any:
    """Products of stacked matrices."""
    return np.einsum("...ij,...jk->...ik", a, b)


def __getattr__(name: str) -> Any:
    return getattr(np.linalg, name)
