"""`sparse.solve`: linear systems with a sparse matrix, by factors or by iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.argument_checks import explains_arguments
from ..arrays.spec import spec_of
from ..errors import ArgumentTypeError, DtypeError, ShapeError
from ..implicit.linear_systems import linear_solve
from ..ops.dispatch import as_value, ndim, shape
from ..ops.linalg.sparse_factors import FACTORED_DTYPES
from ..ops.linalg.sparse_solve import solve_entries
from ..ops.shape.reshaping import astype, reshape
from ..transforms.vectorize import vmap
from .array import SparseArray
from .constructors import from_scipy
from .conversions import is_library_matrix
from .structure import list_entries


@explains_arguments("sparse.solve")
def solve(
    A: Any,
    b: Any,
    *,
    method: Any = None,
    tol: float | None = None,
    max_steps: int = 1000,
    symmetric: bool = False,
    definite: bool = False,
    preconditioner: Callable[[Any], Any] | None = None,
) -> Any:
    """x with A x = b, for a square sparse matrix and a vector or the columns of a matrix; differentiable in the numbers
    of A and in b to any order.

    Without a method SciPy's SuperLU factors the matrix. The order of elimination is found once for a pattern, and the
    factors of the last matrices are kept, so that a derivative solves with those of its solution. A method of
    `pb.implicit`, such as `CG()`, iterates instead; the other settings are for it, as in `pb.linear_solve`.

    >>> import numpy as np, pullback as pb
    >>> A = pb.sparse.coo(np.array([2.0, 4.0, 1.0]), [0, 1, 1], [0, 1, 0], (2, 2))
    >>> pb.sparse.solve(A, np.array([2.0, 9.0]))
    array([1., 2.])
    >>> pb.sparse.solve(A.T @ A, np.array([4.0, 8.0]), method=pb.implicit.CG(), definite=True).round(6)
    array([0.5  , 0.375])
    """
    if is_library_matrix(A):
        A = from_scipy(A)
    if not isinstance(A, SparseArray):
        raise ArgumentTypeError(f"sparse.solve: A is a sparse array, got a {type(A).__name__}.\n  Use pb.linalg.solve.")
    b = as_value(b)
    if A.shape[0] != A.shape[1] or ndim(b) not in (1, 2) or shape(b)[0] != A.shape[0]:
        raise ShapeError(
            f"sparse.solve: A has shape {A.shape} and b {shape(b)}, wanted a square matrix and as many rows."
        )
    dtype = np.result_type(spec_of(A.data).dtype, spec_of(b).dtype, np.float32)
    if dtype.kind not in "fc":
        raise DtypeError(f"sparse.solve: wants numbers, got {A.dtype} and {spec_of(b).dtype}.")
    A, b = A.astype(dtype), astype(b, dtype)
    if method is None:
        if dtype.char not in FACTORED_DTYPES:
            raise DtypeError(f"sparse.solve: SuperLU has no {dtype}.\n  Convert A and b to double precision.")
        return _solve_by_factors(A, b)

    def run(b: Any) -> Any:
        return linear_solve(
            lambda v: A @ v, b, method=method, tol=tol, max_steps=max_steps, symmetric=symmetric, definite=definite,
            preconditioner=preconditioner,
        )  # fmt: skip

    return run(b) if ndim(b) == 1 else vmap(run, 1, 1)(b)


def _solve_by_factors(A: SparseArray, b: Any) -> Any:
    data, pattern = list_entries(A._entries("sparse.solve"))
    columns = reshape(b, (-1, 1)) if ndim(b) == 1 else b
    return reshape(solve_entries(data, *pattern.places_for(data), columns), shape(b))
