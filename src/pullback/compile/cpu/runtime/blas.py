"""Addresses of BLAS functions, and of those that get and set its number of threads.

It is NumPy's own, so that products are those of eager calls and no second BLAS is loaded, or SciPy's where NumPy has
none; unless `PULLBACK_BLAS` names the file of another one, such as MKL's.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ArgumentError

#: The BLAS's functions that native code calls for products.
PRODUCTS = ("sgemm", "dgemm", "sgemv", "dgemv")
#: OpenBLAS's names for them, with SciPy's prefix or without, and with or without the suffix of 64-bit integers.
_NAMES = tuple(f"{prefix}openblas_%s_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("", "64_"))
#: The same for what tells which processor OpenBLAS takes this one for, and those whose kernels have half the width of
#: the widest vectors. A processor that it does not know is taken for one of them.
_CORE_NAMES = tuple(name.replace("%s_num_threads", "get_corename") for name in _NAMES)
_NARROW_CORES = frozenset((b"Haswell", b"Zen", b"Sandybridge"))
#: How libraries spell the name of a function with 64-bit integers, and with 32-bit ones.
_SPELLINGS: dict[np.dtype[Any], tuple[str, ...]] = {
    np.dtype(np.int64): ("scipy_{}_64_", "{}_64_", "{}64_", "{}$NEWLAPACK$ILP64"),
    np.dtype(np.int32): ("scipy_{}_", "{}_", "{}$NEWLAPACK"),
}


@dataclass(frozen=True, slots=True)
class Functions:
    """The addresses of functions by their names, and the dtype of the integers that they take."""

    addresses: dict[str, int]
    integer: np.dtype[Any]


@functools.cache
def find_products() -> Functions:
    """The functions that compute matrix products."""
    library = _user_library()
    if library is not None:
        return Functions({name: _find_address(library, name) for name in PRODUCTS}, np.dtype(np.int32))
    found = find_in_numpy(PRODUCTS)
    if found is not None:
        return found
    from scipy.linalg import cython_blas

    return Functions({name: capsule_address(cython_blas, name) for name in PRODUCTS}, np.dtype(np.int32))


def find_in_numpy(names: Sequence[str]) -> Functions | None:
    """Functions of the BLAS and LAPACK that NumPy is linked to; None where it lacks one."""
    library = _numpy_library()
    for integer, spellings in _SPELLINGS.items():
        for spelling in spellings:
            found = {name: _address_in(library, spelling.format(name)) for name in names}
            if all(found.values()):
                return Functions(found, integer)
    return None


def _numpy_library() -> ctypes.CDLL:
    return ctypes.CDLL(np.linalg._umath_linalg.__file__)  # also searches what it was linked to


def _address_in(library: ctypes.CDLL, name: str) -> int:
    """Zero where the library has no such function."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def capsule_address(module: Any, name: str) -> int:
    """The address of a function that a module of SciPy exports in a capsule."""
    capsules: dict[str, Any] = dict(module.__pyx_capi__)
    capsule = capsules[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address: int = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return address


@functools.cache
def _user_library() -> ctypes.CDLL | None:
    """The library that the user named; None for NumPy's."""
    path = os.environ.get("PULLBACK_BLAS")
    if not path:
        return None
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ArgumentError(
            f"PULLBACK_BLAS: {path!r} cannot be loaded: {error}.\n  Name the file of a BLAS, or unset the variable."
        ) from None


def _find_address(library: ctypes.CDLL, name: str) -> int:
    """The address of a function with Fortran's calling convention and 32-bit integers."""
    # Fortran compilers append an underscore, and SciPy's build prepends its name
    for spelling in (f"{name}_", name, f"scipy_{name}_"):
        if address := _address_in(library, spelling):
            return address
    raise ArgumentError(f"PULLBACK_BLAS: {library._name} has no {name}_.\n  Name the file of a BLAS.")


@functools.cache
def blas_thread_functions() -> tuple[int, int] | None:
    """The addresses of the functions that get and set the BLAS's number of threads; None if it has no known ones."""
    return find_thread_functions(_library_in_use())


@functools.cache
def has_narrow_kernels() -> bool:
    """Whether the BLAS is known to use vectors of half the width that this processor may have."""
    library = _library_in_use()
    for name in _CORE_NAMES:
        with suppress(AttributeError):
            core_name = getattr(library, name)
            core_name.restype = ctypes.c_char_p
            return core_name() in _NARROW_CORES
    return False


def _library_in_use() -> ctypes.CDLL:
    named = _user_library()
    if named is not None:
        return named
    return _scipy_library() if find_in_numpy(PRODUCTS) is None else _numpy_library()


def _scipy_library() -> ctypes.CDLL:
    """SciPy's extension module of the BLAS as a library, which also searches what it was linked to. SciPy itself, which
    takes a tenth of a second to import, is only asked where it lies.
    """
    package = importlib.util.find_spec("scipy")
    for folder in package.submodule_search_locations or () if package is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(folder, "linalg", f"cython_blas{suffix}")
            with suppress(OSError):
                return ctypes.CDLL(path)
    from scipy.linalg import cython_blas

    return ctypes.CDLL(cython_blas.__file__)


def find_thread_functions(library: ctypes.CDLL) -> tuple[int, int] | None:
    """The same for a library: an extension module resolves names of the BLAS that it was linked to."""
    for name in _NAMES:
        try:
            found = getattr(library, name % "get"), getattr(library, name % "set")
        except AttributeError:
            continue
        say, to = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found)
        return say, to
    return None
