"""Addresses of LAPACK's functions: NumPy's own, so that factors have the same signs as in eager calls, else SciPy's."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from .blas import Functions, capsule_address, find_in_numpy

#: The functions that native code calls, each in single and double precision; the last two are the BLAS's.
FUNCTIONS = (
    "potrf", "gesv", "getrf", "geqrf", "orgqr", "syevd", "sytrd", "stedc", "gesdd", "gebrd", "bdsdc", "trsm", "trsv",
)  # fmt: skip


@functools.cache
def find_lapack() -> Functions:
    names = [f"{kind}{name}" for name in FUNCTIONS for kind in "sd"]
    return find_in_numpy(names) or Functions(_scipy_addresses(names), np.dtype(np.int32))


def _scipy_addresses(names: list[str]) -> dict[str, int]:
    from scipy.linalg import cython_blas, cython_lapack

    modules = {name: cython_blas if name in cython_blas.__pyx_capi__ else cython_lapack for name in names}
    return {name: capsule_address(module, name) for name, module in modules.items()}


@functools.cache
def query_workspace(name: str, dtype: np.dtype[Any], *args: Any) -> int:
    """How many elements of workspace a function wants: called with the length -1 it only says that. `args` are those
    before the workspace, None for arrays.
    """
    lapack = find_lapack()
    given: list[Any] = [
        None if a is None else np.frombuffer(a.encode(), np.uint8) if type(a) is str else np.array(a, lapack.integer)
        for a in args
    ]
    # the length, then up to three integers, of which one is a length too
    work, rest = np.zeros(1, dtype), [np.full(1, -1, lapack.integer) for _ in range(4)]
    arrays = [*given, work, *rest]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(lapack.addresses[function_name(name, dtype)])
    function(*(None if a is None else a.ctypes.data for a in arrays))
    # rounded in single precision
    return math.ceil(float(work[0]) * (1 + 4 * float(np.finfo(dtype).eps)))


def function_name(name: str, dtype: np.dtype[Any]) -> str:
    """LAPACK's name of a function for a dtype."""
    return ("s" if dtype.itemsize == 4 else "d") + name
