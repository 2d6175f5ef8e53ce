"""`linear_solve`: systems with a matrix, a sparse matrix or a function that multiplies by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions
from ..arrays.backends import is_array
from ..arrays.spec import is_real_float, make_spec, spec_of, zeros
from ..arrays.trees import LEAF, flatten, unflatten
from ..arrays.value import Value
from ..errors import DtypeError, ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, shape
from ..ops.families import conjugate_if_complex
from ..ops.fusion import cast_whole
from ..ops.shape.reshaping import astype
from ..ops.user_calls import call_function
from ..transforms.boundary import as_array_leaf
from ..transforms.linear_functions import refuse_offset
from ..transforms.stage import stage_with_captures
from ..transforms.vectorize import solve_apart, vmap
from .linear.methods import Auto, Structured
from .linear.operator import LinearOperator, solve_operator
from .option_checks import check_method, check_positive_count, check_relative_tolerance, default_tolerance
from .structured.operator import StructuredOperator
from .vector_layout import VectorLayout


@cast_whole("high")
def linear_solve(
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
    """x with A x = b, differentiable in A and b to any order. A is a square array (b then a vector, or a matrix whose
    columns are right sides), a matrix with structure (`pb.implicit.Diagonal`, `Banded`, `Kronecker`, ...), a sparse
    matrix (of SciPy or `pb.sparse`), or a function that multiplies a tree like b by the matrix; what a function closes
    over is differentiated too.

    `tol` is that of |b - A x| relative to |b|, which is recomputed: if it is missed, `ConvergenceError` is raised, so a
    singular or inconsistent system never has a solution. `symmetric` and `definite` let faster methods be chosen.
    Numbers may be complex, a symmetric matrix then being one that is its own conjugate transpose; methods work on real
    and imaginary parts. The `preconditioner` takes and returns what the function does.

    >>> import numpy as np, pullback as pb
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> np.round(pb.linear_solve(A, np.array([3.0, 4.0])), 6)
    array([1., 1.])
    >>> np.round(pb.linear_solve(lambda v: A @ v, np.array([3.0, 4.0])), 6)
    array([1., 1.])
    """
    default = Structured() if isinstance(A, StructuredOperator) else Auto()
    method = default if method is None else check_method(method, "linear_solve: method", "GMRES()")
    if preconditioner is not None:
        check_functions("linear_solve: preconditioner", preconditioner)
    known = {"symmetric": symmetric or definite, "definite": definite}

    def operator(multiply: Callable[..., Any], layout: VectorLayout) -> LinearOperator:
        precondition = None if preconditioner is None else _on_vectors(preconditioner, layout)
        return LinearOperator(
            multiply, method, _parse_tolerance(tol, layout.dtype),
            check_positive_count(max_steps, "linear_solve: max_steps"), "linear_solve",
            known | {"precondition": precondition},
        )  # fmt: skip

    if isinstance(A, StructuredOperator):
        return _solve_with_structure(A, as_value(b), operator)
    if _is_sparse(A):
        if np.dtype(A.dtype).kind == "c":
            b = astype(as_value(b), np.result_type(A.dtype, spec_of(as_value(b)).dtype))
        A = _product_with(A)
    if callable(A):
        return _solve_with_function(A, b, operator)
    return _solve_with_matrix(as_value(A), as_value(b), operator)


def _solve_with_matrix(A: Any, b: Any, operator: Callable[..., LinearOperator]) -> Any:
    rows, *columns = shape(A) if len(shape(A)) == 2 else (0,)
    if [rows] != columns or shape(b)[:1] != (rows,) or len(shape(b)) > 2:
        raise ShapeError(
            f"linear_solve: A has shape {shape(A)} and b {shape(b)}, wanted a square matrix and as many rows.\n"
            "  For a batch of systems use pb.vmap(pb.linear_solve)."
        )
    return _solve_with_parts(lambda v, matrix: matmul(matrix, v), None, b, [A], operator)


def _solve_with_structure(A: StructuredOperator, b: Any, operator: Callable[..., LinearOperator]) -> Any:
    """The parts of A are the parameters of the system."""
    if shape(b)[:1] != (A.size,) or len(shape(b)) > 2:
        raise ShapeError(f"linear_solve: {type(A).__name__} has {A.size} rows and b the shape {shape(b)}.")
    leaves, structure = flatten(A)

    def solve_directly(is_transposed: bool, v: Any, *parts: Any) -> Any:
        # of a complex system, solved for real and imaginary part, the transpose is that of the conjugate
        kept = [conjugate_if_complex(x) for x in parts] if is_transposed else parts
        matrix = unflatten(structure, kept)
        return (matrix.T if is_transposed else matrix).solve_directly(v)

    parts = [as_array_leaf(x, "linear_solve") for x in leaves]
    return _solve_with_parts(lambda v, *p: unflatten(structure, p).multiply(v), solve_directly, b, parts, operator)


def _solve_with_parts(
    multiply: Callable[..., Any], solve_directly: Callable[..., Any] | None, b: Any, parts: list[Any],
    operator: Callable[..., LinearOperator],
) -> Any:  # fmt: skip
    """x for a vector b, or for its columns, with a matrix made of some arrays, all of one dtype."""
    dtypes = [spec_of(x).dtype for x in (b, *parts)]
    if not all(d.kind in "biu" or d.char in "FD" or is_real_float(d) for d in dtypes):
        raise DtypeError(
            f"linear_solve: A and b are numbers of single or double precision, got {', '.join(map(str, dtypes))}."
        )
    dtype = np.result_type(*dtypes, np.float32)
    b, parts = astype(b, dtype), [astype(x, dtype) for x in parts]
    layout = VectorLayout(LEAF, [make_spec(shape(b)[:1], dtype, spec_of(b).device)])

    def on_vectors(v: Any, *p: Any) -> Any:
        return layout.join_leaves([multiply(layout.to_tree(v), *p)])

    made = operator(on_vectors, layout)
    if solve_directly is not None:
        made = replace(
            made,
            solve_directly=lambda is_transposed, v, *p: layout.join_leaves(
                [solve_directly(is_transposed, layout.to_tree(v), *p)]
            ),
        )

    def run(column: Any) -> Any:
        return layout.to_tree(solve_operator(made, layout.join_leaves([column]), *parts))

    return vmap(run, 1, 1)(b) if len(shape(b)) == 2 else run(b)


def _solve_with_function(multiply: Callable[[Any], Any], b: Any, operator: Callable[..., LinearOperator]) -> Any:
    layout, leaves = VectorLayout.from_tree(b, "linear_solve", allow_complex=True)
    right = layout.join_leaves(leaves)

    def on_vectors(v: Any) -> Any:
        with solve_apart("linear_solve"):
            return layout.to_vector(call_function(multiply, (layout.to_tree(v),), {}), "linear_solve")

    refuse_offset(on_vectors(zeros(spec_of(right))), "linear_solve")  # 2 v + 1 is no product with a matrix
    function, found, _ = stage_with_captures(on_vectors, right) or (on_vectors, [], False)
    return layout.to_tree(solve_operator(operator(function, layout), right, *found))


def _on_vectors(preconditioner: Callable[[Any], Any], layout: VectorLayout) -> Callable[[Any], Any]:
    return lambda v: layout.to_vector(preconditioner(layout.to_tree(v)), "linear_solve: preconditioner")


def _is_sparse(A: Any) -> bool:
    return not isinstance(A, Value) and not is_array(A) and hasattr(A, "tocsr")


def _product_with(A: Any) -> Callable[[Any], Any]:
    """v -> A v for a sparse matrix."""
    if A.shape[0] != A.shape[1]:
        raise ShapeError(f"linear_solve: the matrix has shape {A.shape}, wanted a square one.")
    return lambda v: A @ v


def _parse_tolerance(tol: float | None, dtype: Any) -> float:
    return default_tolerance(dtype) if tol is None else check_relative_tolerance(tol, "linear_solve: tol")
