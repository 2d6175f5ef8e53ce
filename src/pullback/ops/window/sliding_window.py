"""Sliding windows as overlapping views, and their transpose, the sum over overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from .. import statics
from ..axes import as_integer, as_shape, axes_tuple, normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..families import linear
from ..forms import Expand
from ..index import indexing
from ..index.normalize import namespace_for
from ..op import Op
from ..op_samples import join_samples, normal_samples
from ..shape import arrange, reshaping
from ..signatures import of_array
from .patches import strided_view

#: Windows of more elements are added up by NumPy, also in compiled programs.
_MOST_STAGED = 16


def _count_windows(length: int, size: int, step: int, dilation: int) -> int:
    """How many windows of `size` elements fit, `dilation` apart inside, `step` apart from each other."""
    reach = (size - 1) * dilation + 1
    return (length - reach) // step + 1 if length >= reach else 0


def _windows_spec(x: Spec, axis: int, size: int, step: int, dilation: int) -> Spec:
    count = _count_windows(x.shape[axis], size, step, dilation)
    return make_spec((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype, x.device)


def _windows_value(xp: Any, x: Any, axis: int, size: int, step: int, dilation: int) -> Any:
    """A view: nothing is copied, since values never change."""
    shape_wanted = _windows_spec(spec_of(x), axis, size, step, dilation).shape
    strides = (*x.strides[:axis], x.strides[axis] * step, *x.strides[axis + 1 :], x.strides[axis] * dilation)
    if not x.size or 0 in shape_wanted:
        return xp.zeros(shape_wanted, x.dtype)
    return strided_view(xp, x, shape_wanted, strides)


def _overlap_spec(y: Spec, axis: int, length: int, step: int, dilation: int) -> Spec:
    if axis >= y.ndim - 1:
        raise ShapeError(
            f"overlap_add: windows are on the last axis of {y.ndim}, so they cannot lie along axis {axis}."
        )
    size = y.shape[-1]
    statics.check_shape("overlap_add", y.shape[axis : axis + 1], (_count_windows(length, size, step, dilation),))
    return make_spec((*y.shape[:axis], length, *y.shape[axis + 1 : -1]), y.dtype, y.device)


def _overlap_value(xp: Any, y: Any, axis: int, length: int, step: int, dilation: int) -> Any:
    """Overlap-add of windows: one strided addition for each element of a window."""
    out = xp.zeros(_overlap_spec(spec_of(y), axis, length, step, dilation).shape, y.dtype)
    count, before = y.shape[axis], (slice(None),) * axis
    for k in range(y.shape[-1] if count else 0):
        start = k * dilation
        out[(*before, slice(start, start + (count - 1) * step + 1, step))] += y[..., k]
    return out


def _stage_overlap(y: Any, axis: int, length: int, step: int, dilation: int) -> Any:
    """The same as a sum of what each element of a window is transposed to; None where there are many."""
    count, size = shape(y)[axis], shape(y)[-1]
    return _add_elements(y, axis, length, step, dilation) if 0 < size <= _MOST_STAGED and count else None


def _add_elements(y: Any, axis: int, length: int, step: int, dilation: int) -> Any:
    count, size = shape(y)[axis], shape(y)[-1]
    wanted = (*shape(y)[:axis], length, *shape(y)[axis + 1 : -1])
    total: Any = None
    index = [slice(None)] * len(wanted)
    for k in range(size if count else 0):
        start = k * dilation
        index[axis] = slice(start, start + (count - 1) * step + 1, step)
        term = indexing.scatter(indexing.getitem(y, (..., k)), tuple(index), wanted)
        total = term if total is None else total + term
    return zeros(make_spec(wanted, spec_of(y).dtype)) if total is None else total


_CASES = (
    ((5,), {"axis": 0, "size": 3, "step": 1, "dilation": 1}),
    ((2, 7), {"axis": 1, "size": 2, "step": 2, "dilation": 3}),
    ((6, 2), {"axis": 0, "size": 2, "step": 3, "dilation": 1}),
    ((2, 2), {"axis": 0, "size": 3, "step": 1, "dilation": 1}),
)


def _overlap_samples(rng: Any) -> Any:
    found = []
    for sizes, how in _CASES:
        seen = _windows_spec(make_spec(sizes, np.dtype(float)), **how)
        static = {"axis": how["axis"], "length": sizes[how["axis"]], "step": how["step"], "dilation": how["dilation"]}
        found.append(((rng.normal(size=seen.shape),), static))
    return found


def _pull_overlap(bar: Any, y_spec: Spec, axis: int, step: int, dilation: int) -> Any:
    return apply(_windows, bar, axis=axis, size=y_spec.shape[-1], step=step, dilation=dilation)


def _pull_windows(bar: Any, x_spec: Spec, axis: int, step: int, dilation: int) -> Any:
    return apply(_overlap, bar, axis=axis, length=x_spec.shape[axis], step=step, dilation=dilation)


# Windows along an axis, which may overlap, as a new last axis.
_windows: Op = linear(
    "windows",
    statics={
        "axis": statics.axis,
        "size": statics.integer(1),
        "step": statics.integer(1),
        "dilation": statics.integer(1),
    },
    value=_windows_value,
    spec=_windows_spec,
    transpose=_pull_windows,
    samples=join_samples(*(normal_samples([sizes], **how) for sizes, how in _CASES)),
)
# The elements of windows added up at their origin.
_overlap: Op = linear(
    "overlap_add",
    statics={
        "axis": statics.axis,
        "length": statics.integer(0),
        "step": statics.integer(1),
        "dilation": statics.integer(1),
    },
    value=_overlap_value,
    spec=_overlap_spec,
    transpose=_pull_overlap,
    samples=_overlap_samples,
    sums=True,
    form=Expand(_stage_overlap, _add_elements),
)


def overlap_add(y: Any, axis: int, length: int, step: int, dilation: int) -> Any:
    """The transpose of `unfold`: windows on the last axis added up along an axis of some length."""
    return apply(_overlap, y, axis=axis, length=length, step=step, dilation=dilation)


def _check_positive(number: Any, what: str) -> int:
    found = as_integer(number, what)
    if found < 1:
        raise ArgumentError(f"{what} must be at least 1, got {found}.")
    return found


@of_array
def unfold(x: Any, axis: int, size: int, step: int = 1, /, *, dilation: int = 1) -> Any:
    """Windows of a size along an axis, `step` apart, as a new last axis.

    >>> import numpy as np, pullback as pb
    >>> pb.unfold(np.arange(5), 0, 3, 2)
    array([[0, 1, 2],
           [2, 3, 4]])
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "unfold")
    size, step, dilation = (
        _check_positive(n, f"unfold: {name}") for n, name in ((size, "size"), (step, "step"), (dilation, "dilation"))
    )
    if (size - 1) * dilation + 1 > shape(x)[axis]:
        raise ShapeError(f"unfold: a window of {(size - 1) * dilation + 1} is longer than axis {axis} of {shape(x)}.")
    return apply(_windows, x, axis=axis, size=size, step=step, dilation=dilation)


@of_array
@attributed_to_caller
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """Every window of a shape, over all axes or those named; the windows' own axes come last.

    >>> import numpy as np, pullback as pb
    >>> pb.sliding_window_view(np.arange(4), 3)
    array([[0, 1, 2],
           [1, 2, 3]])
    """
    x = as_value(x)
    sizes = as_shape(window_shape, "sliding_window_view")
    axes = axes_tuple(range(ndim(x)) if axis is None else axis, ndim(x), "sliding_window_view")
    if len(axes) != len(sizes):
        raise ShapeError(f"sliding_window_view: a window of shape {sizes} for {len(axes)} axes.")
    for a, size in zip(axes, sizes, strict=True):
        if size < 0 or size > shape(x)[a]:
            raise ShapeError(f"sliding_window_view: a window of {size} does not fit axis {a} of shape {shape(x)}.")
        x = apply(_windows, x, axis=a, size=size, step=1, dilation=1) if size else _empty_windows(x, a)
    return x


def _empty_windows(x: Any, axis: int) -> Any:
    """Windows of no elements, one more of them than there are elements."""
    sizes = shape(x)
    return namespace_for(x).zeros((*sizes[:axis], sizes[axis] + 1, *sizes[axis + 1 :], 0), spec_of(x).dtype)


@of_array
@attributed_to_caller
def as_strided(x: Any, shape: Any, strides: Any, offset: int = 0, /) -> Any:
    """The flattened x read in a shape with a stride, counted in elements, for each axis; places may overlap.

    >>> import numpy as np, pullback as pb
    >>> pb.as_strided(np.arange(4), (2, 3), (1, 1))
    array([[0, 1, 2],
           [1, 2, 3]])
    """
    flat = indexing.getitem(reshaping.reshape(as_value(x), (-1,)), slice(None))
    return indexing.take(flat, strided_places(spec_of(flat).size, shape, strides, offset))


def strided_places(count: int, shape: Any, strides: Any, offset: int = 0) -> Any:
    """The places in a flat array of `count` elements that a shape with strides reads."""
    sizes, steps = as_shape(shape, "as_strided"), as_shape(strides, "as_strided")
    if len(sizes) != len(steps):
        raise ShapeError(f"as_strided: shape {sizes} and strides {steps} differ in length.")
    places = np.asarray(as_integer(offset, "as_strided: offset"))
    for size, step in zip(sizes, steps, strict=True):
        places = places[..., None] + np.arange(size) * step
    if places.size and (places.min() < 0 or places.max() >= count):
        raise ShapeError(f"as_strided: shape {sizes} with strides {steps} from {offset} reads beyond {count} elements.")
    return places


def _per_axis(number: Any, count: int, what: str) -> tuple[int, ...]:
    given = as_shape(number, what)
    return given * count if len(given) == 1 else given


@of_array
@attributed_to_caller
def im2col(x: Any, kernel: Any, /, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """The patches a convolution sees: (n, channels, *sizes) to (n, channels * kernel elements, patches).

    >>> import numpy as np, pullback as pb
    >>> pb.im2col(np.arange(9.0).reshape(1, 1, 3, 3), 2).shape
    (1, 4, 4)
    """
    x = as_value(x)
    if ndim(x) < 3:
        raise ShapeError(f"im2col: wants (n, channels, *sizes), got shape {shape(x)}.")
    rank = ndim(x) - 2
    kernel, stride, padding, dilation = (
        _per_axis(v, rank, f"im2col: {name}")
        for v, name in ((kernel, "kernel"), (stride, "stride"), (padding, "padding"), (dilation, "dilation"))
    )
    if any(padding):
        x = arrange.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    for i in range(rank):
        x = unfold(x, 2 + i, kernel[i], stride[i], dilation=dilation[i])
    n, channels, *rest = shape(x)
    patches, inside = rest[:rank], rest[rank:]
    x = reshaping.permute_dims(x, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    return reshaping.reshape(x, (n, channels * int(np.prod(inside)), int(np.prod(patches))))
