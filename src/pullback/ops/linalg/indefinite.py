"""LDL factors of symmetric and Hermitian matrices that need not be definite, in LAPACK's form (Bunch and Kaufman)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np

from ...arrays.backends import to_host
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import DtypeError, ShapeError
from .. import statics
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..fusion import cast_whole
from ..index import indexing
from ..index.normalize import namespace_for
from ..op import Op
from ..shape import arrange, reshaping
from ..signatures import of_three_arrays
from . import common
from .common import adjoint, product, swap_last_axes
from .eigen import symmetrize_from
from .linear_systems import solve, triangular_solve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


class LDL(NamedTuple, Generic[common.Array]):
    """The result of `ldl_factor`: the factors in one matrix, and LAPACK's row exchanges (counted from one)."""

    LD: common.Array
    pivots: common.Array


def _ldl_spec(x: Spec, hermitian: bool) -> tuple[Spec, Spec]:
    out = common.square_spec(x, "ldl_factor")
    return out, make_spec(x.shape[:-1], np.dtype(np.int32), x.device)


def _ldl_value(xp: Any, x: Any, hermitian: bool) -> Any:
    """LAPACK factors one matrix at a time, on the host."""
    wide = common.widen_for_lapack(to_host(x))
    turned = np.swapaxes(wide, -1, -2)
    wide = (wide + (turned.conj() if hermitian else turned)) * wide.dtype.type(0.5)
    factors, pivots = np.zeros_like(wide), np.zeros(x.shape[:-1], np.int32)
    if x.size:
        from scipy.linalg import get_lapack_funcs

        name = "hetrf" if hermitian and wide.dtype.kind == "c" else "sytrf"
        factor: Any = get_lapack_funcs(name, (wide,))
        for place in np.ndindex(*x.shape[:-2]):
            out, pivots[place], _ = factor(wide[place], lower=1)
            factors[place] = np.tril(out)
    return xp.asarray(common.narrow_to(factors, x.dtype)), xp.asarray(pivots)


# The exchanges say in which order P the rows of the matrix were taken. They are made step by step, and a column of L
# that was found before an exchange is stored as it was: its rows are exchanged by all later steps.
def _layout_value(xp: Any, pivots: Any) -> Any:
    """For each matrix the order P with A[P][:, P] = L D L^*, and its inverse; where in its column of LD each entry of L
    is stored, and for each entry of LD where in L it stands; which columns begin a block of D with two rows.
    """
    host = to_host(pivots)
    *batch, n = host.shape
    order = np.broadcast_to(np.arange(n), host.shape).copy()
    rows = np.broadcast_to(np.arange(n)[:, None], (*batch, n, n)).copy()
    pairs = np.zeros(host.shape, bool)
    for place in np.ndindex(*batch):
        k = 0
        while k < n:
            other = abs(int(host[place][k])) - 1
            pairs[place][k] = is_pair = host[place][k] < 0
            one = min(k + is_pair, n - 1)
            if not 0 <= other < n:
                raise ShapeError(f"ldl_solve: the pivots {host[place]} are none of {n} rows, counted from one.")
            order[place][[one, other]] = order[place][[other, one]]
            rows[place][[one, other], :k] = rows[place][[other, one], :k]
            k += 1 + is_pair
    found = order, np.argsort(order, axis=-1), rows, np.argsort(rows, axis=-2), pairs
    return tuple(xp.asarray(part) for part in found)


def _layout_spec(x: Spec) -> tuple[Spec, ...]:
    n = x.shape[-1]
    order, rows = (make_spec(s, np.dtype(np.int64), x.device) for s in (x.shape, (*x.shape, n)))
    return order, order, rows, rows, make_spec(x.shape, np.dtype(bool), x.device)


def _layout_samples(rng: Any) -> Any:
    found = ([1, 2, 3], [2, 2, 3], [-2, -2, 3], [-3, -3, 3], [1, -3, -3], [3, -3, -3])
    return [((np.array(pivots, np.int32),), {}) for pivots in (*found, [found[3], found[1]], [1])]


_layout: Op = common.matrix_op("ldl_layout", value=_layout_value, spec=_layout_spec, samples=_layout_samples)


class _Factors(NamedTuple):
    """L and D of A[order][:, order] = L D L^*, and what leads from LD to them."""

    lower: Any
    middle: Any
    order: Any
    back: Any
    stored_at: Any
    block: Any
    is_hermitian: bool

    def star(self, x: Any) -> Any:
        return adjoint(x) if self.is_hermitian else swap_last_axes(x)

    def below(self, x: Any) -> Any:
        """What of a square matrix lies below the blocks of D, and so belongs to L."""
        return pointwise.where(self.block, 0.0, arrange.tril(x, -1))

    def inside(self, x: Any) -> Any:
        """What of it lies in blocks of D, on the diagonal or below."""
        return pointwise.where(self.block, x, 0.0)

    def divide(self, x: Any) -> Any:
        """x D^-1."""
        return swap_last_axes(solve(swap_last_axes(self.middle), swap_last_axes(x)))


def _read_factors(ld: Any, pivots: Any, hermitian: bool) -> _Factors:
    order, back, rows, stored_at, pairs = apply(_layout, pivots)
    n = shape(ld)[-1]
    # below the diagonal in a column that begins a pair
    beside = pointwise.logical_and(namespace_for(ld).eye(n, k=-1, dtype=bool), reshaping.expand_dims(pairs, -2))
    block = pointwise.logical_or(common.identity_like(ld, n, bool), beside)
    inside = pointwise.where(block, ld, 0.0)
    corner = pointwise.where(beside, ld, 0.0)
    middle = pointwise.add(inside, adjoint(corner) if hermitian else swap_last_axes(corner))
    columns = pointwise.where(block, 0.0, arrange.tril(ld, -1))
    lower = pointwise.add(indexing.take_along_axis(columns, rows, axis=-2), common.identity_like(ld, n))
    return _Factors(lower, middle, order, back, stored_at, block, hermitian)


def _exchange(x: Any, order: Any) -> Any:
    """The rows and columns of square matrices in another order."""
    rows = reshaping.broadcast_to(reshaping.expand_dims(order, -1), shape(x))
    columns = reshaping.broadcast_to(reshaping.expand_dims(order, -2), shape(x))
    return indexing.take_along_axis(indexing.take_along_axis(x, rows, axis=-2), columns, axis=-1)


def _part(x: Any, hermitian: bool) -> Any:
    """The Hermitian or the symmetric part."""
    return pointwise.multiply(pointwise.add(x, adjoint(x) if hermitian else swap_last_axes(x)), 0.5)


# B = A[P][:, P] = L D L^*, where P stays as it is nearby. With F = L^-1 B' L^-* and K = L^-1 L',
#   F = K D + D' + (K D)^*,
# and K has nothing in the blocks of D, so D' is F in the blocks, and K D is F below them.
def _push_ldl(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    hermitian = static["hermitian"]
    f = _read_factors(out[0], out[1], hermitian)
    moved = _exchange(_part(tangents[0], hermitian), f.order)
    left = triangular_solve(f.lower, moved, lower=True, unit_diagonal=True)
    both = f.star(triangular_solve(f.lower, f.star(left), lower=True, unit_diagonal=True))
    lower = product(f.lower, f.divide(f.below(both)))
    return pointwise.add(indexing.take_along_axis(lower, f.stored_at, axis=-2), f.inside(both)), None


# <L_bar, L K> + <D_bar, F> = <F_bar, F>, F_bar = below(L^H L_bar) D^-H + D_bar, and F = L^-1 B' L^-* gives
# B_bar = L^-H F_bar (L^*)^-H.
def _pull_ldl(bar: Any, out: Any, hermitian: bool) -> Any:
    f = _read_factors(out[0], out[1], hermitian)
    ld_bar = bar[0]
    rows = apply(_layout, out[1])[2]
    lower_bar = indexing.take_along_axis(f.below(ld_bar), rows, axis=-2)
    # x D^-H = (D^-1)^H from the right: D^H is D or its conjugate
    pulled = f.below(product(adjoint(f.lower), lower_bar))
    inner = f.divide(pulled) if hermitian else pointwise.conj(f.divide(pointwise.conj(pulled)))
    f_bar = pointwise.add(f.below(inner), f.inside(ld_bar))
    left = triangular_solve(adjoint(f.lower), f_bar, unit_diagonal=True)
    right = f.lower if hermitian else pointwise.conj(f.lower)
    both = adjoint(triangular_solve(adjoint(right), adjoint(left), unit_diagonal=True))
    return _part(_exchange(both, f.back), hermitian)


def _ldl_samples(rng: Any) -> Any:
    found: list[Any] = []
    for s in ((3, 3), (4, 4), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)):
        x = rng.normal(size=s)
        off = 1 - 0.8 * np.eye(s[-1])  # small diagonals want blocks of two
        found += [(((x + np.swapaxes(x, -1, -2)) * off,), {"hermitian": len(s) == 3})]
    return found


_ldl: Op = common.matrix_op(
    "ldl_factor", statics={"hermitian": statics.flag}, value=_ldl_value, spec=_ldl_spec, pulls={"x": _pull_ldl},
    push=_push_ldl, samples=_ldl_samples,
)  # fmt: skip


@overload
def ldl_factor(a: V, /, *, hermitian: bool = False) -> LDL[V]: ...
@overload
def ldl_factor(a: Plain, /, *, hermitian: bool = False) -> LDL[NDArray[Any]]: ...
@attributed_to_caller
def ldl_factor(a: Any, /, *, hermitian: bool = False) -> Any:
    """(LD, pivots) of a symmetric matrix, or of a `hermitian` one, given by its lower triangle: unit triangular L and D
    with blocks of one and two rows so that L D L^T (L D L^H) is a with rows and columns exchanged. Both are in LAPACK's
    form, for `ldl_solve`. The derivative is that for these exchanges.

    >>> import numpy as np, pullback as pb
    >>> factors = pb.linalg.ldl_factor(np.array([[4.0, 0.0], [2.0, -3.0]]))
    >>> factors.LD, factors.pivots
    (array([[ 4. ,  0. ],
           [ 0.5, -4. ]]), array([1, 2], dtype=int32))
    """
    a = common.as_square(a, "ldl_factor")
    if hermitian:
        whole = symmetrize_from(a, "L", "ldl_factor")
    else:
        whole = pointwise.add(arrange.tril(a), swap_last_axes(arrange.tril(a, -1)))
    return LDL(*apply(_ldl, whole, hermitian=bool(hermitian)))


@of_three_arrays
@attributed_to_caller
@cast_whole("high")
def ldl_solve(ld: Any, pivots: Any, b: Any, /, *, hermitian: bool = False) -> Any:
    """The x with a x = b, from the factors of a by `ldl_factor`; b is one vector, or holds columns over its last two
    axes.

    >>> import numpy as np, pullback as pb
    >>> factors = pb.linalg.ldl_factor(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> pb.linalg.ldl_solve(*factors, np.array([2.0, 4.0]))
    array([2., 1.])
    """
    ld, pivots, b = common.as_square(ld, "ldl_solve"), as_value(pivots), as_value(b)
    if spec_of(pivots).dtype.kind not in "iu" or shape(pivots)[-1:] != shape(ld)[-1:]:
        raise DtypeError(
            f"ldl_solve: the pivots are those of ldl_factor, one integer for each row, got {spec_of(pivots)}."
        )
    column = reshaping.expand_dims(b, -1) if ndim(b) == 1 else b
    if shape(column)[-2] != shape(ld)[-1]:
        raise ShapeError(f"ldl_solve: factors of {shape(ld)[-1]} rows for b of shape {shape(b)}.")
    f = _read_factors(ld, pivots, bool(hermitian))
    y = triangular_solve(f.lower, _take_rows(column, f.order), lower=True, unit_diagonal=True)
    x = triangular_solve(f.star(f.lower), solve(f.middle, y), unit_diagonal=True)
    x = _take_rows(x, f.back)
    return reshaping.squeeze(x, -1) if ndim(b) == 1 else x


def _take_rows(x: Any, order: Any) -> Any:
    lead = np.broadcast_shapes(shape(x)[:-2], shape(order)[:-1])
    whole = (*lead, *shape(x)[-2:])
    rows = reshaping.broadcast_to(reshaping.expand_dims(order, -1), whole)
    return indexing.take_along_axis(reshaping.broadcast_to(x, whole), rows, axis=-2)
