"""Addresses of BLAS functions, and of those that get and set its number of threads.

It is SciPy's, unless `PULLBACK_BLAS` names the file of another one, such as MKL's.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
from contextlib import suppress
from typing import Any

from ....errors import ArgumentError

#: OpenBLAS's names for them, with SciPy's prefix or without, and with or without the suffix of 64-bit integers.
_NAMES = tuple(f"{prefix}openblas_%s_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("", "64_"))


def blas_address(name: str) -> int:
    """The address of a BLAS function."""
    library = _user_library()
    found = _find_address(library or _scipy_library(), name)
    if found:
        return found
    if library is not None:
        raise ArgumentError(f"PULLBACK_BLAS: {library._name} has no {name}_.\n  Name the file of a BLAS.")
    from scipy.linalg import cython_blas

    return capsule_address(cython_blas, name)


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
    """The library that the user named; None for SciPy's."""
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
    """The address of a function with Fortran's calling convention and 32-bit integers, zero if there is none."""
    # Fortran compilers append an underscore, and SciPy's build prepends its name
    for spelling in (f"{name}_", name, f"scipy_{name}_"):
        try:
            return ctypes.cast(getattr(library, spelling), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@functools.cache
def blas_thread_functions() -> tuple[int, int] | None:
    """The addresses of the functions that get and set the BLAS's number of threads; None if it has no known ones."""
    return find_thread_functions(_user_library() or _scipy_library())


@functools.cache
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
