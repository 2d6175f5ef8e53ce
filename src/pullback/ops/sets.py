"""Arrays in, their different elements, places and counts out. Values keep their derivatives, places have none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import wrap
from ..arrays.value import Value
from . import elementwise as pointwise
from . import indexing, reducing, shaping
from .dispatch import as_value
from .known import bare

__all__ = ["count_nonzero", "isin", "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAllResult(NamedTuple):
    """What `unique_all` answers."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` answers."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` answers."""

    values: Any
    inverse_indices: Any


def _beside(x: Any, array: Any) -> Any:
    """Tensors in, tensors out."""
    return wrap(array, spec_of(array)) if isinstance(x, Value) else array


def unique_all(x: Any, /) -> UniqueAllResult:
    """The different elements in rising order, where each is first, which of them each element is, and their counts.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_all(np.array([3.0, 1.0, 3.0])).counts
    array([1, 2])
    """
    x = as_value(x)
    found = np.unique(bare(x, "unique_all"), True, True, True, equal_nan=False)
    places, inverse, counts = (_beside(x, part) for part in found[1:])
    inverse = shaping.reshape(inverse, spec_of(x).shape)
    return UniqueAllResult(indexing.take(x, found[1]), places, inverse, counts)


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """The different elements in rising order, and how often each is there.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_counts(np.array([3.0, 1.0, 3.0])).values
    array([1., 3.])
    """
    found = unique_all(x)
    return UniqueCountsResult(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """The different elements in rising order, and which of them each element is.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_inverse(np.array([3.0, 1.0, 3.0])).inverse_indices
    array([1, 0, 1])
    """
    found = unique_all(x)
    return UniqueInverseResult(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """The different elements in rising order.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_values(np.array([3.0, 1.0, 3.0]))
    array([1., 3.])
    """
    return unique_all(x).values


def isin(x: Any, y: Any, /, *, invert: bool = False) -> Any:
    """For each element of x, whether y has it too.

    >>> import numpy as np, pullback as pb
    >>> pb.isin(np.array([1, 2]), np.array([2, 3]))
    array([False,  True])
    """
    x, y = as_value(x), as_value(y)
    flat = shaping.reshape(y, (-1,))
    found = reducing.any(pointwise.equal(shaping.expand_dims(x, -1), flat), axis=-1)
    return pointwise.logical_not(found) if invert else found


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The places of the elements that are not zero, one array of indices for each axis.

    >>> import numpy as np, pullback as pb
    >>> pb.nonzero(np.array([0.0, 5.0, 7.0]))
    (array([1, 2]),)
    """
    x = as_value(x)
    return tuple(_beside(x, places) for places in np.nonzero(bare(x, "nonzero")))


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements are not zero, over some axes or over all.

    >>> import numpy as np, pullback as pb
    >>> pb.count_nonzero(np.array([0.0, 5.0, 7.0]))
    array(2)
    """
    return reducing.sum(pointwise.not_equal(as_value(x), 0), axis=axis, keepdims=keepdims)
