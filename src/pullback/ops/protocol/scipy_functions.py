"""What functions of SciPy compute from values that carry derivatives, in a user's function that a transform runs.

SciPy has no protocol for it but the one for ufuncs, so names in its namespaces stand for these rules while the function
runs (`ops/user_calls.py`). A rule gets the arguments by SciPy's names, and computes what SciPy does, to the triangle of
a matrix that is read. What is in no table here raises when SciPy asks for bare arrays.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import FunctionType, MethodType, TracebackType
from typing import Any

import numpy as np

from ...arrays.call_site import is_installed_code
from ...errors import ConversionError, UnsupportedFunction
from ..axes import normalize_axis
from ..concrete import as_bare_array
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..index import indexing
from ..lazy import find_public, load_module
from ..reduce import reductions
from ..shape import arrange, reshaping
from .nested import any_derivative, as_array_or_value, carries_derivative, join, unwrap_nested

#: Options that change no result.
_WITHOUT_EFFECT = frozenset((
    "overwrite_a", "overwrite_b", "overwrite_ab", "overwrite_x", "check_finite", "lapack_driver", "driver", "disp",
    "blocksize", "xp",
))  # fmt: skip
_TRIANGLES = {True: "L", False: "U"}


def rule_for(name: str, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """SciPy's function, with our rule for arguments that carry derivatives."""
    parameters = inspect.signature(original).parameters

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any_derivative(args, kwargs):
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        given: dict[str, Any] = {}
        for key, x in bound.arguments.items():
            if parameters[key].kind is inspect.Parameter.VAR_POSITIONAL:
                return ours(*map(as_argument, x))
            if key not in _WITHOUT_EFFECT and x is not parameters[key].default:
                given[key] = as_argument(x)
        taken = inspect.signature(ours).parameters
        for key in given.keys() - taken.keys():
            raise UnsupportedFunction(
                f"{name}: {key}={given[key]!r} has no rule here.\n  Leave {key} out, or use functions of pullback."
            )
        return ours(**given)

    return call


def refusal_for(name: str, original: Callable[..., Any], instead: str) -> Callable[..., Any]:
    """SciPy's function of a user's functions, which says what to use if these return values that carry derivatives, or
    an argument does: compiled code may drop the error of a conversion, and go on.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        lost: list[Any] = []

        def watch(x: Any) -> Any:
            if not isinstance(x, (FunctionType, MethodType, functools.partial)):
                return x

            @functools.wraps(x)
            def watched(*given: Any, **named: Any) -> Any:
                found = x(*given, **named)
                if carries_derivative(found):
                    lost.append(found)
                    raise _no_numbers_error(name, instead)  # now: compiled code may go on with an error set
                return found

            return watched

        try:
            found = original(*map(watch, args), **{key: watch(x) for key, x in kwargs.items()})
        except Exception as error:
            if not lost and any_derivative(args, kwargs):  # the error may tell of anything
                raise _bare_arrays_error(name, instead) from error
            if lost or isinstance(error, ConversionError):
                raise _no_numbers_error(name, instead) from error
            raise
        if lost:
            raise _no_numbers_error(name, instead)
        return found

    return call


def _no_numbers_error(name: str, instead: str) -> UnsupportedFunction:
    return UnsupportedFunction(
        f"{name}: a function that it calls returned a value that carries derivatives, and it computes with bare "
        f"numbers.\n  Use {instead}."
    )


def _bare_arrays_error(name: str, instead: str) -> UnsupportedFunction:
    return UnsupportedFunction(
        f"{name}: an argument carries derivatives, and it computes with bare arrays.\n  Use {instead}."
    )


def explain(error: BaseException, trace: TracebackType) -> None:
    """Raise what an error of SciPy's is due to, if the function that the user called got values that carry derivatives
    and fails in code of its own: it says then, say, that it knows no such type.
    """
    frames = [step for step, _ in walk_tb(trace)]
    if not is_installed_code(frames[-1].f_code):
        return
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        public, name = module.partition("._")[0], frame.f_code.co_name
        if module.startswith("scipy.") and callable(getattr(sys.modules.get(public), name, None)):
            if carries_derivative([*frame.f_locals.values()]):
                instead = ON_ERROR.get(f"{public}.{name}", "functions of pullback")
                raise _bare_arrays_error(f"{public}.{name}", instead) from error
            return


def as_argument(x: Any) -> Any:
    """An argument as SciPy takes it, perhaps a list with values that carry derivatives."""
    return join(x) if isinstance(x, list) and carries_derivative(x) else unwrap_nested(x)


def _linalg(name: str) -> Any:
    return find_public(f"linalg.{name}")


def symmetric(a: Any, lower: bool) -> Any:
    """A Hermitian matrix by the triangle of it that is read."""
    a = as_value(a)
    part = find_public("tril" if lower else "triu")(a, -1 if lower else 1)
    diagonal = pointwise.multiply(np.eye(shape(a)[-1]), pointwise.real(a))
    return pointwise.add(pointwise.add(part, pointwise.conj(reshaping.matrix_transpose(part))), diagonal)


_STRUCTURES: dict[Any, Callable[..., Any]] = {
    None: lambda a, lower: a,
    "gen": lambda a, lower: a,
    "general": lambda a, lower: a,
    "pos": symmetric,
    "positive definite": symmetric,
    "her": symmetric,
    "hermitian": symmetric,
    "upper triangular": lambda a, lower: find_public("triu")(a),
    "lower triangular": lambda a, lower: find_public("tril")(a),
}


def _apply_structure(a: Any, assume_a: Any, lower: bool, name: str) -> Any:
    structure = "her" if assume_a in ("sym", "symmetric") and as_value(a).dtype.kind != "c" else assume_a
    if structure not in _STRUCTURES:
        raise UnsupportedFunction(
            f"scipy.linalg.{name}: assume_a={assume_a!r} has no rule here.\n  Leave it out: the result is the same."
        )
    return _STRUCTURES[structure](a, lower)


def solve(a: Any, b: Any, lower: bool = False, assume_a: Any = None, transposed: bool = False) -> Any:
    matrix = _apply_structure(a, assume_a, lower, "solve")
    return _linalg("solve")(reshaping.matrix_transpose(matrix) if transposed else matrix, b)


def inv(a: Any, assume_a: Any = None, lower: bool = False) -> Any:
    return _linalg("inv")(_apply_structure(a, assume_a, lower, "inv"))


def cholesky(a: Any, lower: bool = False) -> Any:
    factor = _linalg("cholesky")(symmetric(a, lower))
    return factor if lower else pointwise.conj(reshaping.matrix_transpose(factor))


def cho_factor(a: Any, lower: bool = False) -> tuple[Any, bool]:
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any) -> Any:
    # a = c c^H for a lower triangle c, c^H c for an upper one
    factor, lower = c_and_lower
    first, second = (0, 2) if lower else (2, 0)
    half = solve_triangular(factor, b, trans=first, lower=lower)
    return solve_triangular(factor, half, trans=second, lower=lower)


def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
    return _linalg("triangular_solve")(a, b, trans, lower, unit_diagonal)


def lu_factor(a: Any) -> tuple[Any, Any]:
    p, left, right = _linalg("lu")(a, p_indices=True)
    packed = pointwise.add(find_public("tril")(left, -1), right)
    return packed, _pivots(as_bare_array(p, "scipy.linalg.lu_factor"))


def _pivots(rows: Any) -> Any:
    """LAPACK's exchanges of rows that bring a to the order of its factors; `rows` are those of L U in a."""
    wanted, at = np.argsort(rows), list(range(len(rows)))
    pivots = np.arange(len(rows), dtype=np.int32)
    for i, row in enumerate(wanted):
        pivots[i] = at.index(row)
        at[i], at[pivots[i]] = at[pivots[i]], at[i]
    return pivots


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0) -> Any:
    packed, pivots = lu_and_piv
    order = np.arange(len(pivots))
    for i, j in enumerate(pivots):
        order[i], order[j] = order[j], order[i]
    if not trans:
        half = solve_triangular(packed, indexing.getitem(as_value(b), order), lower=True, unit_diagonal=True)
        return solve_triangular(packed, half)
    half = solve_triangular(packed, b, trans=trans)
    found = solve_triangular(packed, half, trans=trans, lower=True, unit_diagonal=True)
    return indexing.getitem(found, np.argsort(order))


def eigh(a: Any, lower: bool = True, eigvals_only: bool = False) -> Any:
    return _linalg("eigvalsh" if eigvals_only else "eigh")(a, _TRIANGLES[bool(lower)])


def eigvalsh(a: Any, lower: bool = True) -> Any:
    return _linalg("eigvalsh")(a, _TRIANGLES[bool(lower)])


def eig(a: Any, left: bool = False, right: bool = True) -> Any:
    if left:
        raise UnsupportedFunction(
            "scipy.linalg.eig: left=True has no rule here.\n  Left vectors are the right ones of a.conj().T."
        )
    if not right:
        return _linalg("eigvals")(a)
    values, vectors = np.linalg.eig(as_value(a))
    return pointwise.multiply(values, 1.0 + 0.0j), vectors  # vectors alone may be real


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return _linalg("svd")(a, full_matrices=full_matrices) if compute_uv else _linalg("svdvals")(a)


def qr(a: Any, mode: str = "full") -> Any:
    ours = {"full": "complete", "economic": "reduced", "r": "r"}.get(mode)
    if ours is None:
        raise UnsupportedFunction(f"scipy.linalg.qr: mode={mode!r} has no rule here.\n  Use 'full' or 'economic'.")
    if ours == "r":
        return (_linalg("qr")(a, mode="complete")[1],)
    return _linalg("qr")(a, mode=ours)


def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> Any:
    return _linalg("lu")(a, permute_l=permute_l, p_indices=p_indices)


def toeplitz(c: Any, r: Any = None) -> Any:
    c = np.atleast_1d(as_value(c))
    r = pointwise.conj(c) if r is None else np.atleast_1d(as_value(r))
    rows, columns = shape(c)[-1], shape(r)[-1]
    batch = np.broadcast_shapes(shape(c)[:-1], shape(r)[:-1])
    c, r = (reshaping.broadcast_to(x, (*batch, shape(x)[-1])) for x in (c, r))
    both = arrange.concat([r[..., :0:-1], c], axis=-1)
    return indexing.getitem(both, (..., np.arange(rows)[:, None] - np.arange(columns) + columns - 1))


def circulant(c: Any) -> Any:
    c = np.atleast_1d(as_value(c))
    size = shape(c)[-1]
    return indexing.getitem(c, (..., (np.arange(size)[:, None] - np.arange(size)) % size))


def det(a: Any) -> Any:
    return _linalg("det")(a)


def expm(A: Any) -> Any:
    return _linalg("expm")(A)


def logm(A: Any) -> Any:
    return _linalg("logm")(A)


def sqrtm(A: Any) -> Any:
    return _linalg("sqrtm")(A)


def pinv(a: Any, rtol: Any = None) -> Any:
    return _linalg("pinv")(a, rtol=rtol)


def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return _linalg("norm")(a, ord, axis, keepdims)


def svdvals(a: Any) -> Any:
    return _linalg("svdvals")(a)


def eigvals(a: Any) -> Any:
    return _linalg("eigvals")(a)


def block_diag(*arrs: Any) -> Any:
    return find_public("block_diag")(*arrs)


def lstsq(a: Any, b: Any, cond: Any = None) -> Any:
    x, residuals, rank, values = _linalg("lstsq")(a, b, cond)
    return x, residuals[0] if shape(residuals) == (1,) and ndim(as_value(b)) == 1 else residuals, rank, values


def spsolve(A: Any, b: Any, use_umfpack: Any = None) -> Any:
    return find_public("linear_solve")(A, b)


def make_interp_spline(x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0) -> Any:
    return load_module("protocol.scipy_interpolate").make_interp_spline(x, y, k, t, bc_type, axis)


def rosen(x: Any) -> Any:
    x = as_value(x)
    return reductions.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2, axis=0)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    return find_public("trapezoid")(y, x=x, dx=dx, axis=axis)


def simpson(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = reshaping.moveaxis(as_value(y), normalize_axis(axis, ndim(as_value(y)), "simpson"), -1)
    count = shape(y)[-1]
    if x is None:
        gaps: Any = pointwise.multiply(np.ones(count - 1), dx)
    else:
        x = as_value(x)
        gaps = find_public("diff")(x if ndim(x) == 1 else reshaping.moveaxis(x, axis, -1), axis=-1)
    if count < 3:
        return reductions.sum(y[..., :-1] + y[..., 1:], axis=-1) * reductions.sum(gaps, axis=-1) / 2
    last = count if count % 2 else count - 1
    total = _simpson_pairs(y[..., :last], gaps[..., : last - 1])
    return total if count % 2 else total + _simpson_end(y[..., -3:], gaps[..., -2:])


def _simpson_pairs(y: Any, gaps: Any) -> Any:
    """The integrals of parabolas through three points each, their gaps h and k:
    (h + k) / 6 * ((2 - k / h) y0 + (h + k)^2 / (h k) y1 + (2 - h / k) y2).
    """
    h, k = gaps[..., ::2], gaps[..., 1::2]
    whole = h + k
    rows = (2 - k / h) * y[..., :-2:2] + whole**2 / (h * k) * y[..., 1::2] + (2 - h / k) * y[..., 2::2]
    return reductions.sum(whole / 6 * rows, axis=-1)


def _simpson_end(y: Any, gaps: Any) -> Any:
    """The integral over the last gap k of the parabola through the last three points, h the gap before:
    k (2 k + 3 h) / (6 (h + k)) y2 + k (k + 3 h) / (6 h) y1 - k^3 / (6 h (h + k)) y0.
    """
    h, k = gaps[..., 0], gaps[..., 1]
    whole = h + k
    return (
        k * (2 * k + 3 * h) / (6 * whole) * y[..., 2]
        + k * (k + 3 * h) / (6 * h) * y[..., 1]
        - k**3 / (6 * h * whole) * y[..., 0]
    )


def cumulative_trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1, initial: Any = None) -> Any:
    found = find_public("cumulative_trapezoid")(y, x=x, dx=dx, axis=axis)
    if initial is None:
        return found
    first = pointwise.multiply(indexing.take(found, np.array([0]), axis=axis), 0.0)
    return arrange.concat([first + initial, found], axis=axis)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    return find_public("special.logsumexp")(a, axis=axis, keepdims=keepdims, b=b)


def softmax(x: Any, axis: Any = None) -> Any:
    return np.exp(log_softmax(x, axis))


def log_softmax(x: Any, axis: Any = None) -> Any:
    x = as_value(x)
    return x - logsumexp(x, axis, keepdims=True)


def polygamma(n: Any, x: Any) -> Any:
    return find_public("special.polygamma")(n, x)


def multigammaln(a: Any, d: Any) -> Any:
    return find_public("special.multigammaln")(a, d)


def apply_where(cond: Any, args: Any, f1: Any, f2: Any = None, fill_value: Any = None) -> Any:
    """SciPy's own choice between formulas. Each gets elements alone for which it holds: in place of the others, whose
    results are not taken, the first one that is.
    """
    chosen = as_array_or_value(cond)
    values = [as_array_or_value(x) for x in (args if isinstance(args, tuple) else (args,))]
    sizes = np.broadcast_shapes(chosen.shape, *(x.shape for x in values))
    chosen, *flat = [reshaping.reshape(reshaping.broadcast_to(x, sizes), (-1,)) for x in (chosen, *values)]
    if not chosen.shape[0]:
        return np.zeros(sizes)
    other = np.nan if fill_value is None else fill_value
    second = other if f2 is None else f2(*_only_where(np.logical_not(chosen), flat))
    return reshaping.reshape(np.where(chosen, f1(*_only_where(chosen, flat)), second), sizes)


def _only_where(chosen: Any, flat: list[Any]) -> list[Any]:
    first = reductions.argmax(pointwise.multiply(chosen, 1))
    return [np.where(chosen, x, indexing.take(as_value(x), first)) for x in flat]


_LINALG = """
    solve inv det expm logm sqrtm pinv norm lstsq cholesky cho_factor cho_solve solve_triangular lu lu_factor lu_solve
    eigh eigvalsh eig eigvals svd svdvals qr block_diag toeplitz circulant
"""
_SOLVERS = """
    bicg bicgstab cg cgs gcrotmk gmres lgmres lobpcg lsmr lsqr minres onenormest qmr spsolve_triangular tfqmr
"""
#: Our functions for SciPy's, by module and name.
RULES: dict[str, dict[str, Callable[..., Any]]] = {
    "scipy.linalg": {name: globals()[name] for name in _LINALG.split()},
    "scipy.special": {
        "logsumexp": logsumexp,
        "softmax": softmax,
        "log_softmax": log_softmax,
        "polygamma": polygamma,
        "multigammaln": multigammaln,
    },
    "scipy._lib.array_api_extra": {"apply_where": apply_where},
    "scipy.optimize": {"rosen": rosen},
    "scipy.sparse.linalg": {"spsolve": spsolve},
    "scipy.interpolate": {"make_interp_spline": make_interp_spline},
    "scipy.integrate": {"trapezoid": trapezoid, "simpson": simpson, "cumulative_trapezoid": cumulative_trapezoid},
}
#: What to use in place of functions of SciPy that call a function of the user's.
INSTEAD: dict[str, dict[str, str]] = {
    "scipy.optimize": {
        **dict.fromkeys(("brentq", "brenth", "bisect", "newton", "root_scalar", "root", "fsolve"), "pb.root"),
        **dict.fromkeys(("minimize", "minimize_scalar"), "pb.argmin, or pb.interop.scipy.minimize outside"),
        **dict.fromkeys(("least_squares", "curve_fit"), "pb.least_squares"),
        "fixed_point": "pb.fixed_point",
    },
    "scipy.integrate": {
        **dict.fromkeys(("solve_ivp", "odeint"), "pb.ode.solve"),
        **dict.fromkeys(("quad", "dblquad", "quad_vec"), "pb.trapezoid on a grid"),
    },
}
#: What to use in place of functions whose errors do not tell that an argument carries derivatives.
ON_ERROR = {
    **{f"scipy.sparse.linalg.{name}": "pb.sparse.solve" for name in _SOLVERS.split()},
    **{f"scipy.sparse.{name}": "matrices of pb.sparse" for name in ("block_diag", "diags", "diags_array", "kron")},
    "scipy.signal.lfilter": "pb.convolve with the response to an impulse, or pb.scan",
}
