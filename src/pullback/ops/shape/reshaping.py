"""Ops that change an array's shape, order of axes or dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from ...arrays.argument_checks import explains_keywords, refuse_keywords
from ...arrays.backends import is_array, namespace_of
from ...arrays.buffers import current_run
from ...arrays.dtypes import FLOAT8_LARGEST, as_dtype
from ...arrays.size import is_same_shape
from ...arrays.spec import FLOAT8_CODES, Spec, derivative_dtype, is_half, make_spec, spec_of
from ...arrays.tensor import Tensor, alias, tensor
from ...arrays.value import Value
from ...arrays.views import array_laid_out_as
from ...errors import ArgumentError, ArgumentTypeError, DeviceError, DtypeError, ShapeError
from ...settings import modes
from .. import batching, statics
from ..axes import as_shape, axes_tuple, normalize_axes, resolve_shape
from ..dispatch import apply, as_value, cast_array, ndim, shape
from ..elementwise import pointwise
from ..families import broadcast_shape, linear
from ..forms import Cast, View
from ..lazy import lazy_function
from ..op_samples import normal_samples
from ..remember import Outcomes
from ..signatures import of_array

astype_op = linear(
    "astype",
    statics={"dtype": statics.dtype},
    value=lambda xp, x, dtype: _astype_value(xp.asarray(x), dtype),
    spec=lambda x, dtype: make_spec(x.shape, np.dtype(dtype), x.device),
    transpose=lambda bar: bar,
    samples=normal_samples([(3,), (2, 2), ()], dtype=[np.dtype("float64"), np.dtype("float32"), np.dtype("float32")]),
    push=lambda *call: _push_cast(*call),
    form=Cast(),
)


#: What a tensor does not hold: in an array of objects a derivative would be lost unnoticed.
_NO_NUMBERS = frozenset((np.object_, np.void, np.bytes_, np.str_, np.datetime64, np.timedelta64))


def _astype_value(x: Any, dtype: Any) -> Any:
    if np.dtype(dtype).char in FLOAT8_CODES:
        return _saturate(x, dtype)
    x = x.real if x.dtype.kind == "c" and np.dtype(dtype).kind != "c" else x
    return x.astype(dtype) if x.dtype == dtype else cast_array(x, np.dtype(dtype))


def _saturate(x: Any, dtype: Any) -> Any:
    """x in eight bits: what is too large becomes the largest number, as processors convert. NaN stays NaN."""
    if type(x) is not np.ndarray:
        raise DeviceError(
            f"astype: CuPy has no arrays of {dtype}.\n  Use them inside a function of pb.jit, or convert on the CPU."
        )
    most = FLOAT8_LARGEST[np.dtype(dtype).name]
    with np.errstate(invalid="ignore"):
        return np.clip(x.astype(np.float32), -most, most).astype(dtype)


def _push_cast(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    return None if tangents[0] is None else astype(tangents[0], derivative_dtype(static["dtype"]))


def astype(x: Any, dtype: Any, /) -> Any:
    """x converted to a dtype; a bare array that has it already is returned as it is. The public function copies it."""
    if type(x) is np.ndarray and x.dtype is dtype:
        return x
    x = as_value(x)
    wanted = as_dtype(dtype)
    if spec_of(x).dtype == wanted and spec_of(x).weak is None:
        return pass_through(x)
    if isinstance(x, Value) and wanted.type in _NO_NUMBERS:
        raise DtypeError(
            f"astype: tensors hold numbers and booleans, got dtype {wanted}.\n"
            "  In place of an array of objects, list(x) holds the values of an axis."
        )
    return apply(astype_op, x, dtype=wanted)


_narrow = linear(
    "narrow",
    statics={"dtype": statics.floating_dtype},
    value=lambda xp, x, dtype: _astype_value(xp.asarray(x), dtype),
    spec=lambda x, dtype: make_spec(x.shape, np.dtype(dtype), x.device),
    transpose=lambda bar: bar,
    samples=normal_samples([(3,), ()], dtype=[np.dtype("float64"), np.dtype("float64")]),
    form=Cast(rounds=False),
)


def narrow(x: Any, dtype: Any) -> Any:
    """What was computed in float32, in the dtype it is of. Compiled code rounds it where it is stored, as the result of
    any op of half precision, while `astype` always rounds.
    """
    if spec_of(x).dtype == np.float32 and is_half(dtype):
        return apply(_narrow, x, dtype=dtype)
    return astype(x, dtype)


#: On a GPU, where a copy has to be made it is a kernel of ours.
_bind_reshape = lazy_function("cuda.eager", "bind_reshape", "compile")

reshape_op = linear(
    "reshape",
    statics={"shape": statics.shape},
    value=lambda xp, x, shape: xp.reshape(x, shape),
    spec=lambda x, shape: make_spec(resolve_shape(shape, x.size, "reshape"), x.dtype, x.device),
    transpose=lambda bar, x_spec: reshape(bar, x_spec.shape),
    samples=normal_samples([(2, 3), (6,), (1,), (0, 3)], shape=[(6,), (3, 1, 2), (), (3, 0)]),
    direct=lambda x, shape: methodcaller("reshape", shape),
    on_gpu=lambda x, shape: _bind_reshape(x, shape),
)


_reshape_outcomes = Outcomes()


@of_array
def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """The same elements, in the same order, in another shape; one size may be -1. `order="F"` counts columns first.

    >>> import numpy as np, pullback as pb
    >>> pb.reshape(np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    if type(x) is Tensor and (run := _reshape_outcomes.find(x, shape, order, copy)) is not None:
        return run(x)
    if copy is not None and is_array(x):
        return _copy_if_asked(x, reshape(x, shape, order), copy)
    if type(x) is np.ndarray and type(shape) is tuple and order == "C":
        try:  # usually a rule with a valid shape; if NumPy raises, the code below raises the proper error
            return x.reshape(shape)
        except (TypeError, ValueError):
            pass
    x = as_value(x)
    spec = spec_of(x)
    if isinstance(order, (int, np.integer)):
        raise ArgumentTypeError(f"reshape: a shape is one tuple.\n  Write pb.reshape(x, ({shape}, {order})).")
    wanted = resolve_shape(as_shape(shape, "reshape"), spec.size, "reshape")
    if order != "C":
        return _reshape_columns_first(x, wanted, order)
    return pass_through(x) if spec.weak is None and _has_shape(spec, wanted) else apply(reshape_op, x, shape=wanted)


_reshape_outcomes.of(reshape)


def _has_shape(spec: Spec, wanted: tuple[int, ...]) -> bool:
    """Whether a reshape changes nothing. Plain specs, the common case, have no unknown sizes."""
    return spec.shape == wanted if spec.plain is not None else is_same_shape(spec.shape, wanted)


def _copy_if_asked(x: Any, found: Any, copy: bool) -> Any:
    """A bare array that shares no memory with x, or does."""
    shares = namespace_of((x,)).shares_memory(x, found)
    if not copy and not shares and found.size:
        raise ArgumentError("reshape: this order of elements needs a copy, and copy=False allows none.")
    return found.copy() if copy and shares else found


def _reshape_columns_first(x: Any, wanted: tuple[int, ...], order: str) -> Any:
    if order != "F":
        raise ArgumentError(
            f"reshape: order must be C or F, got {order!r}: values have no other memory order here.\n"
            "  A shape is one tuple: pb.reshape(x, (3, 1))."
        )
    return permute_dims(reshape(permute_dims(x), wanted[::-1]))


permute_op = linear(
    "permute_dims",
    statics={"axes": statics.permutation},
    value=lambda xp, x, axes: xp.asarray(x).transpose(axes),
    spec=lambda x, axes: make_spec(tuple(x.shape[a] for a in axes), x.dtype, x.device),
    transpose=lambda bar, axes: permute_dims(bar, tuple(int(i) for i in np.argsort(axes))),
    samples=normal_samples([(2, 3), (2, 3, 4), (), (0, 2)], axes=[(1, 0), (2, 0, 1), (), (1, 0)]),
    direct=lambda x, axes: methodcaller("transpose", axes),
)


def pass_through(x: Any) -> Any:
    """The result of a no-op: a new variable and, if tracked, a new node."""
    if type(x) is Tensor and x.node is not None:
        return apply(reshape_op, x, shape=x.shape)
    return alias(_as_recorded(x))


def _as_recorded(x: Any) -> Any:
    """A value as an op would return it that has nothing to do: under `no_grad` a constant, also in a program."""
    return x if not isinstance(x, Value) or modes().grad else pointwise.unrecorded(x)


def in_row_order(x: Any) -> Any:
    """In a function that may be NumPy code: a value with its elements in the order that a copy has in NumPy, by which
    a reshape is a view or a copy.
    """
    if current_run.get() is None or not isinstance(x, Value) or array_laid_out_as(x).flags.c_contiguous:
        return x
    return reshape(reshape(x, (-1,)), x.shape)


def writable_copy(x: Any, order: Any = "C") -> Any:
    """A copy that may be written to: a new variable, also over a value of a running transform."""
    x = in_row_order(x) if order == "C" else x
    return pass_through(x) if type(x) is Tensor or not isinstance(x, Value) else tensor(_as_recorded(x))


_permute_dims_outcomes = Outcomes()


@of_array
def permute_dims(x: Any, /, axes: Sequence[int] | None = None) -> Any:
    """The axes in another order; without `axes`, reversed.

    >>> import numpy as np, pullback as pb
    >>> pb.permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    if type(x) is Tensor and (run := _permute_dims_outcomes.find(x, axes)) is not None:
        return run(x)
    x = as_value(x)
    rank = ndim(x)
    order = tuple(range(rank))[::-1] if axes is None else axes_tuple(axes, rank, "permute_dims")
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"permute_dims: axes {axes} are not a permutation of the {rank} axes.")
    return pass_through(x) if order == tuple(range(rank)) else apply(permute_op, x, axes=order)


_permute_dims_outcomes.of(permute_dims)


_matrix_transpose_outcomes = Outcomes()


@of_array
@_matrix_transpose_outcomes.of
def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged.

    >>> import numpy as np, pullback as pb
    >>> pb.matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    if type(x) is Tensor and (run := _matrix_transpose_outcomes.find(x)) is not None:
        return run(x)
    x = as_value(x)
    if ndim(x) < 2:
        raise ShapeError(f"matrix_transpose: wants two axes or more, got shape {shape(x)}.")
    return swap_last_axes(x)


def swap_last_axes(x: Any) -> Any:
    """`matrix_transpose` for rules, whose arguments are known to be matrices."""
    rank = ndim(x)
    return apply(permute_op, x, axes=(*range(rank - 2), rank - 1, rank - 2))


_moveaxis_outcomes = Outcomes()


@of_array
@_moveaxis_outcomes.of
def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Some axes moved to other positions, the rest in order.

    >>> import numpy as np, pullback as pb
    >>> pb.moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    if type(x) is Tensor and (run := _moveaxis_outcomes.find(x, source, destination)) is not None:
        return run(x)
    x = as_value(x)
    rank = ndim(x)
    froms, tos = axes_tuple(source, rank, "moveaxis"), axes_tuple(destination, rank, "moveaxis")
    if len(froms) != len(tos) or len(set(froms)) < len(froms) or len(set(tos)) < len(tos):
        raise ArgumentError(f"moveaxis: source {source} and destination {destination} differ in length.")
    rest = iter([a for a in range(rank) if a not in froms])
    moved = dict(zip(tos, froms, strict=True))
    return permute_dims(x, tuple(moved[i] if i in moved else next(rest) for i in range(rank)))


_expand_dims_outcomes = Outcomes()


@of_array
@_expand_dims_outcomes.of
def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """A new axis of size one at each given position.

    >>> import numpy as np, pullback as pb
    >>> pb.expand_dims(np.zeros(3), axis=1).shape
    (3, 1)
    """
    if type(x) is Tensor and (run := _expand_dims_outcomes.find(x, axis)) is not None:
        return run(x)
    x = as_value(x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = normalize_axes(tuple(given), ndim(x) + len(given), "expand_dims")
    sizes = iter(shape(x))
    return reshape(x, tuple(1 if i in axes else next(sizes) for i in range(ndim(x) + len(given))))


_squeeze_outcomes = Outcomes()


@of_array
@_squeeze_outcomes.of
@explains_keywords
def squeeze(x: Any, /, axis: Any = None, *, dim: None = None) -> Any:
    """Without the named axes of size one; without `axis`, without any of them.

    >>> import numpy as np, pullback as pb
    >>> pb.squeeze(np.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    if dim is not None:
        refuse_keywords(squeeze, dim=dim)
    if type(x) is Tensor and (run := _squeeze_outcomes.find(x, axis)) is not None:
        return run(x)
    x = as_value(x)
    sizes = shape(x)
    axes = [i for i, n in enumerate(sizes) if n == 1] if axis is None else normalize_axes(axis, len(sizes), "squeeze")
    for a in axes:
        if sizes[a] != 1:
            raise ShapeError(f"squeeze: axis {a} has size {sizes[a]}, only axes of size 1 can be removed.")
    return reshape(x, tuple(n for i, n in enumerate(sizes) if i not in axes))


def _broadcast_spec(x: Spec, shape: tuple[int, ...]) -> Spec:
    if broadcast_shape("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: shape {x.shape} does not broadcast to {shape}.")
    return make_spec(shape, x.dtype, x.device)


#: The most elements of a result that is filled, not a view.
_MOST_FILLED = 4096


def _broadcast_value(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """A view where memory matters; small arrays are filled, which is faster than NumPy's view."""
    if math.prod(shape).__index__() > _MOST_FILLED:  # an unknown size is refused, not compared
        return xp.broadcast_to(x, shape)
    out = xp.empty(shape, spec_of(x).dtype)
    out[...] = x
    return out


def _bind_broadcast(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """The same for one spec: how it is done is known."""
    if math.prod(shape) > _MOST_FILLED:
        return lambda x: np.broadcast_to(x, shape)

    def fill(x: Any) -> Any:
        out = np.empty(shape, dtype)
        out[...] = x
        return out

    return fill


def _batch_broadcast(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    x, wanted = batching.move_batch_first(args[0], axes[0]), static["shape"]
    inner = shape(x)[1:]
    return apply(op, reshape(x, (size, *(1,) * (len(wanted) - len(inner)), *inner)), shape=(size, *wanted)), 0


broadcast_op = linear(
    "broadcast_to",
    statics={"shape": statics.shape},
    value=lambda xp, x, shape: _broadcast_value(xp, x, shape),
    spec=_broadcast_spec,
    transpose=lambda bar: bar,  # the engine sums a cotangent to its argument's shape
    batch=_batch_broadcast,
    samples=normal_samples([(3,), (), (2, 1), (1,)], shape=[(2, 3), (2,), (4, 2, 3), (0,)]),
    form=View(np.broadcast_to),
    direct=lambda x, shape: _bind_broadcast(x.dtype, shape),
)


_broadcast_to_outcomes = Outcomes()


@of_array
@_broadcast_to_outcomes.of
def broadcast_to(x: Any, /, shape: Any) -> Any:
    """x repeated along new axes and axes of size one until it has the shape.

    >>> import numpy as np, pullback as pb
    >>> pb.broadcast_to(np.array([1, 2]), (2, 2))
    array([[1, 2],
           [1, 2]])
    """
    if type(x) is Tensor and (run := _broadcast_to_outcomes.find(x, shape)) is not None:
        return run(x)
    x = as_value(x)
    wanted = as_shape(shape, "broadcast_to")
    spec = spec_of(x)
    if spec.weak is None and _has_shape(spec, wanted):
        return pass_through(x)
    _broadcast_spec(spec, wanted)
    return apply(broadcast_op, x, shape=wanted)


def broadcast_together(*xs: Any) -> list[Any]:
    """Values broadcast to their common shape."""
    wanted = broadcast_shape("broadcast", *(shape(x) for x in xs))
    return [broadcast_to(x, wanted) for x in xs]


def broadcast_checked(x: Any, shape_wanted: tuple[int, ...]) -> Any:
    """`broadcast_to` for rules, whose shapes are known to fit."""
    return x if _has_shape(spec_of(x), shape_wanted) else apply(broadcast_op, x, shape=shape_wanted)
