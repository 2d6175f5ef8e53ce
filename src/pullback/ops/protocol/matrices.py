"""NumPy's functions of Hermitian matrices by NumPy's signatures: they read one triangle and not the other."""

from __future__ import annotations

from typing import Any

from ..linalg.factoring import cholesky as factor
from ..linalg.hermitian import eigh as hermitian_eigh
from ..linalg.hermitian import eigvalsh as hermitian_eigvalsh
from ..linalg.hermitian import told_by


def eigh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigh(a, UPLO=UPLO)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return hermitian_eigvalsh(a, UPLO=UPLO)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return factor(told_by(a, "U" if upper else "L", "cholesky"), upper=upper)
