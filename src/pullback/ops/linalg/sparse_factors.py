"""Factors of sparse matrices by SciPy's SuperLU: what depends on the pattern alone is found once, factors are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import IndexingError, SingularError

_MAX_ORDERINGS = 8
#: Factors may be as large as the machine's memory allows: of matrices so large those of the last two are kept. Of small
#: ones, such as a batch that a backward pass meets again, as many as have this many numbers together.
_ALWAYS_KEPT, _MAX_NUMBERS = 2, 1 << 21
#: What an object of SuperLU holds beside its numbers, as so many of them.
_OVERHEAD = 256
#: The dtypes that SuperLU has.
FACTORED_DTYPES = "fdFD"


class _Factors(NamedTuple):
    """A function of (right sides, whether of the adjoint) that solves, and how many numbers it holds."""

    solve: Callable[[Any, bool], Any]
    held: int


class Ordering:
    """What the factorization of a square matrix needs of its pattern: how its numbers lie by columns, and in which
    order columns are eliminated so that factors stay sparse. The latter is found by the first factorization.
    """

    def __init__(self, rows: Any, cols: Any, size: int) -> None:
        if rows.size and not 0 <= min(rows.min(), cols.min()) <= max(rows.max(), cols.max()) < size:
            raise IndexingError(f"sparse_solve: a row or a column is not from 0 to {size - 1}.")
        self.rows, self.cols, self.size = rows.copy(), cols.copy(), size
        keys, self.targets = np.unique(cols.astype(np.int64) * size + rows, return_inverse=True)
        self.indices = (keys % max(size, 1)).astype(np.int32)
        self.indptr = np.searchsorted(keys, np.arange(size + 1, dtype=np.int64) * size).astype(np.int32)
        self.columns: Any = None

    def is_of(self, rows: Any, cols: Any, size: int) -> bool:
        return self.size == size and np.array_equal(self.rows, rows) and np.array_equal(self.cols, cols)

    def factor(self, data: Any) -> _Factors:
        """The factors of the matrix with these numbers."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        numbers = np.zeros(self.indices.size, data.dtype)
        np.add.at(numbers, self.targets.reshape(-1), data)
        matrix: Any = csc_array((numbers, self.indices, self.indptr), shape=(self.size, self.size))
        columns = self.columns
        try:
            if columns is None:
                factors: Any = splu(matrix, permc_spec="COLAMD")
            else:
                factors = splu(matrix[:, columns], permc_spec="NATURAL")
        except RuntimeError as error:
            cause = "The matrix has no inverse" if np.isfinite(numbers).all() else "The matrix holds NaN or infinity"
            raise SingularError(f"sparse.solve: {error}.\n  {cause}.") from None
        if columns is None:
            # perm_c sends column j to place perm_c[j]
            self.columns = np.argsort(factors.perm_c)
        count = factors.nnz + 2 * data.size + 4 * self.size + _OVERHEAD
        return _Factors(lambda b, adjoint: _solve_permuted(factors, columns, b, adjoint), count)


def _solve_permuted(factors: Any, columns: Any, b: Any, adjoint: bool) -> Any:
    """A x = b, or A^H x = b, by the factors of A P, with P the permutation of columns: x = P y, or y = P^H b."""
    if columns is None:
        return factors.solve(b, "H" if adjoint else "N")
    if adjoint:
        return factors.solve(np.ascontiguousarray(b[columns]), "H")
    found = np.empty_like(b)
    found[columns] = factors.solve(b, "N")
    return found


_lock = threading.Lock()
_orderings: list[Ordering] = []


class _Store:
    """Factors by ordering and numbers, those used last at the end."""

    def __init__(self) -> None:
        self.known: OrderedDict[tuple[Any, ...], _Factors] = OrderedDict()
        self.held = 0

    def use(self, key: tuple[Any, ...], made: _Factors | None = None) -> _Factors | None:
        """Those of a key, which are now the last used; `made` if there are none yet."""
        with _lock:
            found = self.known.setdefault(key, made) if made is not None else self.known.get(key)
            if found is None:
                return None
            self.known.move_to_end(key)
            self.held += found.held if found is made else 0
            while self.held > _MAX_NUMBERS and len(self.known) > _ALWAYS_KEPT:
                self.held -= self.known.popitem(last=False)[1].held
        return found


_store = _Store()


def _find_ordering(rows: Any, cols: Any, size: int) -> Ordering:
    with _lock:
        known = list(_orderings)
    found = next((o for o in known if o.is_of(rows, cols, size)), None) or Ordering(rows, cols, size)
    with _lock:
        _orderings[:] = [found, *(other for other in _orderings if other is not found)][:_MAX_ORDERINGS]
    return found


def factor_sparse(data: Any, rows: Any, cols: Any, size: int) -> Callable[[Any, bool], Any]:
    """A function that solves with the matrix or its adjoint: of factors that are known if it is one of the last."""
    ordering = _find_ordering(rows, cols, size)
    key = ordering, data.dtype.char, data.tobytes()
    found = _store.use(key)
    if found is None:
        found = ordering.factor(data)
        _store.use(key, found)
    return found.solve


def solve_sparse(data: Any, rows: Any, cols: Any, b: Any, adjoint: bool) -> Any:
    """x with A x = b, or A^H x = b, for NumPy arrays of one dtype."""
    size = b.shape[0]
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    wide = np.result_type(data.dtype, np.float32)
    right = np.asfortranarray(b.astype(wide, copy=False))
    found = factor_sparse(data.astype(wide, copy=False), rows, cols, size)(right, adjoint)
    return np.ascontiguousarray(found).astype(b.dtype, copy=False)
