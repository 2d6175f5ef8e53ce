"""A tree of arrays as one vector, and back: `pb.ravel_pytree`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, unflatten
from ...errors import ShapeError
from ..dispatch import as_value, shape
from ..dtype_info import result_type
from ..index import indexing
from . import arrange, reshaping


@attributed_to_caller
def ravel_pytree(tree: Any, /) -> tuple[Any, Callable[[Any], Any]]:
    """All elements of a tree as one vector, and the function that makes such a tree of a vector.

    The leaves of that tree have the shapes and dtypes of the original ones. Both ways can be differentiated and
    compiled.

    >>> import numpy as np, pullback as pb
    >>> vector, unravel = pb.ravel_pytree({"w": np.ones((1, 2)), "b": np.zeros(1)})
    >>> vector
    array([0., 1., 1.])
    >>> unravel(vector + 1)
    {'w': array([[2., 2.]]), 'b': array([1.])}
    """
    leaves, structure = flatten(tree)
    values = [as_value(x) for x in leaves]
    specs = [spec_of(x) for x in values]
    sizes = [math.prod(s.shape) for s in specs]

    def unravel(vector: Any) -> Any:
        vector = as_value(vector)
        if shape(vector) != (sum(sizes),):
            raise ShapeError(f"unravel: wants a vector of {sum(sizes)} elements, got shape {shape(vector)}.")
        found, start = [], 0
        for spec, size in zip(specs, sizes, strict=True):
            part = indexing.getitem(vector, slice(start, start + size))
            found.append(reshaping.astype(reshaping.reshape(part, spec.shape), spec.dtype))
            start += size
        return unflatten(structure, found)

    if not values:
        return np.zeros(0), unravel
    dtype = result_type(*(s.dtype for s in specs))
    flat = [reshaping.astype(reshaping.reshape(x, (-1,)), dtype) for x in values]
    return flat[0] if len(flat) == 1 else arrange.concat(flat), unravel
