"""Sorting: argsort and searchsorted are the ops; sort, topk, partition and unique index with their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.argument_checks import explains_keywords, refuse_keywords
from ...arrays.backends import is_array, namespace_of
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError, ConversionError, ShapeError
from .. import batching, statics
from ..axes import as_integer, normalize_axis
from ..concrete import strip_derivatives
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..families import general
from ..forms import Running, elsewhere
from ..index import indexing
from ..op_samples import normal_samples
from ..placement import as_value_beside
from ..reduce import reductions
from ..shape import reshaping
from ..signatures import of_array, of_sequence, of_two_arrays, to_pair


def _argsort_value(xp: Any, x: Any, axis: int, descending: bool, kth: tuple[int, ...]) -> Any:
    """Equal elements keep their order, also in a descending sort."""
    if kth:
        return xp.argpartition(x, kth, axis=axis)
    if not descending:
        return _stable_argsort(xp, x, axis)
    flipped_order = _stable_argsort(xp, xp.flip(x, axis), axis)
    return x.shape[axis] - 1 - xp.flip(flipped_order, axis)


def _stable_argsort(xp: Any, x: Any, axis: int) -> Any:
    """NumPy's quick sort is several times faster than its stable one, and equivalent where all elements differ."""
    if xp is not np or x.size < 1024:
        return xp.argsort(x, axis=axis, kind="stable")
    order = np.argsort(x, axis=axis)
    found = np.moveaxis(np.take_along_axis(x, order, axis=axis), axis, -1)
    is_greater = found[..., 1:] > found[..., :-1]  # false beside a NaN too
    return order if is_greater.all() else np.argsort(x, axis=axis, kind="stable")


_argsort = general(
    "argsort",
    statics={"axis": statics.axis, "descending": statics.flag, "kth": statics.places},
    value=_argsort_value,
    spec=lambda x, axis, descending, kth: make_spec(x.shape, np.dtype(np.intp), x.device),
    samples=normal_samples(
        [(4,), (2, 3), (3, 5), (0, 2)],
        axis=[0, 0, 1, 0],
        descending=[False, True, False, False],
        kth=[(), (), (2,), ()],
    ),
    form=Running("sort"),
)


def _flatten_or_axis(x: Any, axis: int | None, what: str) -> tuple[Any, int]:
    x = as_value(x)
    if axis is None:
        return reshaping.reshape(x, (-1,)), 0
    return x, normalize_axis(axis, ndim(x), what)


def _check_options(what: str, kind: Any, order: Any) -> None:
    if order is not None:
        raise ArgumentError(f"{what}: order= names fields of a structured array, which have no derivative.")
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise ArgumentError(f"{what}: kind must be quicksort, mergesort, heapsort or stable, got {kind!r}.")


@of_array
@attributed_to_caller
def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Any:
    """The indices that sort x along an axis; equal elements keep their order for every `kind`.

    >>> import numpy as np, pullback as pb
    >>> pb.argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    _check_options("argsort", kind, order)
    x, axis = _flatten_or_axis(x, axis, "argsort")
    return apply(_argsort, x, axis=axis, descending=bool(descending), kth=())


@of_array
@attributed_to_caller
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Any:
    """x sorted along an axis (flattened for None); the cotangent goes back by the same permutation.

    >>> import numpy as np, pullback as pb
    >>> pb.sort(np.array([3.0, 1.0, 2.0]), descending=True)
    array([3., 2., 1.])
    """
    _check_options("sort", kind, order)
    x, axis = _flatten_or_axis(x, axis, "sort")
    return indexing.take_along_axis(x, apply(_argsort, x, axis=axis, descending=bool(descending), kth=()), axis=axis)


@of_array
def msort(x: Any, /) -> Any:
    """x sorted along its first axis.

    >>> import numpy as np, pullback as pb
    >>> pb.msort(np.array([[2.0, 1.0], [1.0, 3.0]]))
    array([[1., 1.],
           [2., 3.]])
    """
    return sort(x, axis=0)


def _check_kth(kth: Any, size: int, what: str) -> tuple[int, ...]:
    asked = kth if isinstance(kth, (tuple, list, np.ndarray)) else (kth,)
    places = tuple(as_integer(k, f"{what}: kth") for k in asked)
    for k in places:
        if not -size <= k < size:
            raise ArgumentError(f"{what}: kth {k} is out of range for {size} elements.")
    return tuple(k % size for k in places)


@of_array
@attributed_to_caller
def argpartition(x: Any, /, kth: Any, axis: int | None = -1) -> Any:
    """The indices that put the kth elements in their sorted positions, the lesser before and the greater after them.

    >>> import numpy as np, pullback as pb
    >>> int(pb.argpartition(np.array([3.0, 1.0, 2.0]), 0)[0])
    1
    """
    x, axis = _flatten_or_axis(x, axis, "argpartition")
    return apply(_argsort, x, axis=axis, descending=False, kth=_check_kth(kth, shape(x)[axis], "argpartition"))


@of_array
@attributed_to_caller
def partition(x: Any, /, kth: Any, axis: int | None = -1) -> Any:
    """x with the kth elements in their sorted positions, the lesser before and the greater after them.

    >>> import numpy as np, pullback as pb
    >>> float(pb.partition(np.array([3.0, 1.0, 2.0]), 1)[1])
    2.0
    """
    x, axis = _flatten_or_axis(x, axis, "partition")
    return indexing.take_along_axis(x, argpartition(x, kth, axis), axis=axis)


@to_pair
@explains_keywords
def topk(
    x: Any, k: int, /, *, axis: int = -1, largest: bool = True, sorted: bool = True, dim: None = None
) -> tuple[Any, Any]:
    """The k greatest (or least) elements along an axis and their indices; of equal ones the first.

    >>> import numpy as np, pullback as pb
    >>> values, indices = pb.topk(np.array([3.0, 1.0, 2.0]), 2)
    >>> values, indices
    (array([3., 2.]), array([0, 2]))
    """
    if dim is not None:
        refuse_keywords(topk, dim=dim)
    x, axis = _flatten_or_axis(x, axis, "topk")
    k = as_integer(k, "topk: k")
    if not 0 <= k <= shape(x)[axis]:
        raise ArgumentError(f"topk: k = {k} of {shape(x)[axis]} elements.")
    order = apply(_argsort, x, axis=axis, descending=bool(largest), kth=())
    indices = indexing.getitem(order, (*(slice(None),) * axis, slice(0, k)))
    return indexing.take_along_axis(x, indices, axis=axis), indices


@to_pair
def kthvalue(x: Any, k: int, /, *, axis: int = -1, keepdims: bool = False) -> tuple[Any, Any]:
    """The k-th least element along an axis, counted from one, and its index.

    >>> import numpy as np, pullback as pb
    >>> pb.kthvalue(np.array([3.0, 1.0, 2.0]), 2)
    (array(2.), array(2))
    """
    x, axis = _flatten_or_axis(x, axis, "kthvalue")
    k = as_integer(k, "kthvalue: k")
    if not 1 <= k <= shape(x)[axis]:
        raise ArgumentError(f"kthvalue: k = {k} of {shape(x)[axis]} elements.")
    order = apply(_argsort, x, axis=axis, descending=False, kth=())
    place = indexing.getitem(order, (*(slice(None),) * axis, slice(k - 1, k)))
    value = indexing.take_along_axis(x, place, axis=axis)
    return (value, place) if keepdims else (reshaping.squeeze(value, axis), reshaping.squeeze(place, axis))


@of_sequence
@attributed_to_caller
def lexsort(keys: Any, /, axis: int = -1) -> Any:
    """The indices that sort by several keys, the last one first in rank.

    >>> import numpy as np, pullback as pb
    >>> pb.lexsort((np.array([1, 0, 2]), np.array([1, 1, 0])))
    array([2, 1, 0])
    """
    values = [as_value(k) for k in keys]
    if not values:
        raise ArgumentError("lexsort: wants at least one key.")
    order = argsort(values[0], axis)
    for key in values[1:]:
        order = indexing.take_along_axis(
            order, argsort(indexing.take_along_axis(key, order, axis=axis), axis), axis=axis
        )
    return order


def _batch_search(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """One sorted array serves all values; where each has its own sorted array, the lesser elements are counted."""
    (x, values), (x_axis, v_axis) = args, axes
    if x_axis is None:
        return apply(op, x, batching.move_batch_first(values, v_axis), **static), 0
    x, values = batching.move_batch_first(x, x_axis), batching.move_batch_first(values, v_axis, size)
    rank = ndim(values) - 1
    rows = reshaping.reshape(x, (size, *(1,) * rank, shape(x)[1]))
    is_before = pointwise.less if static["side"] == "left" else pointwise.less_equal
    return reductions.sum(is_before(rows, reshaping.expand_dims(values, -1)), axis=-1), 0


def _search_spec(x: Spec, values: Spec, side: str) -> Spec:
    if x.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted array must have one axis, got shape {x.shape}.")
    return make_spec(values.shape, np.dtype(np.intp), x.device)


def _search_samples(rng: Any) -> Any:
    level = np.full(5, 0.2)  # sorted in any order, as the tests of batches need
    return [
        ((level, rng.normal(size=(2, 3))), {"side": "left"}),
        ((level, np.array([0.2, 0.1, 0.3])), {"side": "left"}),
        ((level[:1], np.array([0.2, 0.1, 0.3])), {"side": "right"}),
        ((level, np.asarray(0.3)), {"side": "right"}),
        ((level, np.zeros(0)), {"side": "left"}),
        ((level[:0], rng.normal(size=2)), {"side": "left"}),
    ]


def _count_before(x: Any, values: Any, side: str) -> Any:
    """How many elements come before each value, where a NaN comes after all numbers."""
    values = reshaping.expand_dims(values, -1)
    is_before = (pointwise.less if side == "left" else pointwise.less_equal)(x, values)
    seen = pointwise.isnan(values)
    seen = pointwise.logical_and(seen, pointwise.logical_not(pointwise.isnan(x))) if side == "left" else seen
    return reductions.sum(pointwise.logical_or(is_before, seen), axis=-1)


_searchsorted = general(
    "searchsorted",
    form=elsewhere(_count_before),
    statics={"side": statics.choice("left", "right")},
    value=lambda xp, x, values, side: xp.searchsorted(x, values, side=side),
    spec=_search_spec,
    batch=_batch_search,
    samples=_search_samples,
)


@of_two_arrays
def searchsorted(x: Any, values: Any, /, side: str = "left", sorter: Any = None) -> Any:
    """Where each value would go in the sorted array x: before its equals (left) or after them (right).

    >>> import numpy as np, pullback as pb
    >>> pb.searchsorted(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0]))
    array([0, 1])
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side must be left or right, got {side!r}.")
    x = as_value(x)
    if sorter is not None:
        x = indexing.take(x, sorter)
    return apply(_searchsorted, x, as_value_beside(x, values), side=side)


def _concrete_values(x: Any, what: str) -> Any:
    """The values of an array that decide a shape, so they must be known now."""
    x = strip_derivatives(x)
    if not is_array(x):
        raise ConversionError(
            f"{what}: inside a transform the number of distinct elements is not known.\n"
            "  Compute it outside, and pass the indices in."
        )
    return x


@of_array
@attributed_to_caller
def unique(
    x: Any,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """The distinct elements of x in ascending order; the cotangent of each goes to its first occurrence.

    >>> import numpy as np, pullback as pb
    >>> pb.unique(np.array([2.0, 1.0, 2.0]), return_counts=True)
    (array([1., 2.]), array([1, 2]))
    """
    x = as_value(x)
    x = np.asarray(x) if not hasattr(x, "shape") else x
    known = _concrete_values(x, "unique")
    xp = namespace_of([known])
    if known.dtype.kind == "V":
        known = known.astype(np.float32)  # in which NaN comes last
    _, first, inverse, counts = xp.unique(
        known, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=equal_nan
    )
    values = indexing.take(x, first, axis=axis)
    more = [
        part for part, asked in ((first, return_index), (inverse, return_inverse), (counts, return_counts)) if asked
    ]
    return (values, *more) if more else values


@of_array
def unique_values(x: Any, /) -> Any:
    """The distinct elements of x, each NaN counting as distinct.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_values(np.array([2, 1, 2]))
    array([1, 2])
    """
    return unique(x, equal_nan=False)


class UniqueCounts(NamedTuple):
    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    values: Any
    inverse_indices: Any


class UniqueAll(NamedTuple):
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


def unique_counts(x: Any, /) -> UniqueCounts:
    """The distinct elements of x and how often each occurs, as `values` and `counts`.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_counts(np.array([2, 1, 2])).counts
    array([1, 2])
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The distinct elements of x and the indices that rebuild it, as `values` and `inverse_indices`.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_inverse(np.array([2, 1, 2])).inverse_indices
    array([1, 0, 1])
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))


def unique_all(x: Any, /) -> UniqueAll:
    """`values`, `indices` of first occurrences, `inverse_indices` and `counts`.

    >>> import numpy as np, pullback as pb
    >>> pb.unique_all(np.array([2, 1, 2])).indices
    array([1, 0])
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))
