"""Functions of square matrices: exponential, logarithm, square root.

For a function f of matrices, f([[A, E], [0, A]]) = [[f(A), L], [0, f(A)]] with L the derivative of f at A along E. So
the derivative is the function itself, of a matrix twice as large, and can be differentiated in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of, zeros
from ...errors import ArgumentError, SingularError
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..forms import Matrix
from ..op import Op
from ..reduce import reductions
from ..shape import arrange
from ..signatures import of_array
from . import common
from .common import adjoint, as_square, call_lapack, float_dtype, scipy_linalg


def _directional_derivative(op: Op, x: Any, direction: Any) -> Any:
    """The derivative of a matrix function at x along a direction, which is scaled to the size of x: the derivative is
    linear in it, and a block far larger than the others would swamp them.
    """
    n = shape(x)[-1]
    scale = _scale_ratio(direction, x)
    upper = arrange.concat([x, pointwise.divide(direction, scale)], axis=-1)
    lower = arrange.concat([zeros(spec_of(x)), x], axis=-1)
    return pointwise.multiply(apply(op, arrange.concat([upper, lower], axis=-2))[..., :n, n:], scale)


def _scale_ratio(direction: Any, x: Any) -> Any:
    """How many times larger than x a direction is, 1 where one of them is zero; a constant to every derivative."""
    if not spec_of(x).size:
        return 1.0
    above, below = (reductions.max(pointwise.abs(z), axis=(-2, -1), keepdims=True) for z in (direction, x))
    known = pointwise.logical_and(pointwise.greater(above, 0), pointwise.greater(below, 0))
    return pointwise.stop_gradient(pointwise.where(known, above, 1.0) / pointwise.where(known, below, 1.0))


def _map_matrices(function: Callable[[Any], Any], name: str, xp: Any, x: Any) -> Any:
    """One matrix at a time; a real matrix with a complex result is refused, since the dtype would depend on values."""
    dtype = float_dtype(x.dtype)
    out = xp.empty(x.shape, dtype)
    double = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    for i in np.ndindex(x.shape[:-2] if x.size else (0,)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call_lapack(function, name, double[i])
        if not xp.isfinite(found).all():
            raise SingularError(f"{name}: not finite, since an eigenvalue is zero or too large.")
        if name == "sqrtm" and not _is_accurate_root(xp, found, double[i]):
            raise SingularError(
                "sqrtm: the matrix has no square root, or is singular, where the root has no derivative.\n"
                "  Shift its zero eigenvalues: a + delta * eye(n)."
            )
        if dtype.kind != "c" and found.dtype.kind == "c":
            if xp.abs(found.imag).max(initial=0) > 1e3 * np.finfo(found.dtype).eps * xp.abs(found).max(initial=0):
                raise ArgumentError(
                    f"{name}: a real matrix with an eigenvalue on the negative axis has no real result.\n"
                    "  Pass it as complex: x.astype(complex)."
                )
            found = found.real
        out[i] = found
    return out


def _is_accurate_root(xp: Any, root: Any, x: Any) -> bool:
    """Whether a root has any correct digit: its error is about eps |root|^2 / |x| (Higham, Functions of Matrices,
    6.4), and where there is no root the growth |root|^2 / |x| is unbounded.
    """
    largest, size = float(xp.abs(root).max(initial=0)), float(xp.abs(x).max(initial=0))
    return largest * largest * float(np.finfo(np.float64).eps) <= 0.01 * size


def _expm_value(xp: Any, x: Any) -> Any:
    if not x.size:
        return xp.zeros(x.shape, float_dtype(x.dtype))
    function = scipy_linalg(xp).expm
    if xp is np:
        return common.narrow_to(call_lapack(function, "expm", x).astype(_working_dtype(x), copy=False), x.dtype)
    return _map_matrices(function, "expm", xp, x)


def _working_dtype(x: Any) -> Any:
    dtype = float_dtype(x.dtype)
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def _scipy_value(name: str) -> Callable[..., Any]:
    def value(xp: Any, x: Any) -> Any:
        if xp is not np:
            raise ArgumentError(f"{name}: only SciPy implements it, for arrays on the CPU.\n  Move the matrix there.")
        return _map_matrices(getattr(scipy_linalg(xp), name), name, xp, x)

    return value


def _matrix_function(name: str, value: Callable[..., Any], shift: float, form: Any = None) -> Op:
    """`shift` is what is added to the diagonal of samples, so that no eigenvalue is negative."""

    def samples(rng: Any) -> Any:
        shapes = ((2, 2), (2, 1, 1), (0, 0), (0, 2, 2))
        return [((0.5 * rng.normal(size=s) + shift * np.eye(s[-1]),), {}) for s in shapes]

    op: Op = common.matrix_op(
        name,
        value=value,
        spec=lambda x: common.square_spec(x, name),
        # <b, L(x, e)> = tr(b^H L(x, e)) = tr(L(x, b^H) e): at x itself, since on a branch cut f(x^H) is not f(x)^H.
        pulls={"x": lambda bar, x: adjoint(_directional_derivative(op, x, adjoint(bar)))},
        push=lambda tangents, out, primals, static: _directional_derivative(op, primals[0], tangents[0]),
        samples=samples,
        form=form,
    )
    return op


_expm = _matrix_function("expm", _expm_value, 0.0, Matrix("exponential", 20.0))
_logm = _matrix_function("logm", _scipy_value("logm"), 3.0)
_sqrtm = _matrix_function("sqrtm", _scipy_value("sqrtm"), 3.0)


@of_array
@attributed_to_caller
def expm(a: Any, /) -> Any:
    """The matrix exponential 1 + a + a^2 / 2 + ...

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    return apply(_expm, as_square(a, "expm"))


@of_array
@attributed_to_caller
def logm(a: Any, /) -> Any:
    """The principal logarithm of matrices without eigenvalues on the negative axis (for complex ones, at zero).

    >>> import numpy as np, pullback as pb
    >>> bool(np.allclose(pb.linalg.logm(np.eye(2)), 0))
    True
    """
    return apply(_logm, as_square(a, "logm"))


@of_array
@attributed_to_caller
def sqrtm(a: Any, /) -> Any:
    """The principal square root of matrices without eigenvalues on the negative axis (for complex ones, at zero).

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.sqrtm(np.array([[4.0, 0.0], [0.0, 9.0]]))
    array([[2., 0.],
           [0., 3.]])
    """
    return apply(_sqrtm, as_square(a, "sqrtm"))
