"""What the matrix ops share: checks of shape, the precision LAPACK works in, adjoints, triangles, how stacks batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.spec import Spec, is_inexact, make_spec, spec_of
from ...errors import PullbackError, ShapeError, SingularError
from .. import arranging, batching, contracting, shaping
from .. import elementwise as pointwise
from ..dispatch import apply, as_value, ndim, shape
from ..families import is_complex
from ..index import namespace_for

__all__ = [
    "adjoint", "antihermitian", "by_lapack", "column", "computed", "eps", "float_dtype", "hermitian", "identity",
    "lower", "matrix", "on_diagonal", "product", "real_dtype", "scipy_linalg", "square", "square_spec", "stacked",
    "swapped", "symmetric_part", "total", "upper",
]  # fmt: skip

swapped = shaping.swapped
product = contracting.matmul


def matrix(x: Any, what: str) -> Any:
    """An argument of two axes or more."""
    x = as_value(x)
    if ndim(x) < 2:
        raise ShapeError(f"{what}: wants matrices over the last two axes, got shape {shape(x)}.")
    return x


def square(x: Any, what: str) -> Any:
    """An argument whose last two axes are equal."""
    x = matrix(x, what)
    square_spec(spec_of(x), what)
    return x


def square_spec(x: Spec, what: str) -> Spec:
    """The spec of a stack of square matrices, in the dtype that results have."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{what}: wants square matrices over the last two axes, got shape {x.shape}.")
    return make_spec(x.shape, float_dtype(x.dtype), x.device)


def float_dtype(dtype: Any) -> Any:
    """The dtype of a result: a float stays what it is, integers become float64."""
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


def _wide(x: Any) -> Any:
    """LAPACK knows single and double precision."""
    dtype = float_dtype(x.dtype)
    return x.astype(np.float32 if dtype.itemsize < 4 else dtype, copy=False)


def by_lapack(function: Callable[..., Any], what: str, *arrays: Any, **options: Any) -> Any:
    """A library function on bare arrays in a precision it knows; its complaint becomes ours."""
    try:
        return function(*(_wide(x) for x in arrays), **options)
    except np.linalg.LinAlgError as error:
        if isinstance(error, PullbackError):
            raise
        raise SingularError(
            f"{what}: {error} (shape {arrays[0].shape}).\n  The matrix, or one of the stack, is singular or not "
            "finite, or for cholesky not positive definite."
        ) from None


def computed(name: str) -> Callable[..., Any]:
    """The value of an op that the array library's `linalg` has under a name."""

    def value(xp: Any, *arrays: Any, **options: Any) -> Any:
        return narrowed(by_lapack(getattr(xp.linalg, name), name, *arrays, **options), arrays[0].dtype)

    return value


def narrowed(out: Any, dtype: Any) -> Any:
    """Results of a wider computation in the precision of its argument."""
    if isinstance(out, tuple):
        return tuple(narrowed(part, dtype) for part in out)
    return out if float_dtype(dtype).itemsize >= 4 or out.dtype.kind not in "fc" else out.astype(dtype)


def scipy_linalg(xp: Any) -> Any:
    """SciPy's linear algebra, or CuPy's image of it."""
    if xp is np:
        import scipy.linalg

        return scipy.linalg
    import cupyx.scipy.linalg

    return cupyx.scipy.linalg


def stacked(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, Any]:
    """The batch axis in front of the axes that count matrices already; those of several arguments broadcast."""
    rank = max(ndim(a) - (axis is not None) for a, axis in zip(args, axes, strict=True))
    out = apply(op, *(batching.padded(a, axis, rank) for a, axis in zip(args, axes, strict=True)), **static)
    return out, (0,) * len(out) if type(out) is tuple else 0


def adjoint(x: Any) -> Any:
    """The conjugate transpose over the last two axes."""
    return pointwise.conj(swapped(x)) if is_complex(x) else swapped(x)


def hermitian(x: Any) -> Any:
    """(x + x^H) / 2."""
    return pointwise.multiply(pointwise.add(x, adjoint(x)), 0.5)


def symmetric_part(xp: Any, x: Any) -> Any:
    """`hermitian` of a bare array, with one temporary."""
    x = x.astype(float_dtype(x.dtype), copy=False)
    turned = xp.swapaxes(x, -1, -2)
    out = x + (turned.conj() if x.dtype.kind == "c" else turned)
    out *= 0.5
    return out


def antihermitian(x: Any) -> Any:
    """(x - x^H) / 2."""
    return pointwise.multiply(pointwise.subtract(x, adjoint(x)), 0.5)


def lower(x: Any, k: int = 0) -> Any:
    """The lower triangle, up to the k-th diagonal."""
    return arranging.tril(x, k=k)


def upper(x: Any, k: int = 0) -> Any:
    """The upper triangle, from the k-th diagonal."""
    return arranging.triu(x, k=k)


def column(x: Any) -> Any:
    """Numbers along the last axis as columns of height one."""
    return shaping.expand_dims(x, -1)


def identity(like: Any, size: int | None = None, dtype: Any = None) -> Any:
    """The unit matrix as a bare array beside a value."""
    n = shape(like)[-1] if size is None else size
    return namespace_for(like).eye(n, dtype=dtype or float_dtype(spec_of(like).dtype))


def on_diagonal(x: Any, beside: Any = 0) -> Any:
    """Square matrices with the last axis of x on their diagonal, and `beside` off it."""
    return pointwise.where(identity(x, dtype=bool), shaping.expand_dims(x, -2), beside)


def total(x: Any, y: Any) -> Any:
    """x + y, where None is zero."""
    return y if x is None else x if y is None else pointwise.add(x, y)
