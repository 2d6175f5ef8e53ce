"""Inserting, deleting, resizing and combining elements, by NumPy's names; results are new arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ..axes import as_integer, as_shape, normalize_axes, normalize_axis
from ..dispatch import as_value, ndim, shape
from ..index import indexing
from ..index.normalize import concrete_mask, namespace_for
from ..placement import as_value_beside
from ..signatures import of_array, of_many_arrays, of_mixed_arrays
from . import arrange, reshaping
from .stack_split import meshgrid, ravel


@of_mixed_arrays
@attributed_to_caller
def append(x: Any, values: Any, /, axis: int | None = None) -> Any:
    """Values joined to the end of x along an axis; without `axis`, both flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.append(np.array([1, 2]), 3)
    array([1, 2, 3])
    """
    x = as_value(x)
    values = as_value_beside(x, values)
    if axis is None:
        return arrange.concat([ravel(x), ravel(values)], axis=0)
    return arrange.concat([x, values], axis=axis)


@of_array
@attributed_to_caller
def delete(x: Any, which: Any, /, axis: int | None = None) -> Any:
    """x without the slices that an index, a slice or a mask names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.delete(np.array([1, 2, 3]), 1)
    array([1, 3])
    """
    x = as_value(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis(axis, ndim(x), "delete")
    which = which if isinstance(which, slice) else concrete_mask(as_value(which))
    try:
        left = np.delete(np.arange(shape(x)[axis]), which)
    except (IndexError, ValueError) as error:
        raise IndexingError(f"delete: {error}.") from None
    return indexing.take(x, left, axis=axis)


@of_mixed_arrays
@attributed_to_caller
def insert(x: Any, before: Any, values: Any, /, axis: int | None = None) -> Any:
    """x with values inserted before the given indices along an axis; without `axis`, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.insert(np.array([1, 2, 3]), 1, 9)
    array([1, 9, 2, 3])
    """
    x = as_value(x)
    values = as_value_beside(x, values)
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis(axis, ndim(x), "insert")
    values = reshaping.astype(values, spec_of(x).dtype)
    indices = np.asarray(concrete_mask(as_value(before))) if not isinstance(before, slice) else before
    size = shape(x)[axis]
    if isinstance(indices, slice):
        indices = np.arange(size)[indices]
    elif indices.dtype.kind == "b":
        indices = np.flatnonzero(indices)
    values = reshaping.reshape(values, (1,) * (ndim(x) - ndim(values)) + shape(values))
    values = values if indices.ndim else reshaping.moveaxis(values, 0, axis)
    count = len(indices) if indices.size != 1 else shape(values)[axis]
    try:  # where old and new elements end up, found on their indices
        marks = np.insert(np.arange(size), indices, np.arange(-count, 0))
    except (IndexError, ValueError) as error:
        raise IndexingError(f"insert: {error}.") from None
    wanted = (*shape(x)[:axis], len(marks), *shape(x)[axis + 1 :])
    at = (*(slice(None),) * axis, np.flatnonzero(marks >= 0))
    new = (*(slice(None),) * axis, np.argsort(marks)[:count])
    blank = namespace_for(x).zeros(wanted, spec_of(x).dtype)
    return indexing.set_at(indexing.set_at(blank, at, x), new, values)


@of_array
@attributed_to_caller
def resize(x: Any, new_shape: Any, /) -> Any:
    """The elements in another shape, repeated where it is larger, truncated where it is smaller.

    >>> import numpy as np, pullback as pb
    >>> pb.resize(np.array([1, 2, 3]), (2, 2))
    array([[1, 2],
           [3, 1]])
    """
    x = ravel(x)
    wanted = as_shape(new_shape, "resize")
    if any(n < 0 for n in wanted):
        raise ArgumentError(f"resize: shape {wanted} must not hold a negative number.")
    if not shape(x)[0]:
        return namespace_for(x).zeros(wanted, spec_of(x).dtype)
    return reshaping.reshape(indexing.take(x, np.arange(math.prod(wanted)) % shape(x)[0]), wanted)


@of_array
@attributed_to_caller
def trim_zeros(x: Any, /, trim: str = "fb", axis: Any = None) -> Any:
    """x without the zeros around it, at the front ("f"), the back ("b") or both ("fb"), along some axes or all.

    >>> import numpy as np, pullback as pb
    >>> pb.trim_zeros(np.array([0, 1, 2, 0]))
    array([1, 2])
    """
    x = as_value(x)
    trim = trim.lower()
    if trim not in ("f", "b", "fb", "bf"):
        raise ArgumentError(f"trim_zeros: trim must be f, b or fb, got {trim!r}.")
    places = np.argwhere(concrete_mask(x) != 0)
    axes = normalize_axes(axis, ndim(x), "trim_zeros")
    index = []
    for a, size in enumerate(shape(x)):
        low, high = (int(places[:, a].min()), int(places[:, a].max()) + 1) if len(places) else (size, size)
        index.append(slice(low if "f" in trim else 0, high if "b" in trim else size) if a in axes else slice(None))
    if not len(places):
        index = [slice(0, 0) if a in axes else slice(None) for a in range(ndim(x))]
    return indexing.getitem(x, tuple(index))


@of_many_arrays
@attributed_to_caller
def cartesian_prod(*vectors: Any) -> Any:
    """Every choice of one element from each vector, one row for each.

    >>> import numpy as np, pullback as pb
    >>> pb.cartesian_prod(np.array([1, 2]), np.array([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    grids = meshgrid(*vectors, indexing="ij")
    if len(grids) == 1:
        return grids[0]
    return arrange.stack([ravel(g) for g in grids], axis=1)


@of_array
@attributed_to_caller
def combinations(x: Any, /, r: int = 2, with_replacement: bool = False) -> Any:
    """Every choice of r elements of a vector in its order, one row for each.

    >>> import numpy as np, pullback as pb
    >>> pb.combinations(np.array([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    x = as_value(x)
    if ndim(x) != 1:
        raise ShapeError(f"combinations: wants a vector, got shape {shape(x)}.")
    r = as_integer(r, "combinations: r")
    if r < 0:
        raise ArgumentError(f"combinations: r must not be negative, got {r}.")
    places = np.indices((shape(x)[0],) * r).reshape(r, -1).T
    later = places[:, 1:] >= places[:, :-1] if with_replacement else places[:, 1:] > places[:, :-1]
    return indexing.take(x, places[later.all(axis=1)])
