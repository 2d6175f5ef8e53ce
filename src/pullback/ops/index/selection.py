"""Selecting and replacing elements by masks or indices: composites of indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import DtypeError, IndexingError, ShapeError
from ..axes import as_integer, normalize_axis
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..families import broadcast_shape
from ..shape import arrange, reshaping
from ..signatures import of_array, of_mixed_arrays, of_two_arrays, to_tuple
from . import indexing
from .normalize import concrete_mask, namespace_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


def _check_mask(mask: Any, what: str) -> Any:
    mask = as_value(mask)
    if spec_of(mask).dtype.kind != "b":
        raise DtypeError(f"{what}: the mask must be of booleans, got {spec_of(mask).dtype}.")
    return mask


@of_two_arrays
@attributed_to_caller
def masked_select(x: Any, mask: Any, /) -> Any:
    """The elements of x where a mask holds, as a vector; the two broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.masked_select(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    array([1., 3.])
    """
    x, mask = as_value(x), _check_mask(mask, "masked_select")
    wanted = broadcast_shape("masked_select", shape(x), shape(mask))
    known = namespace_for(x).broadcast_to(concrete_mask(mask), wanted)
    return reshaping.reshape(indexing.getitem(reshaping.broadcast_to(x, wanted), known), (-1,))


@of_mixed_arrays
@attributed_to_caller
def masked_fill(x: Any, mask: Any, value: Any, /) -> Any:
    """x with one value where a mask holds.

    >>> import numpy as np, pullback as pb
    >>> pb.masked_fill(np.array([1.0, 2.0]), np.array([True, False]), 0.0)
    array([0., 2.])
    """
    x, value = as_value(x), as_value(value)
    if ndim(value):
        raise ShapeError(f"masked_fill: wants one value, got shape {shape(value)}.\n  Use pb.where.")
    return pointwise.where(_check_mask(mask, "masked_fill"), reshaping.astype(value, spec_of(x).dtype), x)


@of_mixed_arrays
@attributed_to_caller
def masked_scatter(x: Any, mask: Any, values: Any, /) -> Any:
    """x with the values, in order, where a mask holds.

    >>> import numpy as np, pullback as pb
    >>> pb.masked_scatter(np.zeros(3), np.array([True, False, True]), np.array([5.0, 7.0]))
    array([5., 0., 7.])
    """
    x, values = as_value(x), as_value(values)
    mask = _check_mask(mask, "masked_scatter")
    wanted = broadcast_shape("masked_scatter", shape(x), shape(mask))
    known = namespace_for(x).broadcast_to(concrete_mask(mask), wanted)
    count = int(known.sum())
    if spec_of(values).size < count:
        raise ShapeError(f"masked_scatter: the mask selects {count} elements, got {spec_of(values).size} values.")
    taken = indexing.getitem(reshaping.reshape(values, (-1,)), slice(0, count))
    return indexing.set_at(reshaping.broadcast_to(x, wanted), known, taken)


@of_two_arrays
@attributed_to_caller
def compress(condition: Any, x: Any, /, axis: int | None = None) -> Any:
    """The slices of x along an axis where a condition holds; without `axis`, of the flattened array.

    >>> import numpy as np, pullback as pb
    >>> pb.compress([True, False, True], np.array([1.0, 2.0, 3.0]))
    array([1., 3.])
    """
    x, known = as_value(x), concrete_mask(as_value(condition))
    if known.ndim != 1:
        raise ShapeError(f"compress: the condition must have one axis, got shape {known.shape}.")
    xp = namespace_for(x)
    return indexing.take(x, xp.nonzero(xp.asarray(known))[0], axis=axis)


@of_two_arrays
@attributed_to_caller
def extract(condition: Any, x: Any, /) -> Any:
    """The elements of the flattened x where the flattened condition holds.

    >>> import numpy as np, pullback as pb
    >>> pb.extract(np.array([True, False, True]), np.array([1.0, 2.0, 3.0]))
    array([1., 3.])
    """
    known = concrete_mask(as_value(condition))
    return compress(known.reshape(-1) != 0, x)


@to_tuple
def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The indices of the elements that are not zero, one array for each axis.

    >>> import numpy as np, pullback as pb
    >>> pb.nonzero(np.array([0.0, 3.0, 4.0]))
    (array([1, 2]),)
    """
    x = as_value(x)
    if not ndim(x):
        raise ShapeError("nonzero: a 0-d array has no axis to count along.\n  Use pb.reshape(x, (1,)).")
    return tuple(namespace_for(x).nonzero(concrete_mask(x)))


@of_array
def argwhere(x: Any, /) -> Any:
    """The indices of the elements that are not zero, one row for each.

    >>> import numpy as np, pullback as pb
    >>> pb.argwhere(np.array([0.0, 3.0, 4.0]))
    array([[1],
           [2]])
    """
    return namespace_for(as_value(x)).argwhere(concrete_mask(as_value(x)))


@of_array
def flatnonzero(x: Any, /) -> Any:
    """The indices of the elements of the flattened x that are not zero.

    >>> import numpy as np, pullback as pb
    >>> pb.flatnonzero(np.array([[0, 1], [1, 0]]))
    array([1, 2])
    """
    return nonzero(reshaping.reshape(as_value(x), (-1,)))[0]


@of_mixed_arrays
@attributed_to_caller
def put(x: Any, indices: Any, values: Any, /, mode: str = "raise", *, accumulate: bool = False) -> Any:
    """A new array: x with values written (or added) at indices of the flattened array, repeated as needed.

    >>> import numpy as np, pullback as pb
    >>> pb.put(np.zeros((2, 2)), [0, 3], [5.0, 7.0])
    array([[5., 0.],
           [0., 7.]])
    """
    x, indices = as_value(x), reshaping.reshape(as_value(indices), (-1,))
    values = reshaping.reshape(as_value(values), (-1,))
    if spec_of(indices).dtype.kind not in "iu" and spec_of(indices).size:
        raise IndexingError(f"put: indices must be integers, got {spec_of(indices).dtype}.")
    count, given = shape(indices)[0], shape(values)[0]
    if not count:
        return reshaping.pass_through(x)
    if not given:
        raise ShapeError(f"put: no values for {count} indices.")
    if given != count:
        values = indexing.take(values, np.arange(count) % given)
    flat = reshaping.reshape(x, (-1,))
    write = indexing.add_at if accumulate else indexing.set_at
    return reshaping.reshape(
        write(flat, (indexing.fit_indices(indices, shape(flat)[0], mode, "put"),), values), shape(x)
    )


@of_mixed_arrays
@attributed_to_caller
def place(x: Any, mask: Any, values: Any, /) -> Any:
    """A new array: x with values, repeated as needed, where a mask holds.

    >>> import numpy as np, pullback as pb
    >>> pb.place(np.zeros(3), np.array([True, True, False]), [5.0])
    array([5., 5., 0.])
    """
    return put(x, flatnonzero(mask), values)


@overload
def choose(indices: Any, choices: Sequence[V], /, mode: str = "raise") -> V: ...
@overload
def choose(indices: Plain, choices: Plain, /, mode: str = "raise") -> NDArray[Any]: ...
@overload
def choose(indices: Any, choices: Any, /, mode: str = "raise") -> Any: ...
@attributed_to_caller
def choose(indices: Any, choices: Any, /, mode: str = "raise") -> Any:
    """Each element from the array that its index selects; all broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.choose(np.array([1, 0]), [np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    array([3., 2.])
    """
    indices = as_value(indices)
    if isinstance(choices, (list, tuple)):
        parts = [as_value(c) for c in choices]
    else:
        parts = [indexing.getitem(choices, i) for i in range(shape(choices)[0])]
    if spec_of(indices).dtype.kind not in "iu":
        raise IndexingError(f"choose: indices must be integers, got {spec_of(indices).dtype}.")
    together = reshaping.broadcast_together(indexing.fit_indices(indices, len(parts), mode, "choose"), *parts)
    stacked = arrange.stack(together[1:])
    if mode == "raise" and (concrete_mask(indices) < 0).any():
        raise IndexingError("choose: an index must not be negative.")
    picked = indexing.take_along_axis(stacked, reshaping.expand_dims(together[0], 0), axis=0)
    return reshaping.squeeze(picked, 0)


@of_array
def one_hot(x: Any, /, num_classes: int | None = None, *, axis: int = -1, dtype: Any = np.float64) -> Any:
    """For each integer a row of zeros with a one at that index; all zeros for one out of range.

    >>> import numpy as np, pullback as pb
    >>> pb.one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    x = as_value(x)
    if spec_of(x).dtype.kind not in "iu":
        raise IndexingError(f"one_hot: classes must be integers, got {spec_of(x).dtype}.")
    if num_classes is None:
        known = concrete_mask(x)
        num_classes = int(known.max()) + 1 if known.size else 0
    axis = normalize_axis(axis, ndim(x) + 1, "one_hot")
    classes = namespace_for(x).arange(as_integer(num_classes, "one_hot: num_classes"))
    classes = classes.reshape((-1, *(1,) * (ndim(x) - axis)))
    return reshaping.astype(pointwise.equal(reshaping.expand_dims(x, axis), classes), dtype)
