"""Linear algebra under NumPy's names, and SciPy's where NumPy has none: `pb.linalg`."""

from ...public_names import explain_missing_names
from ..contract.matrix_products import matmul, tensordot
from ..shape.reshaping import matrix_transpose
from .determinants import Slogdet, det, matrix_power, slogdet
from .eigen import Eig, Eigh, eig, eigh, eigvals, eigvalsh
from .factorizations import QR, cholesky, householder_product, lu, qr
from .indefinite import LDL, ldl_factor, ldl_solve
from .linear_systems import inv, solve, solve_triangular, tensorinv, tensorsolve, triangular_solve
from .matrix_functions import expm, logm, sqrtm
from .norms import cond, matrix_norm, norm, vector_norm
from .products import cross, diagonal, multi_dot, outer, trace, vecdot
from .pseudoinverse import lstsq, matrix_rank, pinv
from .singular import SVD, svd, svdvals

__all__ = [
    "Eig", "Eigh", "LDL", "QR", "SVD", "Slogdet", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "expm", "householder_product", "inv", "ldl_factor", "ldl_solve", "logm", "lstsq", "lu",
    "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "solve_triangular", "sqrtm", "svd", "svdvals", "tensordot", "tensorinv",
    "tensorsolve", "trace", "triangular_solve", "vecdot", "vector_norm",
]  # fmt: skip
explain_missing_names(__name__, "linalg")
