"""NumPy's functions of Hermitian matrices with NumPy's signatures, which read one triangle only."""

from __future__ import annotations

from typing import Any

from ..linalg.eigen import eigh as hermitian_eigh
from ..linalg.eigen import eigvalsh as hermitian_eigvalsh
from ..linalg.eigen import symmetrize_from
from ..linalg.factorizations import cholesky as factor


def eigh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigh(a, UPLO=UPLO)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigvalsh(a, UPLO=UPLO)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return factor(symmetrize_from(a, "U" if upper else "L", "cholesky"), upper=upper)
