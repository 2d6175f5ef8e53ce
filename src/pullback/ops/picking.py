"""Functions and conditions in, their values on the elements they are meant for out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.node import signed
from ..arrays.spec import make_spec, spec_of, zeros
from ..errors import ArgumentError, ShapeError
from . import arranging, indexing, reducing, shaping
from . import elementwise as pointwise
from .axes import one_axis
from .dispatch import as_value, ndim, shape
from .families import result_dtype
from .known import bare, is_known

__all__ = ["apply_along_axis", "isin", "piecewise", "select"]


def _listed(arrays: Any) -> list[Any]:
    return [as_value(x) for x in arrays]


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
