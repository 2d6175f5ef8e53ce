"""Matrices: laws that a factorization or a solve satisfies, and functions of matrices by their definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

#: Arguments and results in, pairs of arrays that must be equal out.
Law = Callable[..., list[tuple[Any, Any]]]


def matrix_product(x: Any, y: Any) -> Any:
    """The product of matrices as a sum over products of elements, without BLAS."""
    return (x[..., :, :, None] * y[..., None, :, :]).sum(-2)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def symmetric_part(x: Any) -> Any:
    return (x + adjoint(x)) / 2


def identity_like(x: Any) -> Any:
    """The unit matrix of the size of a square one."""
    return np.broadcast_to(np.eye(x.shape[-1]), x.shape)


def orthonormality_law(x: Any) -> tuple[Any, Any]:
    found = matrix_product(adjoint(x), x)
    return found, identity_like(found)


def diagonal_matrix(values: Any, rows: int, columns: int) -> Any:
    out = np.zeros((*values.shape[:-1], rows, columns), values.dtype)
    for i in range(min(rows, columns)):
        out[..., i, i] = values[..., i]
    return out


def descending_law(values: Any) -> tuple[Any, Any]:
    return values, np.sort(np.abs(values), axis=-1)[..., ::-1]


def _cholesky(found: Any, x: Any) -> list[tuple[Any, Any]]:
    (lower,) = found
    diagonals = np.einsum("...ii->...i", lower)
    return [
        (matrix_product(lower, adjoint(lower)), symmetric_part(x)),
        (lower, np.tril(lower)),
        (diagonals, np.abs(diagonals)),
    ]


def _qr(found: Any, x: Any, complete: bool) -> list[tuple[Any, Any]]:
    q, r = found
    return [(matrix_product(q, r), x), orthonormality_law(q), (r, np.triu(r))]


def _eigh(found: Any, x: Any, vectors: bool) -> list[tuple[Any, Any]]:
    w, v = found
    return [
        (matrix_product(v * w[..., None, :], adjoint(v)), symmetric_part(x)),
        orthonormality_law(v),
        (w, np.sort(w, axis=-1)),
    ]


def _eig(found: Any, x: Any, vectors: bool) -> list[tuple[Any, Any]]:
    w, v = found
    lengths = np.sqrt((np.abs(v) ** 2).sum(-2))
    return [
        (matrix_product(x, v), v * w[..., None, :]),
        (lengths, np.ones_like(lengths)),
        (w.sum(-1), np.einsum("...ii->...", x)),
        (np.prod(w, axis=-1), leibniz_determinant(x)),
    ]


def _svd(found: Any, x: Any, full: bool, vectors: bool) -> list[tuple[Any, Any]]:
    u, s, vh = found
    middle = diagonal_matrix(s, u.shape[-1], vh.shape[-2])
    return [
        (matrix_product(matrix_product(u, middle), vh), x),
        orthonormality_law(u),
        orthonormality_law(adjoint(vh)),
        descending_law(s),
    ]


def _lu(found: Any, x: Any) -> list[tuple[Any, Any]]:
    p, q, lower, upper = found
    both = matrix_product(lower, upper)
    return [
        (np.take_along_axis(both, p[..., :, None], axis=-2), x),
        (both, np.take_along_axis(x, q[..., :, None], axis=-2)),
        (lower, np.tril(lower, -1) + np.eye(*lower.shape[-2:])),
        (upper, np.triu(upper)),
        (np.maximum(np.abs(lower), 1.0), np.ones(lower.shape)),
    ]


def _ldl(found: Any, x: Any, hermitian: bool) -> list[tuple[Any, Any]]:
    """LAPACK's definition: L is a product of exchanges and matrices that differ from one in the columns of a block."""
    ld, pivots = found
    wanted = symmetric_part(x) if hermitian else (x + np.swapaxes(x, -1, -2)) / 2
    made = np.zeros(ld.shape, ld.dtype)
    for place in np.ndindex(*ld.shape[:-2]):
        made[place] = _multiply_out_ldl(ld[place], pivots[place], hermitian)
    return [(made, wanted), (ld, np.tril(ld))]


def _multiply_out_ldl(ld: Any, pivots: Any, hermitian: bool) -> Any:
    n, k = len(ld), 0
    left, middle = np.eye(n, dtype=ld.dtype), np.zeros_like(ld)
    while k < n:
        width = 2 if pivots[k] < 0 else 1
        exchange = np.arange(n)
        last, other = k + width - 1, abs(int(pivots[k])) - 1
        exchange[[last, other]] = exchange[[other, last]]
        step = np.eye(n, dtype=ld.dtype)
        step[k + width :, k : k + width] = ld[k + width :, k : k + width]
        left = matrix_product(left[:, exchange], step)
        block = np.tril(ld[k : k + width, k : k + width])
        below = np.tril(block, -1)
        middle[k : k + width, k : k + width] = block + (adjoint(below) if hermitian else below.T)
        k += width
    return matrix_product(matrix_product(left, middle), adjoint(left) if hermitian else left.T)


def _pinv(found: Any, x: Any, rtol: Any) -> list[tuple[Any, Any]]:
    """Penrose's four equations."""
    (inverse,) = found
    left, right = matrix_product(x, inverse), matrix_product(inverse, x)
    return [
        (matrix_product(left, x), x),
        (matrix_product(right, inverse), inverse),
        (left, adjoint(left)),
        (right, adjoint(right)),
    ]


def _triangular_solve(found: Any, a: Any, b: Any, lower: bool, unit: bool) -> list[tuple[Any, Any]]:
    part = np.tril(a, -1) if lower else np.triu(a, 1)
    part = part + (np.eye(a.shape[-1]) if unit else a * np.eye(a.shape[-1]))
    return [(matrix_product(part, found[0]), np.broadcast_to(b, found[0].shape))]


def _solve(found: Any, a: Any, b: Any) -> list[tuple[Any, Any]]:
    return [(matrix_product(a, found[0]), np.broadcast_to(b, found[0].shape))]


def _sparse_solve(found: Any, data: Any, rows: Any, cols: Any, b: Any, adjoint: bool) -> list[tuple[Any, Any]]:
    a = np.zeros((len(b), len(b)), data.dtype)
    for number, i, j in zip(data, rows, cols, strict=True):
        a[i, j] += number
    return [(matrix_product(np.conj(a.T) if adjoint else a, found[0]), b)]


def _inv(found: Any, x: Any) -> list[tuple[Any, Any]]:
    return [(matrix_product(x, found[0]), identity_like(x)), (matrix_product(found[0], x), identity_like(x))]


def _logm(found: Any, x: Any) -> list[tuple[Any, Any]]:
    """Of all logarithms the one whose eigenvalues lie between -pi i and pi i."""
    turns = np.linalg.eigvals(found[0]).imag
    return [(matrix_exponential(found[0]), x), (np.maximum(np.abs(turns), np.pi), np.full(turns.shape, np.pi))]


def _sqrtm(found: Any, x: Any) -> list[tuple[Any, Any]]:
    """Of all roots the one whose eigenvalues have no negative real part."""
    real = np.linalg.eigvals(found[0]).real
    return [(matrix_product(found[0], found[0]), x), (real, np.abs(real))]


def _lift(found: Any, x: Any) -> list[tuple[Any, Any]]:
    """With W Z^H and the rest added, singular values that vanish are as large as the largest, or 1 of a matrix 0."""
    n, r = x.shape[-1], min(x.shape[-1], 3)
    w, z, rest = (np.split(found[0], [r, 2 * r], axis=-1)) if n else (found[0],) * 3
    before = np.linalg.svd(x, compute_uv=False)
    top = before[..., :1]
    raised = np.where(before <= 1e-8 * top, np.where(top > 0, top, 1.0), before)
    after = np.linalg.svd(x + matrix_product(w, adjoint(z)) + rest, compute_uv=False)
    return [(after, np.sort(raised, axis=-1)[..., ::-1]), orthonormality_law(z)]


MATRIX_LAWS: dict[str, Law] = {
    "lift": _lift,
    "cholesky": _cholesky,
    "qr": _qr,
    "eigh": _eigh,
    "eig": _eig,
    "svd": _svd,
    "lu": _lu,
    "ldl_factor": _ldl,
    "pinv": _pinv,
    "solve": _solve,
    "sparse_solve": _sparse_solve,
    "triangular_solve": _triangular_solve,
    "inv": _inv,
    "logm": _logm,
    "sqrtm": _sqrtm,
}


def leibniz_determinant(x: Any) -> Any:
    """The determinant as the sum over permutations."""
    n = x.shape[-1]
    total = np.zeros(x.shape[:-2], x.dtype)
    for order in itertools.permutations(range(n)):
        sign = (-1) ** sum(a > b for a, b in itertools.combinations(order, 2))
        total = total + sign * np.prod([x[..., i, j] for i, j in enumerate(order)], axis=0)
    return total


def matrix_exponential(x: Any) -> Any:
    """The power series of a matrix that was halved until it is small, squared as often."""
    halvings = max(0, int(np.ceil(np.log2(max(float(np.abs(x).sum(-1).max(initial=0.0)), 1e-3)))) + 4)
    small, out = x / 2**halvings, identity_like(x)
    for k in range(20, 0, -1):
        out = identity_like(x) + matrix_product(small, out) / k
    for _ in range(halvings):
        out = matrix_product(out, out)
    return out


def _slogdet(x: Any) -> Any:
    found = leibniz_determinant(x)
    return found / np.abs(found), np.log(np.abs(found))


def _einsum(*xs: Any, labels: tuple[str, ...], result: str) -> Any:
    """A sum of products over every choice of an index for every label."""
    sizes: dict[str, int] = {}
    for letters, x in zip(labels, xs, strict=True):
        sizes |= dict(zip(letters, x.shape, strict=True))
    out = np.zeros([sizes[c] for c in result], np.result_type(*xs))
    for place in np.ndindex(*sizes.values()):
        at = dict(zip(sizes, place, strict=True))
        term = 1
        for letters, x in zip(labels, xs, strict=True):
            term = term * x[tuple(at[c] for c in letters)]
        out[tuple(at[c] for c in result)] += term
    return out


def _ldl_layout(pivots: Any) -> Any:
    """By matrices of the exchanges: all of them give the order, those after a column the rows of its entries."""
    *batch, n = pivots.shape
    order, rows = np.zeros((*batch, n), np.int64), np.zeros((*batch, n, n), np.int64)
    pairs = np.zeros(pivots.shape, bool)
    for place in np.ndindex(*batch):
        exchanges, starts, k = [], [], 0
        while k < n:
            width = 2 if pivots[place][k] < 0 else 1
            exchange = np.eye(n, dtype=np.int64)
            last, other = k + width - 1, abs(int(pivots[place][k])) - 1
            exchange[[last, other]] = exchange[[other, last]]
            exchanges.append(exchange)
            pairs[place][k] = width == 2
            starts += [len(exchanges)] * width
            k += width
        order[place] = np.linalg.multi_dot([np.eye(n, dtype=np.int64), *exchanges[::-1], np.arange(n)])
        for j, later in enumerate(starts):
            moved = np.arange(n)
            for exchange in exchanges[later:]:
                moved = exchange @ moved
            rows[place][:, j] = moved
    inverse = np.argsort(order, axis=-1), np.argsort(rows, axis=-2)
    return order, inverse[0], rows, inverse[1], pairs


MATRIX_ORACLES: dict[str, Callable[..., Any]] = {
    "matmul": matrix_product,
    "matvec": lambda x, y: matrix_product(x, y[..., None])[..., 0],
    "einsum": _einsum,
    "det": leibniz_determinant,
    "slogdet": _slogdet,
    "expm": matrix_exponential,
    "ldl_layout": _ldl_layout,
}
