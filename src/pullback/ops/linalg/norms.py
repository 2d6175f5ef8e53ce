"""Vector norms of every order, matrix norms, condition numbers."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ..axes import axes_tuple, normalize_axes
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..families import is_complex
from ..fusion import cast_whole
from ..reduce import reductions
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import of_array
from .common import as_matrix, float_dtype, real_dtype
from .linear_systems import inv
from .singular import svdvals


def _as_float(x: Any) -> Any:
    x = as_value(x)
    return reshaping.astype(x, float_dtype(spec_of(x).dtype))


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """(sum |x|^ord)^(1/ord) over some axes, or over all; ord 0 counts nonzeros, inf and -inf are the largest
    and the smallest |x|. Zero elements get derivative zero where |x|^ord has a corner there.

    >>> import pullback as pb
    >>> pb.linalg.vector_norm([3.0, 4.0])
    array(5.)
    """
    x = _as_float(x)
    axes = normalize_axes(axis, ndim(x), "vector_norm")
    if isinstance(ord, (str, complex)):
        raise ArgumentError(f"vector_norm: ord must be a real number, got {ord!r}.")
    return _vector_norm_over(x, ord, axes, keepdims)


def _vector_norm_over(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    fold: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    if ord == 2:
        return _power_of_total(reductions.sum(_squared_magnitude(x), **fold), 0.5)
    size = pointwise.abs(x)
    if ord == 0:
        return reductions.sum(reshaping.astype(pointwise.not_equal(x, 0), real_dtype(spec_of(x).dtype)), **fold)
    if ord == 1:
        return reductions.sum(size, **fold)
    if math.isinf(ord):
        if ord > 0 and not math.prod(shape(x)[a] for a in axes):
            return reductions.sum(size, **fold)  # the norm of no elements is zero
        return (reductions.max if ord > 0 else reductions.min)(size, **fold)
    zero = pointwise.equal(size, 0)
    powers = pointwise.power(pointwise.where(zero, 1.0, size), float(ord))
    return _power_of_total(reductions.sum(pointwise.where(zero, math.inf if ord < 0 else 0.0, powers), **fold), 1 / ord)


def _squared_magnitude(x: Any) -> Any:
    if not is_complex(x):
        return pointwise.square(x)
    return pointwise.add(pointwise.square(pointwise.real(x)), pointwise.square(pointwise.imag(x)))


def _power_of_total(total: Any, exponent: float) -> Any:
    """total^exponent; constant where the total is zero or infinite."""
    fixed = pointwise.logical_or(pointwise.equal(total, 0), pointwise.isinf(total))
    inside = pointwise.where(fixed, 1.0, total)
    root = pointwise.sqrt(inside) if exponent == 0.5 else pointwise.power(inside, exponent)
    at_zero, at_infinity = (0.0, math.inf) if exponent > 0 else (math.inf, 0.0)
    limit = pointwise.where(pointwise.equal(total, 0), at_zero, at_infinity)
    return pointwise.where(fixed, reshaping.astype(limit, spec_of(root).dtype), root)


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of each matrix over the last two axes: "fro" of all elements, "nuc" the sum of the singular values, 2
    and -2 the largest and the smallest of them, 1 and -1 (inf and -inf) the extreme sums over columns (rows).

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.matrix_norm(np.array([[3.0, 0.0], [0.0, 4.0]]), ord="nuc")
    array(7.)
    """
    x = as_matrix(_as_float(x), "matrix_norm")
    return _matrix_norm_over(x, ord, (ndim(x) - 2, ndim(x) - 1), keepdims, "matrix_norm")


def _matrix_norm_over(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool, what: str) -> Any:
    if ord in (None, "fro", "f"):
        return _vector_norm_over(x, 2, axes, keepdims)
    rows, columns = axes
    if ord in ("nuc", 2, -2):
        s = svdvals(reshaping.moveaxis(x, axes, (-2, -1)))
        empty = not shape(s)[-1] and ord != -2
        fold = reductions.sum if ord == "nuc" or empty else reductions.max if ord == 2 else reductions.min
        out = fold(s, axis=-1)
        return reshaping.expand_dims(out, axes) if keepdims else out
    if ord in (1, -1, math.inf, -math.inf):
        along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = reductions.sum(pointwise.abs(x), axis=along, keepdims=True)
        if ord > 0 and not shape(sums)[across]:
            out = reductions.sum(sums, axis=across, keepdims=True)
        else:
            out = (reductions.max if ord > 0 else reductions.min)(sums, axis=across, keepdims=True)
        return out if keepdims else reshaping.squeeze(out, axes)
    raise ArgumentError(f"{what}: ord {ord!r} is no norm of a matrix; wants 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of a vector (one axis), of matrices (two), or without `ord` and `axis` of all elements, as in NumPy.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.norm(np.array([[3.0, 4.0], [0.0, 0.0]])), pb.linalg.norm(np.ones((2, 4)), axis=1)
    (array(5.), array([2., 2.]))
    """
    x = _as_float(x)
    if axis is None and (ord is None or (ord in ("f", "fro") and ndim(x) == 2) or (ord == 2 and ndim(x) == 1)):
        return _vector_norm_over(x, 2, tuple(range(ndim(x))), keepdims)
    axes = tuple(range(ndim(x))) if axis is None else axes_tuple(axis, ndim(x), "norm")
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ArgumentError(f"norm: ord {ord!r} is no norm of a vector.")
        return _vector_norm_over(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(f"norm: wants one axis or two different ones, got {axis} for shape {shape(x)}.")
    return _matrix_norm_over(x, ord, (axes[0], axes[1]), keepdims, "norm")


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def cond(x: Any, p: Any = None) -> Any:
    """How much a matrix magnifies errors: the largest singular value over the smallest, or |x| |x^-1| in another norm.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.cond(np.array([[1.0, 0.0], [0.0, 4.0]]))
    array(4.)
    """
    x = as_matrix(_as_float(x), "cond")
    if not min(shape(x)[-2:]):
        raise ShapeError(f"cond: is not defined for empty matrices, got shape {shape(x)}.")
    if p in (None, 2, -2):
        s = svdvals(x)
        high, low = s[..., 0], s[..., -1]
        return pointwise.divide(low, high) if p == -2 else pointwise.divide(high, low)
    return pointwise.multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))
