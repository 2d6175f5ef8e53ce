"""NumPy's in-place functions with NumPy's signatures: a tensor is rebound to the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ..concrete import as_bare_array
from ..dispatch import as_value, shape
from ..elementwise import pointwise
from ..index import indexing
from ..shape import reshaping
from .unsupported import unsupported_error


def write_in_place(target: Any, found: Any, name: str) -> Any:
    """An in-place function of NumPy: rebinds a tensor to the result."""
    if not isinstance(target, Tensor):
        raise unsupported_error(f"{name} into a bare array")
    return target.rebind(found, f"np.{name}")


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    found = reshaping.broadcast_to(as_value(src), shape(dst))
    if not np.can_cast(spec_of(found).dtype, spec_of(dst).dtype, casting=casting):
        given, wanted = spec_of(found).dtype, spec_of(dst).dtype
        raise ArgumentError(f"copyto: {given} cannot be cast to {wanted} with casting={casting!r}.")
    write_in_place(dst, found if where is True else pointwise.where(where, found, dst), "copyto")


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    size = spec_of(as_value(a)).size
    places = as_bare_array(ind, "put").ravel()
    places = places % size if mode == "wrap" else np.clip(places, 0, size - 1) if mode == "clip" else places
    if not places.size:
        return
    flat = reshaping.reshape(as_value(v), (-1,))
    values = indexing.take(flat, np.arange(places.size) % shape(flat)[0])
    found = indexing.set_at(reshaping.reshape(as_value(a), (-1,)), places, values)
    write_in_place(a, reshaping.reshape(found, shape(a)), "put")


def place(arr: Any, mask: Any, vals: Any) -> None:
    chosen = np.flatnonzero(as_bare_array(mask, "place"))
    put(arr, chosen, vals)


def putmask(a: Any, /, mask: Any, values: Any) -> None:
    flat = reshaping.reshape(as_value(values), (-1,))
    repeated = indexing.take(flat, np.arange(spec_of(a).size) % shape(flat)[0])
    write_in_place(a, pointwise.where(mask, reshaping.reshape(repeated, shape(a)), a), "putmask")


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if axis is None:
        flat = indexing.put_along_axis(reshaping.reshape(arr, (-1,)), indices, values, axis=0)
        write_in_place(arr, reshaping.reshape(flat, shape(arr)), "put_along_axis")
        return
    write_in_place(arr, indexing.put_along_axis(arr, indices, values, axis=axis), "put_along_axis")


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = as_value(a)
    places = np.arange(spec_of(x).size).reshape(shape(x))
    marks = np.zeros(shape(x), bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    put(a, places[marks], val)
