"""Arrays and places or conditions in, the elements they pick out, under the names NumPy gave them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import make_spec, spec_of, zeros
from ..errors import ArgumentError, IndexingError, ShapeError
from . import arranging, indexing, shaping
from . import elementwise as pointwise
from .axes import one_axis
from .dispatch import as_value, ndim, shape
from .families import result_dtype
from .joining import atleast_1d
from .known import bare, is_known

__all__ = [
    "append", "apply_along_axis", "choose", "compress", "delete", "extract", "insert", "piecewise", "select",
]  # fmt: skip


def _listed(arrays: Any) -> list[Any]:
    return [as_value(x) for x in arrays]


@signed
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """The values behind the array, along an axis or both flattened.

    >>> import pullback as pb
    >>> pb.append([1.0], [2.0])
    array([1., 2.])
    """
    return arranging.concat([atleast_1d(arr), atleast_1d(values)], axis=axis)


@signed
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Without the elements at the places `obj`, along an axis or of the flattened array.

    >>> import pullback as pb
    >>> pb.delete([1.0, 2.0, 3.0], 1)
    array([1., 3.])
    """
    x = as_value(arr)
    x, axis = (shaping.reshape(x, (-1,)), 0) if axis is None else (x, one_axis(axis, ndim(x), "delete"))
    places = obj if isinstance(obj, (int, slice)) else bare(obj, "delete")
    return indexing.take(x, np.delete(np.arange(shape(x)[axis]), places), axis=axis)


@signed
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """With the values inserted before the places `obj`, along an axis or in the flattened array.

    >>> import pullback as pb
    >>> pb.insert([1.0, 3.0], 1, 2.0)
    array([1., 2., 3.])
    """
    x, values = as_value(arr), as_value(values)
    x, axis = (shaping.reshape(x, (-1,)), 0) if axis is None else (x, one_axis(axis, ndim(x), "insert"))
    places = np.arange(shape(x)[axis])[obj] if isinstance(obj, slice) else np.asarray(bare(obj, "insert"))
    values = shaping.reshape(values, (1,) * (ndim(x) - ndim(values)) + shape(values))
    if not places.ndim:  # one place takes all the values
        values = shaping.moveaxis(values, 0, axis)
    count = shape(values)[axis] if places.size == 1 else places.size
    wanted = tuple(count if i == axis else n for i, n in enumerate(shape(x)))
    values = shaping.astype(shaping.broadcast_to(values, wanted), spec_of(x).dtype)
    size = shape(x)[axis]
    order = np.insert(np.arange(size), places, np.arange(size, size + count))
    return indexing.take(arranging.concat([x, values], axis=axis), order, axis=axis)


@signed
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    """The elements along an axis, or of the flattened array, where the condition holds.

    >>> import pullback as pb
    >>> pb.compress([True, False], [1.0, 2.0])
    array([1.])
    """
    chosen = np.flatnonzero(bare(condition, "compress"))
    return indexing.take(as_value(a), chosen, axis=axis)


@signed
def extract(condition: Any, arr: Any) -> Any:
    """The elements of the flattened array where the condition holds.

    >>> import pullback as pb
    >>> pb.extract([[True, False]], [[1.0, 2.0]])
    array([1.])
    """
    return compress(np.ravel(bare(condition, "extract")), arr)


@signed
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """For each whole number of a, the element of the choice of that number; other numbers raise, wrap or are clipped.

    >>> import pullback as pb
    >>> pb.choose([1, 0], [[1.0, 2.0], [3.0, 4.0]])
    array([3., 2.])
    """
    a = as_value(a)
    choices = _listed(choices)
    count = len(choices)
    if mode == "raise":
        numbers = bare(a, "choose")
        if ((numbers < 0) | (numbers >= count)).any():
            raise IndexingError(f"choose: there are {count} choices, got the number {numbers.max()}.")
    elif mode not in ("wrap", "clip"):
        raise ArgumentError(f"choose: mode is 'raise', 'wrap' or 'clip', got {mode!r}.")
    else:
        a = a % count if mode == "wrap" else pointwise.clip_to(a, 0, count - 1)
    return _first_true([pointwise.equal(a, i) for i in range(count)], choices, choices[0])


def _first_true(conditions: Sequence[Any], choices: Sequence[Any], default: Any) -> Any:
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        default = pointwise.where(condition, choice, default)
    return default


@signed
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each element the choice of the first condition that holds, or the default.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> pb.select([x < 2, x < 3], [x, x * x])
    array([1., 4., 0.])
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(f"select: got {len(condlist)} conditions for {len(choicelist)} choices.")
    conditions, choices = _listed(condlist), _listed(choicelist)
    out = _first_true(conditions, choices, as_value(default))
    return shaping.astype(out, result_dtype([spec_of(x) for x in (*choices, as_value(default))]))


@signed
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Each function (or number) on the elements where its condition holds; one more is for all others.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([-1.0, 4.0])
    >>> pb.piecewise(x, [x > 0], [np.sqrt, 0.0])
    array([0., 2.])
    """
    x = as_value(x)
    conditions = [as_value(c) for c in _each_condition(x, condlist)]
    if len(funclist) == len(conditions) + 1:
        others = conditions[0]
        for condition in conditions[1:]:
            others = pointwise.logical_or(others, condition)
        conditions.append(pointwise.logical_not(others))
    if len(funclist) != len(conditions):
        raise ArgumentError(f"piecewise: got {len(conditions)} conditions for {len(funclist)} functions.")
    out: Any = zeros(make_spec(shape(x), spec_of(x).dtype, spec_of(x).device))
    for condition, function in zip(conditions, funclist, strict=True):
        if not callable(function):
            out = pointwise.where(condition, function, out)
        elif not is_known(condition) or not ndim(x):
            out = pointwise.where(condition, function(x, *args, **kw), out)
        elif bare(condition, "piecewise").any():
            mask = bare(condition, "piecewise")
            out = indexing.set_at(out, mask, function(indexing.getitem(x, mask), *args, **kw))
    return shaping.astype(out, spec_of(x).dtype)


def _each_condition(x: Any, condlist: Any) -> Any:
    """NumPy takes one condition for a list of one."""
    if isinstance(condlist, (list, tuple)) and (ndim(x) == 0 or ndim(as_value(condlist[0])) > 0):
        return condlist
    return [condlist] if ndim(as_value(condlist)) <= ndim(x) else list(condlist)


@signed
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of vectors on each vector along an axis; what it answers stands in that axis' place.

    >>> import numpy as np, pullback as pb
    >>> pb.apply_along_axis(np.sum, 1, np.ones((2, 3)))
    array([3., 3.])
    """
    x = as_value(arr)
    axis = one_axis(axis, ndim(x), "apply_along_axis")
    vectors = shaping.moveaxis(x, axis, -1)
    front, size = shape(vectors)[:-1], shape(vectors)[-1]
    rows = shaping.reshape(vectors, (-1, size))
    if not shape(rows)[0]:
        raise ShapeError(f"apply_along_axis: shape {shape(x)} holds no vectors along axis {axis}.")
    outs = arranging.stack([as_value(func1d(rows[i], *args, **kwargs)) for i in range(shape(rows)[0])])
    inner = shape(outs)[1:]
    outs = shaping.reshape(outs, front + inner)
    places = tuple(range(len(front), len(front) + len(inner)))
    return shaping.moveaxis(outs, places, tuple(range(axis, axis + len(inner))))
