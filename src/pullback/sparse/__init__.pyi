# The public names of `pullback.sparse` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .array import SparseArray as SparseArray
from .constructors import (
    bsr as bsr, coo as coo, csc as csc, csr as csr, diagonal as diagonal, from_dense as from_dense,
    from_scipy as from_scipy,
)
from .derivatives import hessian as hessian, jacobian as jacobian
from .pattern import Pattern as Pattern
from .systems import solve as solve
from ..tape.row_sparse import RowSparse as RowSparse
