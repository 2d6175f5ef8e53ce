"""PyTorch's ways of calling linear algebra and Fourier transforms in, our calls out."""

import numpy as np

import pullback as pb
from pullback import linalg

from .forms import axes


def absolute(factorise):
    """Eigenvalues and the sizes of the vectors' elements: what PyTorch's samples look at, free of phases."""

    def call(x, UPLO=None):
        w, v = factorise(told_by(x, UPLO))
        return [w, pb.abs(v)]

    return call


def told_by(x, triangle):
    """The Hermitian matrix that a triangle tells, by which PyTorch differentiates, not by the triangle."""
    if triangle is None:
        return x
    array = x.detach().numpy()
    part = np.tril(array) if triangle == "L" else np.triu(array)
    return x + (part + part.mT - part * np.eye(array.shape[-1]) - array)


def svd(case, x, *, full_matrices=None, some=None):
    """The parts of the factors that this case looks at, told apart by their ranks."""
    u, s, vh = linalg.svd(x, full_matrices=bool(full_matrices) if some is None else not some)
    k = s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    ranks = [output.ndim - (x.ndim - 2) for output in case.outputs]
    parts = {(1,): [s], (1, 2): [s, pb.abs(vh)], (2, 1): [pb.matmul(u, vh), s]}
    if ranks == [2]:
        return [pb.abs(u)]
    return parts[tuple(ranks)]


def lstsq(case, a, b, *, driver=None, rcond=None):
    """The solution, and the residuals where PyTorch tells them."""
    x, residuals, *_ = linalg.lstsq(a, b)
    residuals = residuals if residuals.size else pb.reshape(residuals, (0,))
    return [x, residuals][: len(case.outputs)]


def solve(a, b, *, left=True):
    """PyTorch takes b for vectors where its shape is that of a without the last axis."""
    if b.ndim > 1 and b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        return linalg.solve(a, b[..., None])[..., 0]
    return linalg.solve(a, b) if left else linalg.solve(a.mT, b.mT).mT


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    options = {"lower": not upper, "unit_diagonal": unitriangular}
    if left:
        return linalg.triangular_solve(a, b, **options)
    return linalg.triangular_solve(a, b.mT, trans="T", **options).mT


def old_triangular_solve(b, a, *, upper=True, transpose=False, unitriangular=False):
    out = linalg.triangular_solve(a, b, trans=int(transpose), lower=not upper, unit_diagonal=unitriangular)
    return [out, pb.positive(a)]


def cholesky_solve(b, factor, *, upper=False):
    """PyTorch's gradient takes the factor for a whole matrix, not for a triangle."""
    return linalg.solve(pb.matmul(factor.mT, factor) if upper else pb.matmul(factor, factor.mT), b)


def cholesky_inverse(factor, *, upper=False):
    return linalg.inv(pb.matmul(factor.mT, factor) if upper else pb.matmul(factor, factor.mT))


def packed_lu(x, *_, **options):
    """Both triangles in one matrix, without the ones on the diagonal."""
    _, lower, upper = linalg.lu(x)
    (m, n), k = x.shape[-2:], min(x.shape[-2:])
    around = [(0, 0)] * (x.ndim - 2)
    below = pb.pad(pb.tril(lower, k=-1), [*around, (0, 0), (0, n - k)])
    return below + pb.pad(upper, [*around, (0, m - k), (0, 0)])


def unpacked_lu(packed, pivots, **options):
    k = min(packed.shape[-2:])
    return [pb.tril(packed[..., :k], k=-1) + np.eye(packed.shape[-2], k), pb.triu(packed[..., :k, :])]


def order_of(pivots):
    """The order of rows that a list of exchanges, counted from one, makes."""
    pivots = np.asarray(pivots)
    orders = np.broadcast_to(np.arange(pivots.shape[-1]), pivots.shape).copy()
    for index in np.ndindex(pivots.shape[:-1]):
        for i, j in enumerate(pivots[index] - 1):
            orders[index][[i, j]] = orders[index][[j, i]]
    return orders


def lu_solve(packed, pivots, b, *, left=True, adjoint=False):
    """a x = b, a^T x = b or x a = b with a = P L U."""
    if not left:
        return lu_solve(packed, pivots, b.mT, adjoint=not adjoint).mT
    order = order_of(pivots)
    if adjoint:
        first = linalg.triangular_solve(packed, b, trans="T")
        last = linalg.triangular_solve(packed, first, trans="T", lower=True, unit_diagonal=True)
        return rows(last, np.argsort(order, axis=-1))
    first = linalg.triangular_solve(packed, rows(b, order), lower=True, unit_diagonal=True)
    return linalg.triangular_solve(packed, first)


def rows(x, order):
    batch = np.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    x = pb.broadcast_to(x, (*batch, *x.shape[-2:]))
    return pb.take_along_axis(x, np.broadcast_to(order[..., None], x.shape), axis=-2)


def ormqr(h, tau, c, *, left=True, transpose=False):
    """c multiplied by the product of reflections, from either side."""
    m = h.shape[-2]
    h = h[..., : tau.shape[-1]]
    q = linalg.householder_product(pb.pad(h, [(0, 0)] * (h.ndim - 1) + [(0, m - h.shape[-1])]), tau)
    q = q.mT if transpose else q
    return pb.matmul(q, c) if left else pb.matmul(c, q)


def norm(x, ord=None, dim=None, keepdim=False):
    """`linalg.norm`: without `dim`, an order asks for a vector or a matrix."""
    dim = tuple(dim) if isinstance(dim, list) else dim
    if ord is None and dim is not None:
        return linalg.vector_norm(x, axis=dim, keepdims=keepdim)
    return linalg.norm(x, ord, dim, keepdim)


def old_norm(x, p="fro", dim=None, keepdim=False):
    """`torch.norm`: flattens where no axes are named."""
    if p == "nuc":
        return linalg.norm(x, "nuc", tuple(dim) if dim else None, keepdim)
    return linalg.vector_norm(x, ord=2 if p in ("fro", None) else p, axis=axes(x, dim), keepdims=keepdim)


def matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False):
    return linalg.norm(x, ord, tuple(dim), keepdim)


def vector_norm(x, ord=2, dim=None, keepdim=False):
    return linalg.vector_norm(x, ord=ord, axis=axes(x, dim), keepdims=keepdim)


def pinv(x, *, rtol=None, hermitian=False, atol=None):
    return linalg.pinv(x, rtol=rtol, hermitian=hermitian)


def cross(x, y, *, dim=-1):
    return linalg.cross(x, y, axis=dim)


def log_determinant(x):
    sign, size = linalg.slogdet(x)
    return pb.where(sign < 0, np.nan, size)


def transformed(function):
    """A Fourier transform along one axis."""
    return lambda x, n=None, dim=-1, norm=None: function(x, n, dim, norm)


def transformed_in_two(function):
    return lambda x, s=None, dim=(-2, -1), norm=None: function(x, s, listed(dim), norm)


def transformed_in_many(function):
    return lambda x, s=None, dim=None, norm=None: function(x, s, listed(dim), norm)


def listed(dim):
    return dim if dim is None else tuple(dim) if isinstance(dim, list | tuple) else (dim,)


OPPOSITE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def hermitian_transform(x, s=None, dim=None, norm=None):
    """`hfftn`: the half that is given is conjugated, and the scale stands on the other side."""
    return pb.fft.irfftn(pb.conj(x), s, dim, OPPOSITE[norm])


def inverse_hermitian_transform(x, s=None, dim=None, norm=None):
    return pb.conj(pb.fft.rfftn(x, s, dim, OPPOSITE[norm]))


FOURIER = {
    **{f"fft.{name}": transformed(getattr(pb.fft, name)) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{name}": transformed_in_two(getattr(pb.fft, name)) for name in ("fft2", "ifft2", "rfft2", "irfft2")},
    **{f"fft.{name}": transformed_in_many(getattr(pb.fft, name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "fft.hfft2": transformed_in_two(hermitian_transform),
    "fft.hfftn": transformed_in_many(hermitian_transform),
    "fft.ihfft2": transformed_in_two(inverse_hermitian_transform),
    "fft.ihfftn": transformed_in_many(inverse_hermitian_transform),
    "fft.fftshift": lambda x, dim=None: pb.fft.fftshift(x, listed(dim)),
    "fft.ifftshift": lambda x, dim=None: pb.fft.ifftshift(x, listed(dim)),
}

LINALG = {
    "cholesky": lambda x, upper=False: linalg.cholesky(x, upper=upper),
    "linalg.cholesky": linalg.cholesky,
    "linalg.cholesky_ex": linalg.cholesky,
    "cholesky_inverse": cholesky_inverse,
    "cholesky_solve": cholesky_solve,
    "linalg.cond": linalg.cond,
    "linalg.cross": cross,
    "cross": cross,
    "linalg.det": linalg.det,
    "logdet": log_determinant,
    "linalg.slogdet": linalg.slogdet,
    "linalg.eig": absolute(linalg.eig),
    "linalg.eigh": absolute(linalg.eigh),
    "linalg.eigvals": linalg.eigvals,
    "linalg.eigvalsh": lambda x, UPLO="L": linalg.eigvalsh(told_by(x, UPLO)),
    "linalg.householder_product": linalg.householder_product,
    "linalg.inv": linalg.inv,
    "linalg.inv_ex": linalg.inv,
    "linalg.solve": solve,
    "linalg.solve_ex": solve,
    "linalg.solve_triangular": solve_triangular,
    "triangular_solve": old_triangular_solve,
    "linalg.lstsq": lstsq,
    "linalg.lu": lambda x, *, pivot=True: list(linalg.lu(x)[1:]),
    "linalg.lu_factor": packed_lu,
    "linalg.lu_factor_ex": packed_lu,
    "lu": packed_lu,
    "lu_unpack": unpacked_lu,
    "linalg.lu_solve": lu_solve,
    "lu_solve": lambda b, packed, pivots: lu_solve(packed, pivots, b),
    "linalg.matrix_norm": matrix_norm,
    "linalg.vector_norm": vector_norm,
    "linalg.norm": norm,
    "norm": old_norm,
    "dist": lambda x, y, p=2: linalg.vector_norm(x - y, ord=p),
    "linalg.matrix_power": linalg.matrix_power,
    "linalg.multi_dot": linalg.multi_dot,
    "linalg.vecdot": lambda x, y, *, dim=-1: linalg.vecdot(x, y, axis=dim),
    "matrix_exp": linalg.expm,
    "ormqr": ormqr,
    "linalg.pinv": pinv,
    "linalg.pinv:singular": lambda a, b: linalg.pinv(pb.matmul(a, b.mT)),
    "pinverse": linalg.pinv,
    "linalg.qr": lambda x, *, mode="reduced": linalg.qr(x, mode),
    "qr": lambda x, some=True: linalg.qr(x, "reduced" if some else "complete"),
    "linalg.svd": svd,
    "svd": svd,
    "linalg.svdvals": linalg.svdvals,
    "linalg.tensorinv": lambda x, *, ind: linalg.tensorinv(x, ind),
    "linalg.tensorsolve": lambda a, b, *, dims=None: linalg.tensorsolve(a, b, dims),
}
