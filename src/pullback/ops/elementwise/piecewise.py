"""Choosing between values or functions by conditions: select, piecewise, isin, apply_along_axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import make_spec, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from ..axes import normalize_axis
from ..concrete import as_bare_array, is_concrete
from ..dispatch import as_value, ndim, shape
from ..families import result_dtype
from ..index import indexing
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_mixed_arrays, of_two_arrays
from . import pointwise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


def _as_values(arrays: Any) -> list[Any]:
    return [as_value(x) for x in arrays]


def _select_first(conditions: Sequence[Any], choices: Sequence[Any], default: Any) -> Any:
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        default = pointwise.where(condition, choice, default)
    return default


@overload
def select(condlist: Any, choicelist: Sequence[V], default: Any = 0) -> V: ...
@overload
def select(condlist: Plain, choicelist: Plain, default: Plain = 0) -> NDArray[Any]: ...
@overload
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any: ...
@attributed_to_caller
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each element the choice of the first condition that holds, or the default.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> pb.select([x < 2, x < 3], [x, x * x])
    array([1., 4., 0.])
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(f"select: got {len(condlist)} conditions for {len(choicelist)} choices.")
    conditions, choices = _as_values(condlist), _as_values(choicelist)
    out = _select_first(conditions, choices, as_value(default))
    return reshaping.astype(out, result_dtype([spec_of(x) for x in (*choices, as_value(default))]))


@of_mixed_arrays
@attributed_to_caller
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Each function (or number) on the elements where its condition holds; one more function is for all others.

    >>> import numpy as np, pullback as pb
    >>> x = np.array([-1.0, 4.0])
    >>> pb.piecewise(x, [x > 0], [np.sqrt, 0.0])
    array([0., 2.])
    """
    x = as_value(x)
    conditions = [as_value(c) for c in _condition_list(x, condlist)]
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
        elif not is_concrete(condition) or not ndim(x):
            out = pointwise.where(condition, function(x, *args, **kw), out)
        elif as_bare_array(condition, "piecewise").any():
            mask = as_bare_array(condition, "piecewise")
            out = indexing.set_at(out, mask, function(indexing.getitem(x, mask), *args, **kw))
    return reshaping.astype(out, spec_of(x).dtype)


def _condition_list(x: Any, condlist: Any) -> Any:
    """NumPy takes one condition for a list of one."""
    if isinstance(condlist, (list, tuple)) and (ndim(x) == 0 or ndim(as_value(condlist[0])) > 0):
        return condlist
    return [condlist] if ndim(as_value(condlist)) <= ndim(x) else list(condlist)


@attributed_to_caller
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of vectors on each vector along an axis; its result replaces that axis.

    >>> import numpy as np, pullback as pb
    >>> pb.apply_along_axis(np.sum, 1, np.ones((2, 3)))
    array([3., 3.])
    """
    x = as_value(arr)
    axis = normalize_axis(axis, ndim(x), "apply_along_axis")
    vectors = reshaping.moveaxis(x, axis, -1)
    front, size = shape(vectors)[:-1], shape(vectors)[-1]
    rows = reshaping.reshape(vectors, (-1, size))
    if not shape(rows)[0]:
        raise ShapeError(f"apply_along_axis: shape {shape(x)} holds no vectors along axis {axis}.")
    outs = arrange.stack([as_value(func1d(rows[i], *args, **kwargs)) for i in range(shape(rows)[0])])
    inner = shape(outs)[1:]
    outs = reshaping.reshape(outs, front + inner)
    places = tuple(range(len(front), len(front) + len(inner)))
    return reshaping.moveaxis(outs, places, tuple(range(axis, axis + len(inner))))


@of_two_arrays
def isin(x: Any, y: Any, /, *, invert: bool = False) -> Any:
    """For each element of x, whether y has it too.

    >>> import numpy as np, pullback as pb
    >>> pb.isin(np.array([1, 2]), np.array([2, 3]))
    array([False,  True])
    """
    x, y = as_value(x), as_value(y)
    flat = reshaping.reshape(y, (-1,))
    found = reductions.any(pointwise.equal(reshaping.expand_dims(x, -1), flat), axis=-1)
    return pointwise.logical_not(found) if invert else found
