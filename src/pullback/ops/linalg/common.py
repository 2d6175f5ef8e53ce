"""What the matrix ops share: shape checks, LAPACK's precisions, adjoints, triangles, batching of stacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...arrays.spec import Spec, is_inexact, make_spec, spec_of
from ...errors import PullbackError, ShapeError, SingularError
from .. import batching
from ..contract import matrix_products
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..families import general, is_complex
from ..index.normalize import namespace_for
from ..shape import arrange, reshaping

#: What the results of a factorization are: tensors or arrays.
Array = TypeVar("Array")
swap_last_axes = reshaping.swap_last_axes
product = matrix_products.matmul
adjoint = matrix_products.adjoint


def as_matrix(x: Any, what: str) -> Any:
    """Check that an argument has two axes or more."""
    x = as_value(x)
    if ndim(x) < 2:
        raise ShapeError(f"{what}: wants matrices over the last two axes, got shape {shape(x)}.")
    return x


def as_square(x: Any, what: str) -> Any:
    """Check that the last two axes of an argument are equal."""
    x = as_matrix(x, what)
    square_spec(spec_of(x), what)
    return x


def square_spec(x: Spec, what: str) -> Spec:
    """The spec of a stack of square matrices, in the dtype that results have."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{what}: wants square matrices over the last two axes, got shape {x.shape}.")
    return make_spec(x.shape, float_dtype(x.dtype), x.device)


def float_dtype(dtype: Any) -> Any:
    """The dtype of a result: floats keep theirs, integers become float64."""
    return dtype if is_inexact(dtype) else np.dtype(np.float64)


def real_dtype(dtype: Any) -> Any:
    """The dtype of a norm, a singular value, an eigenvalue of a Hermitian matrix."""
    dtype = float_dtype(dtype)
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype


def eps(dtype: Any) -> float:
    """The distance from 1 to the next number, in a dtype or its real part."""
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(float_dtype(dtype)).eps)


def widen_for_lapack(x: Any) -> Any:
    """Widen to a precision that LAPACK supports."""
    dtype = float_dtype(x.dtype)
    return x.astype(np.float32 if dtype.itemsize < 4 else dtype, copy=False)


def call_lapack(function: Callable[..., Any], what: str, *arrays: Any, **options: Any) -> Any:
    """Call a LAPACK function on bare arrays in a supported precision; its error becomes one of ours."""
    try:
        return function(*(widen_for_lapack(x) for x in arrays), **options)
    except np.linalg.LinAlgError as error:
        if isinstance(error, PullbackError):
            raise
        raise SingularError(
            f"{what}: {error} (shape {arrays[0].shape}).\n  The matrix, or one of the stack, is singular or not "
            "finite, or for cholesky not positive definite."
        ) from None


def lapack_value(name: str) -> Callable[..., Any]:
    """The value of an op that is a function of `numpy.linalg` (or CuPy's)."""

    def value(xp: Any, x: Any) -> Any:
        return narrow_to(call_lapack(getattr(xp.linalg, name), name, x), x.dtype)

    return value


def narrow_to(out: Any, dtype: Any) -> Any:
    """Results of a widened computation cast to the dtype of its argument."""
    if isinstance(out, tuple):
        return tuple(narrow_to(part, dtype) for part in out)
    return out if float_dtype(dtype).itemsize >= 4 or out.dtype.kind not in "fc" else out.astype(dtype)


def scipy_linalg(xp: Any) -> Any:
    """SciPy's linear algebra, or CuPy's counterpart."""
    if xp is np:
        import scipy.linalg

        return scipy.linalg
    import cupyx.scipy.linalg

    return cupyx.scipy.linalg


#: An op of matrices over the last two axes; what `general` wants, less how it batches.
matrix_op = partial(general, family="matrix", batch=batching.batch_stacks)


def hermitian_part(x: Any) -> Any:
    """(x + x^H) / 2."""
    return pointwise.multiply(pointwise.add(x, adjoint(x)), 0.5)


def bare_hermitian_part(xp: Any, x: Any) -> Any:
    """`hermitian_part` of a bare array, with one temporary."""
    x = x.astype(float_dtype(x.dtype), copy=False)
    transposed = xp.swapaxes(x, -1, -2)
    out = x + (transposed.conj() if x.dtype.kind == "c" else transposed)
    out *= 0.5
    return out


def antihermitian_part(x: Any) -> Any:
    """(x - x^H) / 2."""
    return pointwise.multiply(pointwise.subtract(x, adjoint(x)), 0.5)


def as_column(x: Any) -> Any:
    """Numbers along the last axis as columns of height one."""
    return reshaping.expand_dims(x, -1)


def identity_like(like: Any, size: int | None = None, dtype: Any = None) -> Any:
    """The identity matrix as a bare array, in the dtype and on the device of a value."""
    n = shape(like)[-1] if size is None else size
    return namespace_for(like).eye(n, dtype=dtype or float_dtype(spec_of(like).dtype))


def real_diagonal(x: Any) -> Any:
    """The real parts of the diagonal."""
    middle = arrange.diagonal(x, axis1=-2, axis2=-1)
    return pointwise.real(middle) if is_complex(x) else middle


def put_on_diagonal(x: Any, off_diagonal: Any = 0) -> Any:
    """Square matrices with the last axis of x on their diagonal, and `off_diagonal` elsewhere."""
    return pointwise.where(identity_like(x, dtype=bool), reshaping.expand_dims(x, -2), off_diagonal)


def add_optional(x: Any, y: Any) -> Any:
    """x + y, where None is zero."""
    return y if x is None else x if y is None else pointwise.add(x, y)
