"""NumPy's functions that work in place, by NumPy's signatures: a tensor is pointed at the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from .. import elementwise as pointwise
from .. import indexing, shaping
from ..dispatch import as_value, shape
from ..known import bare
from .refusing import unknown


def written(target: Any, found: Any, name: str) -> Any:
    """A function that NumPy lets work in place: on a tensor it points the tensor at the result."""
    if not isinstance(target, Tensor):
        raise unknown(f"{name} into a bare array")
    return target.rebind(found, f"np.{name}")


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    found = shaping.broadcast_to(as_value(src), shape(dst))
    if not np.can_cast(spec_of(found).dtype, spec_of(dst).dtype, casting=casting):
        raise ArgumentError(f"copyto: {spec_of(found).dtype} does not become {spec_of(dst).dtype} by {casting!r}.")
    written(dst, found if where is True else pointwise.where(where, found, dst), "copyto")


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    size = spec_of(as_value(a)).size
    places = bare(ind, "put").ravel()
    places = places % size if mode == "wrap" else np.clip(places, 0, size - 1) if mode == "clip" else places
    if not places.size:
        return
    flat = shaping.reshape(as_value(v), (-1,))
    values = indexing.take(flat, np.arange(places.size) % shape(flat)[0])
    found = indexing.set_at(shaping.reshape(as_value(a), (-1,)), places, values)
    written(a, shaping.reshape(found, shape(a)), "put")


def place(arr: Any, mask: Any, vals: Any) -> None:
    chosen = np.flatnonzero(bare(mask, "place"))
    put(arr, chosen, vals)


def putmask(a: Any, /, mask: Any, values: Any) -> None:
    flat = shaping.reshape(as_value(values), (-1,))
    repeated = indexing.take(flat, np.arange(spec_of(a).size) % shape(flat)[0])
    written(a, pointwise.where(mask, shaping.reshape(repeated, shape(a)), a), "putmask")


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if axis is None:
        flat = indexing.put_along_axis(shaping.reshape(arr, (-1,)), indices, values, axis=0)
        written(arr, shaping.reshape(flat, shape(arr)), "put_along_axis")
        return
    written(arr, indexing.put_along_axis(arr, indices, values, axis=axis), "put_along_axis")


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = as_value(a)
    places = np.arange(spec_of(x).size).reshape(shape(x))
    marks = np.zeros(shape(x), bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    put(a, places[marks], val)
