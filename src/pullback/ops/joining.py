"""Arrays in, arrays put together or taken apart out, under the names NumPy gave them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import make_spec, spec_of, zeros
from ..errors import ArgumentError, ShapeError
from . import arranging, indexing, reducing, shaping
from .axes import one_axis
from .dispatch import as_value, ndim, shape

__all__ = [
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "broadcast_arrays", "column_stack", "diag",
    "diagflat", "dsplit", "dstack", "hsplit", "hstack", "trace", "vsplit", "vstack",
]  # fmt: skip


def _raised(arrays: Sequence[Any], raise_one: Callable[[Any], Any]) -> Any:
    found = tuple(raise_one(as_value(x)) for x in arrays)
    return found[0] if len(found) == 1 else found


def atleast_1d(*arys: Any) -> Any:
    """Numbers as vectors of one element, everything else as it is.

    >>> import pullback as pb
    >>> pb.atleast_1d(3.0)
    array([3.])
    """
    return _raised(arys, lambda x: x if ndim(x) else shaping.reshape(x, (1,)))


def atleast_2d(*arys: Any) -> Any:
    """Vectors as matrices of one row, everything else as it is.

    >>> import pullback as pb
    >>> pb.atleast_2d([3.0, 4.0]).shape
    (1, 2)
    """
    return _raised(arys, lambda x: x if ndim(x) > 1 else shaping.reshape(x, (1, -1)))


def atleast_3d(*arys: Any) -> Any:
    """Arrays with axes of size one added until there are three, a vector in the middle.

    >>> import numpy as np, pullback as pb
    >>> pb.atleast_3d(np.zeros((2, 3))).shape
    (2, 3, 1)
    """
    return _raised(
        arys, lambda x: x if ndim(x) > 2 else shaping.reshape(x, (*shape(x), 1) if ndim(x) == 2 else (1, -1, 1))
    )


def _listed(arrays: Any) -> list[Any]:
    return [as_value(x) for x in arrays]


@signed
def vstack(tup: Any) -> Any:
    """Arrays joined along the first axis, vectors as rows.

    >>> import pullback as pb
    >>> pb.vstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    return arranging.concat([atleast_2d(x) for x in _listed(tup)], axis=0)


@signed
def hstack(tup: Any) -> Any:
    """Arrays joined along the second axis, vectors along their only one.

    >>> import pullback as pb
    >>> pb.hstack([[1.0, 2.0], [3.0]])
    array([1., 2., 3.])
    """
    xs = [atleast_1d(x) for x in _listed(tup)]
    return arranging.concat(xs, axis=0 if xs and ndim(xs[0]) == 1 else 1)


@signed
def dstack(tup: Any) -> Any:
    """Arrays joined along the third axis.

    >>> import pullback as pb
    >>> pb.dstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (1, 2, 2)
    """
    return arranging.concat([atleast_3d(x) for x in _listed(tup)], axis=2)


@signed
def column_stack(tup: Any) -> Any:
    """Vectors as the columns of a matrix, matrices beside each other.

    >>> import pullback as pb
    >>> pb.column_stack([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 3.],
           [2., 4.]])
    """
    columns = [x if ndim(x) > 1 else shaping.reshape(x, (-1, 1)) for x in _listed(tup)]
    return arranging.concat(columns, axis=1)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ArgumentError("block: lists must not be empty.")
    depths = {_depth(part) for part in arrays}
    if len(depths) > 1:
        raise ArgumentError("block: the lists must be nested equally deep.")
    return 1 + depths.pop()


@signed
def block(arrays: Any) -> Any:
    """An array from nested lists of blocks: the innermost lists are joined along the last axis, and so on.

    >>> import numpy as np, pullback as pb
    >>> pb.block([[np.ones((1, 1)), np.zeros((1, 2))]]).shape
    (1, 3)
    """
    depth = _depth(arrays)
    leaves = [as_value(arrays)] if not depth else _leaves(arrays)
    rank = max(depth, *(ndim(x) for x in leaves))
    return _joined(arrays, depth, rank)


def _leaves(arrays: Any) -> list[Any]:
    if not isinstance(arrays, list):
        return [as_value(arrays)]
    return [leaf for part in arrays for leaf in _leaves(part)]


def _joined(arrays: Any, depth: int, rank: int) -> Any:
    if not depth:
        x = as_value(arrays)
        return shaping.reshape(x, (1,) * (rank - ndim(x)) + shape(x))
    return arranging.concat([_joined(part, depth - 1, rank) for part in arrays], axis=-depth)


def broadcast_arrays(*args: Any) -> Any:
    """The arrays stretched to one shape.

    >>> import numpy as np, pullback as pb
    >>> [x.shape for x in pb.broadcast_arrays(np.zeros((2, 1)), np.zeros(3))]
    [(2, 3), (2, 3)]
    """
    xs = _listed(args)
    wanted = np.broadcast_shapes(*(shape(x) for x in xs))
    return tuple(shaping.broadcast_to(x, wanted) for x in xs)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """x cut along an axis before the given indices, or into sections that differ in size by at most one.

    >>> import numpy as np, pullback as pb
    >>> [len(part) for part in pb.array_split(np.arange(5), 3)]
    [2, 2, 1]
    """
    x = as_value(ary)
    axis = one_axis(axis, ndim(x), "array_split")
    if np.ndim(indices_or_sections):
        return arranging.split(x, indices_or_sections, axis=axis)
    count = int(indices_or_sections)
    if count < 1:
        raise ArgumentError(f"array_split: wants at least one section, got {count}.")
    size, longer = divmod(shape(x)[axis], count)
    sizes = [size + 1] * longer + [size] * (count - longer)
    return arranging.split(x, list(itertools.accumulate(sizes))[:-1], axis=axis)


def _split_along(name: str, least: int, axis: int) -> Any:
    def splitter(ary: Any, indices_or_sections: Any) -> list[Any]:
        x = as_value(ary)
        if ndim(x) < least:
            raise ShapeError(f"{name}: wants {least} axes or more, got shape {shape(x)}.")
        return arranging.split(x, indices_or_sections, axis=0 if name == "hsplit" and ndim(x) == 1 else axis)

    splitter.__name__ = splitter.__qualname__ = name
    splitter.__doc__ = f"""x cut along axis {axis}, into equal sections or before the given indices.

    >>> import numpy as np, pullback as pb
    >>> [part.shape for part in pb.{name}(np.zeros((2, 2, 2)), 2)][0][{axis}]
    1
    """
    return splitter


hsplit, vsplit, dsplit = _split_along("hsplit", 1, 1), _split_along("vsplit", 2, 0), _split_along("dsplit", 3, 2)


@signed
def diag(v: Any, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix that has a vector on it.

    >>> import pullback as pb
    >>> pb.diag([1.0, 2.0])
    array([[1., 0.],
           [0., 2.]])
    """
    x = as_value(v)
    if ndim(x) == 2:
        return arranging.diagonal(x, offset=k)
    if ndim(x) != 1:
        raise ShapeError(f"diag: wants a vector or a matrix, got shape {shape(x)}.")
    size = shape(x)[0] + abs(k)
    empty = zeros(make_spec((size, size), spec_of(x).dtype, spec_of(x).device))
    steps = np.arange(shape(x)[0])
    return indexing.set_at(empty, (steps + max(-k, 0), steps + max(k, 0)), x)


def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix that has the flattened array on its k-th diagonal.

    >>> import pullback as pb
    >>> pb.diagflat([[1.0]], 1).shape
    (2, 2)
    """
    return diag(shaping.reshape(as_value(v), (-1,)), k)


@signed
def trace(x: Any, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of a diagonal over two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.trace(np.eye(3))
    array(3.)
    """
    return reducing.sum(arranging.diagonal(x, offset=offset, axis1=axis1, axis2=axis2), axis=-1, dtype=dtype)
