"""Addresses of LAPACK's functions: NumPy's own, so that factors have the same signs as in eager calls, else SciPy's."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .blas import capsule_address

#: The functions that native code calls, each in single and double precision; the last two are the BLAS's.
FUNCTIONS = (
    "potrf", "gesv", "getrf", "geqrf", "orgqr", "syevd", "sytrd", "stedc", "gesdd", "gebrd", "bdsdc", "trsm", "trsv",
)  # fmt: skip
#: How libraries spell the name of a function with 64-bit integers, and with 32-bit ones.
_SPELLINGS: dict[np.dtype[Any], tuple[str, ...]] = {
    np.dtype(np.int64): ("scipy_{}_64_", "{}_64_", "{}64_", "{}$NEWLAPACK$ILP64"),
    np.dtype(np.int32): ("scipy_{}_", "{}_", "{}$NEWLAPACK"),
}


@dataclass(frozen=True, slots=True)
class Lapack:
    """The addresses of functions by their names, and the dtype of the integers that they take."""

    addresses: dict[str, int]
    integer: np.dtype[Any]


@functools.cache
def find_lapack() -> Lapack:
    names = [f"{kind}{name}" for name in FUNCTIONS for kind in "sd"]
    library = ctypes.CDLL(np.linalg._umath_linalg.__file__)  # also searches what it was linked to
    for integer, spellings in _SPELLINGS.items():
        for spelling in spellings:
            found = {name: _address_in(library, spelling.format(name)) for name in names}
            if all(found.values()):
                return Lapack(found, integer)
    return Lapack(_scipy_addresses(names), np.dtype(np.int32))


def _address_in(library: ctypes.CDLL, name: str) -> int:
    """Zero where the library has no such function."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


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
